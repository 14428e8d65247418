#include "machine/restart_rule.hpp"

#include <algorithm>

#include "world/duration.hpp"

namespace berth::machine {
namespace {

constexpr Duration longest_pause = std::chrono::minutes(1);

// 1, 2, 4 seconds and so on.
Duration pause_before_retry(std::size_t retried) {
  return std::min<Duration>(longest_pause, std::chrono::seconds(1) * (1 << std::min<std::size_t>(retried, 6)));
}

}  // namespace

RestartRule::Decision RestartRule::decide(const CommandExit& ended, MachineObserver* observer,
                                          std::span<const Granted> granted, TimePoint began) {
  std::optional<std::vector<DeviceId>> fault;
  if (restarts_on_fault_ && observer) fault = find_fault(ended, *observer, granted, began);
  return decide(ended, std::move(fault), real_clock().now());
}

RestartRule::Decision RestartRule::decide(const CommandExit& ended, std::optional<std::vector<DeviceId>> fault,
                                          TimePoint now) {
  Decision out{ending_text(ended), std::nullopt, fault.has_value()};
  if (ended.status == 0) return out;
  if (fault) {
    if (ended.signal == 0) out.text += " while its device reported an error";
    failed_ = *std::move(fault);
    out.pause = limit_.next_delay(now);
  }
  if (!out.pause && retries_left_ > 0) {
    --retries_left_;
    out.pause = pause_before_retry(retried_++);
  }
  if (out.pause)
    out.text += "; restarting it in " + world::duration_text(*out.pause);
  else if (out.is_fault)
    out.text += "; not restarting it: it was restarted " + std::to_string(RestartLimit::restarts_max) +
                " times within a minute";
  return out;
}

}  // namespace berth::machine
