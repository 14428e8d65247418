// A device for tests of the pool: it has an identity and answers load queries
// as scripted, at once or when released. It does no work.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "berth/device.hpp"
#include "berth/placement.hpp"

namespace berth::test {

class TestDevice final : public Device {
 public:
  explicit TestDevice(std::string id, std::uint64_t free = 1000, int ordinal = 0) {
    info_.id = DeviceId(id);
    info_.backend = "simulated";
    info_.name = "test device " + id;
    info_.ordinal = ordinal;
    info_.memory_bytes_total = 1000;
    info_.capability = Capability{8, 0};
    answer_.memory_bytes_free = free;
  }
  DeviceInfo& describe() { return info_; }

  void answer(LoadSample sample) {
    set([&] { answer_ = sample, error_.reset(); });
  }
  void answer_free(std::uint64_t bytes) {
    set([&] { answer_.memory_bytes_free = bytes, error_.reset(); });
  }
  void fail(Error error) {
    set([&] { error_ = std::move(error); });
  }
  // Adds an answer to be given before the usual one.
  void answer_next(Result<LoadSample> answer) {
    set([&] { next_.push_back(std::move(answer)); });
  }
  // From now on sample() blocks, until let_go().
  void hold() {
    set([&] { held_ = true; });
  }
  void let_go() {
    set([&] { held_ = false; });
  }
  int questions() {
    const std::lock_guard lock(mutex_);
    return questions_;
  }
  int most_at_once() {
    const std::lock_guard lock(mutex_);
    return most_at_once_;
  }

  const DeviceInfo& info() const noexcept override { return info_; }
  std::uint64_t generation() const noexcept override { return 1; }
  Result<LoadSample> sample() override {
    std::unique_lock lock(mutex_);
    ++questions_;
    most_at_once_ = std::max(most_at_once_, ++inside_);
    changed_.wait(lock, [&] { return !held_; });
    --inside_;
    if (!next_.empty()) {
      Result<LoadSample> answer = std::move(next_.front());
      next_.pop_front();
      return answer;
    }
    if (error_) return *error_;
    return answer_;
  }
  Result<Buffer> allocate(std::uint64_t bytes) override {
    auto memory = std::make_shared<Memory>();
    memory->bytes = bytes;
    memory->device = this;
    count(*memory);
    return Buffer(std::move(memory));
  }
  Result<std::unique_ptr<Stream>> open_stream(Priority) override { return unsupported(); }
  Result<std::shared_ptr<LoadedKernel>> load(const KernelSource&) override { return unsupported(); }
  NativeHandles native() const noexcept override { return {}; }
  void close() noexcept override {}

 private:
  static Error unsupported() { return {ErrorCode::not_supported, "a test device does no work"}; }
  template <class F>
  void set(F change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }

  DeviceInfo info_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  LoadSample answer_;
  std::optional<Error> error_;
  std::deque<Result<LoadSample>> next_;
  bool held_ = false;
  int questions_ = 0;
  int inside_ = 0;
  int most_at_once_ = 0;
};

// A back end with these devices, each of which can be made to fail to open.
class TestBackend final : public Backend {
 public:
  explicit TestBackend(std::vector<std::shared_ptr<TestDevice>> devices) : devices_(std::move(devices)) {}
  void refuse(std::string id, Error error) { refused_.emplace(DeviceId(std::move(id)), std::move(error)); }
  void be_silent(Error error) { silent_ = std::move(error); }
  void join(std::vector<Link> links) { links_ = std::move(links); }

  std::string_view name() const noexcept override { return "simulated"; }
  Result<std::vector<DeviceInfo>> list() override {
    if (silent_) return *silent_;
    std::vector<DeviceInfo> infos;
    for (const auto& device : devices_) infos.push_back(device->info());
    return infos;
  }
  Result<std::shared_ptr<Device>> open(const DeviceId& id) override {
    if (const auto refused = refused_.find(id); refused != refused_.end()) return refused->second;
    for (const auto& device : devices_) {
      if (device->id() == id) return std::shared_ptr<Device>(device);
    }
    return Error{ErrorCode::not_found, "no such device", {}, id.text()};
  }
  Result<std::vector<Link>> links() override { return links_; }

 private:
  std::vector<std::shared_ptr<TestDevice>> devices_;
  std::vector<Link> links_;
  std::map<DeviceId, Error> refused_;
  std::optional<Error> silent_;
};

inline std::shared_ptr<TestDevice> make_device(std::string id, std::uint64_t free = 1000, int ordinal = 0) {
  return std::make_shared<TestDevice>(std::move(id), free, ordinal);
}

inline const Policy& policy(std::string_view name) { return *find_policy(name); }

inline Requirements bytes(std::uint64_t minimum) {
  Requirements requirements;
  requirements.memory_bytes_min = minimum;
  return requirements;
}

inline Requirements on(const std::string& id) {
  Requirements requirements;
  requirements.only = {DeviceId(id)};
  return requirements;
}

// Waits until another thread makes the condition hold; gives up after 20 real
// seconds, so that a broken program fails instead of hanging.
inline bool eventually(const std::function<bool()>& holds) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace berth::test
