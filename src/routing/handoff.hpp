// Hand-off: how one shard goes from one owner to the next so that never two
// serve it. Pure: what happened and the time come in, the next state comes out.
//
//   idle -> beginning -> handing_off -> stopped -> started
//
// Every state between idle and started has a deadline. When it passes, or when
// the plan is given up, the shard is back with its old owner (idle), which has
// to start it again if it had stopped; the epoch rises with that, so that late
// answers to the old plan are fenced off. An answer that carries another epoch
// than the hand-off belongs to an older plan and is stale_handle; an answer that
// does not fit the state is invalid_argument. Neither changes anything.
// Inside one process the router needs none of this: it keeps order per key.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "berth/clock.hpp"
#include "berth/shard_table.hpp"

namespace berth {

struct HandoffRules {
  Duration to_begin = std::chrono::seconds(5);   // the owner answers a question
  Duration to_drain = std::chrono::seconds(60);  // its entities finish what they do
  Duration to_start = std::chrono::seconds(10);  // the next owner loads what it needs
};

class Handoff {
 public:
  enum class State : std::uint8_t { idle, beginning, handing_off, stopped, started };

  // `epoch` is that of the table in which `move` stands.
  Handoff(ShardMove move, std::uint64_t epoch, HandoffRules rules = {})
      : move_(std::move(move)), epoch_(epoch), rules_(rules) {}

  State state() const noexcept { return state_; }
  const ShardMove& move() const noexcept { return move_; }
  std::uint64_t epoch() const noexcept { return epoch_; }
  const std::set<std::string>& remaining() const noexcept { return remaining_; }
  TimePoint deadline() const noexcept { return deadline_; }  // max: none
  // Who may serve the shard now; empty: nobody, work for it waits.
  DeviceId server() const;

  // The old owner is asked to take no more work for the shard.
  Result<Handoff> begin(TimePoint now) const;
  // It does, and these entities are still at work; none: it has stopped.
  Result<Handoff> acknowledged(std::uint64_t epoch, std::set<std::string> entities, TimePoint now) const;
  // One of them has finished; the last one: it has stopped.
  Result<Handoff> finished(std::uint64_t epoch, const std::string& entity, TimePoint now) const;
  // The new owner serves.
  Result<Handoff> start(std::uint64_t epoch) const;
  // The plan is given up. Not once the new owner serves.
  Result<Handoff> abort() const;
  // Time passed.
  Handoff after_time(TimePoint now) const;

 private:
  Result<void> expect(State state, std::uint64_t epoch, std::string_view event) const;
  Handoff in(State state, TimePoint deadline) const;
  Handoff back() const;

  ShardMove move_;
  std::uint64_t epoch_;
  HandoffRules rules_;
  State state_ = State::idle;
  std::set<std::string> remaining_;
  TimePoint deadline_ = TimePoint::max();
};

std::string_view to_string(Handoff::State state) noexcept;

}  // namespace berth
