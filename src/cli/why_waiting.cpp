#include "cli/why_waiting.hpp"

#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>

#include "berth/bytes.hpp"
#include "cli/job_access.hpp"
#include "cli/machine_access.hpp"
#include "cli/text/candidates_text.hpp"
#include "cli/text/waiting_text.hpp"
#include "cli/verbs/why.hpp"
#include "format/device_json.hpp"
#include "format/json_text.hpp"
#include "inventory/short_id.hpp"
#include "machine/decision.hpp"
#include "machine/job_order.hpp"
#include "machine/job_outcome.hpp"
#include "machine/job_processes.hpp"
#include "machine/run_context.hpp"
#include "machine/start_estimate.hpp"
#include "world/files.hpp"
#include "world/time_to_come.hpp"
#include "world/user_name.hpp"

namespace berth::cli {

using namespace format;
using namespace inventory;
using namespace machine;
using namespace world;
namespace {

namespace json = boost::json;

// The latest wall time at which a running job ends, from its time limit.
std::optional<std::uint64_t> end_of(const Job& job) {
  if (job.progress.state != JobState::running || !job.request.time || !job.progress.started_us) return std::nullopt;
  return *job.progress.started_us + static_cast<std::uint64_t>(*job.request.time / std::chrono::microseconds(1));
}

std::vector<Job> jobs_beside(const Job& job) { return list_jobs(std::filesystem::path(job.folder).parent_path()); }

// For a job that has not entered the queue yet: prints its reason and the latest end of each job that it follows.
int print_conditions(const Job& job, bool as_json) {
  const bool is_starting = job.progress.reason.empty() || job.progress.reason == starting_reason;
  const std::string reason =
      is_starting ? "it is starting, and devices have not been checked for it yet" : job.progress.reason;
  if (as_json) return print(json_text(json::object{{"job", job.id}, {"state", "waiting"}, {"reason", reason}}) + "\n");
  const Style style = stdout_style();
  std::string text = sentence_text(label(job) + " is waiting: " + reason, {}, style), next;
  std::vector<std::string> ids = job.request.after;
  ids.insert(ids.end(), job.request.after_any.begin(), job.request.after_any.end());
  for (const Job& other : jobs_beside(job)) {
    if (other.has_ended() || std::find(ids.begin(), ids.end(), other.id) == ids.end()) continue;
    const std::optional<std::uint64_t> end = end_of(other);
    text += sentence_text(outcome_text(other) + (end ? "; it ends by " + local_text(*end) : ""), {}, style);
    if (next.empty())
      next = other.progress.state == JobState::waiting ? "berth why " + other.id : "berth logs -f " + other.id;
  }
  return print(text + (next.empty() ? "" : "next: " + next + "\n"));
}

// Keeps only leases and processes that count towards the limits of this user.
void keep_own_leases(std::vector<DeviceRow>& rows) {
  for (DeviceRow& row : rows) {
    std::erase_if(row.held_by, [](const DeviceLease& lease) { return lease.user_id != geteuid() || lease.within; });
    if (!row.seen || !row.seen->processes) continue;
    std::erase_if(*row.seen->processes, [&](const DeviceProcess& process) {
      return std::none_of(row.held_by.begin(), row.held_by.end(), [&](const DeviceLease& lease) {
        return std::find(lease.processes.begin(), lease.processes.end(), process.pid) != lease.processes.end();
      });
    });
  }
  std::erase_if(rows, [](const DeviceRow& row) { return row.held_by.empty(); });
}

// The rows of devices that the request cannot use, as in `berth devices`, with this user's leases marked.
std::vector<DeviceRow> rows_in_the_way(const Reservation& decided, std::span<const Job> jobs) {
  std::vector<DeviceRow> rows;
  for (std::size_t i = 0; i < decided.views.size(); ++i) {
    if (!decided.limit && !decided.explanation.candidates[i].rejection) continue;
    DeviceRow& row = rows.emplace_back();
    row.info = decided.observed.devices[i].info;
    row.seen = decided.observed.devices[i].telemetry;
  }
  static_cast<void>(add_ledger(rows));
  if (decided.limit) keep_own_leases(rows);
  for (DeviceRow& row : rows)
    for (DeviceLease& lease : row.held_by)
      if (lease.user_id == geteuid()) lease.user = "you";
  name_jobs(rows, jobs);
  return rows;
}

// What lets the job start at once if the obstacle ahead of it is another job of this user.
std::vector<Suggestion> changes_of_own_jobs(const RunContext& context, const MachineSnapshot& observed,
                                            const LedgerSnapshot& snapshot, std::span<const WaitingRequest> queue,
                                            const WaitingRequest& me, const WaitingRequest& obstacle, TimePoint now) {
  const LedgerEntry* const entry = snapshot.find(obstacle.reference);
  const std::optional<Job> other =
      entry && entry->user == geteuid() ? job_supervised_by(entry->holder) : std::optional<Job>();
  std::vector<Suggestion> changes;
  if (!other) return changes;
  const auto starts_behind = [&](std::span<const WaitingRequest> ahead) {
    Reservation out;
    out.observed = observed;
    decide_within_limits(context.wanted, snapshot, std::nullopt, ahead, now, out);
    return !out.winners.empty();
  };
  const auto add = [&](std::string text, std::string command) {
    Suggestion& change = changes.emplace_back();
    change.kind = SuggestionKind::wait_in_line;
    change.text = std::move(text);
    change.command = std::move(command);
  };
  LedgerSnapshot changed = snapshot;
  for (LedgerEntry& mine : changed.entries)
    if (mine.reference == me.reference) mine.priority = Priority::high;
  const std::vector<WaitingRequest> by_priority = wait_queue(changed, now);
  const auto place = std::find_if(by_priority.begin(), by_priority.end(),
                                  [&](const WaitingRequest& request) { return request.reference == me.reference; });
  if (starts_behind({by_priority.begin(), place})) add("go ahead of your own job " + label(*other), "--priority high");
  std::vector<WaitingRequest> rest(queue.data(), &me);
  rest.erase(rest.begin() + (&obstacle - queue.data()));
  if (starts_behind(rest)) add("stop your own job " + label(*other), "berth stop " + other->id);
  return changes;
}

// A change that frees memory names the process that has it, if ending that one is enough.
void name_holders(std::vector<Suggestion>& changes, std::span<const DeviceRow> rows, const ProcessUsers& users) {
  for (Suggestion& change : changes) {
    const bool frees = change.kind == SuggestionKind::free_bytes || change.kind == SuggestionKind::end_processes;
    if (!frees || change.devices.size() != 1) continue;
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&](const DeviceRow& other) { return other.info.id == change.devices.front(); });
    if (row == rows.end() || !row->seen || !row->seen->processes) continue;
    std::vector<const DeviceProcess*> enough;
    for (const DeviceProcess& process : *row->seen->processes) {
      const bool is_leased = std::any_of(row->held_by.begin(), row->held_by.end(), [&](const DeviceLease& lease) {
        return std::find(lease.processes.begin(), lease.processes.end(), process.pid) != lease.processes.end();
      });
      if (!is_leased && process.memory_bytes.value_or(0) >= change.amount) enough.push_back(&process);
    }
    if (enough.size() != 1) continue;
    const auto user = users.find(enough.front()->pid);
    const std::string process =
        "process " + std::to_string(enough.front()->pid) +
        (enough.front()->memory_bytes ? " (" + bytes_text(*enough.front()->memory_bytes) + ")" : "");
    change.command = user == users.end()     ? "ask the owner of " + process
                     : user->second == "you" ? "end " + process
                                             : "ask " + user->second + " to end " + process;
  }
}

