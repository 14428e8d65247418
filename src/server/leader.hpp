// Leader: the fleet in the memory of the server that leads it. It joins the store's state with the nodes' reports,
// lets the controller's step decide, and commits each decision before anyone sees it. Everything runs on the thread
// of the server. A wrong request returns an Error; a failing store changes nothing here.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "berth/clock.hpp"
#include "controller/step.hpp"
#include "fleet/fleet.hpp"
#include "server/event_limit.hpp"
#include "store/store.hpp"

namespace berth::server {

// A node's last report, and when it arrived.
struct LastReport {
  fleet::NodeReport report;
  TimePoint at{};
  double clock_offset_s = 0;  // of its wall clock relative to ours
  std::string address = {};   // the IP address it came from; empty: not known
};

enum class RolloutAction : std::uint8_t { pause, resume, undo, restart };
struct RolloutRequest {
  RolloutAction action = RolloutAction::pause;
  std::string reason = {};                        // of a pause
  std::optional<std::uint64_t> to_revision = {};  // target of an undo; absent: the newest one with other settings
};

// Since this server leads.
struct StoreCounts {
  std::uint64_t commits = 0, errors = 0;  // errors: a commit, renewal or read that failed
  Duration commit_time{};                 // of all commits
};

class Leader {
 public:
  // Becomes leader. `on_event` is called with every committed event; null: it is not called.
  static Result<Leader> begin(std::shared_ptr<store::Store> store, std::string server, Clock& clock,
                              std::function<void(const fleet::Event&)> on_event);
  // From now on `changed` is called after every change that a reader could see, and `orders_changed` with each node
  // whose orders are new.
  void notify(std::function<void()> changed, std::function<void(const NodeId&)> orders_changed);

  const store::State& state() const { return state_; }
  std::uint64_t epoch() const { return epoch_; }
  // Grows with every change that a reader could see, reports included; "revision" in the answers of the API.
  std::uint64_t change_count() const { return change_count_; }
  const std::string& server() const { return server_; }
  const LastReport* last_report(const NodeId& node) const;  // since this server leads
  // For display: the node's report, or else what the store kept of an earlier one. Null: nothing is known.
  const LastReport* known(const NodeId& node) const;
  controller::NodeHealth health(const NodeId& node) const;
  // When it last reported; if it has not, when it joined or this server became leader.
  TimePoint silent_since(const NodeId& node) const;
  std::optional<Duration> report_age(const NodeId& node) const;  // absent: no report since this server became leader
  const std::vector<controller::DeploymentStatus>& deployments() const { return deployments_; }
  const std::vector<Pending>& pending() const { return pending_; }
  // The evidence for one of `pending()`, at most 5 s old, because computing it runs the planner many times and every
  // open page requests it repeatedly. Null: it is not known, and computing it would start after `until`.
  const deployment::Evidence* evidence(const Pending& pending, TimePoint until) const;
  // The epoch of a later server that the node has followed, which makes it ignore this one. Absent: it follows this
  // one, or has not reported.
  std::optional<std::uint64_t> later_epoch(const NodeId& node) const;
  TimePoint now() const { return clock_->now(); }
  // The node's assignments, with their number.
  fleet::NodeOrders orders(const NodeId& node) const;
  std::uint64_t orders_number(const NodeId& node) const;
  controller::Input input() const;
  const std::vector<fleet::Event>& recent_events() const { return events_; }
  Result<std::vector<fleet::Event>> events(std::uint64_t after, std::size_t limit) const;
  Result<std::vector<fleet::Event>> actions(std::size_t limit) const;  // the newest events caused by people

