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

  // Loads the kernel if needed; a device loads a kernel on one thread while the others wait for it.
  Result<std::shared_ptr<LoadedKernel>> load(const Kernel& kernel, Device& device);
  // Loads all of them, or returns why one cannot be loaded.
  Result<void> load_all(std::span<const Kernel> kernels, Device& device);
  // Limits the requirements to devices that can run all of them: the back end has a form of each,
  // and none failed to load. Returns an error if no device remains.
  std::optional<Error> limit(Requirements& requirements, std::span<const Kernel> kernels) const;
  // The errors of the kernels that failed to compile.
  std::vector<Error> errors() const;

 private:
  struct Entry {
    // The kernel and the device it was loaded for; an entry is useless once its kernel or device is gone.
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
  mutable std::mutex mutex_;  // guards the list, not the content of its entries
  std::vector<std::shared_ptr<Entry>> entries_;
  std::atomic<bool> has_failed_{false};  // some entry has
};

}  // namespace berth::scheduler
