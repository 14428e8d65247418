#include "simulate/fleet.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "simulate/fleet_checker.hpp"
#include "simulate/fleet_node.hpp"
#include "simulate/fleet_operators.hpp"
#include "simulate/fleet_server.hpp"
#include "simulate/timeline.hpp"
#include "store/memory_engine.hpp"

namespace berth::simulate {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t gib = std::uint64_t{1} << 30;
constexpr Duration set_up = 15s;
constexpr Duration look_every = 500ms;
constexpr std::uint32_t applied_together = 5;
constexpr std::size_t full_part = store::operations_max - 2;  // writes in a part that may not be the last

class Simulation {
 public:
  explicit Simulation(const FleetOptions& options) : options_(options), random_(options.seed) {
    out_.seed = options.seed;
    faults_begin_ = TimePoint{} + set_up;
    faults_end_ = faults_begin_ + std::chrono::seconds(options.fault_seconds);
    for (std::size_t i = 0; i < 2; ++i)
      servers_.emplace_back(
          timeline_, random_, engine_, "server-" + std::to_string(i),
          FleetEngine::Observer{[this, i](const store::Transaction& done) { committed(servers_[i], done); },
                                [this, i] { end_change(&servers_[i], true); }});
    servers_.front().tick();
    for (std::uint32_t n = 0; n < options.nodes; ++n) add_node(n);
  }

  FleetRun run() {
    for (std::uint32_t d = 0; d < options_.deployments; d += applied_together) {
      timeline_.at(TimePoint{} + 1ms * random_.below(10'000), [this, d] {
        std::vector<DeploymentSpec> specs;
        for (std::uint32_t i = d; i < std::min(d + applied_together, options_.deployments); ++i)
          specs.push_back(operators_.some_spec(i));
        operators_.apply(specs);
      });
    }
    for (SimulatedServer& server : servers_) serve(server);
    for (Node& node : nodes_) {
      timeline_.after(1ms * random_.below(500), [this, &node] { live(node); });
    }
    timeline_.at(faults_begin_, [this] { next_fault(); });
    timeline_.at(faults_end_, [this] { end_faults(); });

    timeline_.after(1s, [this] { watch(); });

    // Successors, back-off and grace periods take time.
    timeline_.run_until(faults_end_ + 240s);
    std::set<fleet::ReplicaKey> ready;
    for (const Node& node : nodes_) {
      if (!node.agent) continue;
      for (const fleet::ReplicaReport& report : node.agent->reports()) {
        if (report.state == fleet::ReplicaState::ready) ready.insert(report.key);
      }
    }
    checker_.check_rest(timeline_.now, ready);
    const std::uint64_t commits = out_.commits;
    timeline_.run_until(timeline_.now + 40s);
    checker_.expect(timeline_.now, out_.commits == commits || checker_.is_stuck(),
                    "nothing has changed, and yet something was committed");
    for (const auto& [id, wanted] : state().desired.deployments) out_.replicas += wanted.spec.replicas;
    out_.ready = ready.size();
    out_.starts = checker_.starts();
    out_.exemptions = checker_.exemptions();
    out_.violations = checker_.violations();
    return std::move(out_);
  }

 private:
  struct Node {
    Machine machine;
    std::optional<SimulatedAgent> agent;
    bool is_cut_off = false;
    TimePoint reported{};
    std::uint64_t life = 0;  // of the agent: answers to an earlier life are dropped
  };

  struct Change {
    const SimulatedServer* server = nullptr;
    TimePoint call_began{};
    bool concerns = false;  // whether the change concerns the laws
    store::State state;     // state after the last part of it
  };

  void watch() {
    timeline_.after(1s, [this] { watch(); });
    std::optional<std::uint64_t> epoch;
    for (const SimulatedServer& server : servers_) epoch = std::max(epoch, server.leads_in());
    checker_.watch(timeline_.now, epoch);
  }

