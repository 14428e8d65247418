// The API of a server: routes, access rights, long polls of agents, streams of events, output of replicas.
// Everything runs on the thread of the server. docs/reference/openapi.json describes every answer.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fleet/endpoints.hpp"
#include "http/authority.hpp"
#include "http/server.hpp"
#include "http/server_sent_events.hpp"
#include "http/static_files.hpp"
#include "server/access.hpp"
#include "server/fleet_counts.hpp"
#include "server/fleet_metrics.hpp"
#include "server/gateway_events.hpp"
#include "server/gateway_reports.hpp"
#include "server/history.hpp"
#include "server/leader.hpp"
#include "server/path_pattern.hpp"

namespace berth::server {

// The server's certificate authority, which may appear when its configuration is read again.
struct Signing {
  std::optional<http::Authority> authority;
  bool signs_server = false;  // it signed the server's certificate, so tokens contain its fingerprint
  std::chrono::seconds lifetime = std::chrono::hours(90 * 24);  // of certificates
};

class Api {
 public:
  // `wake` is called when something has changed that the controller should look at. `after` calls a function on
  // this thread later.
  struct Hooks {
    std::function<void()> wake;
    std::function<void(std::chrono::milliseconds, std::function<void()>)> after;
    std::function<std::size_t()> connections;
    std::size_t connections_max = 0;
    std::function<std::optional<StoreSpace>()> store_space = nullptr;
  };
  // `leader` and `signing` outlive it; from now on, the leader notifies it of changes.
  Api(std::string version, Access access, http::StaticFiles page, Leader& leader, const Signing& signing, Hooks hooks);
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  void handle(const http::Request& request, const http::Responder& responder);
  // The largest body of a request, given its head, so that requests of strangers take little memory.
  std::size_t body_bytes(const http::Request& head) const;
  // Expects the gateway of this server's machine to run, under this name.
  void expect_gateway(const std::string& name) { own_gateway_ = {name, leader_.now()}; }
  // The key of a connection that proves that it knows a token.
  std::optional<http::KnownKey> key_of(std::string_view identity) const {
    return access_.key_of(identity, leader_.state().credentials);
  }

  // Starts the work that is repeated every second; called once, when the server runs.
  void tick();
  // Called when the server stops, so that it does not wait for agents that wait for orders, nor for readers of
  // streams.
  void end();

 private:
  struct Call;
  struct Route {
    std::string_view method;
    PathPattern path;
    std::optional<fleet::Role> role;  // absent: open
    void (Api::*handler)(const Call& call);
  };
  static const std::vector<Route>& routes();
  // A request that matches a route.
  struct Call {
    const Route& route;
    const http::Request& request;
    const Who& who;  // meaningless for an open route
    const http::Responder& responder;
    // The part of the path for the route's name in braces.
    const std::string& part(std::string_view name) const { return route.path.part(request.segments, name); }
  };

  // Called by the leader after a change.
  void changed();
  void orders_changed(const NodeId& node);
  // Decides after a requested change, so that its answer and the next request show the consequences.
  void decide();
  // The caller; absent: access was denied, and the answer has been sent.
  std::optional<Who> admit(const http::Request& request, fleet::Role role, const http::Responder& responder);
  bool answer_outside_api(const http::Request& request, const http::Responder& responder);

  void get_openapi(const Call& call);
  void get_status(const Call& call);
  void get_nodes(const Call& call);
  void get_node(const Call& call);
  void put_node_intent(const Call& call);
  void put_device_intent(const Call& call);
  // `plan`: the effects of a change that was not made.
  void send_node(const NodeId& node, const http::Responder& responder, const Plan* plan = nullptr);
  void preview_intent(const NodeId& node, const std::optional<DeviceId>& device, Intent intent, const http::Responder&);
  void delete_node(const Call& call);
  void get_history(const Call& call);
  void get_project(const Call& call);
  void put_project(const Call& call);
  void get_deployments(const Call& call);
  void get_deployment(const Call& call);
  void delete_deployment(const Call& call);
  void post_scale(const Call& call);
  void post_rollout(const Call& call);
  // Answers with the effects of the change, and with the deployment concerned.
  void make(const Call& call, Result<Leader::Proposal> proposal, bool dry_run,
            const std::optional<DeploymentId>& shown = std::nullopt);
  void get_replicas(const Call& call);
  void get_replica(const Call& call);
  void get_logs(const Call& call);
  void get_jobs(const Call& call);
  void get_events(const Call& call);
  void get_stream(const Call& call);
  void get_tokens(const Call& call);
  void post_token(const Call& call);
  void delete_token(const Call& call);
  void post_certificate(const Call& call);
  void post_login(const Call& call);
  void get_session(const Call& call);
  void post_logout(const Call& call);
  void post_join(const Call& call);
  void post_report(const Call& call);
  void get_assignments(const Call& call);
  void get_endpoints(const Call& call);
  void get_shards(const Call& call);
  void put_gateway_address(const Call& call);
  void get_gateway_endpoints(const Call& call);
  void put_gateway_report(const Call& call);
  void get_request(const Call& call);
  void post_route(const Call& call);
  void post_logs(const Call& call);

