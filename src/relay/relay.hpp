// The relay of a node: the path from the gateways to its replicas. It opens connections to every gateway, so that the
// node needs no open port, accepts requests on them, admits as many as a replica may have, and forwards them to the
// replica's own socket. A request that it does not admit has not started, so that a gateway may always try it
// elsewhere. Every answer includes the load of the replica. For the thread of a loop.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "http/async.hpp"
#include "http/client.hpp"
#include "http/idle_links.hpp"
#include "http/link.hpp"
#include "http/loop.hpp"
#include "relay/admission.hpp"
#include "world/descriptor.hpp"

namespace berth::relay {

// Headers between gateway and relay; neither reaches a replica or a client. The refusal of a relay that is ending
// or leaving this gateway: another relay of the node may accept the request.
inline constexpr std::string_view refused_leaving = "leaving";
inline constexpr std::string_view
    header_target = "x-berth-to",  // of a request: "chat/0#17"
                                   // In an answer: the request has not started, because the replica is unknown,
                                   // draining, full or unreachable, or because this relay is leaving.
    header_refused = "x-berth-refused",
    header_failed = "x-berth-failed",  // in an answer: why the replica did not answer
    header_more = "x-berth-more",      // in a request: how many more connections the gateway could use now
    header_load = "x-berth-load";      // "3/8": in flight, with this one, and at most

struct RelayOptions {
  std::string node = {};
  // Called before each new connection to a replica: checks whether the listener belongs to it. For a Unix socket it
  // may return the connection; otherwise the relay connects. The error is not forwarded.
  std::function<Result<world::Descriptor>(const Target& target)> check = nullptr;
  // Idle connections to each gateway; a larger burst of requests waits for further ones.
  std::size_t spare = 4;
  std::size_t connections_max = 1024;  // to each gateway
  std::chrono::milliseconds connect_time{5'000};
  // A gateway decides how long a replica or a client may pause, based on the deployment, for at most a day, and then
  // closes the connection of the request.
  std::chrono::milliseconds exchange_time{std::chrono::hours(25)};
  // At the end of a connection, the time for the gateway to close it after a request that was on its way.
  std::chrono::milliseconds end_time{1'000};
  std::chrono::milliseconds again_min{100}, again_max{5'000};  // until the next try to reach a gateway
};

class Relay {
 public:
  Relay(http::Loop& loop, RelayOptions options);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  void set_targets(std::vector<Target> targets) { admission_.set(std::move(targets)); }
  // Sets all gateways; those no longer listed get no new connections, and requests in flight end as usual.
  void set_gateways(const std::vector<http::ClientOptions>& gateways);
  const Admission& admission() const { return admission_; }
  // Why a gateway cannot use this relay; empty: each can, as far as is known.
  std::string problem() const;

  // Stops accepting requests at once; those in flight continue. Returns when they have ended.
  http::Async<void> drain();

 private:
  struct Gateway;
  struct Connection;

  http::Async<void> keep_open(Gateway& gateway);
  http::Async<void> serve(Gateway& gateway, Connection& connection);
  http::Async<bool> begin(Gateway& gateway, Connection& connection);
  static void open_more(Gateway& gateway, const http::Head& request);
  // Handles one request. False: the connection cannot be reused.
  http::Async<bool> pass_on(http::Link& link, http::Head& head);
  http::Async<bool> refuse(http::Link& link, const http::Head& head, int status, http::Headers headers);
  http::Async<void> end(http::Link& link);
  std::string load_text(std::string_view name) const;
  http::Async<std::unique_ptr<http::Link>> connect(const Target& target, std::string& problem);
  void keep(const Target& target, std::unique_ptr<http::Link> link);
  http::Async<void> close_idle();

  http::Loop& loop_;
  RelayOptions options_;
  Admission admission_;
  bool is_draining_ = false;
  std::list<Gateway> gateways_;
  http::IdleLinks idle_;  // to replicas, by target
  http::Signal idle_closed_;
  std::optional<http::Running> closing_;
};

}  // namespace berth::relay