  bool chance(std::uint64_t percent) { return random_.below(100) < percent; }
  bool is_troubled() const { return timeline_.now >= faults_begin_ && timeline_.now < faults_end_; }

  // The current content of the shared store.
  store::State state() { return observer_->load().value(); }
  void committed(const SimulatedServer& server, const store::Transaction& transaction) {
    const auto concerns = [](const store::Write& write) {
      return write.key != store::keys::counters && !write.key.starts_with(store::keys::events) &&
             !write.key.starts_with(store::keys::actions);
    };
    ++out_.commits;
    checker_.decided(timeline_.now, server.call(), server.known_change(),
                     engine_->list(store::keys::leader, {}, 1).value().change_number);
    if (change_ && change_->server != &server) end_change(change_->server, true);
    if (!change_) change_.emplace(Change{&server, server.call_began(), false, {}});
    if (std::any_of(transaction.writes.begin(), transaction.writes.end(), concerns)) {
      change_->concerns = true;
      change_->state = state();
    }
    if (transaction.writes.size() < full_part) end_change(&server, false);
  }
  // A change with more writes than fit into one transaction is checked as a whole, if the rest of it arrives.
  void end_change(const SimulatedServer* server, bool is_cut_off) {
    if (!change_ || change_->server != server) return;
    Change change = *std::exchange(change_, std::nullopt);
    if (change.concerns) checker_.committed(timeline_.now, change.call_began, std::move(change.state), is_cut_off);
  }

  void add_node(std::uint32_t number) {
    NodeView view;
    view.id = NodeId("n" + std::to_string(100 + number));
    view.memory_bytes = 256 * gib;
    view.egress = number % 2 == 0;
    view.labels["zone"] = operators_.some_zone();
    if (chance(20)) view.taints.insert(taint);
    for (std::uint32_t g = 0; g < options_.gpus; ++g) {
      NodeDevice device;
      device.info.id = DeviceId(view.id.text() + "/gpu" + std::to_string(g));
      device.info.backend = "cuda";
      device.info.memory_bytes_total = 80 * gib;
      device.info.memory_domain = device.info.id.text();
      checker_.add_device(view.id, device.info.id, 80 * gib);
      view.devices.push_back(std::move(device));
    }
    const bool is_joined = operators_.join(view.id);
    BERTH_ASSERT(is_joined);
    nodes_.push_back({Machine(timeline_, random_, checker_, std::move(view)), std::nullopt, false, {}, 0});
    start_agent(nodes_.back());
  }

  void start_agent(Node& node) {
    ++node.life;
    node.agent.emplace(timeline_, random_, checker_, node.machine, node.life);
    node.reported = {};
  }
  void crash_agent(Node& node, Duration away) {
    node.agent.reset();
    ++node.life;
    timeline_.after(away, [this, &node] {
      if (!node.agent && node.machine.is_on) start_agent(node);
    });
  }

  // Loses, delays and repeats messages. Messages in flight when a node is cut off are lost.
  void send(Node& node, std::function<void()> deliver) {
    const int copies = is_troubled() && chance(3) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      if (is_troubled() && chance(5)) continue;
      const bool is_late = is_troubled() && chance(5);
      const Duration delay = is_late ? 1ms * random_.below(8000) : 1ms + 1ms * random_.below(40);
      timeline_.after(delay, [&node, deliver] {
        if (!node.is_cut_off) deliver();
      });
    }
  }

  void serve(SimulatedServer& server) {
    server.faults = is_troubled() && servers_fail_ ? StoreFaults{1, 1, 2, faults_end_} : StoreFaults{};
    if (!server.is_on() && chance(is_troubled() ? 10 : 100)) server.restart();
    server.tick();
    timeline_.after(look_every + 1ms * random_.below(200), [this, &server] { serve(server); });
  }
  SimulatedServer& some_server() {
    for (SimulatedServer& server : servers_) {
      if (server.leads() && (!is_troubled() || chance(90))) return server;
    }
    return servers_[random_.below(servers_.size())];
  }

