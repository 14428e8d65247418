#include "berth/ids.hpp"

#include <mutex>
#include <unordered_set>

namespace berth::detail {

const std::string* intern(std::string text) {
  // Never freed: ids may be used until the program ends.
  static auto& mutex = *new std::mutex;  // guards texts, whose elements never move
  static auto& texts = *new std::unordered_set<std::string>;
  const std::lock_guard lock(mutex);
  return &*texts.insert(std::move(text)).first;
}

}  // namespace berth::detail
