#include "server/access.hpp"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "berth/assert.hpp"
#include "world/user_name.hpp"

namespace berth::server {
namespace {

constexpr Duration session_time = std::chrono::hours(12);
constexpr std::size_t sessions_max = 1000, sessions_of_credential_max = 20;

std::string hexadecimal(const unsigned char* bytes, std::size_t count) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += digits[bytes[i] >> 4];
    text += digits[bytes[i] & 15];
  }
  return text;
}

bool same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

std::string make_token() {
  std::array<unsigned char, 32> bytes{};
  BERTH_ASSERT(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return "berth_" + hexadecimal(bytes.data(), bytes.size());
}

std::string sha256(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> sum{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), sum.data());
  return hexadecimal(sum.data(), sum.size());
}

bool may(const Who& who, fleet::Role needed) noexcept {
  return who.role <= fleet::Role::deploy && needed <= fleet::Role::deploy ? who.role >= needed : who.role == needed;
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
  const std::string sum = sha256(token);
  if (same(sum, local_sum_)) return Who{fleet::Role::deploy, "user:" + user_, {}, {}};
  for (const auto& [id, credential] : credentials) {
    if (!same(sum, credential.sha256)) continue;
    if (credential.expires_ms && *credential.expires_ms <= now_ms) return std::nullopt;
    return Who{credential.role, credential.node ? "node:" + credential.node->text() : "token:" + id, id,
               credential.node};
  }
  return std::nullopt;
}

std::optional<Who> Access::who(const http::Request& request,
                               const std::map<std::string, fleet::Credential>& credentials,
                               std::uint64_t now_ms) const {
  constexpr std::string_view bearer = "Bearer ";
  if (const auto header = request.headers.get("authorization"))
    return header->starts_with(bearer) ? who_has(header->substr(bearer.size()), credentials, now_ms) : std::nullopt;
  if (const auto cookie = cookie_of(request)) {
    const auto found = sessions_.find(sha256(*cookie));
    if (found != sessions_.end() && is_valid(found->second.who.credential, credentials, now_ms))
      return found->second.who;
  }
  const std::optional<std::uint32_t> uid = request.peer.unix_uid;
  if (uid && (*uid == geteuid() || *uid == 0))
    return Who{fleet::Role::deploy, "user:" + world::user_name(*uid), {}, {}};
  return std::nullopt;
}

std::string Access::open_session(Who who, TimePoint now) {
  forget_old_sessions(now);
  const auto of_it = std::count_if(sessions_.begin(), sessions_.end(),
                                   [&](const auto& one) { return one.second.who.credential == who.credential; });
  if (static_cast<std::size_t>(of_it) >= sessions_of_credential_max) close_oldest(&who.credential);
  if (sessions_.size() >= sessions_max) close_oldest(nullptr);
  std::string cookie = make_token();
  who.role = fleet::Role::read;
  sessions_[sha256(cookie)] = {std::move(who), now + session_time, next_session_++};
  return cookie;
}

// Null: of all.
void Access::close_oldest(const std::string* credential) {
  auto oldest = sessions_.end();
  for (auto one = sessions_.begin(); one != sessions_.end(); ++one) {
    if (credential && one->second.who.credential != *credential) continue;
    if (oldest == sessions_.end() || one->second.number < oldest->second.number) oldest = one;
  }
  if (oldest != sessions_.end()) sessions_.erase(oldest);
}

void Access::close_session(const http::Request& request) {
  if (const auto cookie = cookie_of(request)) sessions_.erase(sha256(*cookie));
}

void Access::forget_old_sessions(TimePoint now) {
  std::erase_if(sessions_, [&](const auto& one) { return one.second.ends <= now; });
}

}  // namespace berth::server
