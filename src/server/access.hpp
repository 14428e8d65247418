// Access control: tokens, connections that have proven to know one, the sessions of the page, and the users of the
// Unix socket. A token is stored as its SHA-256 hash and compared in constant time.
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
  bool is_session = false;     // a session of the page: a cookie, which can only read
  // For a session: the role of its token, which applies to requests with the second secret.
  fleet::Role token_role = fleet::Role::read;
};

// The header with the second secret of a session. No browser adds it to a request, and no page of another port can.
inline constexpr std::string_view session_secret_header = "berth-session-secret";

// read < operate < deploy; other roles are not comparable.
bool may(const Who& who, fleet::Role needed) noexcept;
// What a client without the role can do.
std::string advice_about_role(const Who& who);

// Whether an operation started with that credential may continue: it has been neither revoked nor expired. Empty:
// none was needed.
bool is_valid(const std::string& credential, const std::map<std::string, fleet::Credential>& credentials,
              std::uint64_t now_ms);

// The key shared by a gateway and the relay of a node. It is derived from the hashes of their credentials, which only
// the server has, so that neither of them knows the keys of others.
std::string relay_key(const fleet::Credential& node, const fleet::Credential& gateway);
// The URI in a certificate for this credential. It depends on the secret, because ids are reused after a restore.
std::string certificate_name(const fleet::Credential& credential);

class Access {
 public:
  // `local_token` is from the file that the server has written for its own user. `server` distinguishes this
  // server from others on the same host.
  Access(std::string user, const std::string& local_token, const std::string& server);

  // Returns nullopt if the client is unknown. `now_ms` is wall time, for the expiry of tokens.
  std::optional<Who> who(const http::Request& request, const std::map<std::string, fleet::Credential>& credentials,
                         std::uint64_t now_ms) const;
  std::optional<Who> who_has(std::string_view token, const std::map<std::string, fleet::Credential>& credentials,
                             std::uint64_t now_ms) const;

  // The key with which a connection proves that it knows a token; who() understands the resulting identity. Also
  // works for an expired token, so that the answer can name the reason.
  std::optional<http::KnownKey> key_of(std::string_view identity,
                                       const std::map<std::string, fleet::Credential>& credentials) const;

  // A session of the page for a person with a token. The cookie alone can only read, whatever the token allows,
  // because a browser sends it to every port of the host. Requests that also carry the second secret may do what the
  // token may. Only the newest sessions of a token are kept.
  struct Opened {
    std::string cookie, secret;
  };
  Opened open_session(Who who, TimePoint now);
  // The name includes a part that is unique per server, because browsers share cookies between all ports of a host.
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
  std::map<std::string, Session> sessions_;  // by the hash of the cookie
};

}  // namespace berth::server