  // Changes of the desired state. `version`: refused with `stale` if it is no longer the project's version.
  struct Applied {
    std::uint64_t version = 0;
    bool changed = false;
    std::vector<DeploymentId> added, removed;
    std::map<DeploymentId, std::pair<DeploymentSpec, DeploymentSpec>> altered;  // before and after
  };
  // A change that has not been made yet. It is valid until something else changes.
  struct Proposal {
    Applied applied;
    fleet::Desired desired;
    store::Change change;
    fleet::EventKind kind = fleet::EventKind::applied;  // of its event, like the rest
    std::string subject = {}, text = {};
  };
  Result<Proposal> propose(const Project& project, std::optional<std::uint64_t> version) const;
  Result<Proposal> propose_scale(const DeploymentId& name, std::uint32_t replicas,
                                 std::optional<std::uint64_t> version) const;
  Result<Proposal> propose_rollout(const DeploymentId& name, const RolloutRequest& request,
                                   const std::string& actor) const;
  // The effects of a proposal. Takes as long as dozens of steps, so call it only if the result is shown.
  controller::Preview preview(const Proposal& proposal) const;
  Result<Applied> make(Proposal proposal, const std::string& actor);
  Result<Applied> apply(const Project& project, std::optional<std::uint64_t> version, const std::string& actor);
  Result<void> rollout(const DeploymentId& name, const RolloutRequest& request, const std::string& actor);
  Result<void> remove(const DeploymentId& name, const std::string& actor);
  // The errors for unknown names, with the nearest known one.
  Error no_deployment(const DeploymentId& name) const;
  Error no_node(const NodeId& node) const;
  Result<void> set_intent(const NodeId& node, Intent intent, const std::string& actor, const std::string& reason = {});
  // The current id of the device that has this id, or had it in earlier versions. Absent: the node has no such
  // device, as far as is known.
  std::optional<DeviceId> find_device(const NodeId& node, const DeviceId& name) const;
  // not_found: the node has no such device, as far as is known.
  Result<void> set_device_intent(const NodeId& node, const DeviceId& name, const fleet::DeviceIntent& wanted);
  // already_exists: it is not lost and holds replicas, or a `single` one may still run there.
  Result<void> forget_node(const NodeId& node, const std::string& actor);

  // A node that joins gets a record and a credential; `used_up` is the join token's id. already_exists: a node with
  // that name is alive, or is lost and the token was not created for it.
  Result<void> add_node(const NodeId& node, const fleet::Credential& credential, const std::string& used_up,
                        const std::string& actor);
  // A gateway that joins gets a credential; `used_up` is the join token's id. already_exists: another gateway has
  // that name.
  Result<void> add_gateway(const fleet::Credential& credential, const std::string& used_up, const std::string& actor);
  // Stores events about gateways' reports, as far as the gateway may cause any.
  Result<void> note(std::vector<fleet::Event> events);
  // Sets where relays reach the gateway with this credential.
  Result<void> set_gateway_address(const std::string& credential, const std::string& address);
  // The address at which gateways find ports of the node: from set_node_addresses(), or else where its last report
  // came from. Empty: not known. A node's own statement does not count.
  std::string address_of(const NodeId& node) const;
  void set_node_addresses(std::map<NodeId, std::string> addresses);
  // The gateways that the relay of the node connects to.
  std::vector<fleet::GatewayOrder> gateways_of(const NodeId& node) const;
  Result<void> add_credential(const fleet::Credential& credential, const std::string& actor);
  Result<void> remove_credential(const std::string& id, const std::string& actor);

  // unavailable: another agent with this name, or a later start of this one, has just reported, or this server may
  // no longer lead. A report older than the last one from the same start of the agent changes nothing.
  Result<void> take_report(LastReport next);
  // Records why the node's last message is not a valid report.
  void refuse_report(const NodeId& node, const std::string& why);

  // Decides and commits until there is nothing left to do. Returns when time alone may change something.
  Result<std::optional<TimePoint>> step();
  // Why the last step or the last renewal did not succeed; empty: both did. If not, the displayed state may be older
  // than the desired one.
  const std::string& problem() const { return step_problem_.empty() ? renewal_problem_ : step_problem_; }

  const StoreCounts& store_counts() const { return store_counts_; }

