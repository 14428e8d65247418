// Shared by the parts of the contract suite (contract_*_test.cpp): every test of
// DeviceContract runs on every device that every back end in backend_list() finds, and
// on the parts of one of its devices if it can be cut.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "berth/fake_clock.hpp"
#include "device/contract_kernels.hpp"
#include "device/test_results.hpp"

namespace berth::contract {

using test::fails_with;
using test::works;

using Partitions = std::vector<PartitionRequest>;

// `clock` may be null: the real one.
std::unique_ptr<Backend> contract_backend(std::string_view name, Clock* clock, Partitions partitions = {});

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}
template <class T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

template <class T>
::testing::AssertionResult works_or_fails_with(const Result<T>& result, ErrorCode code) {
  return result ? works(result) : fails_with(result, code);
}

// Whether the error code asks the caller to correct the call.
template <class T>
::testing::AssertionResult is_refused(const Result<T>& result) {
  if (result) return ::testing::AssertionFailure() << "the call succeeded";
  if (result.error().reaction() == Reaction::fix_the_call) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << to_string(result.error().code) << ": " << result.error().to_text();
}

struct Listed {
  std::string backend;
  std::size_t position;
  DeviceInfo info;
  Partitions cut;
  friend void PrintTo(const Listed& listed, std::ostream* out) { *out << listed.info.id; }
};

class DeviceContract : public testing::TestWithParam<Listed> {
 protected:
  void SetUp() override {
    if (GetParam().backend == "simulated") clock_ = &virtual_time_;
    backend_ = contract_backend(GetParam().backend, clock_, GetParam().cut);
    auto opened = backend_->open(GetParam().info.id);
    ASSERT_TRUE(works(opened));
    device_ = *std::move(opened);
    auto stream = device_->open_stream();
    ASSERT_TRUE(works(stream));
    stream_ = *std::move(stream);
  }

  // Long enough for a compiler on a busy machine; reached only by a hang.
  Deadline soon() const { return Deadline::after(*clock_, std::chrono::minutes(1)); }
  bool is(std::string_view backend) const { return GetParam().backend == backend; }

  template <class T>
  Buffer filled(const std::vector<T>& values) {
    auto buffer = device_->allocate(values.size() * sizeof(T));
    EXPECT_TRUE(works(buffer));
    EXPECT_TRUE(works(stream_->copy_in(*buffer, 0, bytes_of(values))));
    EXPECT_TRUE(works(stream_->wait(soon())));
    return *buffer;
  }
  std::shared_ptr<LoadedKernel> loaded(const KernelSource& source) {
    auto kernel = device_->load(source);
    EXPECT_TRUE(works(kernel));
    return kernel ? *kernel : nullptr;
  }
  // Devices other than the one under test: another part of the same device and another
  // device of the same back end, if there are any, and one of another back end.
  std::vector<std::shared_ptr<Device>> others() {
    std::vector<std::shared_ptr<Device>> found;
    const auto infos = backend_->list();
    for (const bool sibling : {true, false}) {
      const auto other = std::find_if(infos->begin(), infos->end(), [&](const DeviceInfo& info) {
        return info.id != device_->id() && sibling == (info.parent && info.parent == device_->info().parent);
      });
      if (other == infos->end()) continue;
      if (auto opened = backend_->open(other->id)) found.push_back(*opened);
    }
    foreign_ = contract_backend(is("host") ? "simulated" : "host", &virtual_time_);
    found.push_back(*foreign_->open(foreign_->list()->front().id));
    return found;
  }

  FakeClock virtual_time_;
  Clock* clock_ = &real_clock();
  std::unique_ptr<Backend> backend_, foreign_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace berth::contract
