#include "agent/agent.hpp"

#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <csignal>
#include <map>
#include <set>
#include <system_error>

#include "agent/free_port.hpp"
#include "agent/node_watch.hpp"
#include "agent/owner_rules.hpp"
#include "agent/prober.hpp"
#include "agent/relay_targets.hpp"
#include "agent/relay_watch.hpp"
#include "agent/replica_job.hpp"
#include "agent/server_link.hpp"
#include "agent/signal.hpp"
#include "fleet_format/fleet_json.hpp"
#include "machine/job_processes.hpp"
#include "world/runtime_folder.hpp"
#include "world/user_name.hpp"
#include "world/wall_time.hpp"

namespace berth::agent {

namespace json = boost::json;
using format::LogLevel;

namespace {

constexpr Duration longest_sleep = std::chrono::milliseconds(250);
// After a restart of the agent, the relay keeps its targets until the probes have found which replicas are ready.
constexpr Duration replicas_known_within = std::chrono::seconds(10);
// How long to wait for a relay that may or may not be running.
constexpr Duration relay_answers_within = std::chrono::seconds(2);
// Delay before a replica that gateways reach directly is stopped, so that the server can inform all gateways first.
constexpr Duration gateways_updated_within = std::chrono::seconds(2);
constexpr Duration supervisor_grace = std::chrono::seconds(10), kill_again = std::chrono::seconds(1);

class Agent {
 public:
  Agent(const AgentOptions& options, std::unique_ptr<NodeWatch> watch, std::string jobs)
      : options_(options),
        watch_(std::move(watch)),
        jobs_(std::move(jobs)),
        ports_(options.folder, real_clock().now()) {
    rules_.devices = watch_->allowed();
    rules_.user = world::user_name(geteuid());
    if (options.file.users) rules_.users = *options.file.users;
    rules_.commands = options.file.commands;
    rules_.variables = options.file.variables;
    if (rules_.commands && !rules_.variables) rules_.variables.emplace();
  }

  void run(const std::stop_token& stop) {
    const std::stop_callback wake(stop, [this] { wake_->set(); });
    ServerLink link(options_, *watch_, jobs_, [this] { wake_->set(); });
    Prober prober([wake = wake_] { wake->set(); });
    RelayWatch relay(options_, [this] { wake_->set(); });
    while (!stop.stop_requested()) {
      const TimePoint next = look(link, prober, relay);
      wake_->wait(std::min(next, real_clock().now() + longest_sleep));
    }
  }

 private:
  void log(LogLevel level, std::string message, format::LogFields fields = {}) const {
    if (options_.log) options_.log({level, std::move(message), std::move(fields)});
  }

  // Computes a step from the jobs found on this node and the server's orders, and carries it out. Returns when to run
  // again.
  TimePoint look(ServerLink& link, Prober& prober, RelayWatch& relay) {
    const TimePoint now = real_clock().now();
    FoundJobs here = find_jobs(now);
    const ServerLink::Received received = link.received();
    Input input;
    input.orders = received.orders ? &*received.orders : nullptr;
    input.report_sent_at = received.report_sent_at;
    input.newest = received.newest;
    input.jobs = here.found;
    input.probed = prober.answers();
    input.rules = &rules_;
    input.memory = memory_;
    input.now = now;
    input.now_ms = world::wall_time_ms();
    Step next = step(input);
    memory_ = std::move(next.memory);
    for (const Renewal& renewal : next.renew)
      static_cast<void>(machine::renew_job(here.by_id.at(renewal.job), now - renewal.report_sent_at));
    for (const Stop& order : next.stop) stop(order, here, now);
    if (received.orders) {
      update_relay(relay, here, next.reports, *received.orders, now);
      stop_drained(relay, here, now);
    }
    for (const FoundJob& job : here.found)
      if (job.is_live()) kill_when_late(here.by_id.at(job.id), now);
    for (const std::string& id : next.remove) remove(here, id);
    for (const Start& order : next.start) start(order, here.found, received.address);
    watch_probes(prober, here, received.orders);
    link.share(std::move(next.reports), std::move(here.leases), received.orders, relay.seen().problem);
    return next.look_again.value_or(now + longest_sleep);
  }

