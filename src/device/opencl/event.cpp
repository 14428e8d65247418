#include "device/opencl/event.hpp"

#include <algorithm>
#include <thread>

namespace berth::opencl {
namespace {

// A status query costs about 20 ns, an empty kernel on a GPU about 8 us, so most short work ends while the waiting
// thread spins. After that, the thread yields its core to others, and it sleeps if the wait is long.
constexpr unsigned spin_rounds = 500;
constexpr unsigned yield_rounds = 1000;
constexpr std::chrono::microseconds sleep_shortest{20};
constexpr std::chrono::microseconds sleep_longest{200};

}  // namespace

Result<bool> OpenclEvent::done() {
  const cl_int status = poll();
  if (status == CL_COMPLETE) return true;
  if (status < 0) return device_->failed(status, "the work before this event failed");
  if (device_->abandoned()) return device_->lost();
  return false;
}

Result<void> OpenclEvent::wait(Deadline deadline) {
  auto pause = sleep_shortest;
  for (unsigned round = 0;; ++round) {
    const Result<bool> finished = done();
    if (!finished) return finished.error();
    if (*finished) return {};
    if (deadline.passed(device_->clock().now())) {
      return Error{ErrorCode::timeout, "the work did not finish before the deadline",
                   "wait again with a later deadline; the work is still running", device_->id().text()};
    }
    if (round < spin_rounds) continue;
    if (round < spin_rounds + yield_rounds) {
      std::this_thread::yield();
      continue;
    }
    // The driver works in real time, whichever clock the deadline uses.
    real_clock().sleep_for(pause);
    pause = std::min(2 * pause, sleep_longest);
  }
}

Result<Duration> OpenclEvent::since(const Event& earlier) const {
  const auto* other = dynamic_cast<const OpenclEvent*>(&earlier);
  if (!other || other->device_ != device_) {
    return device_->refused("the earlier event belongs to another device", "compare events of one device");
  }
  const Result<Interval> begin = other->interval();
  if (!begin) return begin.error();
  const Result<Interval> end = interval();
  if (!end) return end.error();
  if (begin->end_ns > end->end_ns) {
    return device_->refused("the other event is later than this one", "call since() on the later event");
  }
  return Duration(end->end_ns - begin->end_ns);
}

Result<Interval> OpenclEvent::interval() const {
  if (poll() != CL_COMPLETE) return device_->refused("the event is not done", "wait for it first");
  Interval when;
  const auto read = [&](cl_profiling_info what, std::uint64_t& to) {
    cl_ulong value = 0;
    const cl_int code = device_->api().clGetEventProfilingInfo(last_.get(), what, sizeof value, &value, nullptr);
    to = value;
    return code;
  };
  cl_int code = read(CL_PROFILING_COMMAND_START, when.begin_ns);
  if (code == CL_SUCCESS) code = read(CL_PROFILING_COMMAND_END, when.end_ns);
  if (code != CL_SUCCESS) return device_->failed(code, "the driver does not report when the work ran");
  return when;
}

cl_int OpenclEvent::poll() const {
  cl_int status = status_.load(std::memory_order_acquire);
  if (status <= CL_COMPLETE) return status;
  status = event_status(device_->api(), last_.get());
  if (status > CL_COMPLETE) return status;
  for (const OwnedEvent& event : earlier_) {
    const cl_int other = event_status(device_->api(), event.get());
    if (other < 0) {
      status = other;
      break;
    }
  }
  status_.store(status, std::memory_order_release);
  return status;
}

}  // namespace berth::opencl
