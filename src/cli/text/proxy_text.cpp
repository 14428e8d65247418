#include "cli/text/proxy_text.hpp"

#include <boost/json.hpp>
#include <vector>

#include "cli/text/answer_fields.hpp"
#include "http/listening.hpp"
#include "http/request_checks.hpp"
#include "http/url.hpp"
#include "server/serve.hpp"

namespace berth::cli {

namespace json = boost::json;

namespace {

struct GatewayAddress {
  std::string name, address;
  bool is_tls = false;  // false only for loopback addresses
};

std::vector<GatewayAddress> gateways_of(const json::object& answer) {
  std::vector<GatewayAddress> gateways;
  for (const json::value& entry : Fields(answer).list("gateways")) {
    const Fields gateway(entry);
    std::string address = gateway.text("address");
    // The gateway listens on all addresses of the server's machine.
    if (address.starts_with(':')) address = gateway.text("name") + address;
    const auto parsed = http::parse_listen_address(address);
    gateways.push_back({gateway.text("name"), address, !parsed || !http::is_loopback_name(parsed->host)});
  }
  return gateways;
}

bool has_tls(const std::vector<GatewayAddress>& gateways) {
  for (const GatewayAddress& gateway : gateways)
    if (gateway.is_tls) return true;
  return false;
}

const std::string caution =
    "# A gateway on the same machine treats every request as local: deployments with serving.open are then open to\n"
    "# every client of this proxy.\n";

std::string haproxy_text(const std::vector<GatewayAddress>& gateways) {
  // A tunnel is a connection after an upgrade to WebSocket.
  std::string out =
      caution +
      "backend berth\n    mode http\n    balance leastconn\n    timeout connect 5s\n    timeout server 10m\n"
      "    timeout tunnel 1h\n";
  for (const GatewayAddress& gateway : gateways)
    out += "    server " + gateway.name + " " + gateway.address +
           (gateway.is_tls ? " check ssl verify required ca-file /etc/haproxy/berth-ca.pem" : " check") + "\n";
  return out;
}

std::string nginx_text(const std::vector<GatewayAddress>& gateways) {
  const bool is_tls = has_tls(gateways);
  std::string out = caution + "upstream berth {\n    least_conn;\n";
  for (const GatewayAddress& gateway : gateways) out += "    server " + gateway.address + ";\n";
  out +=
      "    keepalive 32;\n}\n# WebSockets change the protocol; other connections to the gateways are kept.\n"
      "map $http_upgrade $berth_connection {\n    default upgrade;\n    \"\" \"\";\n}\n"
      "server {\n    listen 80;\n    location / {\n        proxy_pass " +
      std::string(is_tls ? "https" : "http") +
      "://berth;\n        proxy_http_version 1.1;\n        proxy_set_header Host $host;\n"
      "        proxy_set_header Upgrade $http_upgrade;\n        proxy_set_header Connection $berth_connection;\n"
      "        proxy_buffering off;\n        proxy_request_buffering off;\n"
      "        proxy_read_timeout 10m;\n        proxy_send_timeout 10m;\n        client_max_body_size 0;\n";
  if (is_tls) out += "        proxy_ssl_verify on;\n        proxy_ssl_trusted_certificate /etc/nginx/berth-ca.pem;\n";
  return out + "    }\n}\n";
}

std::string prometheus_text(const std::string& server) {
  const auto url = http::parse_url(server);
  const bool is_address = url && url->kind != http::Url::Kind::unix_socket;
  const bool is_tls = is_address && url->kind == http::Url::Kind::https;
  const std::string target = is_address ? url->host + ":" + url->port : server::default_address;
  std::string out = "scrape_configs:\n  - job_name: berth\n    scheme: " + std::string(is_tls ? "https" : "http") +
                    "\n    static_configs:\n      - targets: [\"" + target + "\"]" +
                    (is_address ? "\n" : "  # or the address of berth serve --listen\n");
  if (is_tls)
    out +=
        "    # berth token add read creates the token.\n"
        "    authorization: {credentials_file: /etc/prometheus/berth.token}\n"
        "    tls_config: {ca_file: /etc/prometheus/berth-ca.pem}\n";
  return out;
}

}  // namespace

Result<ProxyFormat> proxy_format_named(std::string_view name) {
  if (name == "haproxy") return ProxyFormat::haproxy;
  if (name == "nginx") return ProxyFormat::nginx;
  if (name == "prometheus") return ProxyFormat::prometheus;
  return Error{ErrorCode::invalid_argument, "\"" + std::string(name) + "\" is not a known format",
               "use haproxy, nginx or prometheus"};
}

std::string proxy_text(ProxyFormat format, const json::object& answer, const std::string& server) {
  if (format == ProxyFormat::prometheus) return prometheus_text(server);
  const std::vector<GatewayAddress> gateways = gateways_of(answer);
  if (gateways.empty()) return "# there is no gateway; berth serve starts one, and so does berth gateway\n";
  return format == ProxyFormat::haproxy ? haproxy_text(gateways) : nginx_text(gateways);
}

}  // namespace berth::cli
