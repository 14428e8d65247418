#include "cli/project_change.hpp"

#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <csignal>
#include <cstdio>
#include <limits>
#include <map>
#include <set>

#include "cli/ready_wait.hpp"
#include "cli/text/answer_fields.hpp"
#include "cli/text/answer_table.hpp"
#include "cli/text/fleet_text.hpp"
#include "cli/text/spec_text.hpp"
#include "cli/verbs/plan.hpp"
#include "fleet_format/plan_json.hpp"
#include "fleet_format/spec_json.hpp"
#include "format/json_reading.hpp"
#include "format/json_text.hpp"
#include "world/files.hpp"

namespace berth::cli {

using namespace format;
using namespace world;
namespace {

namespace json = boost::json;

std::string deployment_changes_text(const json::object& answer, const Style& style) {
  std::string text;
  for (const json::value& value : Fields(answer).list("changes")) {
    const Fields change(value);
    const std::string kind = change.raw("change");
    const std::string fields = field_names_text(change.list("fields"));
    const bool added = kind == "added", removed = kind == "removed";
    text += paint(style,
                  added     ? Colour::green
                  : removed ? Colour::red
                            : Colour::yellow,
                  (added     ? "+ "
                   : removed ? "- "
                             : "~ ") +
                      change.text("deployment")) +
            (fields.empty() ? "" : "  " + fields) + "\n";
  }
  return text;
}

// "ask for 70.0 GiB instead of 120.0 GiB", for each pending entry; empty if the answer has none.
std::vector<std::string> changes_for_pending(const json::object& answer) {
  std::vector<std::string> texts;
  const Fields plan = Fields(answer).in("plan");
  for (const json::value& pending : plan.list("pending")) {
    const Fields change = Fields(pending).in("change");
    texts.push_back(change.has("text")
                        ? change.text("text") + (change.has("command") ? ": " + change.text("command") : std::string())
                        : std::string());
  }
  return texts;
}

// Right after the server starts, it knows nothing about the joined nodes. If something seems to fit nowhere then, wait
// for their first reports. How long an agent needs to list its devices depends on their drivers.
constexpr Duration first_reports_max = std::chrono::seconds(15);
void await_first_reports(ServerAccess& server, const Call& dry_run) {
  const Deadline deadline = Deadline::after(real_clock(), first_reports_max);
  const auto awaited = [&] {
    const Result<Answer> status = server.call({"/api/v1/status"});
    return status && Fields(status->json).in("nodes").number("awaited").value_or(0) > 0;
  };
  while (awaited() && !deadline.passed(real_clock().now())) {
    const Result<Answer> plan = server.call(dry_run);
    if (!plan || Fields(plan->json).in("plan").list("pending").empty()) return;
    real_clock().sleep_for(ask_again);
  }
}

Result<Answer> put_project(ServerAccess& server, const Project& project, bool dry_run,
                           std::optional<std::uint64_t> if_version) {
  Call call{"/api/v1/project", "PUT", {{"project", project_to_json(project)}, {"dry_run", true}}};
  if (if_version) call.body["if_version"] = *if_version;
  await_first_reports(server, call);
  if (!dry_run) call.body.erase("dry_run");
  return server.call(call);
}

// Prints the answer, and returns the status of its plan. If `waits`, replicas without a place are reported at the end
// of the wait.
int print_change(const ServerArguments& arguments, const Answer& answer, const std::string& last_line, bool waits) {
  try {
    const std::string text = arguments.json ? answer.text : change_text(answer.json, stdout_style()) + last_line;
    if (const int printed = print(text); printed != done) return printed;
    const Plan plan = plan_of(member(answer.json, "plan", "the answer"));
    if (waits) return plan.pending.empty() ? done : does_not_fit;
    return status_of_plan(plan);
  } catch (const JsonError& error) {
    return print_error(to_error(error));
  }
}

std::string version_in(const Answer& answer) { return "version " + Fields(answer.json).count("version"); }

// Prints the result of an applied change.
int print_applied(const ServerArguments& arguments, const Answer& answer, bool waits) {
  const std::string version = version_in(answer);
  return print_change(arguments, answer,
                      Fields(answer.json).is("changed") ? "applied as " + version + "\n"
                                                        : "nothing has changed; " + version + " remains active\n",
                      waits);
}

// The version of the project that a plan file was made for.
Result<std::uint64_t> version_of_plan(const std::string& path, const Project& project) {
  const std::string text = BERTH_TRY(read_text(path));
  const std::string advice = "give a file that berth plan --server -o has written";
  const json::value plan = BERTH_TRY(parse_json(text, path, advice));
  const json::object* const object = plan.if_object();
  if (object == nullptr || !object->contains("version") || !object->contains("project"))
    return Error{ErrorCode::invalid_argument, path + " is not a plan for a server", advice};
  try {
    const std::uint64_t version = whole_of(object->at("version"), "version");
    // Compared as text, because the same value has several forms in memory.
    if (json_text(object->at("project")) != json_text(json::parse(json_text(project_to_json(project)))))
      return Error{ErrorCode::unavailable, path + " was made for another project file",
                   "plan again: berth plan FILE --server -o " + path};
    return version;
  } catch (const JsonError& error) {
    return Error{ErrorCode::invalid_argument, path + " is not a plan for a server: " + error.what, advice};
  }
}

// While an object exists, SIGINT writes a last line to stderr and then ends the process as usual.
class LastLine {
 public:
  explicit LastLine(std::string text) {
    text_ = std::move(text);
    struct sigaction action{};
    action.sa_handler = write_it;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(SIGINT, nullptr, &before_);
    if (before_.sa_handler != SIG_IGN) sigaction(SIGINT, &action, nullptr);
  }
  ~LastLine() { sigaction(SIGINT, &before_, nullptr); }
  LastLine(const LastLine&) = delete;
  LastLine& operator=(const LastLine&) = delete;

