#include "fleet/fleet.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "fleet/endpoints.hpp"

namespace berth::fleet {
namespace {

template <class T, std::size_t N>
using Names = std::array<std::pair<T, std::string_view>, N>;

constexpr Names<ReplicaState, 8> states{{{ReplicaState::waiting, "waiting"},
                                         {ReplicaState::starting, "starting"},
                                         {ReplicaState::ready, "ready"},
                                         {ReplicaState::unready, "unready"},
                                         {ReplicaState::backing_off, "backing_off"},
                                         {ReplicaState::refused, "refused"},
                                         {ReplicaState::stopping, "stopping"},
                                         {ReplicaState::gone, "gone"}}};
constexpr Names<EventKind, 14> kinds{{{EventKind::applied, "applied"},
                                      {EventKind::assigned, "assigned"},
                                      {EventKind::ready, "ready"},
                                      {EventKind::failed, "failed"},
                                      {EventKind::refused, "refused"},
                                      {EventKind::stopped, "stopped"},
                                      {EventKind::moved, "moved"},
                                      {EventKind::pending, "pending"},
                                      {EventKind::rollout, "rollout"},
                                      {EventKind::node, "node"},
                                      {EventKind::intent, "intent"},
                                      {EventKind::device, "device"},
                                      {EventKind::server, "server"},
                                      {EventKind::credential, "credential"}}};
constexpr Names<EndpointState, 4> endpoint_states{{{EndpointState::ready, "ready"},
                                                   {EndpointState::unready, "unready"},
                                                   {EndpointState::draining, "draining"},
                                                   {EndpointState::gone, "gone"}}};
constexpr Names<Role, 7> roles{{{Role::read, "read"},
                                {Role::operate, "operate"},
                                {Role::deploy, "deploy"},
                                {Role::node, "node"},
                                {Role::join, "join"},
                                {Role::gateway, "gateway"},
                                {Role::call, "call"}}};

constexpr Names<HolderKind, 4> holder_kinds{{{HolderKind::replica, "replica"},
                                             {HolderKind::job, "job"},
                                             {HolderKind::lease, "lease"},
                                             {HolderKind::foreign, "foreign"}}};
constexpr Names<LeaseKind, 2> lease_kinds{{{LeaseKind::lease, "lease"}, {LeaseKind::job, "job"}}};
constexpr Names<LeaseState, 2> lease_states{{{LeaseState::running, "running"}, {LeaseState::waiting, "waiting"}}};

template <class T, std::size_t N>
std::string_view name_in(const Names<T, N>& names, T value) noexcept {
  for (const auto& [candidate, name] : names) {
    if (candidate == value) return name;
  }
  return "unknown";
}
template <class T, std::size_t N>
std::optional<T> value_in(const Names<T, N>& names, std::string_view wanted) noexcept {
  for (const auto& [value, name] : names) {
    if (name == wanted) return value;
  }
  return std::nullopt;
}

}  // namespace

std::string name_of(const ReplicaKey& key) { return key.deployment.text() + "/" + std::to_string(key.replica); }
std::string to_string(const ReplicaKey& key) { return name_of(key) + "#" + std::to_string(key.generation); }

bool is_about(std::string_view subject, std::string_view name) noexcept {
  if (subject == name) return true;
  const std::size_t slash = subject.rfind('/');
  if (slash == std::string_view::npos) return false;
  const std::string_view before = subject.substr(0, slash), after = subject.substr(slash + 1);
  const bool is_replica =
      !after.empty() && std::all_of(after.begin(), after.end(), [](char c) { return c >= '0' && c <= '9'; });
  return (is_replica && before == name) || (before == "node" && after == name);
}

std::string_view to_string(ReplicaState state) noexcept { return name_in(states, state); }
std::string_view state_in_words(std::string_view state) noexcept {
  if (state == to_string(ReplicaState::backing_off)) return "waiting to restart";
  return state == to_string(ReplicaState::unready) ? "not ready" : state;
}
std::string_view to_string(EventKind kind) noexcept { return name_in(kinds, kind); }
std::string_view to_string(EndpointState state) noexcept { return name_in(endpoint_states, state); }
std::string_view to_string(HolderKind kind) noexcept { return name_in(holder_kinds, kind); }
std::string_view to_string(LeaseKind kind) noexcept { return name_in(lease_kinds, kind); }
std::string_view to_string(LeaseState state) noexcept { return name_in(lease_states, state); }
std::string_view to_string(Role role) noexcept { return name_in(roles, role); }
std::optional<Role> role_named(std::string_view name) noexcept { return value_in(roles, name); }

}  // namespace berth::fleet
