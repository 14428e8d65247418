// Configuration of other programs for a fleet: a proxy in front of its gateways, and Prometheus for its server. Pure.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "berth/result.hpp"

namespace berth::cli {

enum class ProxyFormat : std::uint8_t { haproxy, nginx, prometheus };
Result<ProxyFormat> proxy_format_named(std::string_view name);

// Takes the answer of /endpoints. `server` is the URL of the server, or, for a Unix socket, the default address of
// servers.
std::string proxy_text(ProxyFormat format, const boost::json::object& answer, const std::string& server);

}  // namespace berth::cli
