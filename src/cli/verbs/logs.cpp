// `berth logs`: prints the output of a job on this machine or of a replica in the fleet, past and future.

#include <boost/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "cli/command_line.hpp"
#include "cli/job_access.hpp"
#include "cli/server_access.hpp"
#include "machine/job_outcome.hpp"
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
  bool follow = false, previous = false;
  std::size_t tail = 0;  // 0: print all lines
};

// Prints the output of a command: unchanged to a file or a pipe, without control sequences to a terminal. The command
// may belong to another user, or run on another machine.
class OutputPrinter {
 public:
  // Returns false if it cannot be printed.
  bool put(const std::string& piece) {
    if (!piece.empty()) ends_line_ = piece.back() == '\n';
    return is_printed(is_terminal_ ? shown_.put(piece) : piece);
  }
  // On a terminal, ends the last line, so that later text starts on a new one.
  bool end() { return is_printed(shown_.end() + (is_terminal_ && !ends_line_ ? "\n" : "")); }
  // Printed above the output of each further command.
  bool put_heading(const std::string& text) {
    const std::string before = std::exchange(has_heading_, true) ? (ends_line_ ? "\n" : "\n\n") : "";
    ends_line_ = true;
    return is_printed(shown_.end() + before + printable(text) + "\n");
  }

 private:
  static bool is_printed(const std::string& text) { return text.empty() || print(text) == done; }
  const bool is_terminal_ = stdout_is_terminal();
  PrintableOutput shown_;
  bool ends_line_ = true, has_heading_ = false;
};

// The output of one job and how much of it has been printed.
struct JobLog {
  Job job;
  std::optional<OutputReader> output;  // open while it is being read
  bool has_ended = false;              // the job has ended, and all of its output has been printed
  bool has_written = false;
  std::string waits_for;  // the reason for waiting that was last printed
};

class JobLogs {
 public:
  JobLogs(const LogsArguments& arguments, std::vector<JobLog> logs) : arguments_(arguments), logs_(std::move(logs)) {}

  int print_all() {
    for (bool more = true; more;) {
      more = false;
      for (JobLog& log : logs_) {
        if (log.has_ended) continue;
        if (!print_next(log)) return environment_error;
        more = more || !log.has_ended;
      }
      if (more) real_clock().sleep_for(read_again);
    }
    return printer_.end() ? done : environment_error;
  }

 private:
  // Returns false if it cannot be printed.
  bool print_next(JobLog& log) {
    // The state of the job is checked before its output is read: if it has ended, the output is complete.
    if (!log.output && !open(log)) return false;
    const Result<Job> now = job_named(log.job.id);
    if (now) log.job = *now;
    for (std::string piece; !(piece = log.output->read(piece_bytes)).empty(); log.has_written = true)
      if (!print_heading(log) || !printer_.put(piece)) return false;
    log.has_ended = !arguments_.follow || !now || now->has_ended();
    if (log.has_ended) log.output.reset();
    const JobProgress& progress = log.job.progress;
    // A job that ran has written why it ended, unless its supervisor was killed.
    const bool is_silent = progress.attempts == 0 && !log.has_written;
    if (log.has_ended && now && (is_silent || progress.state == JobState::unknown)) {
      if (!printer_.end()) return false;
      print_note(outcome_text(log.job));
    } else if (arguments_.follow && progress.state == JobState::waiting && progress.reason != log.waits_for) {
      log.waits_for = progress.reason;
      if (progress.reason != starting_reason) print_note(outcome_text(log.job));
    }
    return true;
  }
  bool open(JobLog& log) const {
    Result<OutputReader> output = OutputReader::open(log.job.output(), log.job.request.output_from);
    if (!output) return print_error(output.error()), false;
    if (arguments_.tail > 0) output->skip_to_tail(arguments_.tail);
    log.output = *std::move(output);
    return true;
  }
  // With several jobs, prints headings as tail(1) does for several files.
  bool print_heading(const JobLog& log) {
    if (logs_.size() == 1 || shown_ == &log) return true;
    shown_ = &log;
    return printer_.put_heading("==> " + label(log.job) + " <==");
  }