 private:
  static void write_it(int signal) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text_.data(), text_.size());
    raise(signal);
  }
  static inline std::string text_;  // for the signal handler, which has no object
  struct sigaction before_{};
};

// The current progress, on one line of the terminal that is rewritten each time.
class ProgressLine {
 public:
  explicit ProgressLine(bool shown) : shown_(shown && stderr_is_terminal()) {}
  bool is_shown() const { return shown_; }
  void show(const std::string& text) const {
    const Style style = stderr_style();
    // The last column stays free: some terminals begin a new line there.
    if (shown_) std::fprintf(stderr, "\r\033[K%s", cut(style, text, style.columns - 1).c_str());
  }

 private:
  bool shown_;
};

Error stopped_error(ServerAccess& server, const ReadyProgress& progress) {
  const std::string name = http::encoded(progress.deployment);
  const Result<Answer> deployment = server.call({"/api/v1/deployments/" + name});
  const Result<Answer> replicas = server.call({"/api/v1/replicas?deployment=" + name});
  const json::object none;
  return {ErrorCode::work_failed, progress.text,
          advice_when_stopped(deployment ? deployment->json : none, replicas ? replicas->json : none)};
}

// The line to show: the first that gives a reason, otherwise the first.
std::string most_informative(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    if (line.find(": ") != std::string::npos) return line;
  }
  return lines.empty() ? "" : lines.front();
}

// A change that was applied and is waited for.
struct Change {
  Project project;        // the deployments that must become ready
  Plan plan;              // from the server's answer
  std::string version;    // "version 7"
  bool prints = true;     // print progress and result; false: print only errors
  bool has_shown = true;  // the plan was printed with its reasons
};

// Whether the printed plan has already given the reasons in all these lines.
bool explains(const Plan& plan, const std::vector<std::string>& lines) {
  const auto is_in_plan = [&](const std::string& line) {
    return std::any_of(plan.pending.begin(), plan.pending.end(), [&](const Pending& pending) {
      return line.ends_with(" pending: " + printable(pending.reason.text));
    });
  };
  return std::all_of(lines.begin(), lines.end(), is_in_plan);
}

// Whether the sentence names the replica of this line and its reason.
bool explains(const std::string& sentence, const std::string& line) {
  const std::string name = line.substr(0, line.find(' '));
  const std::size_t reason = line.find(": ");
  return sentence.find(" " + name + " ") != sentence.npos && reason != line.npos &&
         sentence.ends_with(line.substr(reason));
}

