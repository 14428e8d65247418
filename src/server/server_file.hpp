// The file of a server (`berth serve --config`): where it listens, the names it is called by, and its store.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/serve.hpp"

namespace berth::server {

struct ServerFile {
  std::optional<std::string> store;    // absent: the default one
  std::optional<std::string> gateway;  // where its gateway takes requests, or "none"; absent: the default
  Endpoints endpoints;
  std::optional<std::string> access_log =
      {};  // which requests get a line in the log of its gateway; absent: the default
  http::ConnectionLimits connections = {};
  // Options of `berth gateway` and their values: limits of its clients.
  std::vector<std::string> gateway_limits = {};
};

// Reads TOML. invalid_argument names the mistake and its line.
Result<ServerFile> read_server_file(std::string_view text, std::string_view filename);

}  // namespace berth::server
