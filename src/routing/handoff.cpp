#include "routing/handoff.hpp"

namespace berth {

using State = Handoff::State;

std::string_view to_string(State state) noexcept {
  switch (state) {
    case State::idle: return "idle";
    case State::beginning: return "beginning";
    case State::handing_off: return "handing_off";
    case State::stopped: return "stopped";
    case State::started: return "started";
  }
  return "idle";
}

Result<void> Handoff::expect(State state, std::uint64_t epoch, std::string_view event) const {
  const std::string shard = shard_name(move_.shard);
  if (epoch != epoch_)
    return Error{ErrorCode::stale_handle,
                 "epoch " + std::to_string(epoch) + " is not the one in which " + shard + " moves (" +
                     std::to_string(epoch_) + ")",
                 "read the table again",
                 "",
                 {}};
  if (state != state_)
    return Error{ErrorCode::invalid_argument,
                 shard + " cannot " + std::string(event) + " while its hand-off is " + std::string(to_string(state_)),
                 "",
                 "",
                 {}};
  return {};
}

Handoff Handoff::in(State state, TimePoint deadline) const {
  Handoff next = *this;
  next.state_ = state;
  next.deadline_ = deadline;
  if (state != State::handing_off) next.remaining_.clear();
  return next;
}

Handoff Handoff::back() const {
  Handoff next = in(State::idle, TimePoint::max());
  ++next.epoch_;
  return next;
}

DeviceId Handoff::server() const {
  if (state_ == State::idle) return move_.from;
  return state_ == State::started ? move_.to : DeviceId();
}

Result<Handoff> Handoff::begin(TimePoint now) const {
  if (Result<void> fits = expect(State::idle, epoch_, "begin to move"); !fits) return fits.error();
  return in(State::beginning, now + rules_.to_begin);
}

Result<Handoff> Handoff::acknowledged(std::uint64_t epoch, std::set<std::string> entities, TimePoint now) const {
  if (Result<void> fits = expect(State::beginning, epoch, "be let go"); !fits) return fits.error();
  if (entities.empty()) return in(State::stopped, now + rules_.to_start);
  Handoff next = in(State::handing_off, now + rules_.to_drain);
  next.remaining_ = std::move(entities);
  return next;
}

Result<Handoff> Handoff::finished(std::uint64_t epoch, const std::string& entity, TimePoint now) const {
  if (Result<void> fits = expect(State::handing_off, epoch, "lose an entity"); !fits) return fits.error();
  Handoff next = *this;
  if (next.remaining_.erase(entity) == 0)
    return Error{ErrorCode::invalid_argument, entity + " is not at work in " + shard_name(move_.shard), "", "", {}};
  return next.remaining_.empty() ? in(State::stopped, now + rules_.to_start) : next;
}

Result<Handoff> Handoff::start(std::uint64_t epoch) const {
  if (Result<void> fits = expect(State::stopped, epoch, "start elsewhere"); !fits) return fits.error();
  return in(State::started, TimePoint::max());
}

Result<Handoff> Handoff::abort() const {
  if (state_ == State::started) return expect(State::idle, epoch_, "go back").error();
  return back();
}

Handoff Handoff::after_time(TimePoint now) const { return now >= deadline_ ? back() : *this; }

}  // namespace berth
