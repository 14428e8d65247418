// The naive way starts what the orders name and stops what they do not. Its defects: an agent that restarted and
// has no orders would stop everything; a job seen twice would be started twice; a failing command would be
// started in a tight loop; and a `single` replica would keep running where no server can see it.
#include "agent/step.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "deployment/command.hpp"
#include "world/duration.hpp"

namespace berth::agent {
namespace {

using fleet::ReplicaKey;
using fleet::ReplicaOrder;
using fleet::ReplicaReport;
using fleet::ReplicaState;

// Whether the command of the replica or of a probe uses the placeholder `word`: {port} or {socket}.
bool uses(const DeploymentSpec& spec, std::string_view word) {
  const auto probe_uses = [&](const std::optional<Probe>& probe) {
    return probe && deployment::uses_placeholder(probe->command, word);
  };
  return deployment::uses_placeholder(spec, word) || probe_uses(spec.readiness) || probe_uses(spec.liveness);
}

bool needs_port(const DeploymentSpec& spec) {
  const auto asks_for_port = [](const std::optional<Probe>& probe) {
    return probe && (probe->http || probe->tcp) && !probe->port;
  };
  if (uses(spec, "port")) return true;
  return !uses(spec, "socket") && (asks_for_port(spec.readiness) || asks_for_port(spec.liveness));
}

void count_failure(Attempts& attempts, std::string reason, TimePoint now, std::uint64_t now_ms) {
  ++attempts.failures;
  attempts.reason = std::move(reason);
  const Duration pause = back_off(attempts.failures);
  attempts.next_start = now + pause;
  attempts.next_start_ms = now_ms + static_cast<std::uint64_t>(pause / std::chrono::milliseconds(1));
}

class Stepper {
 public:
  explicit Stepper(const Input& input) : input_(input) {
    out_.memory = input.memory;
    for (const FoundJob& job : input.jobs) jobs_[job.key].push_back(&job);
    for (auto& [key, jobs] : jobs_) {
      // The decisive job comes first: a live one, the oldest of them; otherwise the one that ended last.
      std::sort(jobs.begin(), jobs.end(), [](const FoundJob* a, const FoundJob* b) {
        if (a->is_live() != b->is_live()) return a->is_live();
        return std::tie(a->is_live() ? a->since : b->since, a->id) <
               std::tie(a->is_live() ? b->since : a->since, b->id);
      });
    }
  }

  Step run() {
    std::map<ReplicaKey, const ReplicaOrder*> orders;
    if (input_.orders) {
      for (const ReplicaOrder& order : input_.orders->orders) orders.emplace(order.assigned.key(), &order);
    }
    for (const auto& [key, jobs] : jobs_) {
      for (const FoundJob* job : jobs) keep_single(*job);
      if (!input_.orders) {
        report_unordered(key, *jobs.front(), false);
      } else if (!orders.contains(key)) {
        end_all(key, "it is not assigned to this node");
      }
    }
    for (const auto& [key, order] : orders) carry_out(key, *order);
    if (input_.orders) std::erase_if(out_.memory, [&](const auto& entry) { return !orders.contains(entry.first); });
    std::sort(out_.reports.begin(), out_.reports.end(),
              [](const ReplicaReport& a, const ReplicaReport& b) { return a.key < b.key; });
    return std::move(out_);
  }

 private:
  void look_again(TimePoint when) {
    if (when > input_.now && (!out_.look_again || when < *out_.look_again)) out_.look_again = when;
  }

  enum class Stopping : std::uint8_t { at_once, after_requests };
  void stop(const FoundJob& job, std::string reason, Stopping how = Stopping::at_once) {
    const bool drains = how == Stopping::after_requests;
    const bool is_known = job.is_stopping && (drains || !job.is_draining);
    if (job.is_live() && !is_known && stopped_.insert(job.id).second)
      out_.stop.push_back({job.id, std::move(reason), drains});
  }

  // A `single` job is stopped when its time is over, even if the server has accepted a report since: from that moment
  // the server may assume that the job has ended.
  void keep_single(const FoundJob& job) {
    if (!job.single || !job.is_live()) return;
    const TimePoint end = job.single->renewed + job.single->stop_after;
    if (input_.now >= end) {
      stop(job, "the node has had no contact with a server for " + world::duration_text(job.single->stop_after) +
                    ", and the deployment is single");
      out_.memory[job.key].cut_off_job = job.id;
      return;
    }
    if (job.is_stopping && !job.is_draining) return;
    const bool is_news = input_.report_sent_at && *input_.report_sent_at > job.single->renewed;
    if (is_news) out_.renew.push_back({job.id, *input_.report_sent_at});
    look_again(is_news ? *input_.report_sent_at + job.single->stop_after : end);
  }

