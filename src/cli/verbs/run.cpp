// `berth run`: runs a command on devices that have room. The ledger promises their memory to it
// from before its start until its end.

#include <cstdio>

#include "berth/bytes.hpp"
#include "cli/command_line.hpp"
#include "cli/detach.hpp"
#include "cli/text/terminal.hpp"
#include "device/deadline_call.hpp"
#include "inventory/short_id.hpp"
#include "machine/mps.hpp"
#include "machine/run_loop.hpp"
#include "world/duration.hpp"

namespace berth::cli {

using namespace inventory;
using namespace machine;
using namespace world;
namespace {

// exec() waits until every other thread has ended, but a thread that is stuck in a driver never
// ends.
bool is_stuck_in_a_driver() {
  // Threads whose driver call has returned end within microseconds.
  const Deadline deadline = Deadline::after(real_clock(), std::chrono::milliseconds(100));
  while (device::detached_threads() > 0 && !deadline.passed(real_clock().now()))
    real_clock().sleep_for(std::chrono::microseconds(200));
  return device::detached_threads() > 0;
}

class ForegroundRun final : public RunLoop {
 public:
  ForegroundRun(const RunArguments& arguments, const CheckedOptions& checked)
      : RunLoop(RestartRule(checked.restarts)), arguments_(arguments), checked_(checked) {}

  // The exit status of this process, unless it ends in the same way as the command.
  int run(const std::string& program) {
    Result<RunContext> context = open_run_context(checked_.devices, print_error);
    if (!context) return print_error(context.error());
    context->wanted.name = program.substr(program.rfind('/') + 1);
    settings_.context.emplace(*std::move(context));
    settings_.program = {program, arguments_.command};
    settings_.limit = checked_.limit;
    settings_.mps = mps_control_socket().has_value();
    settings_.backends = checked_.devices.backends;
    settings_.quiet = arguments_.quiet;
    const RunEnd end = RunLoop::run(settings_);
    switch (end.kind) {
      case RunEnd::Kind::not_reserved: return print_error(*end.error);
      case RunEnd::Kind::not_started: return print_start_error(*end.error);
      case RunEnd::Kind::refused: print_refusal(*end.refused); break;
      case RunEnd::Kind::ended: break;
    }
    if (end.last) exit_like(*end.last);
    return does_not_fit;
  }

 private:
  Deadline reserve_until() override {
    asked_ = real_clock().now();
    return Deadline::after(real_clock(), checked_.wait);
  }
  std::function<void(const Progress&)> on_waiting() override {
    if (arguments_.quiet) return {};
    return [ids = ids_of(settings_.context->observer.devices())](const Progress& progress) {
      const std::string place = progress.place > 0 ? ", place " + std::to_string(progress.place) + " in line" : "";
      std::fprintf(stderr, "berth: waiting%s: %s\n", place.c_str(),
                   printable(with_short_ids(progress.reason, ids)).c_str());
    };
  }
  // Executes the command in place of this process, so it returns only on failure. With --time and --on-fault
  // restart, this process remains. The command inherits the descriptor of the lease either way.
  Result<CommandExit> start(RunAttempt& attempt) override {
    if (!checked_.restarts && !checked_.time && !is_stuck_in_a_driver()) return exec_command(attempt.command);
    return launch(attempt.command, checked_.time);
  }
  void ended(const RunAttempt&, const CommandExit& last) override {
    if (!last.timed_out) return;
    std::fprintf(stderr, "berth: the command timed out after %s\n", duration_text(*checked_.time).c_str());
    CommandExit late;
    late.status = timed_out_status;
    exit_like(late);
  }
  void print_refusal(const Reservation& refused) const {
    const std::string advice =
        checked_.wait > Duration::zero()
            ? "gave up after waiting " + duration_text(real_clock().now() - asked_) + "; see berth why"
            : "see berth why, or wait with --wait";
    std::fputs(refusal_text(refused, settings_.context->observer.devices(), advice).c_str(), stderr);
  }

