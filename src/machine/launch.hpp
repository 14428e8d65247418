// Starts a command, either in the place of this process or below it. In its place
// the command has this process's number, signals and status, and Berth is gone.
// Below it (for a restart after a fault) the command has a process group of its
// own, the terminal if this process had it, and every signal sent to this process.
// If this process is killed, the command runs on.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "berth/result.hpp"

namespace berth::machine {

// Where the shell would find it. not_found: nowhere; invalid_argument: it is
// there and cannot be run.
Result<std::string> find_command(const std::string& name);

struct Launch {
  std::string program;  // as find_command gives it
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;  // besides this process's own
  std::set<std::string> removed;                   // variables of this process that the command does not get
  std::vector<unsigned> cores;                     // empty: any
  std::vector<int> inherited;                      // descriptors the command gets besides those of our parent
  // Called in this process with the one that becomes the command, before it does.
  std::function<void(pid_t)> before_start = {};
};

// Executes the command in the place of this process. Returns only where that
// failed: not_found (the interpreter of a script), else invalid_argument. A script
// without an interpreter line is run by /bin/sh, as shells do. Call it from the
// main thread; other threads end with the exec.
Error exec_command(const Launch& command);

struct CommandExit {
  int status = 0;              // as a shell reports it: 128 and the signal's number for a signal
  int signal = 0;              // that ended it; 0: it exited
  bool was_signalled = false;  // a signal from outside was passed on to it
  bool had_terminal = false;   // keys such as Ctrl-C reached the command alone
};

// Runs it below this process, to its end.
Result<CommandExit> launch(const Launch& command);

// Ends this process as the command ended: with its status or by its signal, so that
// a shell loop around it ends on Ctrl-C.
[[noreturn]] void exit_like(const CommandExit& ended);

}  // namespace berth::machine
