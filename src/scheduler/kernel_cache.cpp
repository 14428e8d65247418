#include "scheduler/kernel_cache.hpp"

#include <algorithm>

namespace berth::scheduler {
namespace {

// Another try would end the same; a fault of the device says nothing about the kernel.
bool is_final(ErrorCode code) {
  return !blames_device(code) && code != ErrorCode::out_of_memory && code != ErrorCode::unavailable;
}

}  // namespace

std::shared_ptr<KernelCache::Entry> KernelCache::entry(const Kernel& kernel, Device& device) {
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<Entry>& entry : entries_)
    if (entry->source.lock() == kernel.source() && entry->device.lock().get() == &device) return entry;
  std::erase_if(entries_, [](const auto& entry) { return entry->source.expired() || entry->device.expired(); });
  auto added = std::make_shared<Entry>();
  added->source = kernel.source();
  added->id = device.id();
  // A device that left the pool gets no more work: its entry goes with the next that is added.
  if (const auto owner = pool_.device(device.id()); owner && owner->get() == &device) added->device = *owner;
  entries_.push_back(added);
  return added;
}

Result<std::shared_ptr<LoadedKernel>> KernelCache::load(const Kernel& kernel, Device& device) {
  const std::shared_ptr<Entry> entry = this->entry(kernel, device);
  const std::lock_guard lock(entry->loading);
  if (entry->loaded) return *entry->loaded;
  Result<std::shared_ptr<LoadedKernel>> loaded = device.load(*kernel.source());
  if (loaded || is_final(loaded.error().code)) {
    entry->failed = !loaded;
    entry->loaded = loaded;
  }
  return loaded;
}

Result<void> KernelCache::load_all(std::span<const Kernel> kernels, Device& device) {
  for (const Kernel& kernel : kernels)
    if (Result<std::shared_ptr<LoadedKernel>> loaded = load(kernel, device); !loaded) return std::move(loaded).error();
  return {};
}

void KernelCache::limit(Requirements& requirements, std::span<const Kernel> kernels) const {
  for (const Kernel& kernel : kernels) {
    std::vector<std::string> forms = kernel.backends();
    if (!requirements.backends.empty())
      std::erase_if(forms, [&](const std::string& name) {
        return std::find(requirements.backends.begin(), requirements.backends.end(), name) ==
               requirements.backends.end();
      });
    // None in common: no device has this name.
    if (forms.empty()) forms.push_back("any with a form of " + kernel.source()->entry);
    requirements.backends = std::move(forms);
    const std::lock_guard lock(mutex_);
    for (const std::shared_ptr<Entry>& entry : entries_)
      if (entry->failed && entry->source.lock() == kernel.source() && !entry->device.expired())
        requirements.avoid.push_back(entry->id);
  }
}

}  // namespace berth::scheduler
