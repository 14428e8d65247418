// Starts a command and stays with it: signals sent to this process go on to the
// command, and its exit status comes back. The command is its own master: if
// this process is killed, it runs on.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "berth/result.hpp"

namespace berth::cli {

// Where the shell would find it. not_found: nowhere; invalid_argument: it is
// there and cannot be run.
Result<std::string> find_command(const std::string& name);

struct Launch {
  std::string program;  // as find_command gives it
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;  // besides this process's own
  std::vector<unsigned> cores;                     // empty: any
};

struct Ended {
  int status = 0;  // as a shell reports it: 128 and the signal's number for a signal
  bool by_signal = false;
  bool was_asked = false;  // a signal from outside was passed on to it
};

// Runs it to its end. `started` gets the number of the process before the command
// begins, and an error of it means that the command never begins.
Result<Ended> launch(const Launch& command, const std::function<Result<void>(std::uint32_t pid)>& started);

}  // namespace berth::cli
