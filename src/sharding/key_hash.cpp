#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>
#include <cstring>

#include "berth/shard_table.hpp"

namespace berth {

// XXH3 has its final values from 0.8.0 on.
static_assert(XXH_VERSION_NUMBER >= 800);

namespace {

std::uint64_t little_endian(const unsigned char* bytes, std::size_t count) noexcept {
  std::uint64_t word = 0;
  if (count == 8 && std::endian::native == std::endian::little) {
    std::memcpy(&word, bytes, 8);
    return word;
  }
  for (std::size_t i = 0; i < count; ++i) word |= std::uint64_t{bytes[i]} << (8 * i);
  return word;
}

// Aumasson, Bernstein: SipHash, a fast short-input PRF (2012); here with one
// compression round, three finalisation rounds and the key 0.
class SipHash13 {
 public:
  void compress(std::uint64_t word) noexcept {
    v3_ ^= word;
    round();
    v0_ ^= word;
  }
  std::uint64_t finish() noexcept {
    v2_ ^= 0xFF;
    for (int i = 0; i < 3; ++i) round();
    return v0_ ^ v1_ ^ v2_ ^ v3_;
  }

 private:
  void round() noexcept {
    v0_ += v1_, v1_ = std::rotl(v1_, 13) ^ v0_, v0_ = std::rotl(v0_, 32);
    v2_ += v3_, v3_ = std::rotl(v3_, 16) ^ v2_;
    v0_ += v3_, v3_ = std::rotl(v3_, 21) ^ v0_;
    v2_ += v1_, v1_ = std::rotl(v1_, 17) ^ v2_, v2_ = std::rotl(v2_, 32);
  }
  std::uint64_t v0_ = 0x736f6d6570736575, v1_ = 0x646f72616e646f6d;
  std::uint64_t v2_ = 0x6c7967656e657261, v3_ = 0x7465646279746573;
};

std::uint64_t siphash13(std::string_view key) noexcept {
  const auto* bytes = reinterpret_cast<const unsigned char*>(key.data());
  SipHash13 state;
  std::size_t i = 0;
  for (; i + 8 <= key.size(); i += 8) state.compress(little_endian(bytes + i, 8));
  // The byte 0xFF ends the id; the last word carries the length modulo 256.
  std::uint64_t tail = little_endian(bytes + i, key.size() - i) | std::uint64_t{0xFF} << (8 * (key.size() - i));
  if (key.size() - i == 7) {
    state.compress(tail);
    tail = 0;
  }
  state.compress(tail | std::uint64_t{(key.size() + 1) & 0xFF} << 56);
  return state.finish();
}

}  // namespace

std::uint64_t hash_key(KeyHash hash, std::string_view key) noexcept {
  return hash == KeyHash::siphash13_v0 ? siphash13(key) : XXH3_64bits(key.data(), key.size());
}

std::string_view to_string(KeyHash hash) noexcept { return hash == KeyHash::siphash13_v0 ? "siphash13_v0" : "xxh3_v1"; }

Result<KeyHash> key_hash_named(std::string_view name) {
  for (const KeyHash hash : {KeyHash::xxh3_v1, KeyHash::siphash13_v0})
    if (name == to_string(hash)) return hash;
  return Error{.code = ErrorCode::invalid_argument,
               .message = "There is no key hash \"" + std::string(name) + "\".",
               .advice = "Use xxh3_v1, or siphash13_v0 for ids that were placed by it before.",
               .where = {},
               .driver = {}};
}

}  // namespace berth