  // Whether the node reports to this server and ignores it. A lost node does not count.
  bool is_ignored_by(const NodeId& node) const;
  // Why the node ignores this server, why its last report was refused, or what was left out of it; empty: none of
  // these.
  std::string node_problem(const NodeId& node) const;
  // Problems of one node, one deployment or one entry of the store, which do not affect the others:
  // one sentence each, by what it is about ("node/gpu-1", "deployment/chat", "store").
  std::map<std::string, std::string> warnings() const;

  // Renews the leadership. An error: another server leads, or may lead by now, and this one must end. A store
  // failure before that is a problem(), and the next call tries again.
  Result<void> renew();
  void end();

 private:
  Leader() = default;
  Proposal propose_change(fleet::DesiredDeployment wanted, fleet::EventKind kind, std::string text) const;
  Result<void> check_singles_ended(const NodeId& node) const;
  Result<void> commit(store::Change change, std::vector<fleet::Event> events);
  Result<std::optional<TimePoint>> take_steps();
  Result<store::State> read() const;
  Result<void> load();
  // Finds nodes whose relays have different gateways or keys than before.
  void find_changed_gateways(const std::map<std::string, fleet::Credential>& now);
  void forget_removed();
  Result<void> commit_step(controller::Step& step);
  store::Change change_of_step(const controller::Step& step, const DeploymentId* only) const;
  Result<void> use_current_ids(const NodeView& node);
  void keep_inventory(const NodeView& node);
  void note_ignoring(const NodeId& node);
  void note_problem(const NodeId& node);
  void set_problem(std::string& problem, std::string now);
  fleet::Event event(fleet::EventKind kind, const std::string& actor, std::string subject, std::string text) const;

  std::shared_ptr<store::Store> store_;
  std::string server_;
  Clock* clock_ = nullptr;
  std::function<void()> changed_;
  std::function<void(const NodeId&)> orders_changed_;
  std::function<void(const fleet::Event&)> on_event_;
  std::uint64_t epoch_ = 0;
  store::State state_;
  bool is_current_ = true;  // false: the store may have more than `state_`, and nothing is decided before it is read
  std::vector<fleet::Assigned> all_;  // of state_
  std::set<NodeId> changed_nodes_;
  TimePoint began_{}, leads_until_{};  // no other server can become leader before that
  std::uint64_t change_count_ = 1;
  std::map<NodeId, std::uint64_t> orders_numbers_;
  std::map<NodeId, LastReport> last_reports_;
  std::map<NodeId, TimePoint> joined_;               // since this server leads
  std::map<std::string, TimePoint> gateways_moved_;  // by credential: when its address last changed
  std::map<NodeId, std::string> node_addresses_;     // set by the operator
  std::map<NodeId, LastReport> stored_;              // from the inventories in the store when this server started
  struct Kept {
    std::optional<TimePoint> at;  // when an inventory was written last
    NodeView view;                // what the store has
  };
  std::map<NodeId, Kept> kept_;
  std::map<NodeId, std::string> noted_problems_;  // the texts of the last events about them
  std::set<NodeId> ignoring_;                     // nodes with an event saying that they ignore this server
  controller::Memory memory_;
  bool is_settled_ = false;  // until `look_again_`, another step would again find nothing to do
  std::optional<TimePoint> look_again_;
  std::string step_problem_, renewal_problem_;
  StoreCounts store_counts_;
  std::map<DeploymentId, std::string> blocked_;    // why the last step's change cannot be written
  std::map<NodeId, std::string> refused_reports_;  // why its last report was refused
  EventLimit event_limit_;
  std::vector<controller::DeploymentStatus> deployments_;
  std::vector<Pending> pending_;
  struct CachedEvidence {
    TimePoint at{};
    deployment::Evidence evidence;
  };
  mutable std::map<std::pair<DeploymentId, std::vector<std::uint32_t>>, CachedEvidence> evidence_;  // of pending_
  std::vector<fleet::Event> events_;                                                                // the newest ones
};

}  // namespace berth::server
