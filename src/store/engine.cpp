#include "store/engine.hpp"

#include <set>

#include "store/memory_engine.hpp"
#include "store/sqlite_engine.hpp"

namespace berth::store {
namespace {

Error out_of_bounds(std::string what) {
  return {ErrorCode::invalid_argument, "a transaction of the store " + std::move(what), "split it into smaller ones"};
}

// No control characters: keys are shown in messages, and none has a reason to contain one.
bool is_key(std::string_view key) {
  if (key.empty() || key.size() > key_bytes_max) return false;
  for (const char c : key) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  }
  return true;
}

}  // namespace

Result<void> check_bounds(const Transaction& transaction) {
  if (transaction.conditions.size() > operations_max || transaction.writes.size() > operations_max) {
    return out_of_bounds("has " + std::to_string(transaction.conditions.size()) + " conditions and " +
                         std::to_string(transaction.writes.size()) + " writes; " + std::to_string(operations_max) +
                         " of each are allowed");
  }
  std::size_t bytes = 0;
  for (const Condition& condition : transaction.conditions) {
    if (!is_key(condition.key)) return out_of_bounds("has a key that is empty, too long or not printable");
    bytes += condition.key.size();
  }
  std::set<std::string_view> written;
  for (const Write& write : transaction.writes) {
    if (!is_key(write.key)) return out_of_bounds("has a key that is empty, too long or not printable");
    if (!written.insert(write.key).second) return out_of_bounds("writes the key " + write.key + " twice");
    const std::size_t value_bytes = write.value ? write.value->size() : 0;
    if (value_bytes > value_bytes_max) {
      return out_of_bounds("has a value of " + std::to_string(value_bytes) + " bytes for " + write.key + "; " +
                           std::to_string(value_bytes_max) + " are allowed");
    }
    bytes += write.key.size() + value_bytes;
  }
  if (bytes > transaction_bytes_max) {
    return out_of_bounds("has " + std::to_string(bytes) + " bytes; " + std::to_string(transaction_bytes_max) +
                         " are allowed");
  }
  return {};
}

Result<std::shared_ptr<Engine>> open_engine(std::string_view kind) {
  if (kind == "memory") return std::shared_ptr<Engine>(make_memory_engine());
  if (kind.starts_with("sqlite:")) return open_sqlite_engine(std::string(kind.substr(7)));
  return Error{ErrorCode::invalid_argument, "\"" + std::string(kind) + "\" is not a store",
               "use memory or sqlite:PATH"};
}

}  // namespace berth::store
