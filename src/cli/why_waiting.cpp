#include "cli/why_waiting.hpp"

#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>

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
  const std::string reason = job.progress.reason.empty() ? "it is starting" : job.progress.reason;
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
  for (DeviceRow& row : rows) {
    for (DeviceLease& lease : row.held_by) {
      if (lease.user_id != geteuid()) continue;
      lease.user = "you";
      for (const Job& job : jobs) {
        const auto own = parse_lease(job.progress.lease);
        if (!job.has_ended() && own && own->id == lease.lease && own->file == lease.file)
          lease.command = label(job) + ": " + lease.command;
      }
    }
  }
  return rows;
}

// "j3 (train)", "a request of bob (python)".
std::string request_text(const LedgerSnapshot& snapshot, const WaitingRequest& request, std::span<const Job> jobs) {
  const LedgerEntry* const entry = snapshot.find(request.reference);
  for (const Job& job : jobs)
    if (entry && entry->user == geteuid() && !job.has_ended() && job.progress.supervisor == entry->holder)
      return label(job);
  return waiting_request_text(snapshot, request);
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
  if (decided.winners.empty() && !decided.limit)
    waiting.changes =
        suggest(context->wanted.requirements, context->wanted.count, decided.views, WaitOption::unsupported);
  waiting.holding = rows_in_the_way(decided, jobs);
  waiting.users = users_of(waiting.holding);
  for (auto& [pid, user] : waiting.users)
    if (user == user_name(geteuid())) user = "you";
  if (end) waiting.start = start_text(*end, jobs);
  const WaitingRequest* const obstacle =
      decided.limit ? nullptr : obstacle_ahead(context->wanted, decided.observed, *snapshot, ahead, now);
  if (obstacle)
    waiting.ahead =
        request_text(*snapshot, *obstacle, jobs) + " at place " + std::to_string(obstacle - ahead.data() + 1);
  if (!as_json) return print(waiting_text(waiting, stdout_style()));

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