  ReplicaReport& report(const ReplicaKey& key, ReplicaState state, std::string reason, const FoundJob* job) {
    ReplicaReport& report = out_.reports.emplace_back();
    report.key = key;
    report.state = state;
    report.reason = std::move(reason);
    if (const auto found = out_.memory.find(key); found != out_.memory.end()) report.failures = found->second.failures;
    if (job) {
      report.job = job->id;
      report.port = job->port;
      report.started_ms = job->started_ms;
      report.memory_bytes_peak = job->memory_bytes_peak;
    }
    return report;
  }

  // A job without an order.
  void report_unordered(const ReplicaKey& key, const FoundJob& job, bool is_to_end) {
    if (!job.is_live()) {
      // `gone` is final; without orders it is not known whether the replica should be restarted.
      report(key, input_.orders ? ReplicaState::gone : ReplicaState::backing_off, job.reason, &job);
    } else if (is_to_end || job.is_stopping || stopped_.contains(job.id)) {
      report(key, ReplicaState::stopping, "", &job);
    } else {
      report(key, job.state == FoundState::waiting ? ReplicaState::waiting : ReplicaState::starting,
             "its agent has restarted and is waiting for orders", &job);
    }
  }

  // Stops running jobs and removes ended ones.
  void end_all(const ReplicaKey& key, const std::string& reason) {
    const std::vector<const FoundJob*>& jobs = jobs_.at(key);
    for (const FoundJob* job : jobs) {
      stop(*job, reason, Stopping::after_requests);
      if (!job->is_live()) out_.remove.push_back(job->id);
    }
    report_unordered(key, *jobs.front(), true);
  }

  const FoundJob* other_incarnation(const ReplicaKey& key) const {
    const ReplicaKey first{key.deployment, key.replica, 0};
    for (auto it = jobs_.lower_bound(first); it != jobs_.end(); ++it) {
      if (it->first.deployment != key.deployment || it->first.replica != key.replica) break;
      if (it->first != key && it->second.front()->is_live()) return it->second.front();
    }
    return nullptr;
  }

  void carry_out(const ReplicaKey& key, const ReplicaOrder& order) {
    const auto found = jobs_.find(key);
    const FoundJob* job = found == jobs_.end() ? nullptr : found->second.front();
    bool has_previous = false;  // the last job that ended before it is kept, so that its output can be read
    for (std::size_t i = 1; job && i < found->second.size(); ++i) {
      const FoundJob& other = *found->second[i];
      stop(other, "another job of this incarnation is already running");
      if (!other.is_live() && std::exchange(has_previous, true)) out_.remove.push_back(other.id);
    }
    if (order.assigned.stopping) {
      // An ended job is kept until the server has forgotten it, so that its output can be read.
      if (job) stop(*job, "the replica is no longer assigned to this node", Stopping::after_requests);
      report(key, job && job->is_live() ? ReplicaState::stopping : ReplicaState::gone, "", job);
      return;
    }
    Attempts& attempts = out_.memory[key];
    // A server that cannot read a deployment, or has forgotten its revision, sends only the name; the replica keeps
    // running.
    const bool has_spec = !order.spec.command.empty() || !order.spec.model.empty();
    if (job && job->is_live() && !has_spec) return follow(key, order, *job, attempts);
    // Running jobs are checked too: the order may have changed, or the rules after a restart of the agent.
    if (!attempts.refused) {
      attempts.refused = forbidden(order, *input_.rules);
      if (job && attempts.refused) stop(*job, *attempts.refused);
    }
    if (job && job->is_live() && !attempts.refused) return follow(key, order, *job, attempts);
    if (job && job->state == FoundState::refused && !attempts.refused) attempts.refused = job->reason;
    if (attempts.refused) {
      // Until its job has ended, the replica may hold devices.
      const bool is_over = !job || !job->is_live();
      report(key, is_over ? ReplicaState::refused : ReplicaState::stopping, *attempts.refused, job);
      return;
    }
    start_or_wait(key, order, job, attempts);
  }

