#include "device/deadline_call.hpp"

#include <atomic>
#include <system_error>
#include <thread>

namespace berth::device {
namespace {

std::atomic<std::size_t> running{0};

}  // namespace

bool start_detached(std::function<void()> work) {
  running.fetch_add(1);
  try {
    std::thread([work = std::move(work)]() mutable {
      work();
      work = nullptr;  // destroy what it owns before the thread counts as finished
      running.fetch_sub(1);
    }).detach();
    return true;
  } catch (const std::system_error&) {
    running.fetch_sub(1);
    return false;
  }
}

std::size_t detached_threads() noexcept { return running.load(); }

}  // namespace berth::device
