// Access control: tokens, connections that have proven to know one, the sessions of the page, and the users of the
// Unix socket. A token is kept as its SHA-256 sum and compared in constant time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "berth/clock.hpp"
#include "fleet/fleet.hpp"
#include "http/message.hpp"
#include "http/server.hpp"

namespace berth::server {

struct Who {
  fleet::Role role = fleet::Role::read;
  std::string actor;           // "user:ann", "token:t3", "node:gpu-1"
  std::string credential;      // its id; empty: none
  std::optional<NodeId> node;  // of role node
  bool is_session = false;     // of the page: a cookie, which only reads
  // Of a session: the role of its token, which requests with the second secret have.
  fleet::Role token_role = fleet::Role::read;
};

// The header with the second secret of a session. No browser adds it to a request, and no page of another port can.
inline constexpr std::string_view session_secret_header = "berth-session-secret";

// read < operate < deploy; the roles of nodes and of those that join are none of these.
bool may(const Who& who, fleet::Role needed) noexcept;

// Whether what was begun with that credential may go on: it has neither been revoked nor expired. Empty: none was
// needed.
bool is_valid(const std::string& credential, const std::map<std::string, fleet::Credential>& credentials,
              std::uint64_t now_ms);

// The key that a gateway and the relay of a node have in common. It is made from the sums of their credentials, which
// only the server has, so that neither of them knows the keys of others.
std::string relay_key(const fleet::Credential& node, const fleet::Credential& gateway);
// The URI in a certificate for this credential. It depends on the secret, since ids are used again after a restore.
std::string certificate_name(const fleet::Credential& credential);

class Access {
 public:
  // `local_token`: of the file that the server has written for its own user. `server`: what tells this server from
  // others of the same host.
  Access(std::string user, const std::string& local_token, const std::string& server);

  // Absent: the client is unknown. `now_ms` is wall time, for the expiry of tokens.
  std::optional<Who> who(const http::Request& request, const std::map<std::string, fleet::Credential>& credentials,
                         std::uint64_t now_ms) const;
  std::optional<Who> who_has(std::string_view token, const std::map<std::string, fleet::Credential>& credentials,
                             std::uint64_t now_ms) const;

  // The key with which a connection proves to know a token; the name that it gets is understood by who(). Also of a
  // token that has expired, so that this can be said.
  std::optional<http::KnownKey> key_of(std::string_view identity,
                                       const std::map<std::string, fleet::Credential>& credentials) const;

  // A session of the page for a person with a token. The cookie alone only reads, whatever the token allows, because a
  // browser sends it to every port of the host. Requests that also carry the second secret may do what the token may.
  // Of one token the newest sessions stay.
  struct Opened {
    std::string cookie, secret;
  };
  Opened open_session(Who who, TimePoint now);
  // With a part of its own for each server: browsers keep one jar for all ports of a host.
  const std::string& cookie_name() const { return cookie_name_; }
  void close_session(const http::Request& request);
  void forget_old_sessions(TimePoint now);

 private:
  struct Session {
    Who who;
    std::string secret_sum;
    TimePoint ends{};
    std::uint64_t number = 0;
  };
  std::string user_;
  std::string local_sum_;
  std::string cookie_name_;
  std::optional<std::string_view> cookie_of(const http::Request& request) const;
  std::optional<Who> session_of(const http::Request& request) const;
  Who own_user() const { return {fleet::Role::deploy, "user:" + user_, {}, {}, false}; }
  void close_oldest(const std::string* credential);
  std::uint64_t next_session_ = 0;
  std::map<std::string, Session> sessions_;  // by the sum of the cookie
};

}  // namespace berth::server
