#include "device/cuda/partition.hpp"

#include <algorithm>
#include <numeric>
#include <string>

namespace berth::cuda {
namespace {

Error refused(const DeviceId& gpu, std::string message, std::string advice) {
  return {ErrorCode::invalid_argument, std::move(message), std::move(advice), gpu.text()};
}

std::string joined(std::span<const std::uint32_t> numbers, std::string_view between) {
  std::string text;
  for (const std::uint32_t number : numbers)
    text += (text.empty() ? "" : std::string(between)) + std::to_string(number);
  return text;
}

Result<void> check_size(const DeviceId& gpu, const SmLimits& limits, std::uint32_t part) {
  if (part >= limits.least && part % limits.step == 0) return {};
  const std::uint32_t first = (limits.least + limits.step - 1) / limits.step * limits.step;
  const std::uint32_t below = part / limits.step * limits.step;
  return refused(gpu,
                 "a part cannot have " + std::to_string(part) + " SMs: parts have " + std::to_string(first) +
                     " SMs or more, in steps of " + std::to_string(limits.step),
                 below < first ? "use " + std::to_string(first)
                               : "use " + std::to_string(below) + " or " + std::to_string(below + limits.step));
}

}  // namespace

SmLimits usual_limits(std::uint32_t count, Capability capability) {
  if (capability.major >= 9) return {count, 8, 8};
  if (capability.major == 8) return {count, 4, 2};
  return {count, 2, 2};
}

Result<SmSplit> plan_split(const DeviceId& gpu, const SmLimits& limits, std::span<const std::uint32_t> parts,
                           const std::function<std::uint32_t(std::uint32_t)>& groups_of) {
  std::uint32_t common = 0;
  for (const std::uint32_t part : parts) {
    if (Result<void> ok = check_size(gpu, limits, part); !ok) return std::move(ok).error();
    common = std::gcd(common, part);
  }
  const std::uint64_t sum = std::accumulate(parts.begin(), parts.end(), std::uint64_t{0});
  std::uint64_t most = 0;
  for (std::uint32_t size = common / limits.step * limits.step; size >= limits.least && size > 0; size -= limits.step) {
    if (common % size != 0) continue;
    const std::uint64_t made = std::uint64_t{groups_of(size)} * size;
    most = std::max(most, made);
    if (made < sum) continue;
    SmSplit split{size, {}};
    for (const std::uint32_t part : parts) split.groups.push_back(part / size);
    return split;
  }
  if (common < limits.least) {
    return refused(gpu,
                   "parts of " + joined(parts, ", ") + " SMs cannot be made of equal groups, which have " +
                       std::to_string(limits.least) + " SMs or more",
                   "use multiples of " + std::to_string(limits.least));
  }
  return refused(
      gpu,
      joined(parts, " + ") + " = " + std::to_string(sum) + " SMs, but the driver can group only " +
          std::to_string(most) + " of the " + std::to_string(limits.count) + " SMs in this way",
      "ask for no more than " + std::to_string(most) + " in total, or for parts with a larger common divisor");
}

}  // namespace berth::cuda