std::string start_text(const LeaseEnd& end, std::span<const Job> jobs) {
  std::string text = "by " + local_text(end.at_us);
  for (const Job& job : jobs) {
    const auto lease = parse_lease(job.progress.lease);
    if (lease && lease->file == end.lease.file && lease->id == end.lease.id)
      text += ", when " + label(job) + " reaches its time limit";
  }
  return text + ", if nothing else takes the devices";
}

}  // namespace

int run_why_waiting(const Job& job, bool as_json) {
  const Result<std::string> text = read_plain_text(job.order());
  const Result<JobOrder> order = text ? read_order(*text) : Result<JobOrder>(text.error());
  if (!order || job.is_elsewhere || !job.is_supervised || order->devices.count == 0)
    return print_conditions(job, as_json);
  Result<RunContext> context = open_run_context(order->devices, [](const Error&) {});
  if (!context) return print_error(context.error());
  Reservation decided;
  decided.observed = context->observer.snapshot();
  Result<LedgerSnapshot> snapshot = context->ledger->snapshot();
  if (!snapshot) return print_error(snapshot.error());
  const TimePoint now = context->ledger->clock().now();
  keep_alive(*snapshot, decided.observed, now);
  const std::vector<WaitingRequest> queue = wait_queue(*snapshot, now);
  const auto me = std::find_if(queue.begin(), queue.end(), [&](const WaitingRequest& request) {
    const LedgerEntry* const entry = snapshot->find(request.reference);
    return entry && entry->user == geteuid() && entry->holder == job.progress.supervisor;
  });
  if (me == queue.end()) return print_conditions(job, as_json);
  const std::span<const WaitingRequest> ahead(queue.begin(), me);
  decide_within_limits(context->wanted, *snapshot, std::nullopt, ahead, now, decided);
  if (!decided.limit) name_common_cause(context->wanted.requirements, decided);

  const std::vector<Job> jobs = jobs_beside(job);
  std::vector<LeaseEnd> ends;
  for (const Job& other : jobs) {
    const std::optional<std::uint64_t> end = end_of(other);
    std::optional<LeaseReference> lease = parse_lease(other.progress.lease);
    if (!end || !lease) continue;
    lease->user = geteuid();
    ends.push_back({*lease, *end});
  }
  std::optional<LeaseEnd> end;
  if (decided.winners.empty())
    end = estimate_start(context->wanted, decided.observed, *snapshot, ahead, now, std::move(ends));
  WaitingJob waiting;
  waiting.id = job.id;
  waiting.label = label(job);
  waiting.place = ahead.size() + 1;
  waiting.explanation = decided.explanation;
  waiting.reason = decided.reason();
  waiting.is_limited = decided.limit.has_value();
  waiting.ids = machine::ids_of(context->observer.devices());
  waiting.holding = rows_in_the_way(decided, jobs);
  waiting.users = users_of(waiting.holding);
  for (auto& [pid, user] : waiting.users)
    if (user == user_name(geteuid())) user = "you";
  if (end) waiting.start = start_text(*end, jobs);
  const WaitingRequest* const obstacle =
      decided.limit ? nullptr : obstacle_ahead(context->wanted, decided.observed, *snapshot, ahead, now);
  if (obstacle) {
    waiting.ahead =
        waiting_request_text(*snapshot, *obstacle) + " at place " + std::to_string(obstacle - ahead.data() + 1);
    waiting.changes = changes_of_own_jobs(*context, decided.observed, *snapshot, queue, *me, *obstacle, now);
  }
  if (decided.winners.empty() && !decided.limit) {
    const std::vector<Suggestion> others =
        suggest(context->wanted.requirements, context->wanted.count, decided.views, WaitOption::unsupported);
    waiting.changes.insert(waiting.changes.end(), others.begin(), others.end());
  }
  if (!as_json) {
    name_holders(waiting.changes, waiting.holding, waiting.users);
    return print(waiting_text(waiting, stdout_style()));
  }

  json::object out{{"job", job.id}, {"state", "waiting"}, {"place", waiting.place}, {"reason", decided.reason()}};
  out["explanation"] = explanation_to_json(decided.explanation, decided.limit ? decided.reason() : "");
  out["changes"] = changes_to_json(waiting.changes);
  if (end) out["starts_by_us"] = end->at_us;
  if (!waiting.ahead.empty()) out["ahead"] = waiting.ahead;
  json::array holding;
  for (const DeviceRow& row : waiting.holding) holding.push_back(device_to_json(row, now));
  out["in_the_way"] = std::move(holding);
  return print(json_text(out) + "\n");
}

}  // namespace berth::cli
