// Starts a command, either with exec in place of this process or as a child. With exec
// the command keeps the pid, signals and status of this process. As a child (for a
// restart after a fault) it has its own process group, the terminal if this process
// had it, and gets every signal sent to this process. If this process is killed, the
// child keeps running.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "berth/clock.hpp"
#include "berth/result.hpp"

namespace berth::machine {

// The path that a shell would run. `path`: the folders to search; null: PATH of this process. not_found: there is none;
// invalid_argument: it cannot be executed.
Result<std::string> find_command(const std::string& name, const char* path = nullptr);

// For exec: one pointer for each text, then a null pointer.
std::vector<char*> pointers_to(std::vector<std::string>& texts);

struct Launch {
  std::string program;  // as find_command returns it
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;  // in addition to this process's own
  std::set<std::string> removed;                   // variables of this process that the command does not get
  std::vector<unsigned> cores;                     // cores to pin it to; empty: any
  std::vector<int> inherited;                      // descriptors to pass in addition to those of this process's parent
  // Called with the pid of the command, in this process, before the command starts.
  std::function<void(pid_t)> before_start = {};
};

// Executes the command in place of this process. Returns only on failure: not_found (the
// interpreter of a script), otherwise invalid_argument. A script without an interpreter line is run
// by /bin/sh, as shells do. Call it from the main thread; other threads end with the exec.
Error exec_command(const Launch& command);

// The status of `berth run --time`, the same as timeout(1)'s.
inline constexpr int timed_out_status = 124;

struct CommandExit {
  int status = 0;              // as a shell reports it: 128 plus the signal's number for a signal
  int signal = 0;              // the signal that ended it; 0: it exited
  bool was_signalled = false;  // a signal from outside was forwarded to it
  bool had_terminal = false;   // Ctrl-C and similar keys reached only the command
  bool timed_out = false;      // it ran longer than allowed
};

// Starts it as a child process. `in_child` is called in it before anything else, and may only make
// async-signal-safe calls; `in_parent` is called before the command starts.
Result<pid_t> start_command(const Launch& command, const std::function<void()>& in_child,
                            const std::function<void(pid_t)>& in_parent);
// Sets the members from a status of waitpid().
void set_exit(CommandExit& ended, int wait_status) noexcept;

// Runs it as a child process and waits for its end. After `time` its process group gets SIGTERM, and SIGKILL ten
// seconds later.
Result<CommandExit> launch(const Launch& command, std::optional<Duration> time = std::nullopt);

// Ends this process in the same way as the command: with its status or by its signal, so that a
// shell loop around it ends on Ctrl-C.
[[noreturn]] void exit_like(const CommandExit& ended);

}  // namespace berth::machine
