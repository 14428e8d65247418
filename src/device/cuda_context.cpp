#include "device/cuda_context.hpp"

#include <map>
#include <thread>

#include "device/cuda_attributes.hpp"
#include "device/local.hpp"

namespace berth {
namespace {

// How long closing waits for work on its way; longer than any sane kernel, and
// short enough for a person to wait for the end of a program.
constexpr std::chrono::seconds drain_limit{10};

// What the pool keeps instead of giving it back to the GPU each time somebody
// waits: thirty 1080p frames on their way, 0.2 % of a large GPU and 3 % of a
// small one. It goes back when the last handle of the opening does.
constexpr std::uint64_t pool_bytes_kept = 256ULL << 20;

// What took the GPU from this process; code_success while nothing did.
// Retaining the primary context again would succeed and every call on it fail,
// so opening asks here first.
std::atomic<cuda::Code>& loss_of(const std::string& fault_domain) {
  static std::mutex mutex;  // guards losses, whose elements never move
  // Never destroyed: a device may live until after the end of main.
  static auto& losses = *new std::map<std::string, std::atomic<cuda::Code>>;
  const std::lock_guard lock(mutex);
  return losses[fault_domain];
}

Error lost_error(cuda::Code code, const DeviceId& id) {
  Error error = cuda::error_of(code, "", id.text());
  error.message = "the device is lost to this process since an earlier fault";
  return error;
}

}  // namespace

CudaContext::CudaContext(const cuda::Driver& driver, cuda::DeviceNumber number, cuda::Context handle, DeviceInfo info,
                         Clock& clock)
    : driver(driver),
      number(number),
      handle(handle),
      info(std::move(info)),
      limits(cuda::limits_of(driver, number)),
      clock(clock),
      generation(next_generation()),
      lost_by_(loss_of(this->info.fault_domain)) {}

Result<std::shared_ptr<CudaContext>> CudaContext::open(const cuda::Driver& driver, cuda::DeviceNumber number,
                                                       DeviceInfo info, Clock& clock) {
  const cuda::Code lost_by = loss_of(info.fault_domain).load();
  if (lost_by != cuda::code_success) return lost_error(lost_by, info.id);
  cuda::Context handle = nullptr;
  if (const cuda::Code code = driver.cuDevicePrimaryCtxRetain(&handle, number); code != cuda::code_success) {
    return cuda::error_of(code, "opening the device", info.id.text());
  }
  return std::shared_ptr<CudaContext>(new CudaContext(driver, number, handle, std::move(info), clock));
}

CudaContext::~CudaContext() {
  release([&] {
    for (cuda::EventHandle event : idle_events_) driver.cuEventDestroy_v2(event);
    if (pool_ != nullptr) driver.cuMemPoolTrimTo(pool_, 0);
  });
  if (!lost()) driver.cuDevicePrimaryCtxRelease_v2(number);
}

void CudaContext::destroy(cuda::StreamHandle stream) noexcept {
  const std::lock_guard lock(streams_mutex_);
  streams_.erase(stream);
  release([&] { driver.cuStreamDestroy_v2(stream); });
}

void CudaContext::close() noexcept {
  if (closing_.exchange(true)) return;
  const TimePoint until = clock.now() + drain_limit;
  const auto busy = [&] {
    bool any = false;
    const std::lock_guard lock(streams_mutex_);
    release([&] {
      for (cuda::StreamHandle stream : streams_) any = any || driver.cuStreamQuery(stream) == cuda::code_not_ready;
    });
    return any;
  };
  while (busy() && clock.now() < until) std::this_thread::yield();
  closed_.store(true);
}

Error CudaContext::fail(cuda::Code code, std::string_view doing) {
  Error error = cuda::error_of(code, doing, info.id.text());
  if (error.code == ErrorCode::device_lost) {
    error.message = "the device is lost to this process: " + error.message;
    cuda::Code none = cuda::code_success;
    lost_by_.compare_exchange_strong(none, code);
  }
  return error;
}

Error CudaContext::unusable() const {
  const cuda::Code code = lost_by_.load();
  if (code == cuda::code_success) {
    return {ErrorCode::device_lost, "the device was closed", "open it again", info.id.text(), {}};
  }
  return lost_error(code, info.id);
}

Result<cuda::EventHandle> CudaContext::take_event() {
  {
    const std::lock_guard lock(events_mutex_);
    if (!idle_events_.empty()) {
      const cuda::EventHandle event = idle_events_.back();
      idle_events_.pop_back();
      return event;
    }
  }
  cuda::EventHandle event = nullptr;
  Result<void> made = call("creating an event", [&] { return driver.cuEventCreate(&event, cuda::event_default); });
  if (!made) return std::move(made).error();
  return event;
}

void CudaContext::give_back(cuda::EventHandle event) noexcept {
  const std::lock_guard lock(events_mutex_);
  idle_events_.push_back(event);
}

void CudaContext::reach(const CudaContext& other) {
  const std::lock_guard lock(reached_mutex_);
  if (!reached_.insert(other.generation).second) return;
  int can = 0;
  if (driver.cuDeviceCanAccessPeer(&can, number, other.number) != cuda::code_success || can == 0) return;
  // Whatever it answers (somebody else did it already, there are too many
  // peers), the copy works: the driver then goes through the host.
  release([&] { driver.cuCtxEnablePeerAccess(other.handle, 0); });
}

bool CudaContext::has_pool() {
  std::call_once(pool_once_, [&] {
    if (!info.features.contains("memory_pools")) return;
    release([&] {
      cuda::MemoryPool pool = nullptr;
      std::uint64_t kept = 0;
      if (driver.cuDeviceGetDefaultMemPool(&pool, number) != cuda::code_success) return;
      pool_ = pool;
      // The pool is the whole process's: who set it before us had a reason.
      if (driver.cuMemPoolGetAttribute(pool, cuda::pool_release_threshold, &kept) != cuda::code_success || kept != 0) {
        return;
      }
      kept = pool_bytes_kept;
      driver.cuMemPoolSetAttribute(pool, cuda::pool_release_threshold, &kept);
    });
  });
  return pool_ != nullptr;
}

}  // namespace berth