// Returns the exit status.
int print_end(ServerAccess& server, const Change& change, const ReadyProgress& progress,
              std::vector<std::string> unready) {
  if (progress.state == ReadyProgress::State::ready) return change.prints ? print(progress.text + "\n") : done;
  if (progress.state == ReadyProgress::State::stuck) {
    print_error({ErrorCode::work_failed, progress.text, "see berth logs NAME/N and berth why replica NAME/N"});
  } else if (progress.state == ReadyProgress::State::does_not_fit) {
    std::vector<std::string> all = unready;
    all.push_back(progress.text);
    if (change.has_shown && explains(change.plan, all)) return status_of_plan(change.plan);
    const bool is_one = unready.size() < 2;
    print_error({ErrorCode::no_eligible_device, is_one ? progress.text : "some replicas do not fit anywhere",
                 "see berth status"});
    if (is_one) unready.clear();
  } else {
    print_error(stopped_error(server, progress));
    const bool is_one = unready.size() < 2;
    std::erase_if(unready, [&](const std::string& line) { return is_one || explains(progress.text, line); });
  }
  for (const std::string& line : unready) std::fprintf(stderr, "  %s\n", line.c_str());
  return progress.state == ReadyProgress::State::does_not_fit ? does_not_fit : environment_error;
}

int wait_until_ready(ServerAccess& server, const Change& change) {
  const ProgressLine line(change.prints);
  const LastLine last_line((line.is_shown() ? "\r\033[K" : "") + std::string("berth: ") + change.version +
                           " stays applied; berth status shows the progress\n");
  const auto is_waited_for = [&](const Pending& pending) {
    return std::any_of(change.project.deployments.begin(), change.project.deployments.end(),
                       [&](const DeploymentSpec& spec) { return spec.name == pending.deployment; });
  };
  const bool fits = std::none_of(change.plan.pending.begin(), change.plan.pending.end(), is_waited_for);
  const json::object unknown;
  for (ReadyWait wait(change.project, fits);; real_clock().sleep_for(ask_again)) {
    const Result<Answer> status = server.call({"/api/v1/status"});
    if (!status) {
      line.show("");
      return print_error(status.error());
    }
    const Result<Answer> replicas = server.call({"/api/v1/replicas"});
    const json::object& all = replicas ? replicas->json : unknown;
    const ReadyWait::Look look = wait.look(status->json, all, real_clock().now());
    const std::vector<std::string> unready = unready_lines(change.project, all);
    if (look.is_final) {
      line.show("");
      return print_end(server, change, look.progress, unready);
    }
    line.show(look.progress.text + (unready.empty() ? "" : "; " + most_informative(unready)));
  }
}

// The deployment in the answer to a change of a single deployment. Throws a JsonError.
Project deployment_in(const Answer& answer) {
  const json::object& deployment = object_of(member(answer.json, "deployment", "the answer"), "deployment");
  Project project;
  project.deployments.push_back(spec_in_record(member(deployment, "spec", "deployment"), "deployment.spec"));
  return project;
}

// `project`: the applied project; null: wait for the deployment in the answer.
int wait_after(ServerAccess& server, const Answer& answer, const Project* project, bool prints, bool has_shown) {
  Change change{{}, {}, version_in(answer), prints, has_shown};
  try {
    change.plan = plan_of(member(answer.json, "plan", "the answer"));
    change.project = project ? *project : deployment_in(answer);
  } catch (const JsonError& error) {
    return print_error(to_error(error));
  }
  return wait_until_ready(server, change);
}

// Prints the plan of an applied change, and waits for the change if `wait` is set.
int print_and_wait(ServerAccess& server, const ServerArguments& arguments, const Answer& answer, const Project* project,
                   bool wait) {
  const int status = print_applied(arguments, answer, wait);
  if (!wait || (status != done && status != does_not_fit)) return status;
  return wait_after(server, answer, project, !arguments.json, !arguments.json);
}

}  // namespace

