// The options of `berth run`, and what is wrong with them on any machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/request.hpp"
#include "machine/command_environment.hpp"

namespace berth::cli {

struct RunArguments {
  RequestArguments request;
  std::vector<std::string> command;
  std::vector<std::string> options;      // as given, for the job's record
  std::optional<std::string> wait;       // how long to wait for devices; absent: do not wait
  std::optional<std::string> load_lock;  // absent: none
  std::string on_fault = "stop";
  std::optional<std::string> limit;  // see Limit
  bool quiet = false;
  // These apply to jobs only.
  bool detach = false;
  bool json = false;
  std::string name;
  std::vector<std::string> after, after_any;
  std::optional<std::string> begin;
  std::optional<std::string> array;
  std::optional<std::string> output;
  std::optional<std::string> notify;
  std::optional<std::string> time;
  std::size_t retries = 0;
};

// Options that are checked before the machine is read.
struct CheckedOptions {
  machine::DeviceRequest devices;
  Duration wait{};
  std::optional<Duration> time;
  std::optional<std::uint64_t> begin_us;
  std::vector<std::uint32_t> array;  // the indices of the jobs; empty: one job
  machine::Limit limit = machine::Limit::automatic;
  bool restarts = false;
};
Result<CheckedOptions> check(const RunArguments& arguments);

// Prints why a command cannot be started; returns the exit status that a shell would have.
int print_start_error(const Error& error);

}  // namespace berth::cli
