#include "server/server_file.hpp"

#include "deployment/read_toml_table.hpp"
#include "http/listening.hpp"
#include "server/gateway_view.hpp"

namespace berth::server {

namespace {
constexpr std::uint32_t connections_max = 1'000'000;
}

Result<ServerFile> read_server_file(std::string_view text, std::string_view filename) {
  deployment::Reading reading(filename);
  const auto file = reading.parse(text);
  if (!file) return reading.error();
  const deployment::Table table(
      reading, *file, "the server's file",
      {"listen", "tls_certificate", "tls_key", "host_names", "store", "connections", "connections_per_address",
       "gateway", "access_log", "gateway_connections", "gateway_connections_per_address", "gateway_header_timeout",
       "gateway_client_timeout", "certificate_lifetime", "addresses"});
  // Paths must be absolute, because a service has a different working folder from its operator.
  const auto path = [&](const char* key) {
    std::optional<std::string> read = table.text(key);
    if (read && !read->starts_with('/'))
      table.fail(key, "\"" + *read + "\" is not an absolute path", "begin it with a slash");
    return read;
  };
  const std::optional<std::string> certificate = path("tls_certificate"), key = path("tls_key");
  if (table.has("tls_certificate") != table.has("tls_key"))
    table.fail(certificate ? "tls_certificate" : "tls_key", "a certificate and its key must be given together",
               "give both tls_certificate and tls_key");
  ServerFile read;
  read.store = table.text("store");
  read.gateway = table.text("gateway");
  read.access_log = table.text("access_log");
  read.connections.all = table.number("connections", 16, connections_max).value_or(0);
  read.connections.of_address = table.number("connections_per_address", 1, connections_max).value_or(0);
  const auto limit = [&](std::string option, std::string value) {
    read.gateway_limits.push_back(std::move(option));
    read.gateway_limits.push_back(std::move(value));
  };
  if (const auto most = table.number("gateway_connections", 16, connections_max))
    limit("--connections", std::to_string(*most));
  if (const auto most = table.number("gateway_connections_per_address", 1, connections_max))
    limit("--connections-per-address", std::to_string(*most));
  for (const auto& [key, option] : {std::pair("gateway_header_timeout", "--header-timeout"),
                                    std::pair("gateway_client_timeout", "--client-timeout")}) {
    const auto time = table.duration(key);
    if (!time) continue;
    if (*time < std::chrono::seconds(1) || *time > std::chrono::hours(24))
      table.fail(key, std::string(key) + " is out of range", "use 1s to 24h");
    limit(option, *table.text(key));
  }
  std::vector<std::string> addresses{default_address};
  if (table.has("listen")) addresses = table.texts("listen");
  for (std::string& address : addresses) {
    read.endpoints.listeners.push_back({std::move(address), std::nullopt});
    if (certificate && key) read.endpoints.listeners.back().tls = http::TlsFiles{*certificate, *key};
  }
  read.endpoints.names = table.texts("host_names");
  if (const auto lifetime = table.duration("certificate_lifetime")) {
    read.endpoints.certificate_lifetime = std::chrono::duration_cast<std::chrono::seconds>(*lifetime);
    if (*lifetime < std::chrono::seconds(3) || *lifetime > std::chrono::hours(3650 * 24))
      table.fail("certificate_lifetime", "certificate_lifetime is out of range", "use 3s to 3650d, such as 90d");
  }
  for (const auto& [node, address] : table.labels("addresses", "address")) {
    const auto parsed = http::parse_listen_address(in_brackets(address) + ":1");
    if (!parsed || parsed->host == "0.0.0.0" || parsed->host == "::")
      table.fail("addresses", "\"" + address + "\" is not the IP address of a node",
                 "give the address at which gateways reach the node, such as " + node + " = \"10.0.0.5\"");
    else
      read.endpoints.nodes.emplace(node, parsed->host);
  }
  if (reading.failed()) return reading.error();
  return read;
}

}  // namespace berth::server