  // The loop of a node.
  void live(Node& node) {
    timeline_.after(look_every, [this, &node] { live(node); });
    if (!node.machine.is_on) return;
    node.machine.tick();
    if (!node.agent) return;
    const std::vector<fleet::ReplicaReport> before = node.agent->reports();
    std::optional<fleet::NodeReport> report = node.agent->tick(is_troubled() ? 2 : 0);
    if (!report) return crash_agent(node, 1ms * random_.below(3000));
    if (before != node.agent->reports() || timeline_.now >= node.reported + 2s) {
      node.reported = timeline_.now;
      send_report(node, std::make_shared<fleet::NodeReport>(std::move(*report)));
    }
    send(node, [this, &node, life = node.life, epoch = node.agent->epoch(), number = node.agent->orders_number()] {
      std::optional<fleet::NodeOrders> orders = some_server().orders_for(node.machine.view.id, epoch, number);
      if (!orders) return;
      send(node, [&node, life, orders = std::move(*orders)] {
        if (node.life == life && node.agent) node.agent->ordered(orders);
      });
    });
  }

  void send_report(Node& node, std::shared_ptr<const fleet::NodeReport> report) {
    send(node, [this, &node, report, life = node.life, sent = timeline_.now] {
      const TimePoint came = timeline_.now;  // the server may stall before it answers
      const auto newest = some_server().report(node.machine.view.id, *report);
      if (!newest) return;
      checker_.note_report(came, newest->first, *report);
      send(node, [&node, life, sent, newest] {
        if (node.life == life && node.agent) node.agent->take_answer(sent, *newest);
      });
    });
  }

  // Changes the owner's settings: labels, a taint, egress.
  void change_some_node(NodeView& view) {
    switch (random_.below(3)) {
      case 0: view.labels["zone"] = operators_.some_zone(); break;
      case 1:
        if (view.taints.erase(taint) == 0) view.taints.insert(taint);
        break;
      default: view.egress = !view.egress; break;
    }
  }

