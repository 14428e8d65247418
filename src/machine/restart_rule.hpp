// Decides whether a command that has ended is restarted, in the foreground and as a job: after a fault of its devices
// as often as RestartLimit allows (--on-fault restart), and after any failure a number of times (--retries).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "machine/restart_limit.hpp"
#include "machine/run_steps.hpp"

namespace berth::machine {

class RestartRule {
 public:
  explicit RestartRule(bool restarts_on_fault, std::size_t retries = 0)
      : restarts_on_fault_(restarts_on_fault), retries_left_(retries) {}

  struct Decision {
    std::string text;               // "was ended by signal 11 (Segmentation fault); restarting it in 1 s"
    std::optional<Duration> pause;  // pause before the restart; absent: it is not restarted
    bool is_fault = false;
  };
  // `observer` observes the command's devices; null: it has none.
  Decision decide(const CommandExit& ended, MachineObserver* observer, std::span<const Granted> granted,
                  TimePoint began);
  // The same with the devices that a fault was found on (find_fault).
  Decision decide(const CommandExit& ended, std::optional<std::vector<DeviceId>> fault, TimePoint now);

  // The devices to avoid in the next try.
  const std::vector<DeviceId>& failed() const { return failed_; }

 private:
  const bool restarts_on_fault_;
  std::size_t retries_left_;
  std::size_t retried_ = 0;
  RestartLimit limit_;
  std::vector<DeviceId> failed_;
};

}  // namespace berth::machine
