// A gateway as a process: its listeners, its server, which tells it about the fleet, and signals.
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
#include "http/server.hpp"

namespace berth::gateway {

inline constexpr const char* default_address = "127.0.0.1:8081";

// One process at a time is the gateway of a folder.
std::string lock_file(const std::string& folder);

// Of clients. 0 connections: as many as this process may have files, less some for itself, and of one address half.
struct ClientLimits {
  std::size_t connections = 0;
  std::size_t connections_of_address = 0;  // those of its own machine have most of all connections
  std::chrono::milliseconds header_time = http::Limits().header_time;
  std::chrono::milliseconds client_time = GatewayOptions().client_time;
};

struct GatewayProcessOptions {
  // Asked for every connection: with the credential of the gateway, which may be replaced.
  std::function<Result<http::ClientOptions>()> server;
  // Renews the certificate of the gateway where that is due. Null: it has none.
  std::function<Result<bool>(http::Client& client, const http::ClientOptions& server)> renew;
  std::function<void()> ending;  // it listens no longer: another one may take its place
  std::vector<http::ListenOn> listeners;
  // Its folder: a gateway that is started later can take the place of this one there.
  std::string folder;
  // From the gateway whose place this one takes. Null: there is none.
  TakeOver* take_over = nullptr;
  std::function<Result<void>()> taken_over;  // takes the lock, if that one has given it up
  AccessLines access_lines = AccessLines::failed;
  ClientLimits limits = {};
  format::Log log;
};

// Serves until a signal (SIGINT, SIGTERM); then requests in flight end, within a minute. Where another gateway takes
// its place, they have an hour. `started` is called with the addresses on the gateway's thread.
Result<void> run_gateway(const GatewayProcessOptions& options,
                         const std::function<void(const std::vector<std::string>& urls)>& started);

}  // namespace berth::gateway
