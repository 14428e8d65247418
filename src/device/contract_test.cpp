// The contract every back end keeps, run on every device that every back end in
// backend_list() finds, and on the parts of one of its devices where it can be
// cut. A back end that is not on this machine is skipped loudly, once, in
// IsOnThisMachine; its devices have no tests then.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>

#include "berth/fake_clock.hpp"
#include "device/contract_kernels.hpp"

namespace berth {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

using Partitions = std::vector<PartitionRequest>;

std::unique_ptr<Backend> contract_backend(std::string_view name, Clock* clock, Partitions partitions = {}) {
  BackendOptions options;
  options.simulated_file = BERTH_SOURCE_DIR "/examples/devices.toml";
  options.clock = clock;
  options.partitions = std::move(partitions);
  Result<std::unique_ptr<Backend>> backend = make_backend(name, options);
  EXPECT_TRUE(backend.has_value());
  return std::move(backend).value();
}

// A cut of the first device of the back end that can be cut; empty: none can.
Partitions contract_cut(const std::string& name) {
  const auto listed = contract_backend(name, nullptr)->list();
  for (std::size_t i = 0; listed && i < listed->size(); ++i) {
    const std::uint32_t units = (*listed)[i].compute_units.value_or(0);
    // GPUs are cut in groups of several units, processors by single cores.
    for (const std::vector<std::uint32_t>& cut :
         {std::vector<std::uint32_t>{64, 32, 16, 16}, std::vector<std::uint32_t>{16, 8},
          std::vector<std::uint32_t>{1, 1}}) {
      if (std::accumulate(cut.begin(), cut.end(), 0U) > units) continue;
      const Partitions request{{name + ":" + std::to_string(i), cut}};
      if (contract_backend(name, nullptr, request)->list()) return request;
    }
  }
  return {};
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}
template <class T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

template <class T>
::testing::AssertionResult works(const Result<T>& result) {
  if (result) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << to_string(result.error().code) << ": " << result.error().to_text();
}

template <class T>
::testing::AssertionResult fails_with(const Result<T>& result, ErrorCode code) {
  if (result) return ::testing::AssertionFailure() << "it worked";
  if (result.error().code == code && !result.error().message.empty()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << to_string(result.error().code) << ": " << result.error().to_text();
}

template <class T>
::testing::AssertionResult works_or_fails_with(const Result<T>& result, ErrorCode code) {
  return result ? works(result) : fails_with(result, code);
}

// The call was wrong, whatever the exact word for it.
template <class T>
::testing::AssertionResult is_refused(const Result<T>& result) {
  if (result) return ::testing::AssertionFailure() << "it worked";
  if (result.error().reaction() == Reaction::fix_the_call) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << to_string(result.error().code) << ": " << result.error().to_text();
}

// "0000:8a:00.0": equal addresses must be equal texts, so the case counts.
bool is_pci_address(std::string_view text) {
  constexpr std::string_view pattern = "xxxx:xx:xx.x";
  return text.size() == pattern.size() && std::equal(text.begin(), text.end(), pattern.begin(), [](char c, char p) {
           return p == 'x' ? std::string_view("0123456789abcdef").find(c) != std::string_view::npos : c == p;
         });
}

class BackendContract : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> backend_ = contract_backend(GetParam(), nullptr);
};

TEST_P(BackendContract, IsOnThisMachine) {
  const auto listed = backend_->list();
  if (!listed) GTEST_SKIP() << "NO " << GetParam() << " DEVICES TESTED: " << listed.error().to_text();
  EXPECT_FALSE(listed->empty()) << GetParam() << " works here but finds no device";
}

TEST_P(BackendContract, ListsTheSameDevicesTwiceOrSaysTwiceWhyNot) {
  const auto first = backend_->list();
  const auto second = contract_backend(GetParam(), nullptr)->list();
  ASSERT_EQ(first.has_value(), second.has_value());
  if (first) {
    EXPECT_EQ(*first, *second);
  } else {
    EXPECT_TRUE(fails_with(first, ErrorCode::not_initialized));
    EXPECT_EQ(first.error().code, second.error().code);
    EXPECT_FALSE(first.error().advice.empty());
  }
}

TEST_P(BackendContract, IdsAreUniqueAndNameTheirBackend) {
  const auto listed = backend_->list();
  std::set<DeviceId> ids;
  for (const DeviceInfo& info : listed ? *listed : std::vector<DeviceInfo>()) {
    EXPECT_TRUE(ids.insert(info.id).second) << info.id << " is there twice";
    EXPECT_EQ(info.backend, backend_->name());
  }
  EXPECT_EQ(backend_->name(), GetParam());
}

TEST_P(BackendContract, AnUnknownIdIsNotFoundAndALackingLibrarySaysSo) {
  const bool present = backend_->list().has_value();
  for (const char* id : {"no-such-device", "", "0"}) {
    EXPECT_TRUE(fails_with(backend_->open(DeviceId(id)), present ? ErrorCode::not_found : ErrorCode::not_initialized));
  }
}

TEST_P(BackendContract, ObservingAnUnknownDeviceIsNotFound) {
  const bool present = backend_->list().has_value();
  EXPECT_TRUE(fails_with(backend_->observe(DeviceId("no-such-device")),
                         present ? ErrorCode::not_found : ErrorCode::not_initialized));
}

TEST_P(BackendContract, APartitionThatDoesNotFitIsRefusedAndTheOthersAreNotTouched) {
  const auto whole = backend_->list();
  if (whole) {
    std::vector<PartitionRequest> wrong{
        {GetParam() + ":0", {1'000'000'000, 1}}, {GetParam() + ":100000", {1}}, {GetParam() + ":no-such-device", {1}}};
    if (!whole->empty()) wrong.push_back({GetParam() + ":" + whole->front().id.text(), {4'000'000'000}});
    for (const PartitionRequest& request : wrong) {
      SCOPED_TRACE(request.device);
      const auto backend = contract_backend(GetParam(), nullptr, {request});
      ASSERT_TRUE(fails_with(backend->list(), ErrorCode::invalid_argument));
      EXPECT_FALSE(backend->list().error().advice.empty());
      EXPECT_TRUE(fails_with(backend->open(whole->front().id), ErrorCode::invalid_argument));
    }
  }
  for (const BackendEntry& other : backend_list()) {
    if (other.name == GetParam()) continue;
    const auto without = contract_backend(other.name, nullptr)->list();
    const auto with = contract_backend(other.name, nullptr, {{GetParam() + ":0", {1'000'000'000}}})->list();
    ASSERT_EQ(with.has_value(), without.has_value()) << other.name;
    if (with) {
      EXPECT_EQ(*with, *without);
    }
  }
}

TEST_P(BackendContract, PartsExecuteAloneAndShareMemoryAndFaults) {
  const Partitions cut = contract_cut(GetParam());
  const auto whole = backend_->list();
  if (GetParam() == "host") {
    ASSERT_EQ(cut.empty(), *whole->front().compute_units < 2) << "every machine with two cores can be cut";
  }
  if (cut.empty()) return;
  const auto listed = contract_backend(GetParam(), nullptr, cut)->list();
  ASSERT_TRUE(works(listed));
  std::set<DeviceId> ids;
  std::vector<DeviceInfo> parts;
  for (const DeviceInfo& info : *listed) {
    EXPECT_TRUE(ids.insert(info.id).second) << info.id << " is there twice";
    if (info.features.contains("partition")) parts.push_back(info);
  }
  ASSERT_EQ(parts.size(), cut.front().units.size());
  EXPECT_EQ(listed->size(), whole->size() - 1 + parts.size()) << "the parts take the place of the whole";
  std::uint32_t units = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    ASSERT_TRUE(parts[i].parent);
    const auto parent =
        std::find_if(whole->begin(), whole->end(), [&](const DeviceInfo& info) { return info.id == *parts[i].parent; });
    ASSERT_NE(parent, whole->end());
    EXPECT_FALSE(ids.contains(parent->id));
    EXPECT_EQ(parts[i].memory_domain, parent->memory_domain);
    EXPECT_EQ(parts[i].fault_domain, parent->fault_domain);
    EXPECT_EQ(parts[i].memory_bytes_total, parent->memory_bytes_total);
    EXPECT_EQ(parts[i].compute_units, std::optional(cut.front().units[i]));
    EXPECT_TRUE(parts[i].id.text().starts_with(parent->id.text() + "/")) << parts[i].id;
    units += *parts[i].compute_units;
    EXPECT_LE(units, *parent->compute_units);
  }
}

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const BackendEntry& entry : backend_list()) names.emplace_back(entry.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Every, BackendContract, testing::ValuesIn(backend_names()),
                         [](const auto& info) { return info.param; });

struct Listed {
  std::string backend;
  std::size_t position;
  DeviceInfo info;
  Partitions cut;
  friend void PrintTo(const Listed& listed, std::ostream* out) { *out << listed.info.id; }
};

std::vector<Listed> every_device() {
  std::vector<Listed> devices;
  for (const std::string& name : backend_names()) {
    const auto add = [&](const Partitions& cut) {
      const auto infos = contract_backend(name, nullptr, cut)->list();
      for (std::size_t i = 0; infos && i < infos->size(); ++i) {
        // The devices beside the parts are there without the cut.
        if (cut.empty() || (*infos)[i].features.contains("partition")) devices.push_back({name, i, (*infos)[i], cut});
      }
    };
    add({});
    if (const Partitions cut = contract_cut(name); !cut.empty()) add(cut);
  }
  return devices;
}

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
  Deadline soon() const { return Deadline::after(*clock_, minutes(1)); }
  bool is(std::string_view backend) const { return GetParam().backend == backend; }

  template <class T>
  Buffer filled(const std::vector<T>& values) {
    auto buffer = device_->allocate(values.size() * sizeof(T));
    EXPECT_TRUE(works(buffer));
    EXPECT_TRUE(works(stream_->copy_in(*buffer, 0, bytes_of(values))));
    EXPECT_TRUE(works(stream_->wait(soon())));
    return *buffer;
  }
  std::shared_ptr<Kernel> loaded(const KernelSource& source) {
    auto kernel = device_->load(source);
    EXPECT_TRUE(works(kernel));
    return kernel ? *kernel : nullptr;
  }
  // Devices that are not the one under test: of the same back end another part
  // of the same device and one that is not, where there are, and one of another
  // back end.
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

TEST_P(DeviceContract, InformationIsSaneAndUnknownIsAbsentNotZero) {
  const DeviceInfo& info = device_->info();
  const DeviceInfo& listed = GetParam().info;
  EXPECT_EQ(info.id, listed.id);
  EXPECT_EQ(info.backend, listed.backend);
  EXPECT_EQ(info.name, listed.name);
  EXPECT_EQ(info.memory_bytes_total, listed.memory_bytes_total);
  EXPECT_FALSE(info.id.empty());
  EXPECT_FALSE(info.name.empty());
  EXPECT_FALSE(info.memory_domain.empty());
  EXPECT_FALSE(info.fault_domain.empty());
  EXPECT_GE(info.concurrency, 1U);
  EXPECT_NE(info.memory_bytes_total, std::optional<std::uint64_t>(0));
  EXPECT_NE(info.compute_units, std::optional<std::uint32_t>(0));
  if (info.pci_address) {
    EXPECT_TRUE(is_pci_address(*info.pci_address)) << *info.pci_address;
  }
  EXPECT_GE(info.numa_node.value_or(0), 0);
  EXPECT_TRUE(!is("host") || info.is_fallback);
}

TEST_P(DeviceContract, GenerationStaysWhileTheDeviceLives) {
  const std::uint64_t generation = device_->generation();
  const Buffer buffer = filled(std::vector<int>(16, 1));
  EXPECT_EQ(buffer.memory()->generation, generation);
  EXPECT_EQ(device_->generation(), generation);
}

TEST_P(DeviceContract, BuffersHaveTheSizeThatWasAskedFor) {
  const auto buffer = device_->allocate(1000);
  ASSERT_TRUE(works(buffer));
  EXPECT_EQ(buffer->bytes(), 1000U);
  EXPECT_NE(buffer->native(), nullptr);
  EXPECT_EQ(buffer->memory()->device, device_.get());
}

TEST_P(DeviceContract, NothingAndTooMuchAreTypedErrors) {
  EXPECT_TRUE(fails_with(device_->allocate(0), ErrorCode::invalid_argument));
  for (const std::uint64_t bytes : {std::uint64_t{1} << 60, ~std::uint64_t{0}}) {
    const auto huge = device_->allocate(bytes);
    ASSERT_TRUE(fails_with(huge, ErrorCode::out_of_memory));
    EXPECT_EQ(huge.error().where, device_->id().text());
  }
  EXPECT_TRUE(works(device_->allocate(64))) << "a refusal leaves the device usable";
}

TEST_P(DeviceContract, CopiesComeBackUnchanged) {
  std::vector<std::uint32_t> sent(2 << 20), received(2 << 20);
  std::iota(sent.begin(), sent.end(), 1);
  const Buffer buffer = filled(sent);
  ASSERT_TRUE(works(stream_->copy_out(buffer, 0, bytes_of(received))));
  ASSERT_TRUE(works(stream_->wait(soon())));
  EXPECT_EQ(received, sent);
}

TEST_P(DeviceContract, CopiesReachTheirOffsetAndNothingElse) {
  const Buffer buffer = filled(std::vector<std::uint8_t>(100, 1));
  const std::vector<std::uint8_t> part(10, 2);
  ASSERT_TRUE(works(stream_->copy_in(buffer, 37, bytes_of(part))));
  std::vector<std::uint8_t> tail(63), all(100);
  ASSERT_TRUE(works(stream_->copy_out(buffer, 37, bytes_of(tail))));
  ASSERT_TRUE(works(stream_->copy_out(buffer, 0, bytes_of(all))));
  ASSERT_TRUE(works(stream_->wait(soon())));
  std::vector<std::uint8_t> wanted(100, 1);
  std::fill_n(wanted.begin() + 37, 10, 2);
  EXPECT_EQ(all, wanted);
  EXPECT_EQ(tail, std::vector<std::uint8_t>(wanted.begin() + 37, wanted.end()));
}

TEST_P(DeviceContract, CopiesOutsideOfTheBufferAreRefused) {
  const Buffer buffer = filled(std::vector<std::uint8_t>(64, 1));
  std::vector<std::uint8_t> bytes(65), one(1);
  EXPECT_TRUE(fails_with(stream_->copy_in(buffer, 0, bytes_of(std::as_const(bytes))), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(stream_->copy_out(buffer, 0, bytes_of(bytes)), ErrorCode::invalid_argument));
  for (const std::uint64_t offset : {std::uint64_t{64}, ~std::uint64_t{0}}) {
    EXPECT_TRUE(
        fails_with(stream_->copy_in(buffer, offset, bytes_of(std::as_const(one))), ErrorCode::invalid_argument));
    EXPECT_TRUE(fails_with(stream_->copy_out(buffer, offset, bytes_of(one)), ErrorCode::invalid_argument));
  }
  EXPECT_TRUE(works(stream_->copy_out(buffer, 63, bytes_of(one))));
  EXPECT_TRUE(works(stream_->wait(soon()))) << "a refusal leaves the stream usable";
}

TEST_P(DeviceContract, ACopyOfNothingDoesNothing) {
  const Buffer buffer = filled(std::vector<std::uint8_t>(64, 1));
  EXPECT_TRUE(works(stream_->copy_in(buffer, 64, {})));
  EXPECT_TRUE(works(stream_->copy_out(buffer, 0, {})));
  EXPECT_TRUE(works(stream_->wait(soon())));
}

TEST_P(DeviceContract, CopiesBetweenBuffersReachTheirOffsetAndNothingElse) {
  const Buffer from = filled(std::vector<std::uint8_t>(100, 1)), to = filled(std::vector<std::uint8_t>(100, 2));
  std::vector<std::uint8_t> part(10, 3), all(100), source(100);
  ASSERT_TRUE(works(stream_->copy_in(from, 20, bytes_of(std::as_const(part)))));
  ASSERT_TRUE(works(stream_->copy(to, 37, from, 15, 20)));
  ASSERT_TRUE(works(stream_->copy(to, 90, to, 40, 10))) << "within one buffer";
  ASSERT_TRUE(works(stream_->copy(to, 100, from, 0, 0))) << "nothing";
  ASSERT_TRUE(works(stream_->copy_out(to, 0, bytes_of(all))));
  ASSERT_TRUE(works(stream_->copy_out(from, 0, bytes_of(source))));
  ASSERT_TRUE(works(stream_->wait(soon())));
  std::vector<std::uint8_t> wanted(100, 2), unchanged(100, 1);
  std::fill_n(unchanged.begin() + 20, 10, 3);
  std::copy_n(unchanged.begin() + 15, 20, wanted.begin() + 37);
  std::copy_n(wanted.begin() + 40, 10, wanted.begin() + 90);
  EXPECT_EQ(all, wanted);
  EXPECT_EQ(source, unchanged);
}

TEST_P(DeviceContract, CopiesBetweenBuffersComeAfterWhatWasEnqueuedBefore) {
  const auto kernel = loaded(contract::add_source());
  ASSERT_NE(kernel, nullptr);
  constexpr std::uint32_t n = 100'000;
  const Buffer counter = filled(std::vector<float>(n, 0.0F)), ones = filled(std::vector<float>(n, 1.0F));
  const Buffer copy = filled(std::vector<float>(n, 9.0F));
  const std::vector<Argument> arguments{counter, ones, counter, n};
  std::vector<float> out(n);
  ASSERT_TRUE(works(stream_->launch(*kernel, {{n, 1, 1}, {}}, arguments)));
  ASSERT_TRUE(works(stream_->copy(copy, 0, counter, 0, n * sizeof(float))));
  ASSERT_TRUE(works(stream_->launch(*kernel, {{n, 1, 1}, {}}, arguments)));
  ASSERT_TRUE(works(stream_->copy_out(copy, 0, bytes_of(out))));
  ASSERT_TRUE(works(stream_->wait(soon())));
  EXPECT_EQ(out, std::vector<float>(n, 1.0F));
}

TEST_P(DeviceContract, CopiesBetweenBuffersAreCheckedOnBothSides) {
  const Buffer a = filled(std::vector<std::uint8_t>(64, 1)), b = filled(std::vector<std::uint8_t>(64, 2));
  const auto refused = [&](const Buffer& to, std::uint64_t to_offset, const Buffer& from, std::uint64_t from_offset,
                           std::uint64_t bytes) {
    return fails_with(stream_->copy(to, to_offset, from, from_offset, bytes), ErrorCode::invalid_argument);
  };
  EXPECT_TRUE(refused(a, 1, b, 0, 64));
  EXPECT_TRUE(refused(a, 0, b, 1, 64));
  EXPECT_TRUE(refused(a, ~std::uint64_t{0}, b, 0, 2));
  EXPECT_TRUE(refused(a, 0, b, ~std::uint64_t{0}, 2));
  EXPECT_TRUE(refused(a, 0, b, 0, ~std::uint64_t{0}));
  EXPECT_TRUE(refused(Buffer(), 0, b, 0, 1));
  EXPECT_TRUE(refused(a, 0, Buffer(), 0, 1));
  EXPECT_TRUE(refused(a, 0, a, 0, 64)) << "onto itself";
  EXPECT_TRUE(refused(a, 0, a, 31, 32)) << "one byte in common";
  EXPECT_TRUE(refused(a, 31, a, 0, 32)) << "one byte in common";
  EXPECT_TRUE(works(stream_->copy(a, 0, a, 32, 32)));
  EXPECT_TRUE(works(stream_->wait(soon()))) << "refusals leave the stream usable";
}

TEST_P(DeviceContract, CopiesFromAnotherDeviceAreMadeOrNotSupported) {
  const Buffer own = filled(std::vector<std::uint8_t>(64, 1));
  for (const auto& other : others()) {
    SCOPED_TRACE(other->id().text());
    const auto theirs = other->allocate(64);
    ASSERT_TRUE(works(theirs));
    EXPECT_TRUE(is_refused(stream_->copy(*theirs, 0, own, 0, 64))) << "into another device";
    if (other->info().backend != GetParam().backend) {
      EXPECT_TRUE(fails_with(stream_->copy(own, 0, *theirs, 0, 64), ErrorCode::invalid_argument));
      continue;
    }
    const auto stream = other->open_stream();
    ASSERT_TRUE(works(stream));
    const std::vector<std::uint8_t> sent(64, 7);
    ASSERT_TRUE(works((*stream)->copy_in(*theirs, 0, bytes_of(sent))));
    ASSERT_TRUE(works((*stream)->wait(soon())));
    const Result<void> copied = stream_->copy(own, 8, *theirs, 0, 32);
    const bool siblings = other->info().parent && other->info().parent == device_->info().parent;
    ASSERT_TRUE(siblings ? works(copied) : works_or_fails_with(copied, ErrorCode::not_supported))
        << "parts of one device share its memory";
    if (!copied) continue;
    std::vector<std::uint8_t> out(64);
    ASSERT_TRUE(works(stream_->copy_out(own, 0, bytes_of(out))));
    ASSERT_TRUE(works(stream_->wait(soon())));
    std::vector<std::uint8_t> wanted(64, 1);
    std::fill_n(wanted.begin() + 8, 32, 7);
    EXPECT_EQ(out, wanted);
    EXPECT_TRUE(fails_with(stream_->copy(own, 0, *theirs, 33, 32), ErrorCode::invalid_argument));
    other->close();
    EXPECT_TRUE(is_refused(stream_->copy(own, 0, *theirs, 0, 32))) << "its device is closed";
  }
  EXPECT_TRUE(works(stream_->wait(soon())));
}

TEST_P(DeviceContract, MemoryOfAStreamIsThereForWhatIsEnqueuedAfterIt) {
  const auto kernel = loaded(contract::add_source());
  ASSERT_NE(kernel, nullptr);
  constexpr std::uint32_t n = 10'000;
  const std::vector<float> ones(n, 1.0F);
  std::vector<float> out(n);
  auto buffer = stream_->allocate(n * sizeof(float));
  ASSERT_TRUE(works(buffer));
  EXPECT_EQ(buffer->bytes(), n * sizeof(float));
  EXPECT_EQ(buffer->memory()->device, device_.get());
  const Buffer result = filled(std::vector<float>(n));
  ASSERT_TRUE(works(stream_->copy_in(*buffer, 0, bytes_of(ones))));
  for (int i = 0; i < 10; ++i) {
    auto scratch = stream_->allocate(n * sizeof(float));
    ASSERT_TRUE(works(scratch));
    ASSERT_TRUE(works(stream_->launch(*kernel, {{n, 1, 1}, {}}, std::vector<Argument>{*buffer, *buffer, *scratch, n})));
    ASSERT_TRUE(works(stream_->launch(*kernel, {{n, 1, 1}, {}}, std::vector<Argument>{*scratch, result, result, n})));
    // Freed here, while the work that uses it may still be under way.
  }
  *buffer = Buffer();
  ASSERT_TRUE(works(stream_->copy_out(result, 0, bytes_of(out))));
  ASSERT_TRUE(works(stream_->wait(soon())));
  EXPECT_EQ(out, std::vector<float>(n, 20.0F));
  EXPECT_TRUE(fails_with(stream_->allocate(0), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(stream_->allocate(std::uint64_t{1} << 60), ErrorCode::out_of_memory));
}

TEST_P(DeviceContract, PinnedMemoryTakesCopiesBothWays) {
  std::vector<std::byte> mine(10'000);
  auto fresh = device_->pin(10'000);
  ASSERT_TRUE(works(fresh));
  auto registered = device_->pin(std::span(mine));
  ASSERT_TRUE(works(registered));
  ASSERT_EQ(fresh->bytes().size(), 10'000U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(fresh->bytes().data()) % 4096, 0U) << "a page of its own";
  EXPECT_EQ(registered->bytes().data(), mine.data());
  EXPECT_EQ(registered->bytes().size(), mine.size());
  for (std::size_t i = 0; i < 10'000; ++i) fresh->bytes()[i] = static_cast<std::byte>(i % 251);
  const auto buffer = device_->allocate(10'000);
  ASSERT_TRUE(works(buffer));
  ASSERT_TRUE(works(stream_->copy_in(*buffer, 0, fresh->bytes())));
  ASSERT_TRUE(works(stream_->copy_out(*buffer, 0, registered->bytes())));
  ASSERT_TRUE(works(stream_->wait(soon())));
  EXPECT_TRUE(std::equal(mine.begin(), mine.end(), fresh->bytes().begin()));

  std::fill(mine.begin(), mine.end(), std::byte{9});
  ASSERT_TRUE(works(stream_->copy_in(*buffer, 0, registered->bytes())));
  ASSERT_TRUE(works(stream_->copy_out(*buffer, 0, fresh->bytes())));
  ASSERT_TRUE(works(stream_->wait(soon())));
  EXPECT_TRUE(std::equal(mine.begin(), mine.end(), fresh->bytes().begin()));
}

TEST_P(DeviceContract, NothingCannotBePinned) {
  EXPECT_TRUE(fails_with(device_->pin(0), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(device_->pin(std::span<std::byte>()), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(device_->pin(~std::uint64_t{0}), ErrorCode::out_of_memory));
}

TEST_P(DeviceContract, PinnedMemoryMayOutliveItsDevice) {
  std::vector<std::byte> mine(5000, std::byte{1});
  auto fresh = device_->pin(5000);
  ASSERT_TRUE(works(fresh));
  auto registered = device_->pin(std::span(mine));
  ASSERT_TRUE(works(registered));
  stream_.reset();
  device_->close();
  device_.reset();
  backend_.reset();
  std::fill(fresh->bytes().begin(), fresh->bytes().end(), std::byte{2});
  std::fill(registered->bytes().begin(), registered->bytes().end(), std::byte{3});
  EXPECT_EQ(fresh->bytes()[4999], std::byte{2});
  EXPECT_EQ(mine[4999], std::byte{3});
}

TEST_P(DeviceContract, OccupancyIsSaneOrNotSupported) {
  const auto kernel = loaded(contract::add_source());
  ASSERT_NE(kernel, nullptr);
  const auto occupancy = kernel->occupancy(128);
  ASSERT_TRUE(works_or_fails_with(occupancy, ErrorCode::not_supported));
  if (!occupancy) return;
  EXPECT_GE(occupancy->groups_per_unit, 1U);
  EXPECT_GE(occupancy->group_best, 1U);
  EXPECT_GT(occupancy->share, 0.0);
  EXPECT_LE(occupancy->share, 1.0);
  EXPECT_TRUE(is_refused(kernel->occupancy(0)));
}

TEST_P(DeviceContract, HandlesOfOtherDevicesAreRefused) {
  const auto kernel = loaded(contract::add_source());
  ASSERT_NE(kernel, nullptr);
  std::vector<std::byte> bytes(64);
  EXPECT_TRUE(is_refused(stream_->copy_in(Buffer(), 0, bytes)));
  EXPECT_TRUE(is_refused(stream_->copy_out(Buffer(), 0, bytes)));
  const Buffer own = filled(std::vector<float>(16));
  for (const auto& other : others()) {
    SCOPED_TRACE(other->id().text());
    const auto foreign = other->allocate(64);
    ASSERT_TRUE(works(foreign));
    EXPECT_TRUE(is_refused(stream_->copy_in(*foreign, 0, bytes)));
    EXPECT_TRUE(is_refused(stream_->copy_out(*foreign, 0, bytes)));
    const std::vector<Argument> mixed{own, *foreign, own, std::uint32_t{16}};
    EXPECT_TRUE(is_refused(stream_->launch(*kernel, {{16, 1, 1}, {}}, mixed)));
    const auto foreign_kernel = other->load(contract::add_source());
    ASSERT_TRUE(works(foreign_kernel));
    const std::vector<Argument> arguments{own, own, own, std::uint32_t{16}};
    EXPECT_TRUE(is_refused(stream_->launch(**foreign_kernel, {{16, 1, 1}, {}}, arguments)));
  }
  EXPECT_TRUE(works(stream_->wait(soon()))) << "refusals leave the stream usable";
}

TEST_P(DeviceContract, AKernelComputes) {
  constexpr std::uint32_t n = 10'001;
  std::vector<float> a(n), b(n), sum(n);
  std::iota(a.begin(), a.end(), 0.0F);
  std::iota(b.begin(), b.end(), 0.5F);
  const auto kernel = loaded(contract::add_source());
  ASSERT_NE(kernel, nullptr);
  const Buffer x = filled(a), y = filled(b), out = filled(sum);
  const std::vector<Argument> arguments{x, y, out, n};
  ASSERT_TRUE(works(stream_->launch(*kernel, {{n, 1, 1}, {}}, arguments)));
  ASSERT_TRUE(works(stream_->copy_out(out, 0, bytes_of(sum))));
  ASSERT_TRUE(works(stream_->wait(soon())));
  for (std::uint32_t i = 0; i < n; ++i) ASSERT_EQ(sum[i], a[i] + b[i]) << "at " << i;
}

TEST_P(DeviceContract, ArgumentsOfEverySizeArriveIntact) {
  const auto kernel = loaded(contract::kinds_source());
  ASSERT_NE(kernel, nullptr);
  std::vector<std::uint64_t> words(5);
  const Buffer out = filled(words);
  const float number = 1.5F;
  const std::vector<Argument> arguments{out, std::uint32_t{0xfffffffeU}, std::uint64_t{0x1122334455667788U}, number,
                                        contract::Wide{0xaaaaaaaaaaaaaaaaU, 0xbbbbbbbbbbbbbbbbU}};
  ASSERT_TRUE(works(stream_->launch(*kernel, {}, arguments)));
  ASSERT_TRUE(works(stream_->copy_out(out, 0, bytes_of(words))));
  ASSERT_TRUE(works(stream_->wait(soon())));
  EXPECT_EQ(words, (std::vector<std::uint64_t>{0xfffffffeU, 0x1122334455667788U, 0x3fc00000U, 0xaaaaaaaaaaaaaaaaU,
                                               0xbbbbbbbbbbbbbbbbU}));
}

TEST_P(DeviceContract, ATwoDimensionalLaunchCoversEveryCellOnce) {
  const auto kernel = loaded(contract::grid_source());
  ASSERT_NE(kernel, nullptr);
  const LaunchShape shapes[] = {{{16, 8, 1}, {4, 2, 1}}, {{13, 7, 1}, {}}};
  for (const LaunchShape& shape : shapes) {
    const std::uint32_t width = shape.global[0], height = shape.global[1];
    std::vector<std::uint32_t> cells(width * height, ~0U);
    const Buffer out = filled(cells);
    const std::vector<Argument> arguments{out, width, height};
    ASSERT_TRUE(works(stream_->launch(*kernel, shape, arguments)));
    ASSERT_TRUE(works(stream_->copy_out(out, 0, bytes_of(cells))));
    ASSERT_TRUE(works(stream_->wait(soon())));
    for (std::uint32_t i = 0; i < width * height; ++i) ASSERT_EQ(cells[i], 1000 * (i / width) + i % width);
  }
}

TEST_P(DeviceContract, ALaunchOfNothingIsRefused) {
  const auto kernel = loaded(contract::add_source());
  ASSERT_NE(kernel, nullptr);
  const Buffer buffer = filled(std::vector<float>(4));
  const std::vector<Argument> arguments{buffer, buffer, buffer, std::uint32_t{4}};
  EXPECT_TRUE(fails_with(stream_->launch(*kernel, {{0, 1, 1}, {}}, arguments), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(stream_->launch(*kernel, {{4, 1, 0}, {}}, arguments), ErrorCode::invalid_argument));
}

TEST_P(DeviceContract, AStreamKeepsItsOrder) {
  const auto kernel = loaded(contract::add_source());
  ASSERT_NE(kernel, nullptr);
  constexpr std::uint32_t n = 1000;
  constexpr int rounds = 100;
  const Buffer counter = filled(std::vector<float>(n, 0.0F)), ones = filled(std::vector<float>(n, 1.0F));
  const std::vector<Argument> arguments{counter, ones, counter, n};
  std::vector<std::vector<float>> seen(rounds, std::vector<float>(n));
  for (int i = 0; i < rounds; ++i) {
    ASSERT_TRUE(works(stream_->launch(*kernel, {{n, 1, 1}, {}}, arguments)));
    ASSERT_TRUE(works(stream_->copy_out(counter, 0, bytes_of(seen[static_cast<std::size_t>(i)]))));
  }
  ASSERT_TRUE(works(stream_->wait(soon())));
  for (int i = 0; i < rounds; ++i) {
    EXPECT_EQ(seen[static_cast<std::size_t>(i)], std::vector<float>(n, static_cast<float>(i + 1)));
  }
}

TEST_P(DeviceContract, ASourceWithoutAFormForTheDeviceIsNotSupported) {
  KernelSource nothing;
  nothing.entry = "add";
  EXPECT_TRUE(fails_with(device_->load(nothing), ErrorCode::not_supported));
  KernelSource other = contract::add_source();
  if (is("host")) {
    other.host = nullptr;
  } else if (is("opencl")) {
    other.opencl_c.clear();
  } else if (is("cuda")) {
    other.ptx.clear();
  } else {
    EXPECT_TRUE(works(device_->load(other))) << "a simulated device takes every form";
    return;
  }
  const auto refused = device_->load(other);
  ASSERT_TRUE(fails_with(refused, ErrorCode::not_supported));
  EXPECT_EQ(refused.error().where, device_->id().text());
}

TEST_P(DeviceContract, ASourceThatDoesNotCompileComesBackWithTheCompilersWords) {
  KernelSource bad;
  bad.entry = "add";
  bad.opencl_c = "kernel void add(global float* out) { out[0] = no_such_name; }";
  bad.ptx = ".version 6.0\n.target sm_52\n.address_size 64\n.visible .entry add() { no_such_instruction; }\n";
  const auto refused = device_->load(bad);
  if (is("simulated")) {
    EXPECT_TRUE(works(refused)) << "a simulated device reads no source";
    return;
  }
  ASSERT_TRUE(is_refused(refused));
  if (is("host")) return;  // it has no compiler, and no form of this to run
  EXPECT_NE(refused.error().message.find("no_such_"), std::string::npos) << refused.error().to_text();
}

TEST_P(DeviceContract, AnEntryThatIsNotInTheSourceIsRefused) {
  KernelSource source = contract::add_source();
  source.entry = "subtract";
  const auto kernel = device_->load(source);
  if (is("host") || is("simulated")) {
    EXPECT_TRUE(works(kernel)) << "a host form is a function, whatever it is called";
  } else {
    EXPECT_TRUE(is_refused(kernel));
  }
}

TEST_P(DeviceContract, AClosureSeesItsDeviceAndItsErrorComesBack) {
  const Buffer buffer = filled(std::vector<std::uint8_t>(8, 1));
  std::vector<std::uint8_t> bytes(8);
  int calls = 0;
  EXPECT_TRUE(works(stream_->run([&](Stream& inner) -> Result<void> {
    ++calls;
    EXPECT_EQ(&inner.device(), device_.get());
    EXPECT_EQ(&inner, stream_.get());
    return inner.copy_out(buffer, 0, bytes_of(bytes));
  })));
  EXPECT_TRUE(works(stream_->wait(soon())));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(bytes, std::vector<std::uint8_t>(8, 1));

  const Error mine{ErrorCode::unavailable, "not today", {}, {}, {}};
  const auto failed = stream_->run([&](Stream&) -> Result<void> { return mine; });
  ASSERT_TRUE(fails_with(failed, ErrorCode::unavailable));
  EXPECT_EQ(failed.error().message, "not today");
  EXPECT_TRUE(works(stream_->wait(soon()))) << "the closure's error is the closure's alone";
}

TEST_P(DeviceContract, AnExceptionOfAClosureStopsAtTheStream) {
  const auto thrown = stream_->run([](Stream&) -> Result<void> { throw std::runtime_error("spilt"); });
  ASSERT_TRUE(fails_with(thrown, ErrorCode::work_failed));
  EXPECT_NE(thrown.error().message.find("spilt"), std::string::npos);
  EXPECT_TRUE(works(stream_->wait(soon())));
}

TEST_P(DeviceContract, EventsBecomeDoneAndTimeRunsForward) {
  const auto before = stream_->record();
  ASSERT_TRUE(works(before));
  const Buffer buffer = filled(std::vector<float>(1000, 1.0F));
  const auto after = stream_->record();
  ASSERT_TRUE(works(after));
  ASSERT_TRUE(works((*after)->wait(soon())));
  EXPECT_TRUE(*(*after)->done());
  EXPECT_TRUE(*(*before)->done()) << "an earlier event of the stream is done before a later one";
  const auto elapsed = (*after)->since(**before);
  ASSERT_TRUE(works(elapsed));
  EXPECT_GE(*elapsed, Duration::zero());
  EXPECT_LT(*elapsed, minutes(10));
  EXPECT_EQ(*(*after)->since(**after), Duration::zero());
}

TEST_P(DeviceContract, WaitingIsOverAtTheDeadline) {
  const Buffer buffer = filled(std::vector<float>(1000, 1.0F));
  std::vector<float> out(1000);
  ASSERT_TRUE(works(stream_->copy_out(buffer, 0, bytes_of(out))));
  const auto event = stream_->record();
  ASSERT_TRUE(works(event));
  const TimePoint start = real_clock().now();
  const Result<void> waited = (*event)->wait(Deadline{clock_->now()});
  EXPECT_TRUE(works_or_fails_with(waited, ErrorCode::timeout));
  EXPECT_LT(real_clock().now() - start, seconds(10));
  EXPECT_TRUE(works((*event)->wait(soon()))) << "a timeout leaves the work alone";
}

TEST_P(DeviceContract, EventsMayBeWatchedFromOtherThreads) {
  const Buffer buffer = filled(std::vector<float>(1000, 1.0F));
  std::vector<float> out(1000);
  ASSERT_TRUE(works(stream_->copy_out(buffer, 0, bytes_of(out))));
  const auto event = stream_->record();
  ASSERT_TRUE(works(event));
  std::vector<Result<void>> waited(3);
  {
    std::vector<std::jthread> watchers;
    for (auto& result : waited) watchers.emplace_back([&] { result = (*event)->wait(soon()); });
  }
  for (const auto& result : waited) EXPECT_TRUE(works(result));
}

TEST_P(DeviceContract, ASampleIsPlausible) {
  const Buffer held = filled(std::vector<std::uint8_t>(1 << 20, 1));
  const auto sample = device_->sample();
  ASSERT_TRUE(works(sample));
  EXPECT_NE(sample->memory_bytes_total, std::optional<std::uint64_t>(0));
  if (sample->memory_bytes_free && sample->memory_bytes_total) {
    EXPECT_LE(*sample->memory_bytes_free, *sample->memory_bytes_total);
  }
  if (sample->memory_bytes_total && device_->info().memory_bytes_total) {
    EXPECT_EQ(*sample->memory_bytes_total, *device_->info().memory_bytes_total);
  }
  if (sample->utilisation) {
    EXPECT_GE(*sample->utilisation, 0.0);
    EXPECT_LE(*sample->utilisation, 1.0);
  }
}

TEST_P(DeviceContract, AHealthyDeviceHasNoEventsToTell) {
  for (int i = 0; i < 3; ++i) {
    const auto sample = device_->sample();
    ASSERT_TRUE(works(sample));
    EXPECT_TRUE(sample->events.empty());
  }
}

TEST_P(DeviceContract, AnObservationIsPlausibleAndNeedsNoOpenDevice) {
  stream_.reset();
  device_->close();
  device_.reset();
  const TimePoint before = clock_->now();
  for (int i = 0; i < 2; ++i) {
    const auto seen = backend_->observe(GetParam().info.id);
    ASSERT_TRUE(works(seen));
    EXPECT_GE(seen->sampled_at, before);
    EXPECT_LE(seen->sampled_at, clock_->now());
    const auto share = [](std::optional<double> value) { return !value || (*value >= 0.0 && *value <= 1.0); };
    EXPECT_TRUE(share(seen->load.utilisation)) << *seen->load.utilisation;
    EXPECT_TRUE(share(seen->memory_utilisation)) << *seen->memory_utilisation;
    const auto total = seen->load.memory_bytes_total, free = seen->load.memory_bytes_free;
    EXPECT_EQ(total, GetParam().info.memory_bytes_total);
    EXPECT_TRUE(!total || !free || *free <= *total);
    const MemoryUse& use = seen->memory_use;
    if (use.own && use.berth && use.foreign && use.unattributed) {
      EXPECT_EQ(*use.own + *use.berth + *use.foreign + *use.unattributed, *total - *free);
    }
    EXPECT_TRUE(!seen->temperature_celsius || (*seen->temperature_celsius > -60 && *seen->temperature_celsius < 150));
    EXPECT_TRUE(!seen->power_watts || (*seen->power_watts >= 0 && *seen->power_watts < 5000));
    EXPECT_NE(seen->clock_mhz, std::optional<std::uint32_t>(0));
  }
}

TEST_P(DeviceContract, StreamsOfEveryPriorityOpenAndSayIt) {
  for (const Priority priority : {Priority::low, Priority::normal, Priority::high}) {
    const auto stream = device_->open_stream(priority);
    ASSERT_TRUE(works(stream));
    EXPECT_EQ((*stream)->priority(), priority);
    EXPECT_EQ(&(*stream)->device(), device_.get());
    EXPECT_TRUE(works((*stream)->wait(soon())));
  }
  EXPECT_EQ(stream_->priority(), Priority::normal);
}

TEST_P(DeviceContract, NativeHandlesAreThereWhereTheyArePromised) {
  const bool promised = is("cuda") || is("opencl");
  EXPECT_EQ(device_->native().context != nullptr, promised);
  EXPECT_EQ(stream_->native() != nullptr, promised);
}

TEST_P(DeviceContract, ThreadsWithAStreamEachDoNotDisturbOneAnother) {
  const auto kernel = loaded(contract::add_source());
  ASSERT_NE(kernel, nullptr);
  constexpr std::uint32_t n = 512;
  constexpr int threads = 4, rounds = 20;
  std::vector<int> wrong(threads, 0);
  {
    std::vector<std::jthread> workers;
    for (int t = 0; t < threads; ++t) {
      workers.emplace_back([&, t] {
        auto& mistakes = wrong[static_cast<std::size_t>(t)];
        const auto stream = device_->open_stream();
        const auto buffer = device_->allocate(n * sizeof(float));
        if (!stream || !buffer) {
          mistakes = rounds;
          return;
        }
        for (int i = 0; i < rounds; ++i) {
          const auto value = static_cast<float>(100 * t + i);
          const std::vector<float> in(n, value);
          std::vector<float> out(n);
          const std::vector<Argument> arguments{*buffer, *buffer, *buffer, n};
          const bool good = (*stream)->copy_in(*buffer, 0, bytes_of(in)) &&
                            (*stream)->launch(*kernel, {{n, 1, 1}, {}}, arguments) &&
                            (*stream)->copy_out(*buffer, 0, bytes_of(out)) && (*stream)->wait(soon());
          if (!good || out != std::vector<float>(n, 2 * value)) ++mistakes;
        }
      });
    }
  }
  EXPECT_EQ(wrong, std::vector<int>(threads, 0));
}

TEST_P(DeviceContract, AfterClosingEverythingIsLostAndNothingHangs) {
  const auto kernel = loaded(contract::add_source());
  ASSERT_NE(kernel, nullptr);
  const Buffer buffer = filled(std::vector<float>(16, 1.0F));
  std::vector<float> out(16);
  ASSERT_TRUE(works(stream_->copy_out(buffer, 0, bytes_of(out))));
  const auto event = stream_->record();
  ASSERT_TRUE(works(event));
  device_->close();
  device_->close();

  const std::vector<Argument> arguments{buffer, buffer, buffer, std::uint32_t{16}};
  EXPECT_TRUE(fails_with(device_->allocate(64), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(device_->open_stream(), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(device_->load(contract::add_source()), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(device_->sample(), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(stream_->copy_in(buffer, 0, bytes_of(std::as_const(out))), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(stream_->copy_out(buffer, 0, bytes_of(out)), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(stream_->copy(buffer, 0, buffer, 8, 8), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(stream_->allocate(64), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(stream_->launch(*kernel, {{16, 1, 1}, {}}, arguments), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(stream_->record(), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(stream_->wait(soon()), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(stream_->run([](Stream&) { return Result<void>(); }), ErrorCode::device_lost));
  EXPECT_EQ(device_->id(), GetParam().info.id) << "it still says who it was";

  const Result<void> waited = (*event)->wait(soon());
  EXPECT_TRUE(works_or_fails_with(waited, ErrorCode::device_lost));
  const Result<bool> done = (*event)->done();
  EXPECT_TRUE(!done || *done) << "an event of a closed device is no longer pending";
}

TEST_P(DeviceContract, ADeviceCanBeOpenedAgainAndOldHandlesAreStale) {
  const Buffer old = filled(std::vector<float>(16, 1.0F));
  const std::uint64_t generation = device_->generation();
  stream_.reset();
  device_->close();
  auto again = backend_->open(GetParam().info.id);
  ASSERT_TRUE(works(again));
  device_ = *again;
  auto stream = device_->open_stream();
  ASSERT_TRUE(works(stream));
  stream_ = *std::move(stream);
  EXPECT_NE(device_->generation(), generation);
  std::vector<float> out(16);
  EXPECT_TRUE(is_refused(stream_->copy_out(old, 0, bytes_of(out))));
  const Buffer fresh = filled(std::vector<float>(16, 2.0F));
  EXPECT_TRUE(is_refused(stream_->copy(fresh, 0, old, 0, 64)));
  EXPECT_TRUE(is_refused(stream_->copy(old, 0, fresh, 0, 64)));
  EXPECT_TRUE(works(stream_->copy_out(fresh, 0, bytes_of(out))));
  EXPECT_TRUE(works(stream_->wait(soon())));
  EXPECT_EQ(out, std::vector<float>(16, 2.0F));
}

TEST_P(DeviceContract, ClosingOneOpeningLeavesAnotherAlone) {
  auto second = backend_->open(GetParam().info.id);
  ASSERT_TRUE(works(second));
  (*second)->close();
  second->reset();
  std::vector<float> out(16);
  const Buffer buffer = filled(std::vector<float>(16, 3.0F));
  EXPECT_TRUE(works(stream_->copy_out(buffer, 0, bytes_of(out))));
  EXPECT_TRUE(works(stream_->wait(soon())));
  EXPECT_EQ(out, std::vector<float>(16, 3.0F));
}

TEST_P(DeviceContract, HandlesMayOutliveTheirDevice) {
  Buffer buffer = filled(std::vector<float>(16, 1.0F));
  auto kernel = loaded(contract::add_source());
  auto event = stream_->record();
  ASSERT_TRUE(works(event));
  backend_.reset();
  device_->close();
  device_.reset();
  EXPECT_FALSE(stream_->record().has_value());
  stream_.reset();
  const Result<void> waited = (*event)->wait(soon());
  EXPECT_TRUE(works_or_fails_with(waited, ErrorCode::device_lost));
  kernel.reset();
  buffer = Buffer();
  EXPECT_FALSE(buffer);
}

INSTANTIATE_TEST_SUITE_P(Every, DeviceContract, testing::ValuesIn(every_device()), [](const auto& info) {
  return info.param.backend + (info.param.cut.empty() ? "_" : "_part_") + std::to_string(info.param.position);
});

}  // namespace
}  // namespace berth
