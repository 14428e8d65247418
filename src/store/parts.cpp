#include "store/parts.hpp"

#include <algorithm>
#include <utility>

namespace berth::store {

Result<std::vector<Part>> in_parts(std::vector<Write> writes) {
  constexpr std::size_t writes_max = operations_max - 2;
  constexpr std::size_t bytes_max = transaction_bytes_max - 2 * key_bytes_max;
  std::vector<Part> parts;
  std::size_t bytes = 0;  // of the last part
  for (Write& write : writes) {
    const std::size_t value_bytes = write.value ? write.value->size() : 0;
    if (write.key.size() > key_bytes_max || value_bytes > value_bytes_max) {
      return Error{ErrorCode::invalid_argument, write.key.substr(0, 100) + " is too large for the store",
                   "make it smaller: a value has at most " + std::to_string(value_bytes_max >> 10) + " KiB"};
    }
    const std::size_t size = 2 * write.key.size() + value_bytes;
    if (!parts.empty()) {
      Part& last = parts.back();
      const auto same = std::find_if(last.begin(), last.end(), [&](const Write& w) { return w.key == write.key; });
      const std::size_t freed = same == last.end() ? 0 : 2 * same->key.size() + (same->value ? same->value->size() : 0);
      const bool has_room = same != last.end() || last.size() < writes_max;
      if (has_room && bytes - freed + size <= bytes_max) {
        bytes = bytes - freed + size;
        if (same != last.end()) {
          *same = std::move(write);
        } else {
          last.push_back(std::move(write));
        }
        continue;
      }
    }
    parts.push_back({std::move(write)});
    bytes = size;
  }
  return parts;
}

}  // namespace berth::store
