#include "cli/verbs/why.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>

#include "berth/ledger.hpp"
#include "cli/command_line.hpp"
#include "cli/job_access.hpp"
#include "cli/server_access.hpp"
#include "cli/text/candidates_text.hpp"
#include "cli/text/fleet_text.hpp"
#include "cli/text/request_text.hpp"
#include "cli/text/shards_text.hpp"
#include "cli/text/terminal.hpp"
#include "cli/why_waiting.hpp"
#include "format/json_text.hpp"
#include "inventory/short_id.hpp"
#include "world/files.hpp"
#include "world/wall_time.hpp"

namespace berth::cli {

using namespace format;
using namespace inventory;
using namespace machine;
using namespace world;

namespace json = boost::json;

namespace {

std::vector<DeviceId> ids_of(const DecisionRecord& record) {
  std::vector<DeviceId> ids;
  for (const DecisionRecord::Device& seen : record.devices) ids.push_back(seen.info.id);
  return ids;
}

std::vector<Suggestion> changes_of(const DecisionRecord& record) {
  const WaitOption waiting = record.waited           ? WaitOption::timed_out
                             : record.verb == "pick" ? WaitOption::unsupported
                                                     : WaitOption::available;
  return suggest(record.requirements, record.count, record.views(), waiting);
}

// The decision without its outcome.
std::string subject_text(const DecisionRecord& record) {
  std::string text = "decision " + record.id + ": berth " + record.verb;
  if (!record.program.empty()) text += " for " + record.program;
  return text + ", " + utc_text(record.wall_time_us) + " UTC, policy " + record.policy;
}

// The command that makes the change: a complete one, or the same verb with another option.
std::string next_step(const DecisionRecord& record, const Suggestion& change) {
  if (change.command.starts_with("berth ")) return change.command;
  return "berth " + record.verb + " again" + (change.command.starts_with("-") ? " with " : "; ") + change.command;
}

json::object change_to_json(const Suggestion& change) {
  json::object out{{"knob", to_string(change.kind)}, {"text", change.text}};
  if (!change.command.empty()) out["command"] = change.command;
  if (change.amount > 0) out["amount"] = change.amount;
  if (!change.amounts.empty()) out["amounts"] = json::array(change.amounts.begin(), change.amounts.end());
  if (change.capability) out["capability"] = to_string(*change.capability);
  if (!change.name.empty()) out["name"] = change.name;
  json::array devices;
  for (const DeviceId& id : change.devices) devices.emplace_back(id.text());
  if (!devices.empty()) out["devices"] = std::move(devices);
  return out;
}

int print_list(const std::string& folder, bool as_json) {
  Table table({"ID", "TIME (UTC)", "VERB", "PROGRAM", ">N", "ANSWER"});
  // The TIME column may go first, because the id begins with the time.
  table.may_shrink(5, 20).may_shrink(3, 8).may_go(1).may_go(4).may_go(2);
  json::array out;
  const std::vector<std::string> ids = record_ids(folder);
  // The newest one first. A file that cannot be read does not hide the others.
  for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
    const auto record = load_record(folder, *id);
    if (!record) {
      print_error(record.error());
      continue;
    }
    const std::string answer = record->winners.empty() ? record->reason : to_text(record->winners);
    table.add({record->id, utc_text(record->wall_time_us), record->verb,
               record->program.empty() ? "-" : printable(record->program), std::to_string(record->count),
               printable(with_short_ids(answer, ids_of(*record)))});
    json::object entry{{"id", record->id},        {"time", utc_text(record->wall_time_us)},
                       {"verb", record->verb},    {"program", record->program},
                       {"count", record->count},  {"fits", !record->winners.empty()},
                       {"reason", record->reason}};
    out.push_back(std::move(entry));
  }
  return print(as_json ? json_text(out) + "\n" : table.to_text(stdout_style()));
}

// The newest readable decision, with a note if newer ones cannot be read.
Result<DecisionRecord> last_record(const std::string& folder) {
  Result<DecisionRecord> last = load_record(folder, {});
  if (last || last.error().code == ErrorCode::unavailable) return last;
  const std::vector<std::string> ids = record_ids(folder);
  for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
    Result<DecisionRecord> older = load_record(folder, *id);
    if (!older) continue;
    std::fprintf(stderr, "berth: note: the last decision cannot be read, so this is an earlier one: %s\n",
                 printable(last.error().message).c_str());
    return older;
  }
  return last;
}

}  // namespace

std::string to_text(std::span<const DeviceId> devices) {
  std::string text;
  for (const DeviceId& id : devices) text += (text.empty() ? "" : ", ") + id.text();
  return text.empty() ? "no device" : text;
}