  // Handles a live job of a replica that is still ordered.
  void follow(const ReplicaKey& key, const ReplicaOrder& order, const FoundJob& job, Attempts& attempts) {
    const DeploymentSpec& spec = order.spec;
    if (job.is_stopping || stopped_.contains(job.id)) {  // because of its probe, or because no server was in contact
      report(key, ReplicaState::unready, attempts.reason.empty() ? "it is being stopped" : attempts.reason, &job);
      return;
    }
    if (job.state == FoundState::waiting) {
      if (input_.now >= job.since + input_.rules->wait_max) {
        attempts.refused = "its devices did not become free within " + world::duration_text(input_.rules->wait_max) +
                           (job.reason.empty() ? "" : ": " + job.reason);
        stop(job, *attempts.refused);
        report(key, ReplicaState::stopping, *attempts.refused, &job);
        return;
      }
      look_again(job.since + input_.rules->wait_max);
      report(key, ReplicaState::waiting, job.reason, &job);
      return;
    }
    const auto fail = [&](const std::string& reason) {
      attempts.reason = reason;
      stop(job, reason);
      report(key, ReplicaState::unready, reason, &job);
    };
    const auto is_over = [&](TimePoint deadline) {
      look_again(deadline);
      return input_.now >= deadline;
    };
    if (job.is_leftover) return fail("its command ended but left processes running");
    static const Probed none;
    const auto found = input_.probed.find(job.id);
    const Probed& probed = found == input_.probed.end() ? none : found->second;
    // A server that is still loading its model does not answer probes, so liveness counts only after a first success.
    if (spec.liveness && probed.liveness.failures >= spec.liveness->failures &&
        (probed.liveness.was_good || probed.readiness.was_good)) {
      return fail("its liveness probe failed " + std::to_string(probed.liveness.failures) +
                  " times in a row: " + probed.liveness.problem);
    }
    if (spec.readiness && !probed.readiness.was_good) {
      if (attempts.watched_job != job.id) {
        attempts.watched_job = job.id;
        attempts.watched_since = input_.now;
      }
      if (is_over(attempts.watched_since + spec.ready_within)) {
        return fail("it was not ready within " + world::duration_text(spec.ready_within) +
                    (probed.readiness.problem.empty() ? "" : ": " + probed.readiness.problem));
      }
      report(key, ReplicaState::starting, probed.readiness.problem, &job);
    } else if (spec.readiness && probed.readiness.failures >= spec.readiness->failures) {
      // A process whose CUDA context is poisoned still answers, but never correctly again.
      if (spec.unready_within && probed.readiness.failing_since &&
          is_over(*probed.readiness.failing_since + *spec.unready_within)) {
        return fail("it was ready, and then its readiness probe failed for " +
                    world::duration_text(*spec.unready_within) + ": " + probed.readiness.problem);
      }
      report(key, ReplicaState::unready, probed.readiness.problem, &job);
    } else if (!spec.readiness && input_.now < job.since + settled_after) {
      look_again(job.since + settled_after);
      report(key, ReplicaState::starting, "", &job);
    } else {
      if (input_.now >= job.since + well_after) attempts.failures = 0;
      look_again(job.since + well_after);
      report(key, ReplicaState::ready, job.reason, &job);
    }
  }

  void start_or_wait(const ReplicaKey& key, const ReplicaOrder& order, const FoundJob* ended, Attempts& attempts) {
    const DeploymentSpec& spec = order.spec;
    if (spec.command.empty()) {  // a remote runtime: nothing to start
      report(key, ReplicaState::ready, "", nullptr);
      return;
    }
    if (ended && attempts.ended_job != ended->id) {
      attempts.ended_job = ended->id;
      if (attempts.cut_off_job != ended->id) {
        const bool was_probe = !attempts.reason.empty() && ended->is_stopping;
        count_failure(attempts, was_probe ? attempts.reason : ended->reason, input_.now, input_.now_ms);
      }
    }
    const bool is_back_off = input_.now < attempts.next_start;
    const auto hold = [&](std::string reason) {
      ReplicaReport& held = report(key, attempts.failures > 0 ? ReplicaState::backing_off : ReplicaState::waiting,
                                   std::move(reason), ended);
      if (is_back_off) held.next_start_ms = attempts.next_start_ms;
    };
    if (is_back_off) {
      look_again(attempts.next_start);
      return hold(attempts.reason);
    }
    // A second agent with the same name and credential gets the same orders, but its reports are rejected, unless it
    // was started later on the same machine.
    if (!input_.report_sent_at)
      return hold("the server has not accepted a report from its node since its agent started");
    if (std::pair(input_.orders->epoch, input_.orders->number) < input_.newest)
      return hold("the server has newer orders for its node");
    std::optional<FoundJob::Single> single;
    if (spec.single) {
      if (const FoundJob* other = other_incarnation(key))
        return hold("waiting for " + to_string(other->key) + " to end, because the deployment is single");
      if (input_.now >= *input_.report_sent_at + spec.stop_after)
        return hold("the node has had no contact with a server for " + world::duration_text(spec.stop_after) +
                    ", and the deployment is single");
      single = {spec.stop_after, *input_.report_sent_at};
    }
    attempts.reason.clear();
    out_.start.push_back({order, needs_port(spec), uses(spec, "socket"), single});
    report(key, ReplicaState::waiting, "", nullptr);
  }

