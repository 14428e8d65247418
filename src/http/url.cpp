#include "http/url.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "http/request_checks.hpp"

namespace berth::http {

Result<Url> parse_url(const std::string& text) {
  const Error wrong{ErrorCode::invalid_argument, "'" + text + "' is not the address of a server",
                    "use http://HOST:PORT, https://HOST:PORT or unix:/path"};
  // A password would appear in every message with the URL.
  if (text.find('@') != text.npos && !text.starts_with("unix:"))
    return Error{ErrorCode::invalid_argument, "the address of a server may not contain '@'", "give a token instead"};
  Url url;
  std::string_view rest = text;
  if (rest.starts_with("unix:")) {
    url.kind = Url::Kind::unix_socket;
    url.path = rest.substr(5);
    url.authority = "localhost";
    if (!url.path.starts_with('/') || url.path.find('\0') != std::string::npos) return wrong;
    if (url.path.size() > 107)
      return Error{ErrorCode::invalid_argument, "the path of the socket '" + url.path + "' is too long"};
    return url;
  }
  if (rest.starts_with("https://")) {
    url.kind = Url::Kind::https;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    return wrong;
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const auto host = host_name(rest);
  if (!host || std::any_of(host->begin(), host->end(), [](unsigned char c) { return c <= 0x20 || c >= 0x7f; }))
    return wrong;
  url.host = *host;
  url.authority = rest;
  const std::size_t colon = rest.rfind(':');
  const bool has_port = colon != rest.npos && rest.find(']', colon) == rest.npos;
  url.port = has_port ? std::string(rest.substr(colon + 1)) : url.kind == Url::Kind::https ? "443" : "80";
  unsigned port = 0;
  std::from_chars(url.port.data(), url.port.data() + url.port.size(), port);
  if (port == 0 || port > 65535 || rest.find_first_of("?#") != rest.npos) return wrong;
  return url;
}

}  // namespace berth::http