json::object explanation_to_json(const Explanation& explanation, const std::string& limit) {
  json::array candidates, funnel;
  for (const Explanation::Stage& stage : explanation.funnel)
    funnel.push_back(json::object{{"name", stage.name}, {"left", stage.left}});
  for (const Explanation::Candidate& candidate : explanation.candidates) {
    json::object entry{{"device", candidate.device.text()}, {"eligible", !candidate.rejection}};
    if (candidate.rejection) entry["rejection"] = to_string(*candidate.rejection);
    json::array causes;
    for (const Cause cause : candidate.causes) causes.emplace_back(to_string(cause));
    if (!causes.empty()) entry["causes"] = std::move(causes);
    if (!candidate.detail.empty()) entry["detail"] = candidate.detail;
    if (candidate.cost) entry["cost"] = *candidate.cost;
    if (candidate.memory_bytes_available) entry["memory_bytes_available"] = *candidate.memory_bytes_available;
    candidates.push_back(std::move(entry));
  }
  json::object out{{"reason", limit.empty() ? explanation.reason() : limit}, {"funnel", std::move(funnel)}};
  if (explanation.cause) out["cause"] = to_string(*explanation.cause);
  if (!limit.empty()) out["cause"] = "limit";
  if (explanation.runner_up) out["runner_up"] = explanation.runner_up->text();
  out["candidates"] = std::move(candidates);
  return out;
}

json::array changes_to_json(std::span<const Suggestion> changes) {
  json::array out;
  for (const Suggestion& change : changes) out.push_back(change_to_json(change));
  return out;
}

std::string why_text(const DecisionRecord& record, const Explanation& explanation, const Style& style) {
  const std::vector<DeviceId> ids = ids_of(record);
  const auto sentence = [&](const std::string& text) { return sentence_text(text, ids, style); };
  std::string text =
      sentence(record.reason) + sentence(record.funnel) + "\n" + candidates_text(explanation, ids, style);
  if (explanation.winners != record.winners)
    text += "\n" + sentence("this version of berth decides differently: " + explanation.reason());
  if (!record.limit.empty()) return text + "\n" + limit_text(false, style) + "\n" + sentence(subject_text(record));
  const std::vector<Suggestion> changes = record.winners.empty() ? changes_of(record) : std::vector<Suggestion>{};
  if (!changes.empty()) {
    text += "\n" + sentence("each of these changes alone would have been enough; a smaller one would not:");
    text += changes_text(changes, ids, style);
    text += "\n" + sentence("next: " + next_step(record, changes.front()));
  } else if (record.winners.empty()) {
    text += "\nno single change would have let it fit\nnext: berth doctor\n";
  }
  return text + "\n" + sentence(subject_text(record));
}

json::object why_to_json(const DecisionRecord& record, const Explanation& explanation) {
  json::object out = record_to_json(record);
  out["explanation"] = explanation_to_json(explanation, record.limit);
  out["changes"] = record.winners.empty() && record.limit.empty() ? changes_to_json(changes_of(record)) : json::array();
  return out;
}

