#include "simulate/fleet_node.hpp"

#include <algorithm>
#include <utility>

namespace berth::simulate {

using namespace std::chrono_literals;
using agent::FoundState;

std::string Machine::start(const agent::Start& start) {
  const std::string id = "j" + std::to_string(next_job_++);
  Job& job = jobs_[id];
  job.found.key = start.order.assigned.key();
  job.found.id = id;
  job.found.since = timeline_.now;
  // Usually takes the lease at once, sometimes only after a while.
  job.lease_from = timeline_.now + 1ms * random_.below(random_.below(10) == 0 ? 10'000 : 500);
  job.found.single = start.single;
  job.place = start.order.assigned.place;
  job.stop_grace = start.order.spec.stop_grace;
  job.is_bad = start.order.spec.command.front() == bad_command;
  job.is_ended_when_sick = start.order.spec.liveness || start.order.spec.unready_within;
  job.user = start.order.spec.user;
  return id;
}

void Machine::stop(const std::string& id) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || !found->second.found.is_live() || found->second.found.is_stopping) return;
  Job& job = found->second;
  job.found.is_stopping = true;
  // Usually quickly, sometimes only when it is killed after its grace period.
  job.ends = timeline_.now + (random_.below(10) == 0 ? job.stop_grace + 100ms : 200ms + 1ms * random_.below(800));
}

void Machine::renew(const std::string& id, TimePoint report_sent_at) {
  const auto found = jobs_.find(id);
  if (found != jobs_.end() && found->second.found.single) found->second.found.single->renewed = report_sent_at;
}

void Machine::remove(const std::string& id) {
  const auto found = jobs_.find(id);
  if (found != jobs_.end() && !found->second.found.is_live()) jobs_.erase(found);
}

std::vector<agent::FoundJob> Machine::find_jobs() const {
  std::vector<agent::FoundJob> out;
  for (const auto& [id, job] : jobs_) out.push_back(job.found);
  return out;
}

bool Machine::has_room(const Job& wanted) const {
  for (const DeviceId& id : wanted.place.devices) {
    const auto device = std::find_if(view.devices.begin(), view.devices.end(),
                                     [&](const NodeDevice& candidate) { return candidate.info.id == id; });
    if (device == view.devices.end() || taken_by_people.contains(id)) return false;
    std::uint64_t bytes = wanted.place.memory_bytes;
    for (const auto& [other_id, other] : jobs_) {
      const auto& devices = other.place.devices;
      if (other.found.state != FoundState::running || std::find(devices.begin(), devices.end(), id) == devices.end())
        continue;
      if (wanted.place.exclusive || other.place.exclusive) return false;
      bytes += other.place.memory_bytes;
    }
    if (bytes > *device->info.memory_bytes_total) return false;
  }
  return true;
}

void Machine::end(Job& job, const std::string& reason) {
  if (job.found.state == FoundState::running) checker_.ended(timeline_.now, view.id, job.found.key);
  job.found.state = FoundState::ended;
  job.found.reason = reason;
  job.found.since = timeline_.now;
  job.ends.reset();
}

void Machine::tick() {
  const TimePoint now = timeline_.now;
  for (auto& [id, job] : jobs_) {
    if (!job.found.is_live()) continue;
    // Its supervisor ends it, with or without an agent.
    if (job.found.single && now >= job.found.single->renewed + job.found.single->stop_after) stop(id);
    const bool is_broken = std::any_of(job.place.devices.begin(), job.place.devices.end(), [&](const DeviceId& device) {
      return std::any_of(view.devices.begin(), view.devices.end(), [&](const NodeDevice& node_device) {
        return node_device.info.id == device && node_device.health == Health::lost;
      });
    });
    if (job.ends && now >= *job.ends) {
      end(job, job.is_bad ? "exit status 1" : "signal 15");
    } else if (is_broken && job.found.state == FoundState::running) {
      end(job, "its device is lost");
    } else if (job.found.state == FoundState::waiting && !job.found.is_stopping && !is_broken && has_room(job) &&
               now >= job.lease_from) {
      job.found.state = FoundState::running;
      job.found.since = now;
      job.serves_from = now + 1ms * random_.below(5000);
      if (job.is_bad) job.ends = now + 1s;
      checker_.began(now, view.id, job.found.key);
      checker_.expect(now, job.user != forbidden_user, to_string(job.found.key) + " runs as a user that is forbidden");
    }
  }
}

void Machine::crash_some_job() {
  std::vector<Job*> running;
  for (auto& [id, job] : jobs_) {
    if (job.found.state == FoundState::running) running.push_back(&job);
  }
  if (!running.empty()) end(*running[random_.below(running.size())], "signal 11");
}

