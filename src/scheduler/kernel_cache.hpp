// KernelCache: the kernels that the devices of a scheduler have loaded, each once, and the devices
// that could not load one.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "berth/pool.hpp"

namespace berth::scheduler {

class KernelCache {
 public:
  explicit KernelCache(const Pool& pool) : pool_(pool) {}

  // Loads it if it was not; a device loads a kernel on one thread while the others wait for it.
  Result<std::shared_ptr<LoadedKernel>> load(const Kernel& kernel, Device& device);
  // Loads all of them, or says why one cannot be.
  Result<void> load_all(std::span<const Kernel> kernels, Device& device);
  // Leaves the devices that can run all of them: those whose back end has a form of each, and
  // that did not fail to load one. Absent: there may be some.
  std::optional<Error> limit(Requirements& requirements, std::span<const Kernel> kernels) const;
  // Of those that failed.
  std::vector<Error> errors() const;

 private:
  struct Entry {
    // The kernel and the device it was loaded for; an entry whose kernel or device is gone is of no use.
    std::weak_ptr<const KernelSource> source;
    std::weak_ptr<Device> device;
    const Device* address = nullptr;  // while the device lives
    bool is_of(const Kernel& kernel, const Device& on) const noexcept;
    DeviceId id;
    std::mutex loading;  // guards `loaded`
    std::optional<Result<std::shared_ptr<LoadedKernel>>> loaded;
    std::atomic<bool> failed{false};
  };
  std::shared_ptr<Entry> entry(const Kernel& kernel, Device& device);

  const Pool pool_;
  mutable std::mutex mutex_;  // guards the list, not what is in its entries
  std::vector<std::shared_ptr<Entry>> entries_;
  std::atomic<bool> has_failed_{false};  // some entry has
};

}  // namespace berth::scheduler
