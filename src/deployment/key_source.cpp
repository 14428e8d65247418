#include "deployment/key_source.hpp"

#include <algorithm>

namespace berth::deployment {
namespace {

// As RFC 9110 defines it for header names, and RFC 6265 for cookie names.
bool is_token_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

constexpr std::size_t key_name_bytes_max = 100;

}  // namespace

Result<KeySource> parse_key_source(std::string_view text) {
  const auto wrong = [&](std::string message) {
    return Error{ErrorCode::invalid_argument, std::move(message),
                 "write key = \"header:NAME\", \"cookie:NAME\" or \"json:NAME\""};
  };
  const std::size_t colon = text.find(':');
  const std::string_view word = text.substr(0, colon);
  KeySource source;
  if (word == "header")
    source.kind = KeySource::Kind::header;
  else if (word == "cookie")
    source.kind = KeySource::Kind::cookie;
  else if (word == "json")
    source.kind = KeySource::Kind::json;
  else
    return wrong("the key \"" + std::string(text) + "\" does not begin with header:, cookie: or json:");
  const std::string_view name = colon == text.npos ? std::string_view() : text.substr(colon + 1);
  const bool is_plain = source.kind == KeySource::Kind::json
                            ? std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; })
                            : std::all_of(name.begin(), name.end(), is_token_character);
  if (name.empty() || name.size() > key_name_bytes_max || !is_plain)
    return wrong("the key \"" + std::string(text) + "\" does not name a " +
                 (source.kind == KeySource::Kind::json ? "member of the body" : std::string(word)));
  source.name = name;
  if (source.kind == KeySource::Kind::header) {
    for (char& c : source.name)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    // Berth's own headers, and those that gateways remove.
    for (const std::string_view taken : {"authorization", "cookie", "x-api-key", "host"})
      if (source.name == taken) return wrong("the header " + source.name + " cannot be a key");
    if (source.name.starts_with("x-berth-")) return wrong("headers that begin with x-berth- cannot be a key");
  }
  return source;
}

std::string to_text(const KeySource& source) {
  switch (source.kind) {
    case KeySource::Kind::header: return "the header " + source.name;
    case KeySource::Kind::cookie: return "the cookie " + source.name;
    case KeySource::Kind::json: break;
  }
  return "the member \"" + source.name + "\" of its body";
}

}  // namespace berth::deployment
