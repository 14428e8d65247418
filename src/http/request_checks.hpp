// The checks of a request before a handler sees it, as pure functions: its target is well formed, its Host is ours,
// and its Origin, if a browser sent one, is our own page. The last two keep out pages of other sites that make a
// browser send requests here: with DNS rebinding, the Host is foreign; without it, the Origin is.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "http/message.hpp"

namespace berth::http {

// Sets path, segments and query. False: not "/...", a wrong escape, a control character, or a segment "." or "..".
bool set_target(Request& request, std::string_view target);

// "%2F" to "/"; absent: a wrong escape.
std::optional<std::string> decoded(std::string_view text, bool plus_is_space);

// "name:port", "1.2.3.4", "[::1]:80" without the port and brackets, in lower case; absent: malformed.
std::optional<std::string> host_name(std::string_view authority);

bool is_loopback_name(std::string_view name);

// Whether requests with this Host are for us: a loopback name, `local_address` (which the client connected to), or
// one of `names`. The port is not compared, so that a forwarded port (ssh -L) works: an attacker's page cannot choose
// the name.
bool is_own_host(std::string_view host, std::string_view local_address, std::span<const std::string> names);

// Whether `origin` ("http://127.0.0.1:8080") is the page of this `host`. Over TLS, only https is accepted; a proxy may
// add TLS in front of a plain connection.
bool is_own_origin(std::string_view origin, std::string_view host, bool is_tls);

}  // namespace berth::http