  // Removes a node, as operators do with a machine that they think is gone. It may keep running and join again.
  void remove_lost_node() {
    for (Node& node : nodes_) {
      const NodeId& id = node.machine.view.id;
      if (!operators_.forget_if_lost(id)) continue;
      timeline_.after(1ms * random_.below(20'000), [this, id] { operators_.join(id); });
      return;
    }
  }

  void next_fault() {
    if (!is_troubled()) return;
    ++out_.faults;
    Node& node = nodes_[random_.below(nodes_.size())];
    SimulatedServer& server = servers_[random_.below(servers_.size())];
    const Duration a_while = 1ms * random_.below(60'000);
    NodeView& view = node.machine.view;
    switch (random_.below(14)) {
      case 0: crash_agent(node, 1ms * random_.below(20'000)); break;
      case 1:
        if (servers_fail_ && server.is_on()) server.crash();
        break;
      case 2:
        if (servers_fail_) server.paused_until = timeline_.now + 1ms * random_.below(30'000);
        break;
      case 3:
        node.is_cut_off = true;
        timeline_.after(a_while, [&node] { node.is_cut_off = false; });
        break;
      case 4:
        node.agent.reset();
        ++node.life;
        node.machine.power_off();
        timeline_.after(a_while, [this, &node] { power_on(node); });
        break;
      case 5:
        if (!view.devices.empty()) {
          NodeDevice& device = view.devices[random_.below(view.devices.size())];
          device.health = chance(50) ? Health::lost : Health::quarantined;
          timeline_.after(a_while, [&device] { device.health = Health::healthy; });
        }
        break;
      case 6:
        operators_.set_intent(view.id, chance(50) ? Intent::draining : Intent::cordoned);
        timeline_.after(a_while, [this, id = view.id] { operators_.set_intent(id, Intent::in_service); });
        break;
      case 7:
        if (!view.devices.empty()) {
          const DeviceId id = view.devices[random_.below(view.devices.size())].info.id;
          node.machine.take_for_people(id);
          timeline_.after(1ms * random_.below(15'000), [&node, id] { node.machine.taken_by_people.erase(id); });
        }
        break;
      case 8: node.machine.crash_some_job(); break;
      case 9: node.machine.make_some_job_sick(timeline_.now + 1ms * random_.below(20'000)); break;
      case 10: change_some_node(view); break;
      case 11:
        if (!view.devices.empty()) {
          const DeviceId id = view.devices[random_.below(view.devices.size())].info.id;
          operators_.set_device_intent(view.id, id, chance(50) ? Intent::draining : Intent::cordoned);
          timeline_.after(a_while,
                          [this, node = view.id, id] { operators_.set_device_intent(node, id, Intent::in_service); });
        }
        break;
      case 12:
        // Cut off all of them, as if the servers had lost the network.
        if (chance(30)) {
          for (Node& peer : nodes_) {
            peer.is_cut_off = true;
            timeline_.after(a_while + 1ms * random_.below(3000), [&peer] { peer.is_cut_off = false; });
          }
        }
        break;
      default: operators_.change_some_deployment(); break;
    }
    if (chance(30)) remove_lost_node();
    // About as many faults per node in a large fleet as in a small one.
    const Duration pause = 4s / options_.nodes + 1ms * random_.below(6000 / options_.nodes);
    timeline_.after(pause * pace_, [this] { next_fault(); });
  }

  void power_on(Node& node) {
    if (node.machine.is_on) return;
    node.machine.is_on = true;
    start_agent(node);
  }

  void end_faults() {
    for (Node& node : nodes_) {
      node.is_cut_off = false;
      node.machine.taken_by_people.clear();
      for (NodeDevice& device : node.machine.view.devices) device.health = Health::healthy;
      power_on(node);
      if (!node.agent) start_agent(node);
    }
    for (SimulatedServer& server : servers_) {
      server.paused_until = {};
      server.faults = {};
    }
    repair();
  }

  // The operators' final repairs, repeated until all of them are accepted.
  void repair() {
    std::vector<NodeId> machines;
    for (const Node& node : nodes_) machines.push_back(node.machine.view.id);
    if (!operators_.repair(machines)) timeline_.after(100ms, [this] { repair(); });
  }

  const FleetOptions options_;
  Timeline timeline_;
  SeededRandom random_;
  // Only a server that has led for a while replaces a lost node's replicas, so servers do not fail in half of the
  // fleets.
  const bool servers_fail_ = chance(50);
  FleetChecker checker_{servers_fail_};
  std::shared_ptr<store::Engine> engine_ = store::make_memory_engine(timeline_.clock);
  std::unique_ptr<store::Store> observer_ = store::Store::open(engine_).value();
  std::deque<SimulatedServer> servers_;
  std::deque<Node> nodes_;
  std::optional<Change> change_;  // more parts of it may follow
  FleetOperators operators_{options_, random_, checker_, [this]() -> SimulatedServer& { return some_server(); },
                            [this] { return state(); }};
  TimePoint faults_begin_{}, faults_end_{};
  // With fewer faults, more of them hit running replicas.
  const int pace_ = chance(50) ? 1 : 2;
  FleetRun out_;
};

}  // namespace

FleetRun simulate_fleet(const FleetOptions& options) { return Simulation(options).run(); }

void add(std::vector<Exemption>& total, const std::vector<Exemption>& more) {
  for (const Exemption& exemption : more) {
    auto found =
        std::find_if(total.begin(), total.end(), [&](const Exemption& other) { return other.name == exemption.name; });
    if (found == total.end()) found = total.insert(found, {exemption.name, exemption.percent_max, 0, 0});
    found->uses += exemption.uses;
    found->chances += exemption.chances;
  }
}

}  // namespace berth::simulate
