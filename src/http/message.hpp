// HTTP requests and answers as the rest of Berth sees them: plain data, independent of sockets and libraries. The
// server receives a Request and answers with a Response; the client returns a Response.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace berth::http {

// Converts only ASCII letters, whatever the locale.
std::string lower_case(std::string_view text);

// Headers in the order they were given; names are compared without regard to case, and kept in lower case.
class Headers {
 public:
  Headers() = default;
  Headers(std::initializer_list<std::pair<std::string, std::string>> list);

  // The first value with that name; absent if there is none.
  std::optional<std::string_view> get(std::string_view name) const;
  void add(std::string_view name, std::string value);
  // Replaces all values with that name.
  void set(std::string_view name, std::string value);
  // Removes all values with that name.
  void remove(std::string_view name);
  template <class Predicate>
  void remove_if(Predicate is_unwanted) {
    std::erase_if(list_, [&](const auto& header) { return is_unwanted(header.first, header.second); });
  }
  std::size_t count(std::string_view name) const;

  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }
  std::size_t size() const { return list_.size(); }

 private:
  std::vector<std::pair<std::string, std::string>> list_;
};

// A client certificate that the listener's authority has signed.
struct PeerCertificate {
  std::string uri;
  std::uint64_t expires_ms = 0;  // wall time; may be in the past
};

// Who sent a request.
struct Peer {
  std::string address;                    // "127.0.0.1", "::1"; "unix" for a Unix socket
  std::optional<std::uint32_t> unix_uid;  // of the process that connected to the Unix socket
  bool is_loopback = false;               // also true for a Unix socket
  bool is_tls = false;
  // The identity that the connection has proven: a name from ServerOptions::key_of. Empty: nothing.
  std::string credential = {};
  std::optional<PeerCertificate> certificate = {};
};

struct Request {
  std::string method;                                     // "GET"
  std::string path;                                       // decoded, without the query: "/api/v1/nodes/a"
  std::vector<std::string> segments;                      // the same between its slashes, each decoded on its own
  std::map<std::string, std::string, std::less<>> query;  // decoded; if a name is given twice, the last value
  Headers headers;
  std::string body;
  Peer peer;
};

// The first lines of a message, as read: of a request or an answer.
struct Head {
  std::string method, target;  // of a request
  int status = 0;              // of an answer
  int version = 11;            // of HTTP, times ten
  Headers headers = {};
};

struct Response {
  int status = 200;
  Headers headers = {};
  std::string body = {};
};

// An answer with the content type application/json.
Response json_response(int status, std::string body);
// {"schema":1,"error":{"code":..,"message":..,"advice":..}}; an empty advice is left out.
Response error_response(int status, std::string_view code, std::string_view message, std::string_view advice = {});

// "Not Found" for 404.
std::string_view reason_phrase(int status) noexcept;

}  // namespace berth::http
