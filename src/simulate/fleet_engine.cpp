#include "simulate/fleet_engine.hpp"

#include <algorithm>

#include "store/records.hpp"

namespace berth::simulate {

using namespace std::chrono_literals;

namespace {

Error failed() { return {ErrorCode::timeout, "the store does not answer", "try again"}; }

}  // namespace

bool FleetEngine::pass() {
  if (chance(faults_.crash_percent)) is_crashed_ = true;
  if (!is_crashed_ && chance(faults_.stall_percent)) {
    // Sometimes longer than a leadership lasts without renewal.
    const Duration length = 1ms * random_.below(chance(30) ? 40'000 : 3'000);
    timeline_.run_until(std::max(timeline_.now, std::min(timeline_.now + length, faults_.stalls_end)));
  }
  return !is_crashed_;
}

bool FleetEngine::is_out() {
  if (timeline_.now >= out_until_ && chance(faults_.error_percent)) {
    const Duration length = 1ms + 1ms * random_.below(3'000);
    out_until_ = std::min(timeline_.now + length, faults_.stalls_end);
  }
  return timeline_.now < out_until_;
}

Result<store::Listing> FleetEngine::list(std::string_view prefix, std::string_view after, std::size_t limit) {
  observer_.reads();
  if (is_crashed_ || is_out()) return failed();
  return shared_->list(prefix, after, limit);
}

Result<std::optional<std::uint64_t>> FleetEngine::commit(const store::Transaction& transaction) {
  if (!pass() || is_out()) return failed();
  auto change_number = shared_->commit(transaction);
  if (change_number && *change_number) observer_.committed(transaction);
  // Committed changes persist, whether their server learns of it or not.
  if (!pass() || is_out()) return failed();
  return change_number;
}

void FleetEngine::wait_for_change(std::uint64_t change_number, Duration timeout) {
  shared_->wait_for_change(change_number, timeout);
}

Result<void> FleetEngine::hold(const std::string& owner, Duration duration) {
  if (is_crashed_) return failed();
  return shared_->hold(owner, duration);
}

void FleetEngine::release(const std::string& owner) {
  if (!is_crashed_) shared_->release(owner);
}

}  // namespace berth::simulate
