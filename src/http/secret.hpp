// Tokens and what is derived from them. A token is one printed string: a secret, and, if the server has a
// certificate, a dot and the fingerprint of the authority that signs it. Over plain HTTP on one machine a token is
// never sent: client and server prove to each other that they know its hash (TLS 1.3 with a pre-shared key).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace berth::http {

// The prefixes of secrets: of one that a server knows, and of a caller's key, which gateways know.
inline constexpr std::string_view control_prefix = "berth_", call_prefix = "berthcall_";
// 32 random bytes as 64 hexadecimal digits, after a prefix.
std::string make_secret(std::string_view prefix = control_prefix);
std::string sha256(std::string_view text);
// Compares in constant time.
bool is_same_text(std::string_view a, std::string_view b);

std::string hexadecimal(const unsigned char* bytes, std::size_t count);

struct Token {
  std::string secret;
  std::string fingerprint;  // 64 hexadecimal digits; empty: it has none
};
// Accepts any text: everything before the last dot is the secret.
Token parse_token(std::string_view text);
std::string to_text(const Token& token);

// The pre-shared key of a connection: `identity` is sent in clear text and names the key; the key is never sent. Both
// are derived from the hash of a secret, which is all that a server stores.
struct Proof {
  std::string identity;
  std::string key;  // 32 bytes
};
Proof proof_of(std::string_view sha256_of_secret);

}  // namespace berth::http
