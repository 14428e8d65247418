#include "http/secret.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <sys/random.h>

#include <array>

#include "berth/assert.hpp"

namespace berth::http {
namespace {

std::array<unsigned char, SHA256_DIGEST_LENGTH> sum_of(std::string_view text) {
  // SHA256() looks up the algorithm at each call, which takes longer than hashing a key.
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  std::array<unsigned char, SHA256_DIGEST_LENGTH> sum{};
  BERTH_ASSERT(EVP_Digest(text.data(), text.size(), sum.data(), nullptr, algorithm, nullptr) == 1);
  return sum;
}

}  // namespace

std::string hexadecimal(const unsigned char* bytes, std::size_t count) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text(2 * count, '0');
  for (std::size_t i = 0; i < count; ++i) {
    text[2 * i] = digits[bytes[i] >> 4];
    text[2 * i + 1] = digits[bytes[i] & 15];
  }
  return text;
}

std::string make_secret(std::string_view prefix) {
  std::array<unsigned char, 32> bytes{};
  BERTH_ASSERT(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return std::string(prefix) + hexadecimal(bytes.data(), bytes.size());
}

std::string sha256(std::string_view text) {
  const auto sum = sum_of(text);
  return hexadecimal(sum.data(), sum.size());
}

bool is_same_text(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Token parse_token(std::string_view text) {
  const std::size_t dot = text.rfind('.');
  if (dot == text.npos) return {std::string(text), {}};
  return {std::string(text.substr(0, dot)), std::string(text.substr(dot + 1))};
}

std::string to_text(const Token& token) {
  return token.fingerprint.empty() ? token.secret : token.secret + '.' + token.fingerprint;
}

Proof proof_of(std::string_view sha256_of_secret) {
  const auto key = sum_of("berth connection key " + std::string(sha256_of_secret));
  return {sha256("berth connection identity " + std::string(sha256_of_secret)).substr(0, 32),
          {reinterpret_cast<const char*>(key.data()), key.size()}};
}

}  // namespace berth::http
