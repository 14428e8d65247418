#include "simulate/fleet.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "simulate/fleet_checker.hpp"
#include "simulate/fleet_node.hpp"
#include "simulate/fleet_server.hpp"
#include "simulate/fleet_store.hpp"
#include "simulate/timeline.hpp"

namespace berth::simulate {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t gib = std::uint64_t{1} << 30;
constexpr Duration set_up = 15s;
constexpr Duration look_every = 500ms;

class Simulation {
 public:
  explicit Simulation(const FleetOptions& options) : options_(options), random_(options.seed) {
    out_.seed = options.seed;
    faults_begin_ = TimePoint{} + set_up;
    faults_end_ = faults_begin_ + std::chrono::seconds(options.fault_seconds);
    store_.changed = [this](const std::vector<fleet::Assigned>& started) {
      out_.starts += started.size();
      ++out_.commits;
      checker_.committed(timeline_.now, store_.state, started);
      for (SimulatedServer& server : servers_) {
        if (!is_troubled() || chance(80)) server.hint();
      }
    };
    for (std::uint32_t n = 0; n < options.nodes; ++n) add_node(n);
    for (int i = 0; i < 2; ++i) servers_.emplace_back(timeline_, random_, store_);
  }

  FleetRun run() {
    for (std::uint32_t d = 0; d < options_.deployments; ++d) {
      timeline_.at(TimePoint{} + 1ms * random_.below(10'000), [this, d] { apply(some_spec(d)); });
    }
    for (SimulatedServer& server : servers_) serve(server);
    for (Node& node : nodes_) {
      timeline_.after(1ms * random_.below(500), [this, &node] { live(node); });
    }
    timeline_.at(faults_begin_, [this] { next_fault(); });
    timeline_.at(faults_end_, [this] { end_faults(); });

    // The longest that a replica of a lost node waits, and a little for messages.
    timeline_.run_until(faults_end_ + 30s + 2s);
    std::map<NodeId, FleetChecker::Machine> machines;
    for (const Node& node : nodes_) {
      FleetChecker::Machine& machine = machines[node.machine.view.id];
      machine.is_on = node.machine.is_on;
      for (const NodeDevice& device : node.machine.view.devices) machine.in_service.insert(device.info.id);
    }
    checker_.check_places(timeline_.now, store_.state, machines);

    // Successors, back-off and grace take their time.
    timeline_.run_until(faults_end_ + 240s);
    std::set<fleet::ReplicaKey> ready;
    for (const Node& node : nodes_) {
      if (!node.agent) continue;
      for (const fleet::ReplicaReport& report : node.agent->reports()) {
        if (report.state == fleet::ReplicaState::ready) ready.insert(report.key);
      }
    }
    checker_.check_rest(timeline_.now, store_.state, ready);
    const std::uint64_t commits = out_.commits;
    timeline_.run_until(timeline_.now + 40s);
    checker_.expect(timeline_.now, out_.commits == commits, "nothing has changed, and yet something was committed");
    for (const auto& [id, wanted] : store_.state.desired.deployments) out_.replicas += wanted.spec.replicas;
    out_.ready = ready.size();
    out_.violations = checker_.violations();
    return std::move(out_);
  }

 private:
  struct Node {
    Machine machine;
    std::optional<SimulatedAgent> agent;
    bool is_cut_off = false;
    TimePoint reported{};
    std::uint64_t life = 0;  // of the agent: answers to an earlier one are dropped
  };

  bool chance(std::uint64_t percent) { return random_.below(100) < percent; }
  bool is_troubled() const { return timeline_.now >= faults_begin_ && timeline_.now < faults_end_; }

  void add_node(std::uint32_t number) {
    NodeView view;
    view.id = NodeId("n" + std::to_string(100 + number));
    view.memory_bytes = 256 * gib;
    view.egress = number % 2 == 0;
    for (std::uint32_t g = 0; g < options_.gpus; ++g) {
      NodeDevice device;
      device.info.id = DeviceId(view.id.text() + "/gpu" + std::to_string(g));
      device.info.backend = "cuda";
      device.info.memory_bytes_total = 80 * gib;
      device.info.memory_domain = device.info.id.text();
      checker_.add_device(view.id, device.info.id, 80 * gib);
      view.devices.push_back(std::move(device));
    }
    store_.state.nodes[view.id] = Intent::in_service;
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

  // Loses, delays and repeats. What is in flight when a node is cut off is lost.
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
    server.crash_chance_percent = is_troubled() ? 2 : 0;
    server.late_chance_percent = is_troubled() ? 5 : 0;
    if (!server.is_on && chance(is_troubled() ? 10 : 100)) server.restart();
    server.tick();
    timeline_.after(look_every / 2 + 1ms * random_.below(100), [this, &server] { serve(server); });
  }
  SimulatedServer& some_server() {
    for (SimulatedServer& server : servers_) {
      if (server.is_on && server.leads() && (!is_troubled() || chance(90))) return server;
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
    send(node, [this, &node, life = node.life, epoch = node.agent->epoch(), revision = node.agent->revision()] {
      std::optional<fleet::NodeOrders> orders = some_server().orders_for(node.machine.view.id, epoch, revision);
      if (!orders) return;
      send(node, [&node, life, orders = std::move(*orders)] {
        if (node.life == life && node.agent) node.agent->ordered(orders);
      });
    });
  }

  void send_report(Node& node, std::shared_ptr<const fleet::NodeReport> report) {
    send(node, [this, &node, report, life = node.life, sent = timeline_.now] {
      const auto newest = some_server().report(node.machine.view.id, *report);
      if (!newest) return;
      checker_.heard(timeline_.now, node.machine.view.id);
      send(node, [&node, life, sent, newest] {
        if (node.life == life && node.agent) node.agent->heard(sent, *newest);
      });
    });
  }

  DeploymentSpec some_spec(std::uint32_t number) {
    DeploymentSpec spec;
    spec.name = DeploymentId("d" + std::to_string(100 + number));
    spec.model = "llama-3.1-8b";
    spec.command = {good_command};
    spec.replicas = 1 + static_cast<std::uint32_t>(random_.below(3));
    const std::uint64_t kind = random_.below(10);
    if (kind < 4) {
      spec.gpus = options_.gpus > 1 && chance(20) ? 2 : 1;
    } else if (kind < 8) {
      spec.gpus = 1;
      spec.sharing = Sharing::memory;
      spec.memory_bytes = gib * (10 + random_.below(40));
    } else if (kind == 8) {
      spec.cpu = true;
    } else {
      spec.model = "gpt-4o";
      spec.command.clear();
    }
    spec.spread = chance(50) ? Spread::spread : Spread::pack;
    spec.on_shortage = chance(85) ? OnShortage::best_effort : OnShortage::all;
    spec.rollout.surge = static_cast<std::uint32_t>(random_.below(3));
    spec.rollout.unavailable = static_cast<std::uint32_t>(random_.below(3)) + (spec.rollout.surge == 0 ? 1 : 0);
    spec.single = chance(25) && !spec.command.empty();
    if (spec.single) spec.replicas = 1;
    if (chance(5) && !spec.command.empty()) spec.user = forbidden_user;
    return spec;
  }

  // What a server does with an accepted spec.
  void apply(const DeploymentSpec& spec) {
    BERTH_ASSERT(validate(spec).has_value());
    const std::uint64_t number = ++changes_;
    store_.change_desired(spec.name, number, [&](StoredFleet& state) {
      const auto [found, is_new] = state.desired.deployments.try_emplace(spec.name);
      fleet::Wanted& wanted = found->second;
      if (is_new) {
        wanted.revision = state.desired.version + 1;  // never one that was used before
      } else {
        DeploymentSpec scaled = wanted.spec;
        scaled.replicas = spec.replicas;
        if (scaled != spec) {
          wanted.earlier.insert(wanted.earlier.begin(), wanted.spec);
          if (wanted.earlier.size() > fleet::earlier_max) wanted.earlier.pop_back();
          ++wanted.revision;
          wanted.paused.reset();
        }
      }
      wanted.spec = spec;
    });
    if (chance(90)) checker_.acknowledged(spec.name, number);
  }

  void change_some_deployment() {
    const std::uint32_t number = static_cast<std::uint32_t>(random_.below(options_.deployments));
    const DeploymentId id("d" + std::to_string(100 + number));
    const auto found = store_.state.desired.deployments.find(id);
    if (found == store_.state.desired.deployments.end()) return apply(some_spec(number));
    const fleet::Wanted& wanted = found->second;
    DeploymentSpec spec = wanted.spec;
    switch (random_.below(6)) {
      case 0:
        if (!spec.single) spec.replicas = static_cast<std::uint32_t>(random_.below(5));
        break;
      case 1:
        if (spec.command.empty()) break;
        spec.command = {good_command};
        spec.environment["VERSION"] = std::to_string(random_.below(1000));
        break;
      case 2:
        if (!spec.command.empty()) spec.command = {bad_command};
        break;
      case 3:
        if (!wanted.earlier.empty()) spec = wanted.earlier.front();
        break;
      case 4:
        if (wanted.paused) {
          const std::uint64_t change = ++changes_;
          store_.change_desired(id, change,
                                [&](StoredFleet& state) { state.desired.deployments.at(id).paused.reset(); });
          return;
        }
        break;
      default: return remove(id);
    }
    apply(spec);
  }

  void remove(const DeploymentId& id) {
    const std::uint64_t number = ++changes_;
    store_.change_desired(id, number, [&](StoredFleet& state) { state.desired.deployments.erase(id); });
    if (chance(90)) checker_.acknowledged(id, number);
  }

  void next_fault() {
    if (!is_troubled()) return;
    ++out_.faults;
    Node& node = nodes_[random_.below(nodes_.size())];
    SimulatedServer& server = servers_[random_.below(servers_.size())];
    const Duration a_while = 1ms * random_.below(60'000);
    NodeView& view = node.machine.view;
    switch (random_.below(10)) {
      case 0: crash_agent(node, 1ms * random_.below(20'000)); break;
      case 1:
        if (server.is_on) server.crash();
        break;
      case 2: server.paused_until = timeline_.now + 1ms * random_.below(12'000); break;
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
        store_.set_intent(view.id, chance(50) ? Intent::draining : Intent::cordoned);
        timeline_.after(a_while, [this, id = view.id] { store_.set_intent(id, Intent::in_service); });
        break;
      case 7:
        if (!view.devices.empty()) {
          const DeviceId id = view.devices[random_.below(view.devices.size())].info.id;
          node.machine.take_for_people(id);
          timeline_.after(1ms * random_.below(15'000), [&node, id] { node.machine.taken_by_people.erase(id); });
        }
        break;
      case 8: node.machine.crash_some_job(); break;
      default: change_some_deployment(); break;
    }
    // About as many faults per node in a large fleet as in a small one.
    timeline_.after(4s / options_.nodes + 1ms * random_.below(6000 / options_.nodes), [this] { next_fault(); });
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
      store_.set_intent(node.machine.view.id, Intent::in_service);
    }
    for (SimulatedServer& server : servers_) server.paused_until = {};
    std::vector<DeploymentSpec> specs;
    for (const auto& [id, wanted] : store_.state.desired.deployments) specs.push_back(wanted.spec);
    for (DeploymentSpec& spec : specs) {
      if (spec.user) {
        remove(spec.name);
        continue;
      }
      if (!spec.command.empty()) spec.command = {good_command};
      apply(spec);
      store_.change_desired(spec.name, ++changes_,
                            [&](StoredFleet& state) { state.desired.deployments.at(spec.name).paused.reset(); });
    }
  }

  const FleetOptions options_;
  Timeline timeline_;
  SeededRandom random_;
  FleetChecker checker_;
  FleetStore store_;
  std::deque<SimulatedServer> servers_;
  std::deque<Node> nodes_;
  TimePoint faults_begin_{}, faults_end_{};
  std::uint64_t changes_ = 0;
  FleetRun out_;
};

}  // namespace

FleetRun simulate_fleet(const FleetOptions& options) { return Simulation(options).run(); }

}  // namespace berth::simulate
