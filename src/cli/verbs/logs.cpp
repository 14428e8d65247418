// `berth logs`: what a job of this machine or a replica of the fleet has written, and what it goes on to write.

#include <boost/json.hpp>
#include <cstdio>
#include <optional>

#include "cli/command_line.hpp"
#include "cli/job_access.hpp"
#include "cli/server_access.hpp"
#include "machine/job_output.hpp"

namespace berth::cli {

using namespace machine;
using namespace world;
namespace {

constexpr Duration read_again = std::chrono::milliseconds(100);

constexpr std::size_t piece_bytes = 65536;

struct LogsArguments {
  ServerArguments server;
  std::string name;
  bool follow = false;
  std::size_t tail = 0;  // 0: all
};

// The output of a command: to a file or a pipe as it is, to a terminal without what would control it. The command may
// be that of another user, or run on another machine.
class OutputPrinter {
 public:
  // False: it cannot be printed.
  bool put(const std::string& piece) {
    if (!piece.empty()) ends_line_ = piece.back() == '\n';
    return is_printed(is_terminal_ ? shown_.put(piece) : piece);
  }
  // On a terminal, what is said next begins a line.
  bool end() { return is_printed(shown_.end() + (is_terminal_ && !ends_line_ ? "\n" : "")); }

 private:
  static bool is_printed(const std::string& text) { return text.empty() || print(text) == done; }
  const bool is_terminal_ = stdout_is_terminal();
  PrintableOutput shown_;
  bool ends_line_ = true;
};

void print_note(const std::string& text) { std::fprintf(stderr, "berth: %s\n", printable(text).c_str()); }

// Why a job that has written nothing has not; absent: it runs, or ran.
std::optional<std::string> reason_for_silence(const Job& job) {
  if (job.progress.attempts > 0) return std::nullopt;
  const std::string about = job.id + " has written nothing: " + std::string(to_string(job.progress.state));
  return job.progress.reason.empty() ? about : about + ", " + job.progress.reason;
}

int run_logs_of_job(const LogsArguments& arguments) {
  Result<Job> job = job_named(arguments.name);
  if (!job && job.error().code == ErrorCode::invalid_argument)
    return print_error(
        {job.error().code, job.error().message, job.error().advice + "; for a replica write " + arguments.name + "/0"});
  if (!job) return print_error(job.error());
  Result<OutputReader> output = OutputReader::open(job->output());
  if (!output) return print_error(output.error());
  if (arguments.tail > 0) output->skip_to_tail(arguments.tail);
  OutputPrinter printer;
  bool has_written = false;
  while (true) {
    // Looked at before the output is read, which is whole then.
    const bool has_ended_now = !job || job->has_ended();
    for (std::string piece; !(piece = output->read(piece_bytes)).empty(); has_written = true)
      if (!printer.put(piece)) return environment_error;
    if (has_ended_now || !arguments.follow) break;
    real_clock().sleep_for(read_again);
    job = job_named(job->id);
  }
  if (!printer.end()) return environment_error;
  const std::optional<std::string> reason = job && !has_written ? reason_for_silence(*job) : std::nullopt;
  if (reason) print_note(*reason);
  return done;
}

// Why the output of a replica that was followed has ended. The server is asked after that, and may know of the next
// incarnation already.
std::string reason_for_end(const std::string& name, const Result<Answer>& answer) {
  if (!answer) return answer.error().code == ErrorCode::not_found ? name + " is gone" : answer.error().to_text();
  const boost::json::value replica(answer->json);
  boost::system::error_code none;
  const boost::json::value* const why = replica.find_pointer("/why/text", none);
  const boost::json::value* const state = replica.find_pointer("/incarnations/0/state", none);
  std::string reason = why && why->is_string() ? std::string(why->get_string()) : name + " has no place now";
  if (state && *state != "stopping" && *state != "gone") reason += "; berth logs -f " + name + " reads on";
  return reason;
}

int run_logs_of_replica(const LogsArguments& arguments) {
  Result<std::string> target = replica_target(arguments.name);
  if (!target) return print_error(target.error());
  Result<ServerAccess> server = ServerAccess::open(arguments.server);
  if (!server) return print_error(server.error());
  std::string query = arguments.follow ? "?follow=1" : "";
  if (arguments.tail > 0) query += (query.empty() ? "?tail=" : "&tail=") + std::to_string(arguments.tail);
  OutputPrinter printer;
  bool printed = true;
  const Result<void> ended = server->output(*target + "/logs" + query, arguments.follow, [&](std::string_view piece) {
    return printed = printer.put(std::string(piece));
  });
  printed = printed && printer.end();
  if (!ended) return print_error(ended.error());
  if (!printed) return environment_error;
  if (arguments.follow) print_note("the output has ended: " + reason_for_end(arguments.name, server->call({*target})));
  return done;
}

}  // namespace

void add_logs(const Verb& command) {
  const auto arguments = std::make_shared<LogsArguments>();
  Verb verb = command.add("logs", "print the output of a job or a replica");
  verb.flag("-f,--follow", arguments->follow, "keep printing until it ends");
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