  // If the disk is full, replicas still get ports, but a restarted agent may assign them again too soon.
  void keep_ports(TimePoint now) {
    const Result<void> kept = ports_.keep(now);
    if (!kept && keeps_ports_)
      log(LogLevel::warning, "the agent cannot save the ports of its replicas", {{"reason", kept.error().to_text()}});
    keeps_ports_ = kept.has_value();
  }

  // The jobs of replicas on this machine.
  struct FoundJobs {
    std::vector<FoundJob> found;
    std::map<std::string, machine::Job> by_id;
    ReplicaLeases leases;
  };
  FoundJobs find_jobs(TimePoint now) {
    FoundJobs here;
    machine::JobProcesses processes;
    for (machine::Job& job : machine::list_jobs(jobs_)) {
      std::optional<FoundJob> found = found_job(job, now);
      if (!found) continue;
      found->is_draining = draining_.contains(job.id);
      found->is_stopping = found->is_draining || stopping_.contains(job.id);
      if (found->port && found->is_live()) ports_.note(*found->port, now);
      // A job counts as ended when it has no process left. Checked once, because an ended job does not come back.
      if (!found->is_live() && !ended_.contains(job.id)) {
        found->is_leftover = !processes.of(job).empty();
        if (found->is_leftover)
          found->state = FoundState::running;
        else
          ended_.insert(job.id);
      }
      // The times of jobs are wall clock times. If that clock is stepped, a job keeps the time that was found first.
      FirstSeen& seen = seen_.try_emplace(job.id, FirstSeen{found->state, found->since}).first->second;
      if (seen.state != found->state) seen = {found->state, found->since};
      found->since = seen.since;
      if (found->is_live()) {
        const auto lease = parse_lease(job.progress.lease);
        if (lease) here.leases.by_lease[{job.user, lease->id}] = name_of(found->key);
        if (job.is_supervised && machine::is_process_of(job, job.progress.supervisor))
          here.leases.by_holder[{job.user, job.progress.supervisor.pid}] = name_of(found->key);
      }
      here.found.push_back(*std::move(found));
      here.by_id.emplace(job.id, std::move(job));
    }
    if (!first_found_) {
      first_found_.emplace();
      for (const FoundJob& job : here.found) first_found_->insert(job.id);
    }
    keep_ports(now);
    std::erase_if(draining_, [&](const auto& entry) { return !here.by_id.contains(entry.first); });
    std::erase_if(stopping_, [&](const auto& entry) { return !here.by_id.contains(entry.first); });
    std::erase_if(ended_, [&](const std::string& job) { return !here.by_id.contains(job); });
    std::erase_if(seen_, [&](const auto& entry) { return !here.by_id.contains(entry.first); });
    std::erase_if(unasked_, [&](const std::string& job) { return !here.by_id.contains(job); });
    return here;
  }

  void stop(const Stop& order, FoundJobs& here, TimePoint now) {
    const auto found =
        std::find_if(here.found.begin(), here.found.end(), [&](const FoundJob& job) { return job.id == order.job; });
    log(LogLevel::info, "the agent is stopping a replica",
        {{"replica", to_string(found->key)}, {"job", order.job}, {"reason", order.reason}});
    found->is_stopping = true;
    found->is_draining = order.drains && found->state == FoundState::running && !address_of(*found).empty();
    const machine::Job& job = here.by_id.at(order.job);
    if (found->is_draining) {
      const Duration wait = found->direct.empty() ? Duration::max() : gateways_updated_within;
      draining_[order.job] = {to_string(found->key), now, now + std::min(job.request.stop_grace, wait),
                              !found->direct.empty()};
    } else {
      ask_to_end(job, now);
    }
  }

  void ask_to_end(const machine::Job& job, TimePoint now) {
    draining_.erase(job.id);
    stopping_.emplace(job.id, now);
    machine::request_stop(job);
  }

