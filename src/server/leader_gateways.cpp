// The part of the leader about gateways, and the keys with which they and the relays of nodes authenticate each other.
#include <algorithm>

#include "server/access.hpp"
#include "server/leader.hpp"
#include "server/unconnected.hpp"

namespace berth::server {

using fleet::Credential;
using fleet::EventKind;
using fleet::Role;

namespace {
constexpr Duration gateway_stays = std::chrono::seconds(10);
}

std::vector<fleet::GatewayOrder> Leader::gateways_of(const NodeId& node) const {
  std::vector<fleet::GatewayOrder> gateways;
  const Credential* own = nullptr;
  for (const auto& [id, credential] : state_.credentials)
    if (credential.role == Role::node && credential.node == node) own = &credential;
  if (!own) return gateways;
  for (const auto& [id, credential] : state_.credentials) {
    if (credential.role == Role::gateway && credential.address)
      gateways.push_back({credential.name.value_or(id), *credential.address, relay_key(*own, credential)});
  }
  return gateways;
}

std::string Leader::address_of(const NodeId& node) const {
  if (const auto named = node_addresses_.find(node); named != node_addresses_.end()) return named->second;
  const LastReport* const last = last_report(node);
  return last ? last->address : std::string();
}

void Leader::set_node_addresses(std::map<NodeId, std::string> addresses) {
  node_addresses_ = std::move(addresses);
  ++change_count_;
  if (changed_) changed_();
}

void Leader::find_changed_gateways(const std::map<std::string, Credential>& now) {
  const auto differs = [](const std::map<std::string, Credential>& in, const Credential& of) {
    const auto found = in.find(of.id);
    return found == in.end() || found->second != of;
  };
  const auto compare = [&](const std::map<std::string, Credential>& these,
                           const std::map<std::string, Credential>& those) {
    bool is_gateway = false;
    for (const auto& [id, credential] : these) {
      if ((credential.role != Role::gateway && credential.role != Role::node) || !differs(those, credential)) continue;
      if (credential.node) changed_nodes_.insert(*credential.node);
      is_gateway = is_gateway || credential.role == Role::gateway;
    }
    return is_gateway;
  };
  const bool is_added = compare(now, state_.credentials), is_removed = compare(state_.credentials, now);
  if (!is_added && !is_removed) return;
  for (const auto& [node, record] : state_.nodes) changed_nodes_.insert(node);
}

Result<void> Leader::add_gateway(const Credential& credential, const std::string& used_up, const std::string& actor) {
  store::Change change = change_of(state_);
  for (const auto& [id, old] : state_.credentials) {
    if (old.role != Role::gateway || old.name != credential.name) continue;
    // The server's own gateway joins without a token.
    if (!used_up.empty())
      return Error{ErrorCode::already_exists, "a gateway \"" + *old.name + "\" already exists",
                   "give this one another --name, or remove the existing one: berth token remove " + id};
    change.credentials[id] = std::nullopt;
  }
  change.credentials[credential.id] = credential;
  if (!used_up.empty()) change.credentials[used_up] = std::nullopt;
  const std::string name = credential.name.value_or(credential.id);
  return commit(std::move(change),
                {event(EventKind::credential, actor, "gateway/" + name, "the gateway " + name + " joined")});
}

Result<void> Leader::note(std::vector<fleet::Event> events) {
  events = event_limit_.admit(std::move(events), {}, clock_->now());
  return events.empty() ? Result<void>() : commit(change_of(state_), std::move(events));
}

Result<void> Leader::set_gateway_address(const std::string& credential, const std::string& address) {
  const auto found = state_.credentials.find(credential);
  if (found == state_.credentials.end() || found->second.role != Role::gateway)
    return Error{ErrorCode::not_found, "there is no gateway with this credential", "join again"};
  if (found->second.address == address) return {};
  // Limits how often the address changes: each change is written to the store, and all relays reconnect.
  const TimePoint now = clock_->now();
  std::erase_if(gateways_moved_, [&](const auto& entry) { return now - entry.second >= gateway_stays; });
  if (gateways_moved_.contains(credential))
    return Error{ErrorCode::unavailable, "this gateway changed its address less than ten seconds ago", "try again"};
  store::Change change = change_of(state_);
  Credential changed = found->second;
  changed.address = address;
  const std::string name = changed.name.value_or(changed.id);
  change.credentials[credential] = std::move(changed);
  BERTH_TRY(commit(std::move(change), {event(EventKind::credential, "gateway:" + name, "gateway/" + name,
                                             "relays reach the gateway " + name + " at " + gateway_place(address))}));
  gateways_moved_[credential] = now;
  return {};
}

}  // namespace berth::server
