// Plans how a GPU is cut into parts of chosen sizes. The driver splits the multiprocessors
// (SMs) once, into equal groups; the rest of a split cannot be split again (measured), so a
// part consists of several groups. This chooses the size of the groups and how many each
// part gets, or returns an error with the numbers. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "berth/device_info.hpp"
#include "berth/result.hpp"

namespace berth::cuda {

struct SmLimits {
  std::uint32_t count = 0;  // SMs of the GPU
  std::uint32_t least = 0;  // SMs of a group, at least
  std::uint32_t step = 0;   // groups are multiples of it
};
// The limits of NVIDIA's guideline, for drivers before CUDA 13, which do not report them.
SmLimits usual_limits(std::uint32_t count, Capability capability);

struct SmSplit {
  std::uint32_t group_sms = 0;
  std::vector<std::uint32_t> groups;  // groups of each part, in the requested order
};
// `groups_of(n)`: how many groups of n SMs the driver makes of this GPU. It may be less than
// the quotient, because a group lies within a cluster of the chip. The largest possible
// groups are chosen, because they waste the fewest SMs.
Result<SmSplit> plan_split(const DeviceId& gpu, const SmLimits& limits, std::span<const std::uint32_t> parts,
                           const std::function<std::uint32_t(std::uint32_t)>& groups_of);

}  // namespace berth::cuda