  void update_relay(RelayWatch& relay, const FoundJobs& here, const std::vector<fleet::ReplicaReport>& reports,
                    const fleet::NodeOrders& orders, TimePoint now) {
    knows_replicas_ = knows_replicas_ || !draining_.empty() || now >= started_ + replicas_known_within ||
                      std::none_of(reports.begin(), reports.end(), [&](const fleet::ReplicaReport& report) {
                        return report.state == fleet::ReplicaState::starting && first_found_->contains(report.job);
                      });
    if (!knows_replicas_) return;
    const auto folder_of = [&](const std::string& job) { return here.by_id.at(job).folder; };
    const std::uint64_t number = relay.share(
        {relay_targets(here.found, reports, orders, folder_of), relay_gateways(orders, options_.server.url)});
    for (auto& [job, drain] : draining_)
      if (drain.state_number == 0) drain.state_number = number;
  }

  // Stops draining replicas whose requests have ended, whose time is over, or whose relay is gone.
  void stop_drained(const RelayWatch& relay, const FoundJobs& here, TimePoint now) {
    const RelayWatch::Seen seen = relay.seen();
    std::vector<std::string> over;
    for (const auto& [job, drain] : draining_) {
      const bool is_alone = seen.state == RelayWatch::State::down ||
                            (seen.state == RelayWatch::State::unknown && now >= drain.since + relay_answers_within);
      // Direct requests bypass the relay, so only the replica's program can finish them, after SIGTERM.
      const bool is_drained = !drain.is_direct && (is_alone || seen.is_drained(drain.target, drain.state_number));
      if (now >= drain.until || is_drained) over.push_back(job);
    }
    for (const std::string& job : over) ask_to_end(here.by_id.at(job), now);
  }

  static void remove(const FoundJobs& here, const std::string& id) {
    const auto found =
        std::find_if(here.found.begin(), here.found.end(), [&](const auto& job) { return job.id == id; });
    if (machine::remove_job(here.by_id.at(id))) remove_socket(found->socket);
  }

  // The supervisor does this by itself, unless it was killed or does not respond.
  void kill_when_late(const machine::Job& job, TimePoint now) {
    const auto stopping = stopping_.find(job.id);
    if (stopping == stopping_.end()) return;
    const Duration grace = job.request.stop_grace + (job.is_supervised ? supervisor_grace : Duration::zero());
    if (now < stopping->second + grace) return;
    stopping->second = now - grace + kill_again;
    machine::kill_job(job);
  }

  // `node_address` is the node's address as the server sees it.
  void start(const Start& next, const std::vector<FoundJob>& found, const std::string& node_address) {
    const fleet::ReplicaKey key = next.order.assigned.key();
    const auto fail = [&](const std::string& reason) {
      log(LogLevel::warning, "the agent cannot start a replica", {{"replica", to_string(key)}, {"reason", reason}});
      start_failed(memory_, key, reason, real_clock().now(), world::wall_time_ms());
      wake_->set();
    };
    if (std::optional<std::string> reason = leads_out(next.order.spec, rules_)) {
      memory_[key].refused = std::move(reason);
      return wake_->set();
    }
    std::optional<std::uint16_t> port;
    if (next.needs_port) {
      const auto is_used = [&](std::uint16_t candidate) {
        return ports_.contains(candidate) ||
               std::any_of(found.begin(), found.end(), [&](const FoundJob& job) { return job.port == candidate; });
      };
      port = free_port(replica_ports_of_this_machine(), real_random(), is_used);
      if (!port) return fail("no port is free");
      ports_.note(*port, real_clock().now());
      keep_ports(real_clock().now());
    }
    const NodeView node = watch_->observe({}).node;
    ReplicaAddress address{port, {}, direct_address(next.order.spec, node_address)};
    const Result<machine::JobOrder> job = job_order(next, address, node, options_.file, options_.backends);
    if (!job) return fail(job.error().to_text());
    const auto add_socket = [&](machine::JobOrder& order, const std::string& folder) -> Result<void> {
      if (!next.needs_socket) return {};
      address.socket = BERTH_TRY(make_socket_folder(folder, order.user));
      order = BERTH_TRY(job_order(next, address, node, options_.file, options_.backends));
      return {};
    };
    const Result<machine::Job> started = machine::start_job(jobs_, *job, add_socket);
    if (!started) return fail(started.error().to_text());
    log(LogLevel::info, "the agent is starting a replica", {{"replica", to_string(key)}, {"job", started->id}});
    wake_->set();
  }