Plan plan_of(const json::value& value) {
  const json::object& object = object_of(value, "plan");
  Plan plan;
  plan.assignments = entries_of(member(object, "assignments", "plan"), "plan.assignments", assignment_of);
  const auto action_of = [](const json::value& entry, const std::string& where) {
    const json::object& action = object_of(entry, where);
    Action out{optional_member(action, "before", where, assignment_of),
               optional_member(action, "after", where, assignment_of)};
    if (!out.before && !out.after) throw JsonError{where + " has neither before nor after"};
    return out;
  };
  plan.actions = entries_of(member(object, "actions", "plan"), "plan.actions", action_of);
  const auto pending_of = [](const json::value& entry, const std::string& where) {
    const json::object& pending = object_of(entry, where);
    Pending out;
    out.deployment = DeploymentId(text_of(member(pending, "deployment", where), where + ".deployment"));
    out.replicas = entries_of(member(pending, "replicas", where), where + ".replicas", small_of);
    out.reason.text = text_of(member(pending, "text", where), where + ".text");
    return out;
  };
  plan.pending = entries_of(member(object, "pending", "plan"), "plan.pending", pending_of);
  return plan;
}

int status_of_plan(const Plan& plan) {
  if (plan.pending.empty()) return done;
  std::fprintf(stderr, "berth: %s not placed; the pending lines above give the reasons\n",
               plan.pending.size() == 1 ? "one deployment is" : "some deployments are");
  return does_not_fit;
}

std::string change_text(const json::object& answer, const Style& style) {
  const Plan plan = plan_of(member(answer, "plan", "the answer"));
  std::string text = deployment_changes_text(answer, style);
  if (!text.empty()) text += "\n";
  // Replicas that keep their place but change their command or settings.
  std::vector<std::string> restarts;
  std::string names;
  std::set<std::string, std::less<>> moved;
  for (const Action& action : plan.actions)
    moved.insert(action.subject().deployment.text() + "/" + std::to_string(action.subject().replica));
  for (const json::value& name : Fields(answer).list("restarts")) {
    if (!name.is_string() || moved.contains(std::string_view(name.get_string()))) continue;
    restarts.emplace_back(name.get_string());
    names += (names.empty() ? "" : ", ") + printable(restarts.back());
  }
  if (!names.empty()) text += "~  " + names + " to restart, one after another\n";
  return text + readable_plan(plan, {}, style, changes_for_pending(answer), restarts);
}

int plan_on_server(const ServerArguments& arguments, const Project& project, const std::optional<std::string>& output) {
  Result<ServerAccess> server = ServerAccess::open(arguments);
  if (!server) return print_error(server.error());
  const Result<Answer> answer = put_project(*server, project, true, std::nullopt);
  if (!answer) return print_error(answer.error());
  if (output) {
    json::object file = Fields(answer->json).in("plan").object();
    if (const json::value* const version = answer->json.if_contains("version")) file["version"] = *version;
    file["project"] = project_to_json(project);
    if (const auto written = write_text(*output, json_text(file) + "\n"); !written) return print_error(written.error());
  }
  return print_change(arguments, *answer, "planned for " + version_in(*answer) + "\n", false);
}

int apply_to_server(const ServerArguments& arguments, const Project& project,
                    const std::optional<std::string>& plan_file, bool wait) {
  std::optional<std::uint64_t> version;
  if (plan_file) {
    const Result<std::uint64_t> read = version_of_plan(*plan_file, project);
    if (!read) return print_error(read.error());
    version = *read;
  }
  Result<ServerAccess> server = ServerAccess::open(arguments);
  if (!server) return print_error(server.error());
  const Result<Answer> answer = put_project(*server, project, false, version);
  if (!answer) return print_error(answer.error());
  return print_and_wait(*server, arguments, *answer, &project, wait);
}

int scale_on_server(const ServerArguments& arguments, const std::string& deployment, std::uint32_t replicas,
                    bool wait) {
  Result<ServerAccess> server = ServerAccess::open(arguments);
  if (!server) return print_error(server.error());
  const Result<Answer> answer =
      server->call({"/api/v1/deployments/" + http::encoded(deployment) + "/scale", "POST", {{"replicas", replicas}}});
  return answer ? print_and_wait(*server, arguments, *answer, nullptr, wait) : print_error(answer.error());
}

