#include "berth/result.hpp"

#include <cstdio>
#include <cstdlib>

#include "world/shared_explanation.hpp"

namespace berth {

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::not_found: return "not_found";
    case ErrorCode::already_exists: return "already_exists";
    case ErrorCode::not_supported: return "not_supported";
    case ErrorCode::not_initialized: return "not_initialized";
    case ErrorCode::no_device: return "no_device";
    case ErrorCode::no_eligible_device: return "no_eligible_device";
    case ErrorCode::out_of_memory: return "out_of_memory";
    case ErrorCode::unavailable: return "unavailable";
    case ErrorCode::queue_full: return "queue_full";
    case ErrorCode::timeout: return "timeout";
    case ErrorCode::cancelled: return "cancelled";
    case ErrorCode::stale_handle: return "stale_handle";
    case ErrorCode::device_lost: return "device_lost";
    case ErrorCode::work_failed: return "work_failed";
    case ErrorCode::worker_lost: return "worker_lost";
    case ErrorCode::poison_task: return "poison_task";
    case ErrorCode::io: return "io";
    case ErrorCode::internal: return "internal";
  }
  return "internal";
}

std::string_view to_string(Reaction reaction) noexcept {
  switch (reaction) {
    case Reaction::fix_the_call: return "fix_the_call";
    case Reaction::retry: return "retry";
    case Reaction::wait: return "wait";
    case Reaction::restart_process: return "restart_process";
    case Reaction::give_up: return "give_up";
  }
  return "give_up";
}

Reaction reaction_to(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::not_found:
    case ErrorCode::already_exists:
    case ErrorCode::not_supported:
    case ErrorCode::stale_handle: return Reaction::fix_the_call;
    case ErrorCode::unavailable:
    case ErrorCode::timeout:
    case ErrorCode::worker_lost:
    case ErrorCode::io: return Reaction::retry;
    case ErrorCode::no_eligible_device:
    case ErrorCode::out_of_memory:
    case ErrorCode::queue_full: return Reaction::wait;
    // A faulted GPU context makes every context of the process unusable; only a new
    // process can use the device again.
    case ErrorCode::device_lost: return Reaction::restart_process;
    case ErrorCode::not_initialized:
    case ErrorCode::no_device:
    case ErrorCode::cancelled:
    case ErrorCode::poison_task:
    case ErrorCode::work_failed:
    case ErrorCode::internal: return Reaction::give_up;
  }
  return Reaction::give_up;
}

SharedExplanation::SharedExplanation(const SharedExplanation& other) noexcept : shared_(other.shared_) {
  if (shared_) shared_->references.fetch_add(1, std::memory_order_relaxed);
}

SharedExplanation::~SharedExplanation() {
  if (shared_ && shared_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete shared_;
}

const Explanation* SharedExplanation::get() const noexcept { return shared_ ? &shared_->explanation() : nullptr; }

std::string Error::to_text() const {
  std::string text = message.empty() ? std::string(to_string(code)) : message;
  if (driver) text += " (" + driver->name + ", code " + std::to_string(driver->code) + ")";
  if (!where.empty() && text.find(where) == std::string::npos) text += " on " + where;
  if (!advice.empty()) text += "; " + advice;
  return text;
}

void detail::value_of_error(const Error& error) noexcept {
  std::fprintf(stderr, "berth: the value of a failed Result was taken: %s\n", error.to_text().c_str());
  std::abort();
}

}  // namespace berth
