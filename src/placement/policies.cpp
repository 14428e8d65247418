// The list of policies. A policy is policies/<name>.cpp, which defines `Policy policy::<name>()`,
// and one line here; see docs/reference/policies.md.
#include <algorithm>
#include <array>

#include "berth/placement.hpp"
#include "placement/nearest_name.hpp"

// clang-format off
#define BERTH_POLICIES(policy)           \
  policy(round_robin)                    \
  policy(least_loaded)                   \
  policy(weighted_capacity)              \
  policy(adaptive_throughput)            \
  policy(power_of_two)                   \
  policy(expected_finish)                \
  policy(best_fit)                       \
  policy(spread)                         \
  policy(reference_least_loaded)         \
  policy(reference_queue_depth)          \
  policy(reference_weighted_capacity)    \
  policy(reference_adaptive_throughput)  \
  policy(reference_most_memory)
// clang-format on

namespace berth {

namespace policy {
#define BERTH_DECLARE(name) Policy name();
BERTH_POLICIES(BERTH_DECLARE)
#undef BERTH_DECLARE
}  // namespace policy

namespace {
Policy named(Policy policy, std::string_view name) {
  policy.name = name;
  return policy;
}
}  // namespace

std::span<const Policy> policies() {
#define BERTH_ENTRY(name) named(policy::name(), #name),
  static const std::array all{BERTH_POLICIES(BERTH_ENTRY)};
#undef BERTH_ENTRY
  return all;
}

const Policy* find_policy(std::string_view name) {
  const auto all = policies();
  const auto found = std::find_if(all.begin(), all.end(), [name](const Policy& policy) { return policy.name == name; });
  return found == all.end() ? nullptr : &*found;
}

Result<const Policy*> policy_named(std::string_view name) {
  if (const Policy* policy = find_policy(name)) return policy;
  std::vector<std::string_view> names;
  std::string list;
  for (const Policy& policy : policies()) {
    list += (names.empty() ? "" : ", ") + std::string(policy.name);
    names.push_back(policy.name);
  }
  Error error;
  error.code = ErrorCode::not_found;
  error.message = "there is no policy \"" + std::string(name) + "\"";
  const auto meant = placement::nearest_name(name, names);
  error.advice = (meant ? "did you mean " + std::string(*meant) + "? " : "") + "the policies are " + list;
  return error;
}

}  // namespace berth
