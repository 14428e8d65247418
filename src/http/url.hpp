// The address of a server, as given to a client.
#pragma once

#include <string>

#include "berth/result.hpp"

namespace berth::http {

struct Url {
  enum class Kind { http, https, unix_socket } kind = Kind::http;
  std::string host;
  std::string port;
  std::string path;       // of a Unix socket
  std::string authority;  // for the Host header
};

// "http://HOST[:PORT]", "https://HOST[:PORT]" or "unix:/path". invalid_argument: anything else, including a path or a
// user name.
Result<Url> parse_url(const std::string& text);

}  // namespace berth::http
