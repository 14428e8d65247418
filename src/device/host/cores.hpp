// Cores of this machine: which of them the process may use, how busy they are,
// and the thread that keeps to some of them for a while.
#pragma once

#include <sched.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace berth {

// Numbers of the cores in the calling thread's affinity mask, ascending. Empty:
// the system does not say.
std::vector<unsigned> allowed_cores();

// As many cores as a kernel can be built for.
struct CoreSet {
  explicit CoreSet(std::span<const unsigned> cores = {});
  std::array<cpu_set_t, 8> bits{};
};

// While it lives, the calling thread runs on these cores only. Nested ones of the
// same set cost nothing; a thread that keeps to them anyway is left alone. Null:
// nothing happens.
class CorePin {
 public:
  explicit CorePin(const CoreSet* wanted);
  CorePin(const CorePin&) = delete;
  CorePin& operator=(const CorePin&) = delete;
  ~CorePin();
  // The system refused: these cores are no longer open to this process.
  bool failed() const noexcept { return failed_; }

 private:
  const CoreSet* const outer_;     // what this thread was pinned to before
  std::optional<CoreSet> before_;  // the mask to restore; absent: it was not changed
  bool failed_ = false;
};

// Ticks since the machine started, over a number of cores.
struct CoreTimes {
  std::uint64_t busy = 0;
  std::uint64_t all = 0;
};
// Of these cores, from proc/stat under `root`. Absent where one is not listed.
std::optional<CoreTimes> read_core_times(const std::filesystem::path& root, std::span<const unsigned> cores);
// Share of the time between the two that the cores were busy, 0 to 1. Absent
// where no time has passed.
std::optional<double> utilisation_between(const CoreTimes& before, const CoreTimes& after);

}  // namespace berth
