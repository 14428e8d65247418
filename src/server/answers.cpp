#include "server/answers.hpp"

#include "fleet/bounds.hpp"

namespace berth::server {

void send(const http::Responder& responder, const Error& error) {
  int status = 500;
  std::string_view code = "internal";
  switch (error.code) {
    case ErrorCode::invalid_argument: status = 400, code = "invalid_argument"; break;
    case ErrorCode::not_supported: status = 400, code = "newer_schema"; break;
    case ErrorCode::not_found: status = 404, code = "not_found"; break;
    case ErrorCode::already_exists:
    case ErrorCode::stale_handle: status = 409, code = "conflict"; break;
    case ErrorCode::unavailable:
    case ErrorCode::timeout:
    case ErrorCode::io: status = 503, code = "unavailable"; break;
    default: break;
  }
  responder.send(http::error_response(status, code, error.message, error.advice));
}

bool dry_run_in(const boost::json::object& body, const std::string& where) {
  return format::optional_member(body, "dry_run", where, format::bool_of).value_or(false);
}

std::string reason_in(const boost::json::object& body, const std::string& where) {
  std::string reason = format::optional_member(body, "reason", where, format::text_of).value_or("");
  if (reason.size() > fleet::sentence_bytes_max)
    throw format::JsonError{where + ".reason is longer than " + std::to_string(fleet::sentence_bytes_max) + " bytes"};
  return reason;
}

bool is_json(const http::Request& request) {
  const auto type = request.headers.get("content-type");
  return type && (type->starts_with("application/json"));
}

}  // namespace berth::server