  // To each incarnation, the restarts of its replica.
  void add_restarts(boost::json::array& incarnations) const;
  // `number` is as in the request, and may not be a number.
  Error no_replica(const DeploymentId& name, const std::string& number) const;
  // not_found: nothing in the fleet has that name.
  Result<void> check_subject(const std::string& subject) const;
  bool is_wanted(const DeploymentId& name, std::optional<std::uint64_t> replica) const;
  fleet::Credential new_credential(fleet::Role role, const Who& who, const std::string& secret) const;
  // "certificate" and "authority", both PEM.
  Result<boost::json::object> certify(const std::string& request, const fleet::Credential& credential) const;
  void send_orders(const NodeId& node, const http::Responder& responder);

  // An agent that waits for orders newer than those it has.
  struct Poll {
    http::Responder responder;
    std::uint64_t number = 0;
  };
  // A gateway that waits for something newer than its view.
  struct GatewayPoll {
    std::string credential;
    std::uint64_t known = 0;
    http::Responder responder;
    bool is_here = false;  // on this machine
  };
  const fleet::GatewayView& show_gateway(const std::string& credential);
  void answer_gateway(std::uint64_t number, bool is_late);
  void notify_gateways();
  // Has one warning for each gateway that some nodes are not connected to, in the form of the status's warnings.
  boost::json::array connection_warnings() const;
  // Create events from a gateway's report, and about silent gateways and conflicting routes.
  void note_report(const std::string& gateway, const fleet::GatewayReport& report);
  void look_at_gateways();
  // A client that reads the output of a replica through its agent.
  struct Reader {
    NodeId node;
    fleet::ReplicaKey key;
    std::uint64_t tail = 0;
    bool follows = false, previous = false;
    std::string credential;  // of the reader
    http::Responder responder;
    bool is_sent = false;                     // the agent has the request
    std::optional<http::Stream> stream = {};  // since the agent began to send
    TimePoint agent_seen_at{};                // the last contact with the agent
    // Answers the agent's last piece when the reader has room for the next one.
    std::optional<http::Responder> to_piece = {};
  };
  static void answer_piece(Reader& reader, bool is_open, bool has_room);
  // Ends readers that are no longer allowed to read, and those whose agent is silent.
  void end_readers(TimePoint now, const std::function<bool(const std::string& credential)>& is_valid);
  // A client that receives every change and event.
  struct Listener {
    std::string credential;
    http::Stream stream;
  };

  std::string version_;
  Access access_;
  http::StaticFiles page_;
  Hooks hooks_;
  Leader& leader_;
  const Signing& signing_;
  History history_;
  FleetCounts counts_;
  std::uint64_t started_ms_;
  std::uint64_t next_number_ = 1;
  std::multimap<NodeId, Poll> polls_;
  std::map<std::string, fleet::GatewayView> gateways_shown_;  // the last view sent to each, by credential
  std::map<std::uint64_t, GatewayPoll> gateway_polls_;
  bool gateways_are_due_ = false;     // a timer will notify them
  std::size_t gateways_present_ = 1;  // that share the limits of callers
  GatewayReports reports_;
  GatewayEvents gateway_events_;
  std::optional<std::pair<std::string, TimePoint>> own_gateway_;  // since then
  std::map<std::string, Reader> readers_;
  std::map<std::uint64_t, Listener> streams_;
  bool change_is_due_ = false;  // a timer will notify the streams
  std::uint64_t last_event_sent_ = 0;
};

}  // namespace berth::server
