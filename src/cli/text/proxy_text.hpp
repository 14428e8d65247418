// Configuration of other programs for a fleet: a proxy before its gateways, and Prometheus for its server. Pure.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "berth/result.hpp"

namespace berth::cli {

enum class ProxyFormat : std::uint8_t { haproxy, nginx, prometheus };
Result<ProxyFormat> proxy_format_named(std::string_view name);

// Of the answer of /endpoints. `server`: its URL; of a Unix socket: the address at which servers listen by default.
std::string proxy_text(ProxyFormat format, const boost::json::object& answer, const std::string& server);

}  // namespace berth::cli