int roll_out_and_wait(const ServerArguments& arguments, const Call& call) {
  Result<ServerAccess> server = ServerAccess::open(arguments);
  if (!server) return print_error(server.error());
  const Result<Answer> answer = server->call(call);
  if (!answer) return print_error(answer.error());
  const int printed = print(arguments.json ? answer->text : rollout_text(answer->json, stdout_style()));
  return printed == done ? wait_after(*server, *answer, nullptr, !arguments.json, false) : printed;
}

void add_wait_flag(Verb& verb, bool& wait) {
  verb.flag(
      "--wait", wait,
      "wait until all replicas are ready; if one cannot become ready, list those that are not ready and exit with "
      "status 1, or 3 if they do not fit anywhere");
}

ReadyProgress progress_of(const Project& project, const json::object& status) {
  const Fields all(status);
  std::map<std::string, double> pending;
  std::map<std::string, std::string> reasons;
  for (const json::value& value : all.list("pending")) {
    const Fields entry(value);
    const std::string name = entry.raw("deployment");
    // An entry that names no replicas means that the whole deployment is pending.
    pending[name] += entry.list("replicas").empty() ? std::numeric_limits<double>::infinity()
                                                    : static_cast<double>(entry.list("replicas").size());
    reasons.try_emplace(name, entry.in("reason").text("text"));
  }
  std::map<std::string, Fields> summaries;
  for (const json::value& value : all.list("deployments")) summaries.emplace(Fields(value).raw("name"), Fields(value));

  double wanted = 0, ready = 0, updated = 0;
  std::size_t complete = 0, out = 0;
  std::string why;
  for (const DeploymentSpec& spec : project.deployments) {
    const std::string& name = spec.name.text();
    const auto at = summaries.find(name);
    wanted += spec.replicas;
    if (at == summaries.end()) continue;
    const Fields& now = at->second;
    const double ready_now = now.number("ready").value_or(0);
    ready += std::min<double>(ready_now, spec.replicas);
    updated += std::min<double>(now.number("updated").value_or(0), spec.replicas);
    const std::string state = now.raw("state");
    if (state == "paused" || state == "failed")
      return {ReadyProgress::State::stopped,
              printable(name) + (state == "paused" ? " is " + state_prefix(state, now.raw("reason")) : " fails: ") +
                  now.text("reason"),
              name};
    if (state == "serving" && now.number("updated").value_or(0) >= spec.replicas) {
      ++complete;
    } else if (const auto none = pending.find(name);
               none != pending.end() && ready_now + none->second >= spec.replicas) {
      ++out;
      if (why.empty()) why = printable(name) + " is pending: " + reasons.at(name);
    }
  }
  const auto share = [&](double part) {
    return std::to_string(static_cast<std::uint64_t>(part)) + " of " +
           std::to_string(static_cast<std::uint64_t>(wanted));
  };
  if (complete == project.deployments.size())
    return {ReadyProgress::State::ready, share(ready) + " replicas are ready"};
  if (complete + out == project.deployments.size()) return {ReadyProgress::State::does_not_fit, why};
  return {ReadyProgress::State::goes_on,
          share(ready) + " ready" + (updated < ready ? ", " + share(updated) + " updated" : "")};
}

std::string advice_when_stopped(const json::object& answer, const json::object& replicas) {
  const Fields deployment = Fields(answer).in("deployment"), rollout = deployment.in("rollout");
  const std::string name = deployment.text("name");
  std::string failing;
  const Fields all(replicas);
  for (const json::value& value : all.list("replicas")) {
    const Fields replica(value);
    if (failing.empty() && replica.is("current") && replica.raw("state") != "ready") failing = replica.text("name");
  }
  std::string advice = "see " + (failing.empty() ? "berth status" : "berth logs " + failing);
  if (rollout.number("undo_revisions").value_or(0) > 0) advice += "; to go back: berth rollout undo " + name;
  if (rollout.is("paused")) advice += "; to try again: berth rollout resume " + name;
  return advice;
}

}  // namespace berth::cli
