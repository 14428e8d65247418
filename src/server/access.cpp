#include "server/access.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "http/secret.hpp"
#include "world/user_name.hpp"

namespace berth::server {

using http::sha256;

namespace {

constexpr Duration session_time = std::chrono::hours(12);
constexpr std::size_t sessions_max = 1000, sessions_of_credential_max = 20;

// The identity of a connection with the token of the server's own user; not a valid credential id.
constexpr std::string_view local_name = "local";

constexpr std::string_view name_prefix = "berth:credential:";

std::string id_in_name(std::string_view uri) {
  if (!uri.starts_with(name_prefix)) return {};
  uri.remove_prefix(name_prefix.size());
  return std::string(uri.substr(0, uri.find(':')));
}

Who who_is(const fleet::Credential& credential) {
  std::string actor = "token:" + credential.id + (credential.name ? " (" + *credential.name + ")" : "");
  if (credential.role == fleet::Role::node && credential.node) actor = "node:" + credential.node->text();
  if (credential.role == fleet::Role::gateway && credential.name) actor = "gateway:" + *credential.name;
  return {credential.role, std::move(actor), credential.id, credential.node, false};
}

}  // namespace

std::string advice_about_role(const Who& who) {
  return who.is_session ? "log in to the page again with a token of that role" : "ask for another token";
}

bool may(const Who& who, fleet::Role needed) noexcept {
  return who.role <= fleet::Role::deploy && needed <= fleet::Role::deploy ? who.role >= needed : who.role == needed;
}

std::string relay_key(const fleet::Credential& node, const fleet::Credential& gateway) {
  return sha256("berth relay " + node.sha256 + " " + gateway.sha256);
}

std::string certificate_name(const fleet::Credential& credential) {
  return std::string(name_prefix) + credential.id + ":" +
         sha256("berth certificate " + credential.sha256).substr(0, 32);
}

bool is_valid(const std::string& credential, const std::map<std::string, fleet::Credential>& credentials,
              std::uint64_t now_ms) {
  if (credential.empty()) return true;
  const auto found = credentials.find(credential);
  return found != credentials.end() && (!found->second.expires_ms || *found->second.expires_ms > now_ms);
}

Access::Access(std::string user, const std::string& local_token, const std::string& server)
    : user_(std::move(user)), local_sum_(sha256(local_token)), cookie_name_("berth-" + sha256(server).substr(0, 8)) {}

std::optional<std::string_view> Access::cookie_of(const http::Request& request) const {
  const auto header = request.headers.get("cookie");
  if (!header) return std::nullopt;
  for (std::string_view rest = *header; !rest.empty();) {
    const std::size_t end = std::min(rest.find(';'), rest.size());
    std::string_view pair = rest.substr(0, end);
    pair.remove_prefix(std::min(pair.find_first_not_of(' '), pair.size()));
    if (pair.starts_with(cookie_name_) && pair.size() > cookie_name_.size() && pair[cookie_name_.size()] == '=')
      return pair.substr(cookie_name_.size() + 1);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return std::nullopt;
}

std::optional<Who> Access::who_has(std::string_view token, const std::map<std::string, fleet::Credential>& credentials,
                                   std::uint64_t now_ms) const {
  const std::string sum = sha256(http::parse_token(token).secret);
  if (http::is_same_text(sum, local_sum_)) return own_user();
  for (const auto& [id, credential] : credentials) {
    if (!http::is_same_text(sum, credential.sha256)) continue;
    if (!is_valid(id, credentials, now_ms)) return std::nullopt;
    return who_is(credential);
  }
  return std::nullopt;
}

std::optional<http::KnownKey> Access::key_of(std::string_view identity,
                                             const std::map<std::string, fleet::Credential>& credentials) const {
  const auto key_from = [&](std::string_view name, std::string_view sum) -> std::optional<http::KnownKey> {
    http::Proof proof = http::proof_of(sum);
    if (proof.identity != identity) return std::nullopt;
    return http::KnownKey{std::string(name), std::move(proof.key)};
  };
  if (auto own = key_from(local_name, local_sum_)) return own;
  for (const auto& [id, credential] : credentials)
    if (auto key = key_from(id, credential.sha256)) return key;
  return std::nullopt;
}

std::optional<Who> Access::session_of(const http::Request& request) const {
  const auto cookie = cookie_of(request);
  const auto found = cookie ? sessions_.find(sha256(*cookie)) : sessions_.end();
  if (found == sessions_.end()) return std::nullopt;
  Who who = found->second.who;
  const auto secret = request.headers.get(session_secret_header);
  if (secret && http::is_same_text(sha256(*secret), found->second.secret_sum)) who.role = who.token_role;
  return who;
}

std::optional<Who> Access::who(const http::Request& request,
                               const std::map<std::string, fleet::Credential>& credentials,
                               std::uint64_t now_ms) const {
  constexpr std::string_view bearer = "Bearer ";
  if (const auto header = request.headers.get("authorization"))
    return header->starts_with(bearer) ? who_has(header->substr(bearer.size()), credentials, now_ms) : std::nullopt;
  if (auto session = session_of(request); session && is_valid(session->credential, credentials, now_ms)) return session;
  if (const std::string& proven = request.peer.credential; proven == local_name) {
    return own_user();
  } else if (!proven.empty() && is_valid(proven, credentials, now_ms)) {
    return who_is(credentials.at(proven));
  }
  if (const auto& certificate = request.peer.certificate; certificate && certificate->expires_ms > now_ms) {
    const auto found = credentials.find(id_in_name(certificate->uri));
    if (found != credentials.end() && http::is_same_text(certificate_name(found->second), certificate->uri) &&
        is_valid(found->first, credentials, now_ms))
      return who_is(found->second);
  }
  const std::optional<std::uint32_t> uid = request.peer.unix_uid;
  if (uid && (*uid == geteuid() || *uid == 0))
    return Who{fleet::Role::deploy, "user:" + world::user_name(*uid), {}, {}, false};
  return std::nullopt;
}

Access::Opened Access::open_session(Who who, TimePoint now) {
  forget_old_sessions(now);
  const auto of_it = std::count_if(sessions_.begin(), sessions_.end(),
                                   [&](const auto& entry) { return entry.second.who.credential == who.credential; });
  if (static_cast<std::size_t>(of_it) >= sessions_of_credential_max) close_oldest(&who.credential);
  if (sessions_.size() >= sessions_max) close_oldest(nullptr);
  Opened opened{http::make_secret(), http::make_secret()};
  who.token_role = std::exchange(who.role, fleet::Role::read);
  who.is_session = true;
  sessions_[sha256(opened.cookie)] = {std::move(who), sha256(opened.secret), now + session_time, next_session_++};
  return opened;
}

// Closes the oldest session of the credential, or of all credentials if it is null.
void Access::close_oldest(const std::string* credential) {
  auto oldest = sessions_.end();
  for (auto session = sessions_.begin(); session != sessions_.end(); ++session) {
    if (credential && session->second.who.credential != *credential) continue;
    if (oldest == sessions_.end() || session->second.number < oldest->second.number) oldest = session;
  }
  if (oldest != sessions_.end()) sessions_.erase(oldest);
}

void Access::close_session(const http::Request& request) {
  if (const auto cookie = cookie_of(request)) sessions_.erase(sha256(*cookie));
}

void Access::forget_old_sessions(TimePoint now) {
  std::erase_if(sessions_, [&](const auto& entry) { return entry.second.ends <= now; });
}

}  // namespace berth::server
