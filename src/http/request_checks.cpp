#include "http/request_checks.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <string>

namespace berth::http {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_digits(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

// Whether the path could leave the folder on a server that treats encoded slashes or backslashes as slashes.
bool has_dots(std::string_view segment) {
  while (true) {
    const std::size_t end = segment.find_first_of("/\\");
    const std::string_view part = segment.substr(0, end);
    if (part == "." || part == "..") return true;
    if (end == segment.npos) return false;
    segment.remove_prefix(end + 1);
  }
}

}  // namespace

std::optional<std::string> decoded(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      if (text.size() - i < 3) return std::nullopt;
      const int high = hex_digit(text[i + 1]);
      const int low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      out += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      out += plus_is_space && text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

bool set_target(Request& request, std::string_view target) {
  if (target.empty() || target.front() != '/' || has_control(target) || target.find('#') != target.npos) return false;
  const std::size_t question = target.find('?');
  std::string_view path = target.substr(1, question == target.npos ? target.npos : question - 1);

  request.path = "/";
  request.segments.clear();
  request.query.clear();
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    auto segment = decoded(path.substr(0, slash), false);
    if (!segment || has_control(*segment) || has_dots(*segment)) return false;
    request.path += *segment;
    request.segments.push_back(*std::move(segment));
    if (slash == path.npos) break;
    request.path += '/';
    path.remove_prefix(slash + 1);
  }

  if (question == target.npos) return true;
  std::string_view query = target.substr(question + 1);
  while (!query.empty()) {
    const std::size_t end = query.find('&');
    const std::string_view pair = query.substr(0, end);
    const std::size_t equals = pair.find('=');
    auto name = decoded(pair.substr(0, equals), true);
    auto value = decoded(equals == pair.npos ? std::string_view() : pair.substr(equals + 1), true);
    if (!name || !value) return false;
    if (!pair.empty()) request.query[*std::move(name)] = *std::move(value);
    if (end == query.npos) break;
    query.remove_prefix(end + 1);
  }
  return true;
}

std::optional<std::string> host_name(std::string_view authority) {
  std::string_view name = authority;
  std::string_view port;
  if (authority.starts_with('[')) {
    const std::size_t end = authority.find(']');
    if (end == authority.npos) return std::nullopt;
    name = authority.substr(1, end - 1);
    port = authority.substr(end + 1);
    if (name.find_first_not_of("0123456789abcdefABCDEF:.") != name.npos) return std::nullopt;
  } else if (const std::size_t colon = authority.find(':'); colon != authority.npos) {
    name = authority.substr(0, colon);
    port = authority.substr(colon);
  }
  if (!port.empty() && (port.front() != ':' || !is_digits(port.substr(1)) || port.size() > 6)) return std::nullopt;
  if (name.ends_with('.')) name.remove_suffix(1);  // the absolute form of a name
  if (name.empty() || name.find_first_of("/\\@ \t,") != name.npos) return std::nullopt;
  return lower_case(name);
}

bool is_loopback_name(std::string_view name) {
  if (name == "localhost" || name == "::1") return true;
  // An address, not a name such as 127.0.0.1.example.org or 127.999.1.1, which would be resolved.
  in_addr address{};
  return name.starts_with("127.") && inet_pton(AF_INET, std::string(name).c_str(), &address) == 1;
}

bool is_own_host(std::string_view host, std::string_view local_address, std::span<const std::string> names) {
  const auto name = host_name(host);
  if (!name) return false;
  if (is_loopback_name(*name) || *name == local_address) return true;
  return std::any_of(names.begin(), names.end(), [&](const std::string& own) { return lower_case(own) == *name; });
}

bool is_own_origin(std::string_view origin, std::string_view host, bool is_tls) {
  const std::string lower = lower_case(origin);
  std::string_view rest = lower;
  if (rest.starts_with("https://"))
    rest.remove_prefix(8);
  else if (rest.starts_with("http://") && !is_tls)
    rest.remove_prefix(7);
  else
    return false;
  return rest == lower_case(host);
}

}  // namespace berth::http
