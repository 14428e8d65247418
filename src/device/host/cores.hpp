// Cores of this machine: which of them the process may use, how busy they are, and
// pinning a thread to some of them.
#pragma once

#include <sched.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace berth::device {

// The cores in the calling thread's affinity mask, ascending. Empty if it cannot be read.
std::vector<unsigned> allowed_cores();

// A set of cores, large enough for every kernel configuration.
struct CoreSet {
  explicit CoreSet(std::span<const unsigned> cores = {});
  std::array<cpu_set_t, 8> bits{};
};

// Pins the calling thread to these cores while the object exists. Nested pins to the same set cost
// nothing, and a thread with exactly this mask is left as it is. Null: no effect.
class CorePin {
 public:
  explicit CorePin(const CoreSet* wanted);
  CorePin(const CorePin&) = delete;
  CorePin& operator=(const CorePin&) = delete;
  ~CorePin();
  // Whether the system refused: this process may no longer use these cores.
  bool failed() const noexcept { return failed_; }

 private:
  const CoreSet* const outer_;     // what this thread was pinned to before
  std::optional<CoreSet> before_;  // the mask to restore; absent: it was not changed
  bool failed_ = false;
};

// Ticks since the machine started, summed over some cores.
struct CoreTimes {
  std::uint64_t busy = 0;
  std::uint64_t all = 0;
};
// The times of these cores, from proc/stat under `root`. Absent if one is not listed.
std::optional<CoreTimes> read_core_times(const std::filesystem::path& root, std::span<const unsigned> cores);
// Share of the time between the two in which the cores were busy, 0 to 1. Absent if no
// time has passed.
std::optional<double> utilization_between(const CoreTimes& before, const CoreTimes& after);

}  // namespace berth::device
