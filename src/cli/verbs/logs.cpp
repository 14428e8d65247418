// `berth logs`: what a job of this machine or a replica of the fleet has written, and what it goes on to write.

#include <unistd.h>

#include <algorithm>
#include <array>

#include "cli/command_line.hpp"
#include "cli/job_access.hpp"
#include "cli/server_access.hpp"
#include "machine/job_output.hpp"

namespace berth::cli {
namespace {

constexpr Duration read_again = std::chrono::milliseconds(100);

// Prints what is there after `from`, and moves it. False: the reader has gone, or the disk is full.
bool print_rest(int file, off_t& from) {
  if (const off_t begin = begin_of_output(file, from); begin > from) {
    if (print("berth: " + std::to_string(begin - from) + " bytes were removed here\n") != done) return false;
    from = begin;
  }
  std::array<char, 65536> part{};
  for (ssize_t got = 0; (got = pread(file, part.data(), part.size(), from)) > 0; from += got)
    if (print(std::string(part.data(), static_cast<std::size_t>(got))) != done) return false;
  return true;
}

// Where the last `lines` lines begin.
off_t begin_of_tail(int file, std::size_t lines) {
  std::array<char, 65536> part{};
  const off_t end = lseek(file, 0, SEEK_END);
  for (off_t at = end; at > 0;) {
    const off_t from = std::max<off_t>(0, at - static_cast<off_t>(part.size()));
    const ssize_t got = pread(file, part.data(), static_cast<std::size_t>(at - from), from);
    if (got != at - from) return 0;
    for (; at > from; --at) {
      // The end of the last line is not before a line.
      if (part[static_cast<std::size_t>(at - 1 - from)] == '\n' && at != end && lines-- == 1) return at;
    }
  }
  return 0;
}

struct LogsArguments {
  ServerArguments server;
  std::string name;
  bool follow = false;
  std::size_t tail = 0;  // 0: all
};

int run_logs_of_job(const LogsArguments& arguments) {
  Result<Job> job = job_named(arguments.name);
  if (!job) return print_error(job.error());
  const Result<int> opened = open_for_reading(job->output());
  if (!opened) return print_error(opened.error());
  const int file = *opened;
  off_t at = arguments.tail > 0 ? begin_of_output(file, begin_of_tail(file, arguments.tail)) : 0;
  bool printed = print_rest(file, at);
  while (printed && arguments.follow && job && !has_ended(job->progress.state)) {
    real_clock().sleep_for(read_again);
    job = job_named(job->id);
    printed = print_rest(file, at);
  }
  close(file);
  return printed ? done : environment_error;
}

int run_logs_of_replica(const LogsArguments& arguments) {
  Result<std::string> target = replica_target(arguments.name);
  if (!target) return print_error(target.error());
  Result<ServerAccess> server = ServerAccess::open(arguments.server);
  if (!server) return print_error(server.error());
  std::string query = arguments.follow ? "?follow=1" : "";
  if (arguments.tail > 0) query += (query.empty() ? "?tail=" : "&tail=") + std::to_string(arguments.tail);
  bool printed = true;
  const Result<void> ended = server->lines(*target + "/logs" + query, arguments.follow, [&](std::string_view line) {
    return printed = print(std::string(line) + "\n") == done;
  });
  if (!ended) return print_error(ended.error());
  return printed ? done : environment_error;
}

}  // namespace

void add_logs(const Verb& command) {
  const auto arguments = std::make_shared<LogsArguments>();
  Verb verb = command.add("logs", "what a job or a replica has written");
  verb.flag("-f,--follow", arguments->follow, "go on until it has ended");
  OptionRules rules;
  rules.range = {1, 1'000'000};
  verb.option("--tail", "N", &arguments->tail, "begin with the last N lines", rules);
  verb.argument("NAME", &arguments->name,
                "the id or name of a job of this machine, or a replica of the fleet as chat/0");
  add_address_options(verb, arguments->server);
  verb.run([arguments] {
    const bool is_replica = arguments->name.find('/') != std::string::npos;
    return is_replica ? run_logs_of_replica(*arguments) : run_logs_of_job(*arguments);
  });
}

}  // namespace berth::cli
