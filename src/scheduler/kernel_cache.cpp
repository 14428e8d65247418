#include "scheduler/kernel_cache.hpp"

#include <algorithm>
#include <iterator>

namespace berth::scheduler {
namespace {

// Whether another try would have the same result. A fault of the device says nothing about the kernel.
bool is_final(ErrorCode code) {
  return !blames_device(code) && code != ErrorCode::out_of_memory && code != ErrorCode::unavailable;
}

}  // namespace

// Compares without counting references, because it is called for every launch.
bool KernelCache::Entry::is_of(const Kernel& kernel, const Device& on) const noexcept {
  return address == &on && !device.expired() && !source.owner_before(kernel.source()) &&
         !kernel.source().owner_before(source);
}

std::shared_ptr<KernelCache::Entry> KernelCache::entry(const Kernel& kernel, Device& device) {
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<Entry>& entry : entries_)
    if (entry->is_of(kernel, device)) return entry;
  std::erase_if(entries_, [](const auto& entry) { return entry->source.expired() || entry->device.expired(); });
  auto added = std::make_shared<Entry>();
  added->source = kernel.source();
  added->address = &device;
  added->id = device.id();
  // `device` stays empty if the device has left the pool, so this entry is removed when the next one is added.
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
    entry->loaded = loaded;
    entry->failed = !loaded;
    if (!loaded) has_failed_ = true;
  }
  return loaded;
}

Result<void> KernelCache::load_all(std::span<const Kernel> kernels, Device& device) {
  for (const Kernel& kernel : kernels)
    if (Result<std::shared_ptr<LoadedKernel>> loaded = load(kernel, device); !loaded) return std::move(loaded).error();
  return {};
}

std::optional<Error> KernelCache::limit(Requirements& requirements, std::span<const Kernel> kernels) const {
  for (const Kernel& kernel : kernels) {
    std::vector<std::string> forms = kernel.backends();
    if (forms.empty())
      return Error{ErrorCode::invalid_argument, "kernel '" + kernel.source()->entry + "' has no form",
                   "give it as CUDA C++, PTX, OpenCL C or a host function"};
    const std::vector<std::string>& wanted = requirements.backends;
    if (!wanted.empty())
      std::erase_if(forms, [&](const std::string& name) {
        return std::find(wanted.begin(), wanted.end(), name) == wanted.end();
      });
    if (forms.empty())
      return Error{ErrorCode::not_supported,
                   "kernel '" + kernel.source()->entry + "' has no form for a back end that the work may use",
                   "give it another form, or allow other back ends"};
    requirements.backends = std::move(forms);
    if (!has_failed_.load(std::memory_order_relaxed)) continue;
    const std::lock_guard lock(mutex_);
    for (const std::shared_ptr<Entry>& entry : entries_)
      if (entry->failed && entry->source.lock() == kernel.source() && !entry->device.expired())
        requirements.avoid.push_back(entry->id);
  }
  return std::nullopt;
}

std::vector<Error> KernelCache::errors() const {
  std::vector<std::shared_ptr<Entry>> failed;
  {
    const std::lock_guard lock(mutex_);
    std::copy_if(entries_.begin(), entries_.end(), std::back_inserter(failed),
                 [](const auto& entry) { return entry->failed.load(); });
  }
  std::vector<Error> errors;
  for (const std::shared_ptr<Entry>& entry : failed) {
    const std::lock_guard lock(entry->loading);
    Error& error = errors.emplace_back(entry->loaded->error());
    if (error.where.empty()) error.where = entry->id.text();
  }
  return errors;
}

}  // namespace berth::scheduler
