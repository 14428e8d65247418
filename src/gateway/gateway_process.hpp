// A gateway as a process: its listeners, the feed from its server, and signals.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "berth/result.hpp"
#include "format/log_line.hpp"
#include "gateway/access_log.hpp"
#include "gateway/gateway.hpp"
#include "gateway/take_over.hpp"
#include "http/client.hpp"
#include "http/connection_limits.hpp"
#include "http/server.hpp"

namespace berth::gateway {

inline constexpr const char* default_address = "127.0.0.1:8081";

// The lock file that the gateway of a folder holds.
std::string lock_file(const std::string& folder);

// Limits for clients.
struct ClientLimits {
  http::ConnectionLimits connections;
  std::chrono::milliseconds header_time = http::Limits().header_time;
  std::chrono::milliseconds client_time = GatewayOptions().client_time;
};

struct GatewayProcessOptions {
  // Called for every connection; includes the credential of the gateway, which may be replaced.
  std::function<Result<http::ClientOptions>()> server;
  // Renews the certificate of the gateway if that is due. Null: it has none.
  std::function<Result<bool>(http::Client& client, const http::ClientOptions& server)> renew;
  std::function<void()> ending;  // it no longer listens; another gateway may take over
  std::vector<http::ListenOn> listeners;
  // Its folder, in which a gateway that is started later can take over.
  std::string folder;
  // The take-over from a running gateway. Null: there is none.
  TakeOver* take_over = nullptr;
  std::function<Result<void>()> taken_over;  // takes the lock, if the old gateway has released it
  AccessLines access_lines = AccessLines::failed;
  ClientLimits limits = {};
  format::Log log;
};

// Serves until a signal (SIGINT, SIGTERM); then requests in flight have a minute to finish, or an hour if another
// gateway has taken over. `started` is called with the addresses on the gateway's thread.
Result<void> run_gateway(const GatewayProcessOptions& options,
                         const std::function<void(const std::vector<std::string>& urls)>& started);

}  // namespace berth::gateway
