// A server of a fleet: store, leader, API and listeners, in one process and one thread. It leads alone: a second one
// on the same store does not start.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "berth/ids.hpp"
#include "format/log_line.hpp"
#include "http/connection_limits.hpp"
#include "http/server.hpp"
#include "http/static_files.hpp"

namespace berth::server {

inline constexpr const char* default_address = "127.0.0.1:8080";

// Where it is reached.
struct Endpoints {
  // An address that other machines can reach gets a certificate from the server's own authority if it has none.
  std::vector<http::ListenOn> listeners;
  std::vector<std::string> names;  // names for this server in requests, in addition to the name of the machine
  std::chrono::seconds certificate_lifetime = std::chrono::hours(90 * 24);  // of certificates that the authority signs
  std::map<NodeId, std::string> nodes = {};  // addresses of nodes, if those of their connections are wrong
};

struct ServeOptions {
  std::string name;              // of this server
  std::string store = "memory";  // "sqlite:PATH"
  std::string folder;            // private; contains the socket, the token for its own user, and the authority
  Endpoints endpoints;
  std::function<Result<Endpoints>()> read_again;  // called on SIGHUP; after an error, nothing changes
  http::ConnectionLimits connections = {};        // bounded by the limit on open files
  std::vector<http::StaticFile> page;             // empty: none
  std::string version;
  format::Log log;
  std::function<void()> stopping;  // called on its thread before it stops, for its users in this process
};

// Values that are known once it serves.
struct ServerReady {
  std::vector<std::string> urls;  // with the ports that were chosen
  std::string socket;             // "unix:/..."
  std::string token_file;
  // A token for the agent of this machine, which joins under that name. It is kept in that file, so that a restarted
  // server does not interrupt connections of the node's relay.
  std::function<Result<std::string>(const NodeId&, const std::string& file)> add_own_node;
  // Makes sure that the folder of the gateway of this machine has a credential with that name. An existing valid
  // one is kept, because a gateway outlives its server.
  std::function<Result<void>(const std::string& name, const std::string& folder)> add_own_gateway;
  // Records an event about the gateway of this machine; may be called on any thread.
  std::function<void(const std::string& text)> note_gateway;
  std::optional<http::TlsFiles> tls;  // for the listeners that other machines can reach
  std::function<void()> shutdown;     // from any thread
};

// Checks for obstacles that would keep the server from starting on any address. unavailable names the server that
// uses the store.
Result<void> check_start(const ServeOptions& options);

// Serves until a signal (SIGINT, SIGTERM) or shutdown(). SIGHUP reads the endpoints and their certificates again,
// without closing connections. `started` is called on the server's thread.
Result<void> serve(const ServeOptions& options, const std::function<void(const ServerReady&)>& started);

}  // namespace berth::server
