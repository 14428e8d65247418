// Runs a command on devices until it is not restarted: reserves them, records the decision, starts the command in its
// lease, releases the lease and applies the restart rule. A command in the foreground (`berth run`) and a job differ
// in how they wait, start the command and report.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "machine/restart_rule.hpp"
#include "machine/run_steps.hpp"

namespace berth::machine {

struct RunSettings {
  Program program;
  std::optional<RunContext> context;  // absent: the command has no devices
  Limit limit = Limit::automatic;
  bool mps = false;  // MPS's control daemon runs
  BackendOptions backends;
  ScopeLimits host;
  bool quiet = false;  // no lines about devices
};

// One start of the command.
struct RunAttempt {
  std::optional<Reservation> reserved;  // absent: it has no devices
  std::vector<Granted> granted;
  Launch command;
};

struct RunEnd {
  enum class Kind : std::uint8_t { ended, refused, not_reserved, not_started };
  Kind kind = Kind::ended;
  std::optional<Error> error;          // of not_reserved and not_started
  std::optional<Reservation> refused;  // why it does not fit
  std::optional<CommandExit> last;     // how the command ended last; absent: it never ran
  std::string text;                    // of `ended`: "was ended by signal 11 (Segmentation fault)"
};

class RunLoop {
 public:
  explicit RunLoop(RestartRule restarts) : restarts_(std::move(restarts)) {}
  virtual ~RunLoop() = default;
  RunLoop(const RunLoop&) = delete;
  RunLoop& operator=(const RunLoop&) = delete;

 protected:
  RunEnd run(RunSettings& settings);

  // Called around each step that may take long.
  virtual void during(const std::function<void()>& step) { step(); }
  virtual Deadline reserve_until() = 0;
  virtual std::function<void(const Progress&)> on_waiting() = 0;
  // Called after each decision, even if the command does not fit.
  virtual void decided(const Reservation&, const format::DecisionRecord&) {}
  // Completes the command before it starts.
  virtual void prepare(RunAttempt&) {}
  virtual Result<CommandExit> start(RunAttempt& attempt) = 0;
  // Called after its lease has been released. Need not return.
  virtual void ended(const RunAttempt&, const CommandExit&) {}
  virtual void is_restarted(const RestartRule::Decision&) {}

 private:
  RestartRule restarts_;
};

}  // namespace berth::machine
