// The gateway: accepts requests at one address, finds out who calls and which deployment is meant, chooses a replica,
// and forwards the request, through the relay of its node or directly. It keeps only connections and counts, and
// learns about the fleet from the server. Runs on the thread of its HTTP server; its answers are described in
// docs/operate/gateway.md.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "gateway/balance.hpp"
#include "gateway/endpoints.hpp"
#include "gateway/fair_queue.hpp"
#include "gateway/routes.hpp"
#include "gateway/traffic.hpp"
#include "http/async.hpp"
#include "http/idle_links.hpp"
#include "http/link.hpp"
#include "http/server.hpp"
#include "relay/relay_links.hpp"

namespace berth::gateway {

struct GatewayOptions {
  // Returns the node whose relay opened this connection; absent: it is not a node's relay.
  std::function<std::optional<NodeId>(const http::Head& head, const http::Peer& peer)> relay_of;
  // Called when the relay of a node is refused because it uses this protocol.
  std::function<void(const NodeId& node, std::string_view protocol)> on_other_protocol = nullptr;
  std::size_t peek_bytes = 256 * 1024;            // of one body
  std::size_t peek_bytes_all = 64 * 1024 * 1024;  // for all bodies at a time; half of it for one caller
  std::chrono::milliseconds relay_time{2'000};    // for a connection to a node or a replica
  // How long the relay of a node may take to connect before the node is reported; relays that can connect do so at
  // once.
  std::chrono::milliseconds unconnected_time{5'000};
  // How long a client may take to send the next piece of a body that is searched, or to accept an answer of the
  // gateway itself.
  std::chrono::milliseconds client_time{20'000};
  std::function<void(const fleet::RequestRecord&)> on_ended = nullptr;  // called for each request
};

class Gateway {
 public:
  Gateway(http::Loop& loop, GatewayOptions options);
  ~Gateway();
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  // Replaces the whole view; requests in flight continue.
  void set(FleetView view);
  // Closes relay connections that were authenticated with other credentials.
  void keep_relays(const std::set<std::string>& credentials) { links_.keep_only(credentials); }
  http::Async<bool> handle(http::Link& client, http::Head& head, const http::Peer& peer);
  // Stops accepting connections and leaves the relays to the gateway that takes over. Clients learn from the answers
  // to their requests that their connections will be closed.
  void leave() {
    is_leaving_ = true;
    links_.hand_over();
  }
  // Closes relay connections as they become idle.
  void end();

  const Routes& routes() const { return routes_; }
  std::size_t waiting() const;
  // The number of requests that have not been answered yet.
  std::size_t calls() const { return calls_; }
  // Connections of relays.
  std::size_t relays() const { return links_.size(); }
  // Records a request that the HTTP server has refused with this answer, and gives the answer its id.
  void note_refusal(http::Response& answer);
  // What was counted, and the records of requests that have ended since the last report.
  fleet::GatewayReport report();

 private:
  struct Call;
  struct Line;
  struct Served;
  struct Waiter;

  std::optional<http::Response> authenticate(Call& call);
  bool take_turn(const Caller& caller);
  bool is_from_here(const Call& call) const;
  http::Async<std::optional<http::Response>> find_deployment(Call& call);
  http::Async<void> permit_body(Call& call);
  http::Async<std::optional<http::Response>> read_body(Call& call, std::size_t bytes_max);
  // Bytes of bodies that may still be kept in memory for this caller.
  std::size_t room_for_body(const Call& call) const;
  void forget_body(Call& call);
  http::Async<std::optional<http::Response>> read_whole_body(Call& call, std::string what, std::string advice);
  http::Async<std::optional<http::Response>> read_model(Call& call);
  http::Async<std::optional<http::Response>> read_key(Call& call);
  static http::Async<void> watch(http::Link& client, Waiter& waiter);
  // `may_connect`: no node with a replica is connected yet.
  http::Async<std::optional<http::Response>> wait_for_room(Call& call, bool may_connect);
  // Connects to a replica that is reached directly. Null, with a reason: there is no connection.
  http::Async<std::unique_ptr<http::Link>> connect(const Endpoint& endpoint, std::string& problem);
  bool can_reach(const Endpoint& endpoint) const;
  bool is_revoked(const Call& call) const;
  http::Async<std::optional<http::Response>> try_once(Call& call, const Endpoint& endpoint);
  http::Async<std::optional<http::Response>> serve(Call& call);
  http::Async<bool> send(Call& call, http::Response response);
  http::Headers headers_for_replica(const Call& call) const;
  // Adds the headers that a caller has asked for, and may see.
  static void explain(const Call& call, const Endpoint* replica, http::Headers& headers);
  http::Response models_answer(const Call& call) const;
  std::optional<Endpoint> choose(Call& call, Served& served, const std::set<std::string>& left_out);
  // These record the choice of a replica, the start of an answer, and one attempt with its start; `why` is the reason
  // if it was not answered.
  static void note_choice(Call& call, std::string_view policy);
  static void note_first_byte(Call& call, int status);
  void note_try(Call& call, const Endpoint& endpoint, Ending ending, const std::string& why, TimePoint began);
  // See GatewayReport.
  std::vector<NodeId> unconnected_nodes(TimePoint now);
  // Records the end of a request; `answer`: the gateway's own.
  void finish(Call& call, const http::Response* answer);
  // Wakes one request in this line, or one in every line, to try again. `may_be_more`: there may be room for
  // several, so a request that finds room wakes the next.
  static void wake_next(Line& line, bool may_be_more = false);
  static void wake_all(Served& served);
  http::Async<void> wake_regularly();

  http::Loop& loop_;
  GatewayOptions options_;
  FleetView view_;
  bool has_view_ = false;  // before the first view, the gateway cannot say what is wrong with a request
  Routes routes_;
  relay::RelayLinks links_;
  http::IdleLinks direct_;  // to replicas, by address
  std::map<DeploymentId, std::unique_ptr<Served>> served_;
  std::map<std::string, std::uint32_t> in_flight_;  // by caller
  struct Turns {
    double left = 0;
    TimePoint at{};
  };
  std::map<std::string, Turns> turns_;  // for callers with a limit per second
  std::size_t calls_ = 0;
  Traffic traffic_;
  std::map<NodeId, TimePoint> unconnected_since_;  // as of the last report
  std::size_t peeked_bytes_ = 0;
  std::map<std::string, std::size_t> peeked_of_;  // by caller
  Ticket next_ticket_ = 0;
  bool is_leaving_ = false, is_ending_ = false;
  http::Signal tick_;
  std::optional<http::Running> ticking_;
};

}  // namespace berth::gateway
