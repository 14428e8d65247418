#include "scheduler/tenants.hpp"

#include <algorithm>

namespace berth::scheduler {

Result<TenantId> Tenants::set(std::string_view name, double weight) {
  if (name.empty()) return Error{ErrorCode::invalid_argument, "a tenant needs a name", "give it one"};
  if (!(weight >= 1e-6 && weight <= 1e6))
    return Error{ErrorCode::invalid_argument, "the weight of a tenant must be between 0.000001 and 1000000",
                 "1 is the weight of work without a tenant"};
  const std::lock_guard lock(mutex_);
  const auto found = std::find(names_.begin(), names_.end(), name);
  const auto id = static_cast<std::size_t>(found - names_.begin());
  if (id == count_max)
    return Error{ErrorCode::not_supported, "a scheduler has at most 255 tenants", "let some of them share a name"};
  if (found == names_.end()) names_.emplace_back(name);
  weights_[id].store(weight, std::memory_order_relaxed);
  return static_cast<TenantId>(id);
}

}  // namespace berth::scheduler
