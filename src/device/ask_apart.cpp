#include "device/ask_apart.hpp"

#include <atomic>
#include <system_error>
#include <thread>

namespace berth {
namespace {

std::atomic<std::size_t> under_way{0};

}  // namespace

bool run_apart(std::function<void()> work) {
  under_way.fetch_add(1);
  try {
    std::thread([work = std::move(work)]() mutable {
      work();
      work = nullptr;  // what it holds goes before the thread counts as back
      under_way.fetch_sub(1);
    }).detach();
    return true;
  } catch (const std::system_error&) {
    under_way.fetch_sub(1);
    return false;
  }
}

std::size_t threads_under_way() noexcept { return under_way.load(); }

}  // namespace berth