  void watch_probes(Prober& prober, const FoundJobs& here, const std::optional<fleet::NodeOrders>& orders) {
    std::set<std::string> watched;
    for (const FoundJob& job : here.found) {
      if (job.state != FoundState::running || !orders) continue;
      const auto order = std::find_if(orders->orders.begin(), orders->orders.end(), [&](const auto& entry) {
        return entry.assigned.key() == job.key && !entry.assigned.stopping;
      });
      if (order == orders->orders.end()) continue;
      if (forbidden(*order, rules_) || leads_out(order->spec, rules_)) continue;
      watched.insert(job.id);
      if (prober.watches(job.id)) continue;
      const bool is_asked = prober.watch(job.id, probing_of(*order, here.by_id.at(job.id), watch_->observe({}).node,
                                                            options_.file, options_.backends));
      // The next step tries again.
      if (!is_asked && unasked_.insert(job.id).second)
        log(LogLevel::warning, "the agent cannot start another thread for the probes of a replica",
            {{"replica", to_string(job.key)}, {"job", job.id}});
      if (is_asked) unasked_.erase(job.id);
    }
    prober.keep(watched);
  }

  const AgentOptions& options_;
  std::unique_ptr<NodeWatch> watch_;
  const std::string jobs_;
  Rules rules_;
  Memory memory_;
  std::map<std::string, TimePoint> stopping_;  // when each job was asked to end
  struct Drain {
    std::string target;  // its name at the relay
    TimePoint since{}, until{};
    bool is_direct = false;          // its requests bypass the relay
    std::uint64_t state_number = 0;  // number of the relay state that drains it; 0: none yet
  };
  std::map<std::string, Drain> draining_;  // jobs that finish their requests before they are stopped
  UsedPorts ports_;
  bool keeps_ports_ = true;
  const TimePoint started_ = real_clock().now();
  std::optional<std::set<std::string>> first_found_;  // jobs that existed before this agent started
  bool knows_replicas_ = false;
  std::set<std::string> ended_;    // jobs with no process left
  std::set<std::string> unasked_;  // jobs whose probes wait for a thread; logged once
  struct FirstSeen {
    FoundState state{};
    TimePoint since{};
  };
  std::map<std::string, FirstSeen> seen_;  // by job
  // Shared with threads of the prober, which may outlive the agent.
  std::shared_ptr<Signal> wake_ = std::make_shared<Signal>();
};

}  // namespace

Error no_thread(const std::system_error& shortage) {
  return {ErrorCode::unavailable, std::string("the agent cannot start another thread: ") + shortage.code().message(),
          "raise the limit on processes (ulimit -u, TasksMax= of its unit), or end some"};
}

Result<void> run_agent(const AgentOptions& options, const std::stop_token& stop) {
  const std::string jobs = BERTH_TRY(job_folder(options.folder, options.file));
  std::signal(SIGPIPE, SIG_IGN);  // the command at the other end of a pipe may have ended
  std::unique_ptr<NodeWatch> watch = BERTH_TRY(NodeWatch::open(options.node, options.file, options.backends));
  if (options.log) {
    std::string devices;
    const NodeView node = watch->observe({}).node;
    for (const NodeDevice& device : node.devices) {
      if (watch->allowed() ? watch->allowed()->contains(device.info.id) : device.is_gpu())
        devices += (devices.empty() ? "" : ",") + device.info.id.text();
    }
    options.log({LogLevel::info,
                 "the agent is starting",
                 {{"node", options.node.text()},
                  {"server", options.server.url},
                  {"devices", devices},
                  {"version", options.version}}});
    for (const std::string& name : watch->unknown_names())
      options.log({LogLevel::warning,
                   "the agent's file lists a device that does not exist on this machine",
                   {{"device", name}}});
  }
  try {
    Agent(options, std::move(watch), jobs).run(stop);
  } catch (const std::system_error& shortage) {
    return no_thread(shortage);
  }
  return {};
}

}  // namespace berth::agent
