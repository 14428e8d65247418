// Tenants: the names and weights of the tenants that share a scheduler. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "berth/scheduler.hpp"

namespace berth::scheduler {

class Tenants {
 public:
  static constexpr std::size_t count_max = 256;

  Tenants() { weights_[0] = 1; }
  // Adds a tenant, or changes the weight of an existing one.
  Result<TenantId> set(std::string_view name, double weight);
  double weight(TenantId tenant) const noexcept {
    return weights_[static_cast<std::size_t>(tenant)].load(std::memory_order_relaxed);
  }
  bool has(TenantId tenant) const noexcept { return weight(tenant) > 0; }

 private:
  std::mutex mutex_;                       // guards the names
  std::vector<std::string> names_ = {""};  // by id; the first is for work without a tenant
  std::array<std::atomic<double>, count_max> weights_{};
};

}  // namespace berth::scheduler
