#include "http/message.hpp"

#include <algorithm>
#include <cstdio>

namespace berth::http {
namespace {

void append_json(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += escape;
    } else {
      out += c;
    }
  }
  out += '"';
}

constexpr std::size_t usual_headers = 12;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// `own` is in lower case.
bool is_name(std::string_view own, std::string_view name) {
  return own.size() == name.size() &&
         std::equal(own.begin(), own.end(), name.begin(), [](char a, char b) { return a == lower(b); });
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string all(text);
  for (char& c : all) c = lower(c);
  return all;
}

Headers::Headers(std::initializer_list<std::pair<std::string, std::string>> list) {
  for (const auto& [name, value] : list) add(name, value);
}

std::optional<std::string_view> Headers::get(std::string_view name) const {
  for (const auto& [own, value] : list_)
    if (is_name(own, name)) return value;
  return std::nullopt;
}

void Headers::add(std::string_view name, std::string value) {
  if (list_.empty()) list_.reserve(usual_headers);
  list_.emplace_back(lower_case(name), std::move(value));
}

void Headers::set(std::string_view name, std::string value) {
  remove(name);
  add(name, std::move(value));
}

void Headers::remove(std::string_view name) {
  remove_if([&](const std::string& own, const std::string&) { return is_name(own, name); });
}

std::size_t Headers::count(std::string_view name) const {
  return static_cast<std::size_t>(
      std::count_if(list_.begin(), list_.end(), [&](const auto& header) { return is_name(header.first, name); }));
}

Response json_response(int status, std::string body) {
  return {status, {{"content-type", "application/json"}}, std::move(body)};
}

Response error_response(int status, std::string_view code, std::string_view message, std::string_view advice) {
  std::string body = R"({"schema":1,"error":{"code":)";
  append_json(body, code);
  body += R"(,"message":)";
  append_json(body, message);
  if (!advice.empty()) {
    body += R"(,"advice":)";
    append_json(body, advice);
  }
  body += "}}\n";
  return json_response(status, std::move(body));
}

std::string_view reason_phrase(int status) noexcept {
  switch (status) {
    case 100: return "Continue";
    case 101: return "Switching Protocols";
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 303: return "See Other";
    case 304: return "Not Modified";
    case 307: return "Temporary Redirect";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 410: return "Gone";
    case 412: return "Precondition Failed";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 421: return "Misdirected Request";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    case 507: return "Insufficient Storage";
    default: return "Status";
  }
}

}  // namespace berth::http
