// How much of this machine the process may use: the cores of its affinity mask and the
// memory of the machine, both limited by its control group.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace berth::device {

struct HostLimits {
  unsigned cores = 1;  // at least 1
  std::optional<std::uint64_t> memory_bytes_total;
  std::optional<std::uint64_t> memory_bytes_free;
};

// Reads the files under `root`, which is "/" outside of tests. A limit that cannot be
// read is ignored.
HostLimits read_host_limits(const std::filesystem::path& root, unsigned affinity_cores);
// The limits of this process now.
HostLimits read_host_limits();

}  // namespace berth::device