  const RunArguments& arguments_;
  const CheckedOptions& checked_;
  RunSettings settings_;
  TimePoint asked_{};
};

int run_command(const RunArguments& arguments) {
  const Result<CheckedOptions> checked = check(arguments);
  if (!checked) return print_error(checked.error());
  const Result<std::string> program =
      find_command(checked->array.empty() ? arguments.command.front()
                                          : with_index(arguments.command.front(), checked->array.front()));
  if (!program) return print_start_error(program.error());
  if (arguments.detach) return run_detached(arguments, *checked);
  return ForegroundRun(arguments, *checked).run(*program);
}

}  // namespace

void add_run(const Verb& command) {
  static constexpr std::string_view priorities[] = {"low", "normal", "high"};
  static constexpr std::string_view limits[] = {"none", "watch", "framework", "mps"};
  static constexpr std::string_view fault_actions[] = {"stop", "restart"};
  const auto arguments = std::make_shared<RunArguments>();
  Verb verb = command.add("run", "run a command on devices with enough free memory, and hold them until it ends");
  add_request_options(verb, arguments->request);
  verb.option(
      "--wait", "TIME", &arguments->wait,
      "wait for devices for at most this long (90s, 5m, 2h, 1d); without it, fail if they are not available now");
  verb.option("--priority", "NAME", &arguments->request.priority, "priority while waiting: low, normal or high");
  verb.offer_words("--priority", priorities);
  verb.option("--load-lock", "TIME", &arguments->load_lock,
              "keep other commands with a load lock off the device for this long (60s, 5m)");
  verb.option(
      "--limit", "HOW", &arguments->limit,
      "how --mem is enforced: none; watch (end the job after it has used more for ten seconds); framework (set for "
      "PyTorch, JAX and CuPy); mps (by the driver, per process; needs a running MPS daemon). By default the limit is "
      "set for JAX and CuPy, and MPS is used if its daemon is running");
  verb.offer_words("--limit", limits);
  verb.option(
      "--on-fault", "WHAT", &arguments->on_fault,
      "what to do when the command crashes, or fails while its device reports an error: stop, or restart it (on "
      "another device if one has room, at most 3 times in a minute)");
  verb.offer_words("--on-fault", fault_actions);
  verb.flag("-q,--quiet", arguments->quiet, "do not print which devices the command gets, or that a job is done");
  verb.option("--time", "TIME", &arguments->time, "end the command when it has run this long (90s, 8h)");
  verb.flag("-d,--detach", arguments->detach,
            "run the command as a job: print its id, wait for devices (with --wait, at most that long), and continue "
            "without a terminal");
  verb.option("--name", "NAME", &arguments->name, "give the job a name in addition to its id");
  verb.option(
      "--array", "INDICES", &arguments->array,
      "start a job for each index (1-8, or 0-3,7), at most 1000: NAME-1, NAME-2 and so on; {} in the command and "
      "in --output is the index (to map it to a value, see docs/guide/jobs.md)");
  verb.option("--after", "JOB", &arguments->after,
              "start the job when these jobs are done, and skip it if one of them ends in any other way; several with "
              "commas, or a "
              "pattern such as 'sweep-*'");
  verb.option("--after-any", "JOB", &arguments->after_any,
              "start the job when these jobs have ended, whatever the result");
  for (const char* const option : {"--after", "--after-any"}) verb.offer(option, {Names::jobs});
  verb.option("--begin", "TIME", &arguments->begin,
              "do not start the job before this time: 20:00, 2026-11-20T08:00, or 2h from now");
  verb.option("--output", "FILE", &arguments->output,
              "append the output of the job to this file; by default the output is stored with the job");
  verb.option("--notify", "COMMAND", &arguments->notify,
              "run this shell command when the job has ended, with BERTH_JOB, BERTH_JOB_NAME, BERTH_JOB_STATE, "
              "BERTH_JOB_STATUS and BERTH_JOB_REASON");
  OptionRules few;
  few.range = {0, 1000};
  verb.option("--retries", "N", &arguments->retries, "start the job again when it fails, up to this many times", few);
  verb.flag("--json", arguments->json, "print the id and folder of the job as one JSON object");
  verb.argument("COMMAND", &arguments->command, "the command and its arguments, after --", false);
  verb.footer(
      {"The command replaces berth: it has the same process id, receives signals itself, and its exit "
       "status is that of berth. With --on-fault restart or --time it is a child of berth, which forwards signals "
       "and exits with the command's status.",
       "Environment of the command: CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES (UUIDs), "
       "BERTH_VISIBLE_DEVICES, BERTH_MEMORY_BYTES and BERTH_MEMORY_FRACTION (of each device), BERTH_LEASE. "
       "Unless they are set already: XLA_PYTHON_CLIENT_MEM_FRACTION, CUPY_GPU_MEMORY_LIMIT; with --limit "
       "framework PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF; with MPS CUDA_MPS_PINNED_DEVICE_MEM_LIMIT.",
       "Exit status: that of the command; 124 it ran longer than --time; 127 command not found; 126 it cannot "
       "be executed; before it starts: "
       "1 environment error; 2 wrong input or usage; 3 the request does not fit."},
      false);
  verb.run([arguments, verb] {
    arguments->options = verb.given_options();
    return run_command(*arguments);
  });
}

}  // namespace berth::cli