  const Input& input_;
  Step out_;
  std::map<ReplicaKey, std::vector<const FoundJob*>> jobs_;
  std::set<std::string> stopped_;  // in this step
};

}  // namespace

Step step(const Input& input) {
  BERTH_ASSERT(input.rules != nullptr);
  return Stepper(input).run();
}

bool accept(std::optional<fleet::NodeOrders>& orders, fleet::NodeOrders next, std::uint64_t epoch_min) {
  if (next.epoch < epoch_min) return false;
  if (orders && std::tie(next.epoch, next.number) <= std::tie(orders->epoch, orders->number)) return false;
  orders = std::move(next);
  return true;
}

void start_failed(Memory& memory, const fleet::ReplicaKey& key, std::string reason, TimePoint now,
                  std::uint64_t now_ms) {
  count_failure(memory[key], std::move(reason), now, now_ms);
}

std::vector<std::string> programs_of(const DeploymentSpec& spec) {
  std::vector<std::string> programs;
  for (const std::vector<std::string>& command :
       {spec.command, spec.readiness.value_or(Probe{}).command, spec.liveness.value_or(Probe{}).command}) {
    if (!command.empty()) programs.push_back(command.front());
  }
  return programs;
}

std::optional<std::string> forbidden(const fleet::ReplicaOrder& order, const Rules& rules) {
  const DeploymentSpec& spec = order.spec;
  // A newer server may send fields that this agent does not know: a replica must not run with only some of its
  // settings. Fields about requests and rollouts do not concern the agent.
  std::vector<const UnknownFields*> unknown{&spec.unknown};
  for (const auto& probe : {&spec.readiness, &spec.liveness}) {
    if (*probe) unknown.push_back(&(*probe)->unknown);
  }
  for (const UnknownFields* fields : unknown) {
    if (!fields->empty())
      return "this node's berth does not know the field \"" + fields->begin()->first + "\"; upgrade berth on the node";
  }
  for (const DeviceId& id : order.assigned.place.devices) {
    if (rules.devices && !rules.devices->contains(id)) return "the agent's file does not permit device " + id.text();
  }
  if (spec.command.empty()) {
    if (std::holds_alternative<Remote>(spec.transport())) return std::nullopt;
    return "the deployment has no command, so there is nothing to start";
  }
  if (spec.user && *spec.user != rules.user && !rules.users.contains(*spec.user))
    return "the agent's file does not permit user " + *spec.user;
  for (const std::string& program : rules.commands ? programs_of(spec) : std::vector<std::string>{}) {
    const bool is_allowed =
        std::any_of(rules.commands->begin(), rules.commands->end(), [&](const std::string& command) {
          if (!command.ends_with('/')) return command == program;
          // A placeholder may be replaced by "..".
          return program.starts_with(command) && (program + '/').find("/../") == std::string::npos &&
                 program.find('{') == std::string::npos;
        });
    if (!is_allowed) return "the agent's file does not permit command " + program;
  }
  std::vector<std::string> names;
  for (const auto& [name, value] : spec.environment) names.push_back(name);
  for (const auto& [name, secret] : spec.secrets) names.push_back(name);
  for (const std::string& name : rules.variables ? names : std::vector<std::string>{}) {
    const bool is_allowed =
        std::any_of(rules.variables->begin(), rules.variables->end(), [&](std::string_view variable) {
          return variable.ends_with('*') ? name.starts_with(variable.substr(0, variable.size() - 1)) : variable == name;
        });
    if (!is_allowed) return "the agent's file does not permit variable " + name;
  }
  return std::nullopt;
}

Duration back_off(std::uint32_t failures) {
  const std::uint32_t doublings = std::min(failures > 0 ? failures - 1 : 0, 9u);
  return std::min<Duration>(std::chrono::seconds(1) * (1u << doublings), std::chrono::minutes(5));
}

}  // namespace berth::agent