namespace {

struct WhyArguments {
  std::optional<std::string> id;              // the id of a decision; absent: the last decision
  std::string name;                           // after the word "replica", "request" or "key"
  std::string deployment, host, path, model;  // properties of a hypothetical request, or of a key
  bool list = false;
  ServerArguments server;  // for a replica, a request or a key
};

// The decision of a job. Fails with `unavailable` if none has been made yet.
Result<DecisionRecord> record_of_job(const std::string& folder, const Job& job) {
  if (const Result<std::string> own = read_plain_text(job.decision())) return read_record(*own, job.decision());
  // Earlier versions stored only the id of the decision.
  if (!job.progress.decision.empty()) return load_record(folder, job.progress.decision);
  return Error{ErrorCode::unavailable, "job " + job.id + (job.has_ended() ? " ended" : " started") +
                                           " without a decision about devices" +
                                           (job.progress.reason.empty() ? "" : ": " + job.progress.reason)};
}

// Neither a decision nor a job has this id.
Error no_decision(const std::string& id) {
  const Result<std::shared_ptr<Ledger>> ledger = Ledger::open();
  const Result<LedgerSnapshot> snapshot = ledger ? (*ledger)->snapshot() : Result<LedgerSnapshot>(ledger.error());
  const auto is_named = [&](const LedgerEntry& entry) { return std::to_string(entry.id()) == id; };
  if (snapshot && std::any_of(snapshot->entries.begin(), snapshot->entries.end(), is_named))
    return {ErrorCode::not_found,
            id + " is a lease, not a decision; decisions of a program with a Pool are not recorded",
            "list decisions with berth why --list; a program gets its reasons from Pool::explain"};
  return {ErrorCode::not_found, "no job or decision is named '" + printable(id) + "'",
          "list them with berth ps -a and berth why --list"};
}

int run_why_key(const WhyArguments& arguments) {
  Result<ServerAccess> server = ServerAccess::open(arguments.server);
  if (!server) return print_error(server.error());
  const Result<Answer> answer = server->call({"/api/v1/shards"});
  if (!answer) return print_error(answer.error());
  const Result<KeyPlace> place = place_of_key(answer->json, arguments.deployment, arguments.name);
  if (!place) return print_error(place.error());
  if (arguments.server.json) return print(json_text(to_json(*place)) + "\n");
  return print(key_place_text(*place, stdout_style()));
}

// Explains what happened to a request, or what would happen to a hypothetical one.
int run_why_request(const WhyArguments& arguments) {
  json::object asked;
  for (const auto& [name, value] : {std::pair("deployment", &arguments.deployment),
                                    {"host", &arguments.host},
                                    {"path", &arguments.path},
                                    {"model", &arguments.model}})
    if (!value->empty()) asked[name] = *value;
  if (asked.empty() == arguments.name.empty())
    return print_error({ErrorCode::invalid_argument,
                        asked.empty() ? "no request id was given"
                                      : "--path, --host, --model and --deployment do not apply to a request id",
                        "write berth why request ID, or berth why request --path PATH"});
  if (asked.empty())
    return call_and_print(arguments.server, {"/api/v1/requests/" + http::encoded(arguments.name)}, request_text);
  return call_and_print(arguments.server, {"/api/v1/route", "POST", std::move(asked)}, route_text);
}

int run_why(const WhyArguments& arguments) {
  const bool as_json = arguments.server.json;
  const bool is_request = !arguments.host.empty() || !arguments.path.empty() || !arguments.model.empty();
  if (arguments.id == "request") return run_why_request(arguments);
  if (arguments.id == "key" && !arguments.name.empty() && !is_request) return run_why_key(arguments);
  if (arguments.id == "key")
    return print_error({ErrorCode::invalid_argument,
                        is_request ? "--path, --host and --model do not apply to a key" : "no key was given",
                        "write berth why key KEY"});
  if (is_request || !arguments.deployment.empty())
    return print_error({ErrorCode::invalid_argument, "--deployment, --host, --path and --model apply only to requests",
                        "write berth why request --path PATH"});
  if (!arguments.name.empty()) {
    if (arguments.id != "replica")
      return print_error({ErrorCode::invalid_argument, "too many names",
                          "write berth why replica NAME/N, berth why request ID or berth why key KEY"});
    const Result<ReplicaTarget> target = replica_target(arguments.name);
    if (!target) return print_error(target.error());
    return call_and_print(arguments.server, {target->path}, replica_text);
  }
  if (arguments.id == "replica" || (arguments.id && replica_target(*arguments.id)))
    return print_error(
        {ErrorCode::invalid_argument,
         arguments.id == "replica" ? "no replica was named" : "'" + *arguments.id + "' is a replica of the fleet",
         "write berth why replica " + (arguments.id == "replica" ? "NAME/N" : *arguments.id)});
  const auto folder = decisions_folder(IfMissing::accept);
  if (!folder) return print_error(folder.error());
  if (arguments.list) return print_list(*folder, as_json);
  const Result<Job> job = arguments.id ? job_named(*arguments.id) : Error{ErrorCode::not_found, "no job was named"};
  if (job && job->progress.state == JobState::waiting) return run_why_waiting(*job, as_json);
  if (arguments.id && !job && is_job_id(*arguments.id)) return print_error(job.error());
  const auto record = job            ? record_of_job(*folder, *job)
                      : arguments.id ? load_record(*folder, *arguments.id)
                                     : last_record(*folder);
  if (!record && arguments.id && !job && record.error().code == ErrorCode::not_found)
    return print_error(no_decision(*arguments.id));
  if (!record) return print_error(record.error());
  const auto explanation = decide_again(*record);
  if (!explanation) return print_error(explanation.error());
  if (as_json) return print(json_text(why_to_json(*record, *explanation)) + "\n");
  return print(why_text(*record, *explanation, stdout_style()));
}

}  // namespace

void add_why(const Verb& command) {
  const auto arguments = std::make_shared<WhyArguments>();
  Verb verb = command.add("why", "explain a decision, and what would have let the request fit");
  verb.argument("ID", &arguments->id,
                "a decision (its id or the first characters of it) or a job; by default the last decision", false);
  verb.argument(
      "NAME", &arguments->name,
      "after the word replica: a replica of the fleet, as NAME/N; shows its state and, if it has no place, "
      "the reason. After the word request: the id in the x-request-id header of a gateway's answer; shows which "
      "replica got the request and why, and how it ended. After the word key: the value of serving.key in a "
      "request; shows which replica gets requests with it",
      false);
  verb.offer("ID", {Names::jobs});
  verb.offer("NAME", {Names::replicas});
  verb.option("--path", "PATH", &arguments->path,
              "after the word request, without an id: show where a request to this path would go now");
  verb.option("--host", "HOST", &arguments->host, "the same for a request to this host");
  verb.option("--model", "MODEL", &arguments->model, "the same for a request whose body names this model");
  verb.option(
      "--deployment", "NAME", &arguments->deployment,
      "the same for a request to this deployment; after the word key: the deployment that gets requests with this key");
  verb.offer("--deployment", {Names::deployments});
  verb.flag("--list", arguments->list, "list the recorded decisions, the latest first");
  verb.flag("--json", arguments->server.json, "print one JSON value; berth replay accepts that of a single decision");
  add_address_options(verb, arguments->server);
  verb.run([arguments] { return run_why(*arguments); });
}

}  // namespace berth::cli
