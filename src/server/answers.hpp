// Shared by the handlers of the API: JSON answers, errors as answers, bodies and numbers of requests.
#pragma once

#include <boost/json/object.hpp>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "berth/ids.hpp"
#include "berth/result.hpp"
#include "format/json_reading.hpp"
#include "http/message.hpp"
#include "http/server.hpp"

namespace berth::server {

// The limit for a request that waits for news.
inline constexpr std::uint64_t wait_max_s = 60;

inline void send(const http::Responder& responder, const boost::json::object& answer) {
  responder.send(http::json_response(200, format::document(answer)));
}
void send(const http::Responder& responder, const Error& error);

bool is_json(const http::Request& request);

// The member "dry_run" of a body; absent is false. Throws a JsonError.
bool dry_run_in(const boost::json::object& body, const std::string& where);

// The member "reason" of a body; absent is empty. Throws a JsonError if it is longer than a sentence.
std::string reason_in(const boost::json::object& body, const std::string& where);

inline std::optional<std::uint64_t> read_number(std::string_view text, std::uint64_t largest) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || text.empty() || number > largest) return std::nullopt;
  return number;
}

// The body, read by `take(object, where)`, which may throw a JsonError.
template <class Take>
auto read_body(const http::Request& request, Take&& take)
    -> Result<decltype(take(std::declval<const boost::json::object&>(), std::string()))> {
  return format::read_document(request.body, "the request",
                               [&](const boost::json::value& value, const std::string& where) {
                                 return take(format::object_of(value, where), where);
                               });
}

}  // namespace berth::server
