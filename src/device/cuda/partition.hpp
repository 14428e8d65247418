// How one GPU is cut into parts of chosen sizes. The driver splits the
// multiprocessors (SMs) once, into equal groups; what a split leaves over cannot
// be split again (measured), so a part is made of several groups. This decides
// the size of the groups and how many each part gets, or says in numbers why it
// cannot be done. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "berth/device_info.hpp"
#include "berth/result.hpp"

namespace berth::cuda {

struct SmLimits {
  std::uint32_t count = 0;  // that the GPU has
  std::uint32_t least = 0;  // that a group can have
  std::uint32_t step = 0;   // groups are multiples of it
};
// NVIDIA's guideline for drivers before CUDA 13, which do not tell.
SmLimits usual_limits(std::uint32_t count, Capability capability);

struct SmSplit {
  std::uint32_t group_sms = 0;
  std::vector<std::uint32_t> groups;  // of each part, in the order asked for
};
// `groups_of(n)`: how many groups of n SMs the driver makes of this GPU; fewer
// than the plain quotient, as a group lies within a cluster of the chip. The
// largest groups that serve are taken: they waste the fewest SMs.
Result<SmSplit> plan_split(const DeviceId& gpu, const SmLimits& limits, std::span<const std::uint32_t> parts,
                           const std::function<std::uint32_t(std::uint32_t)>& groups_of);

}  // namespace berth::cuda