// If neither a liveness probe nor `unready_within` ends it, it recovers only with time.
void Machine::make_some_job_sick(TimePoint until) {
  std::vector<Job*> running;
  for (auto& [id, job] : jobs_) {
    if (job.found.state == FoundState::running) running.push_back(&job);
  }
  if (running.empty()) return;
  Job& job = *running[random_.below(running.size())];
  const bool was_well = timeline_.now >= job.serves_from;
  job.serves_from = job.is_ended_when_sick && was_well ? TimePoint::max() : std::max(job.serves_from, until);
}

bool Machine::answers_probe(const std::string& id) const {
  const auto found = jobs_.find(id);
  return found != jobs_.end() && found->second.found.state == FoundState::running &&
         timeline_.now >= found->second.serves_from;
}

void Machine::take_for_people(const DeviceId& id) {
  for (const auto& [name, job] : jobs_) {
    const auto& devices = job.place.devices;
    if (job.found.state == FoundState::running && std::find(devices.begin(), devices.end(), id) != devices.end())
      return;
  }
  taken_by_people.insert(id);
}

void Machine::power_off() {
  is_on = false;
  ++boots;
  for (auto& [id, job] : jobs_) {
    if (job.found.is_live()) end(job, "the machine was restarted");
  }
}

bool SimulatedAgent::has_orders_for(const fleet::ReplicaKey& key) const {
  return orders_ && std::any_of(orders_->orders.begin(), orders_->orders.end(), [&](const fleet::ReplicaOrder& order) {
           return order.assigned.key() == key && !order.assigned.stopping && !order.spec.command.empty();
         });
}

// Probes each running job every 2 s; the step uses only the probes in the spec.
void SimulatedAgent::probe(const std::vector<agent::FoundJob>& jobs) {
  std::map<std::string, agent::Probed> probed;
  for (const agent::FoundJob& job : jobs) {
    if (job.state != FoundState::running) continue;
    agent::Probed& answers = probed[job.id] = probed_[job.id];
    TimePoint& asked = asked_[job.id];
    if (timeline_.now < asked + 2s) continue;
    asked = timeline_.now;
    const bool is_good = machine_.answers_probe(job.id);
    for (agent::Probed::Answers* probe : {&answers.readiness, &answers.liveness}) {
      probe->was_good = probe->was_good || is_good;
      probe->failures = is_good ? 0 : probe->failures + 1;
      probe->problem = is_good ? "" : "no answer";
      if (is_good) probe->failing_since.reset();
      if (!is_good && !probe->failing_since) probe->failing_since = timeline_.now;
    }
    checker_.probed(timeline_.now, job.key, start_, is_good, has_orders_for(job.key));
  }
  probed_ = std::move(probed);
}

std::optional<fleet::NodeReport> SimulatedAgent::tick(std::uint64_t crash_chance_percent) {
  const std::vector<agent::FoundJob> jobs = machine_.find_jobs();
  probe(jobs);
  agent::Step step = agent::step({orders_ ? &*orders_ : nullptr, report_sent_at_, jobs, probed_, &rules_,
                                  std::move(memory_), timeline_.now, newest_});
  memory_ = std::move(step.memory);
  const auto crashes = [&] { return random_.below(100) < crash_chance_percent; };
  for (const agent::Renewal& renewal : step.renew) machine_.renew(renewal.job, renewal.report_sent_at);
  for (const agent::Stop& stop : step.stop) {
    if (crashes()) return std::nullopt;
    machine_.stop(stop.job);
  }
  for (const agent::Start& start : step.start) {
    if (crashes()) return std::nullopt;
    machine_.start(start);
    if (crashes()) return std::nullopt;
  }
  for (const std::string& job : step.remove) machine_.remove(job);

  reports_ = std::move(step.reports);
  for (const fleet::ReplicaReport& report : reports_) {
    if (report.state == fleet::ReplicaState::refused && refused_.insert(report.key).second)
      checker_.refused(timeline_.now, machine_.view.id, report.key);
  }
  fleet::NodeReport out;
  out.node = machine_.view;
  for (NodeDevice& device : out.node.devices) {
    if (!machine_.taken_by_people.contains(device.info.id)) continue;
    device.holders = 1;
    device.held_exclusively = true;
  }
  out.replicas = reports_;
  out.agent = std::to_string(start_);
  out.boot = std::to_string(machine_.boots);
  out.agent_start_monotonic_ms = start_;
  out.number = ++number_;
  out.epoch = epoch();
  out.orders_number = orders_number();
  return out;
}

void SimulatedAgent::take_answer(TimePoint sent, std::pair<std::uint64_t, std::uint64_t> newest) {
  if (newest.first < machine_.epoch_seen) return;
  machine_.epoch_seen = newest.first;
  if (report_sent_at_ && *report_sent_at_ >= sent) return;
  report_sent_at_ = sent;
  newest_ = newest;
}

void SimulatedAgent::ordered(const fleet::NodeOrders& orders) {
  if (agent::accept(orders_, orders, machine_.epoch_seen)) machine_.epoch_seen = orders.epoch;
}

}  // namespace berth::simulate