  const LogsArguments& arguments_;
  std::vector<JobLog> logs_;
  OutputPrinter printer_;
  const JobLog* shown_ = nullptr;
};

int run_logs_of_jobs(const LogsArguments& arguments) {
  if (arguments.previous)
    return print_error({ErrorCode::invalid_argument, "--previous applies only to replicas of the fleet",
                        "name one, such as chat/0; the output of a job contains all of its attempts"});
  Result<std::vector<Job>> jobs = jobs_named(std::span(&arguments.name, 1), false, Matching::newest);
  if (!jobs && jobs.error().code == ErrorCode::invalid_argument)
    return print_error({jobs.error().code, jobs.error().message,
                        jobs.error().advice + "; for a replica write " + arguments.name + "/0"});
  if (!jobs) return print_error(jobs.error());
  std::vector<JobLog> logs;
  for (Job& job : *jobs) logs.emplace_back().job = std::move(job);
  return JobLogs(arguments, std::move(logs)).print_all();
}

// Why the followed output of a replica has ended. The server is asked only afterwards, and may already know the
// next incarnation.
std::string reason_for_end(const std::string& name, const Result<Answer>& answer) {
  if (!answer) return answer.error().code == ErrorCode::not_found ? name + " is gone" : answer.error().to_text();
  const boost::json::value replica(answer->json);
  boost::system::error_code none;
  const boost::json::value* const why = replica.find_pointer("/why/text", none);
  const boost::json::value* const state = replica.find_pointer("/incarnations/0/state", none);
  std::string reason = why && why->is_string() ? std::string(why->get_string()) : name + " is not running";
  if (state && *state != "stopping" && *state != "gone")
    reason += "; to wait for more output, run berth logs -f " + name;
  return reason;
}

int run_logs_of_replica(const LogsArguments& arguments) {
  const Result<ReplicaTarget> target = replica_target(arguments.name);
  if (!target) return print_error(target.error());
  Result<ServerAccess> server = ServerAccess::open(arguments.server);
  if (!server) return print_error(server.error());
  std::string query;
  const auto add = [&](const std::string& more) { query += (query.empty() ? "?" : "&") + more; };
  if (arguments.follow) add("follow=1");
  if (arguments.previous) add("previous=1");
  if (arguments.tail > 0) add("tail=" + std::to_string(arguments.tail));
  if (!target->generation.empty()) add("generation=" + target->generation);
  OutputPrinter printer;
  bool printed = true;
  const Result<void> ended =
      server->output(target->path + "/logs" + query, arguments.follow,
                     [&](std::string_view piece) { return printed = printer.put(std::string(piece)); });
  printed = printed && printer.end();
  if (!ended) return print_error(ended.error());
  if (!printed) return environment_error;
  if (arguments.follow)
    print_note("the output has ended: " + reason_for_end(arguments.name, server->call({target->path})));
  return done;
}

}  // namespace

void add_logs(const Verb& command) {
  const auto arguments = std::make_shared<LogsArguments>();
  Verb verb = command.add("logs", "print the output of a job or a replica");
  verb.flag("-f,--follow", arguments->follow, "keep printing new output until the job or replica ends");
  verb.flag("--previous", arguments->previous, "print what a replica wrote before it was last restarted on its node");
  verb.exclude("--previous", "--follow");
  OptionRules rules;
  rules.range = {1, 1'000'000};
  verb.option("--tail", "N", &arguments->tail, "begin with the last N lines", rules);
  verb.argument("NAME", &arguments->name,
                "the id or name of a job of this machine, a pattern such as 'sweep-*', or a replica of the fleet such "
                "as chat/0, or chat/0#17 for one of its incarnations");
  verb.offer("NAME", {Names::jobs, Names::replicas});
  add_address_options(verb, arguments->server);
  verb.footer({"Exit status: 0 done; 1 environment error; 2 wrong input or usage."}, false);
  verb.run([arguments] {
    const bool is_replica = arguments->name.find('/') != std::string::npos;
    return is_replica ? run_logs_of_replica(*arguments) : run_logs_of_jobs(*arguments);
  });
}

}  // namespace berth::cli
