#include "device/simulated/spec.hpp"

#include <cmath>

namespace berth::simulated {

std::optional<std::string> problem_with(const SimulatedSpec& spec) {
  using Kind = SimulatedFault::Kind;
  using Trigger = SimulatedFault::Trigger;
  if (spec.id.empty()) return "the device has no id";
  if (spec.concurrency == 0) return "concurrency must be at least 1";
  if (!std::isfinite(spec.speed) || spec.speed <= 0) return "speed must be a positive number";
  constexpr Duration longest = std::chrono::hours(24 * 365);
  if (spec.launch_time < Duration::zero() || spec.launch_time > longest) return "launch time must be 0 to a year";
  if (!std::isfinite(spec.item_ns) || spec.item_ns < 0) return "item time must not be negative";
  if (spec.copy_bytes_per_second && !(*spec.copy_bytes_per_second > 0)) return "copy rate must be positive";
  if (spec.memory_bytes_total && spec.memory_bytes_foreign > *spec.memory_bytes_total) {
    return "other processes hold more memory than the device has";
  }
  if (spec.parent && (spec.parent->empty() || *spec.parent == spec.id)) return "the parent must be another device";
  if (spec.utilization && !(*spec.utilization >= 0 && *spec.utilization <= 1)) return "utilization must be 0 to 1";
  for (const auto& watts : {spec.power_watts, spec.power_limit_watts}) {
    if (watts && !(std::isfinite(*watts) && *watts >= 0)) return "power must not be negative";
  }
  for (const SimulatedFault& fault : spec.faults) {
    if (fault.trigger != Trigger::time && (fault.at == 0 || fault.times == 0))
      return "the trigger number and the times of a fault must be at least 1";
    const bool of_sample = fault.kind == Kind::sample_silent || fault.kind == Kind::sample_hang;
    const bool of_launch = fault.kind == Kind::error || fault.kind == Kind::hang;
    if ((fault.trigger == Trigger::launch && of_sample) ||
        (fault.trigger == Trigger::allocation && (of_sample || of_launch)) ||
        (fault.trigger == Trigger::sample && (of_launch || fault.kind == Kind::out_of_memory))) {
      return "this kind of fault cannot happen at that point";
    }
  }
  return {};
}

}  // namespace berth::simulated
