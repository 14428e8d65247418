#include "device/cuda/context.hpp"

#include <algorithm>

#include <map>
#include <thread>

#include "device/cuda/attributes.hpp"
#include "device/local.hpp"

namespace berth::cuda {
namespace {

// How long close() waits for enqueued work: longer than most kernels run, but not too long for the end of a program.
constexpr std::chrono::seconds drain_limit{10};

// How much memory the pool keeps, so that it is not mapped again for each piece of work: enough for thirty 1080p
// frames, 0.2 % of a large GPU and 3 % of a small one. It is released with the last handle of the opening.
constexpr std::uint64_t pool_bytes_kept = 256ULL << 20;
// How much of that the streams of an opening may keep in total.
constexpr std::uint64_t kept_bytes_max = 128ULL << 20;
// An event is recorded each time this much memory has been freed. That is less than the pool keeps, but rare, because
// recording an event briefly keeps copies on other streams from overlapping.
constexpr std::uint64_t noticed_bytes = 128ULL << 20;

// The code of the fault by which this process lost the GPU, or code_success. Retaining the primary context again would
// succeed, but every call on it would fail, so open() checks this first.
std::atomic<Code>& loss_of(const std::string& fault_domain) {
  static std::mutex mutex;  // guards losses, whose elements never move
  // Never destroyed, because a device may exist until after the end of main.
  static auto& losses = *new std::map<std::string, std::atomic<Code>>;
  const std::lock_guard lock(mutex);
  return losses[fault_domain];
}

Error lost_error(Code code, const DeviceId& id) {
  Error error = error_of(code, "", id.text());
  error.message = "this process lost the device because of an earlier fault";
  return error;
}

// Explains the error by the compute mode of the device if that is the cause.
Error cannot_open(const Driver& driver, DeviceNumber number, Code code, const DeviceId& id) {
  Error error = error_of(code, "opening the device", id.text());
  const int mode = attribute(driver, number, compute_mode).value_or(mode_default);
  if (mode == mode_prohibited) {
    error.code = ErrorCode::not_supported;
    error.message = "the compute mode of this GPU is 'prohibited': no program may compute on it";
    error.advice = "ask an administrator to run nvidia-smi -i " + id.text() + " -c DEFAULT";
  } else if (mode == mode_exclusive && (error.code == ErrorCode::unavailable || error.code == ErrorCode::no_device)) {
    error.code = ErrorCode::unavailable;
    error.message = "another process uses this GPU, and its compute mode is 'exclusive process'";
    error.advice = "wait for that process (see nvidia-smi), or ask an administrator to run nvidia-smi -i " + id.text() +
                   " -c DEFAULT";
  } else if (error.code == ErrorCode::no_device) {
    error.code = ErrorCode::not_found;
    error.message = "the device was listed, but the driver no longer finds it";
    error.advice = "list the devices again; check the kernel log to see whether it fell off the bus";
  }
  return error;
}

}  // namespace

CudaContext::CudaContext(const Driver& driver, DeviceNumber number, Context handle, DeviceInfo info, Clock& clock)
    : driver(driver),
      number(number),
      handle(handle),
      info(std::move(info)),
      limits(limits_of(driver, number)),
      clock(clock),
      generation(device::next_generation()),
      lost_by_(loss_of(this->info.fault_domain)) {}

Result<std::shared_ptr<CudaContext>> CudaContext::open(const Driver& driver, DeviceNumber number, DeviceInfo info,
                                                       Clock& clock, std::vector<Resource> part) {
  const Code lost_by = loss_of(info.fault_domain).load();
  if (lost_by != code_success) return lost_error(lost_by, info.id);
  Context handle = nullptr;
  if (const Code code = driver.cuDevicePrimaryCtxRetain(&handle, number); code != code_success) {
    return cannot_open(driver, number, code, info.id);
  }
  std::shared_ptr<CudaContext> context(new CudaContext(driver, number, handle, std::move(info), clock));
  if (part.empty()) return context;
  if (const Code code = context->make_part(part); code != code_success) {
    return context->fail(code, "cutting " + std::to_string(context->info.compute_units.value_or(0)) + " SMs out of " +
                                   context->info.fault_domain);
  }
  return context;
}

Code CudaContext::make_part(std::vector<Resource>& groups) {
  ResourceDescription description = nullptr;
  Code code = driver.cuDevResourceGenerateDesc(&description, groups.data(), static_cast<unsigned>(groups.size()));
  if (code != code_success) return code;
  code = driver.cuGreenCtxCreate(&green_, description, number, green_default_stream);
  if (code != code_success) return code;
  return driver.cuCtxFromGreenCtx(&green_handle_, green_);
}

CudaContext::~CudaContext() {
  release([&] {
    for (EventHandle event : idle_events_) driver.cuEventDestroy_v2(event);
    for (EventHandle event : freed_events_) driver.cuEventDestroy_v2(event);
    if (const MemoryPool pool = trimmed_.load()) driver.cuMemPoolTrimTo(pool, 0);
  });
  if (lost()) return;
  if (green_ != nullptr) driver.cuGreenCtxDestroy(green_);
  driver.cuDevicePrimaryCtxRelease_v2(number);
}

void CudaContext::add(CudaStreamHandle& stream) {
  const std::lock_guard lock(streams_mutex_);
  streams_.insert(&stream);
}

void CudaContext::destroy(CudaStreamHandle& stream) noexcept {
  const std::lock_guard lock(streams_mutex_);
  streams_.erase(&stream);
  release([&] { driver.cuStreamDestroy_v2(stream.handle); });
}

void CudaContext::close() noexcept {
  if (closing_.exchange(true)) return;
  const TimePoint until = clock.now() + drain_limit;
  const auto busy = [&] {
    bool any = false;
    const std::lock_guard lock(streams_mutex_);
    release([&] {
      for (const CudaStreamHandle* stream : streams_)
        any = any || driver.cuStreamQuery(stream->handle) == code_not_ready;
    });
    return any;
  };
  while (busy() && clock.now() < until) std::this_thread::yield();
  closed_.store(true);
}

Error CudaContext::fail(Code code, std::string_view doing) {
  Error error = error_of(code, doing, info.id.text());
  if (error.code == ErrorCode::device_lost) {
    error.message = "this process lost the device: " + error.message;
    Code none = code_success;
    lost_by_.compare_exchange_strong(none, code);
  }
  return error;
}

Error CudaContext::unusable() const {
  const Code code = lost_by_.load();
  if (code == code_success) {
    return {ErrorCode::device_lost, "the device was closed", "open it again", info.id.text()};
  }
  return lost_error(code, info.id);
}

Code CudaContext::create_stream(StreamHandle* stream, int level) {
  if (green_ == nullptr) return driver.cuStreamCreateWithPriority(stream, stream_non_blocking, level);
  const std::lock_guard lock(green_mutex_);
  return driver.cuGreenCtxStreamCreate(stream, green_, stream_non_blocking, level);
}

// Created in the context of the streams, because an event can be recorded only on those.
Code CudaContext::create_event(EventHandle* event) {
  if (green_ == nullptr) return driver.cuEventCreate(event, event_default);
  const std::lock_guard lock(green_mutex_);
  const CudaCurrent current(driver, green_handle_);
  return current.code() != code_success ? current.code() : driver.cuEventCreate(event, event_default);
}

Result<EventHandle> CudaContext::take_event() {
  {
    const std::lock_guard lock(events_mutex_);
    if (!idle_events_.empty()) {
      const EventHandle event = idle_events_.back();
      idle_events_.pop_back();
      return event;
    }
  }
  EventHandle event = nullptr;
  Result<void> made = call("creating an event", [&] { return create_event(&event); });
  if (!made) return std::move(made).error();
  return event;
}

void CudaContext::give_back(EventHandle event) noexcept {
  const std::lock_guard lock(events_mutex_);
  idle_events_.push_back(event);
}

void CudaContext::reach(const CudaContext& other) {
  const std::lock_guard lock(reached_mutex_);
  if (!reached_.insert(other.generation).second) return;
  int can = 0;
  if (driver.cuDeviceCanAccessPeer(&can, number, other.number) != code_success || can == 0) return;
  // If this fails (already enabled, too many peers), copies still work, because the driver copies through the host.
  release([&] { driver.cuCtxEnablePeerAccess(other.handle, 0); });
}

bool CudaContext::has_pool() {
  std::call_once(pool_once_, [&] {
    if (!info.features.contains("memory_pools")) return;
    release([&] {
      MemoryPool pool = nullptr;
      if (driver.cuDeviceGetDefaultMemPool(&pool, number) != code_success) return;
      has_pool_ = true;
      // The pool belongs to the whole process, so a threshold that other code has set is kept.
      std::uint64_t share = 0;
      if (driver.cuMemPoolGetAttribute(pool, pool_release_threshold, &share) != code_success) return;
      if (share != 0 && share != pool_bytes_kept) return;
      share = pool_bytes_kept;
      if (driver.cuMemPoolSetAttribute(pool, pool_release_threshold, &share) == code_success) {
        trimmed_.store(pool);
      }
      // Memory whose release is still pending on another stream is not reused. Otherwise the allocating stream would
      // wait for the other one, and lanes that should overlap would run in turns.
      int no = 0;
      driver.cuMemPoolSetAttribute(pool, pool_reuse_makes_streams_wait, &no);
    });
  });
  return has_pool_;
}

void CudaContext::freed(std::uint64_t bytes, StreamHandle stream) noexcept {
  if (trimmed_.load() == nullptr || freed_bytes_.fetch_add(bytes) + bytes < noticed_bytes) return;
  freed_bytes_.store(0);
  Result<EventHandle> event = take_event();
  if (!event) return;
  driver.cuEventRecord(*event, stream);
  const std::lock_guard lock(events_mutex_);
  freed_events_.push_back(*event);
}

bool CudaContext::free_kept(bool all) noexcept {
  const std::lock_guard lock(streams_mutex_);
  bool any = false;
  for (CudaStreamHandle* stream : streams_) any = stream->free_kept(all) || any;
  return any;
}

void CudaContext::trim_pool() noexcept {
  free_kept(/*all=*/false);
  const MemoryPool pool = trimmed_.load();
  if (pool == nullptr) return;
  std::vector<EventHandle> pending;
  {
    const std::lock_guard lock(events_mutex_);
    pending.swap(freed_events_);
  }
  release([&] {
    // Freed memory counts as in use until some thread has waited for its event. These events are complete, so the waits
    // return at once.
    const auto over = std::partition(pending.begin(), pending.end(),
                                     [&](EventHandle event) { return driver.cuEventQuery(event) == code_not_ready; });
    for (auto event = over; event != pending.end(); ++event) {
      driver.cuEventSynchronize(*event);
      give_back(*event);
    }
    pending.erase(over, pending.end());
    std::uint64_t reserved = 0, used = 0;
    if (driver.cuMemPoolGetAttribute(pool, pool_bytes_reserved, &reserved) != code_success ||
        driver.cuMemPoolGetAttribute(pool, pool_bytes_used, &used) != code_success)
      return;
    // cuMemPoolTrimTo(pool, pool_bytes_kept) would keep any single block that is larger than that.
    if (reserved > used && reserved - used > pool_bytes_kept) driver.cuMemPoolTrimTo(pool, 0);
  });
  const std::lock_guard lock(events_mutex_);
  freed_events_.insert(freed_events_.end(), pending.begin(), pending.end());
}

CudaStreamHandle::CudaStreamHandle(std::shared_ptr<CudaContext> owner, StreamHandle stream)
    : context(std::move(owner)), handle(stream) {
  context->add(*this);
}

CudaStreamHandle::~CudaStreamHandle() {
  free_kept(/*all=*/true);
  context->destroy(*this);
}

DevicePointer CudaStreamHandle::take_kept(std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(kept_.rbegin(), kept_.rend(), [&](const Kept& kept) { return kept.bytes == bytes; });
  if (found == kept_.rend()) return 0;
  const DevicePointer pointer = found->pointer;
  kept_.erase(std::next(found).base());
  context->kept_bytes_.fetch_sub(bytes);
  return pointer;
}

void CudaStreamHandle::free(DevicePointer pointer, std::uint64_t bytes) noexcept {
  if (context->kept_bytes_.fetch_add(bytes) + bytes <= kept_bytes_max) {
    const std::lock_guard lock(mutex_);
    kept_.push_back({pointer, bytes, false});
    return;
  }
  context->kept_bytes_.fetch_sub(bytes);
  context->release([&] {
    context->driver.cuMemFreeAsync(pointer, handle);
    context->freed(bytes, handle);
  });
}

bool CudaStreamHandle::free_kept(bool all) noexcept {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  std::erase_if(kept_, [&](Kept& kept) {
    if (!all && !std::exchange(kept.is_old, true)) return false;
    context->release([&] { context->driver.cuMemFreeAsync(kept.pointer, handle); });
    bytes += kept.bytes;
    return true;
  });
  if (bytes == 0) return false;
  context->kept_bytes_.fetch_sub(bytes);
  context->release([&] { context->freed(bytes, handle); });
  return true;
}

}  // namespace berth::cuda
