#include "store/state_reader.hpp"

#include <algorithm>
#include <string_view>

#include "store/records.hpp"

namespace berth::store {
namespace {

// The value of the entry, taken from `before` if present, and kept in `after`.
template <class Parsed, class Read>
auto parsed(const Entry& entry, Parsed& before, Parsed& after, Read&& read) -> decltype(read(entry)) {
  auto node = before.extract(entry.key);
  if (!node.empty() && node.mapped().first == entry.version)
    return after.insert(std::move(node)).position->second.second;
  auto value = read(entry);
  if (value) after.emplace(entry.key, std::pair(entry.version, *value));
  return value;
}

// Returns nothing if the entry is damaged, which the state then records. An entry of a newer version is still an error.
template <class Value>
Result<std::optional<Value>> unless_damaged(State& state, Result<Value> read) {
  if (read) return std::optional(*std::move(read));
  if (read.error().code != ErrorCode::io) return std::move(read).error();
  state.damaged.push_back(read.error().message);
  return std::optional<Value>();
}

// An incarnation of which only the key is known. It may be `single`, so if its node is silent it counts as running
// for an hour.
std::optional<fleet::Assigned> to_be_stopped(std::string_view key) {
  std::optional<fleet::Assigned> replica = keys::incarnation_at(key);
  if (replica) {
    replica->stopping = true;
    replica->replace_s = 3600;
  }
  return replica;
}

}  // namespace

Result<State> StateReader::read(const Listing& listing) {
  State state;
  state.change_number = listing.change_number;
  ProjectRoot root;
  Parsed<fleet::DesiredDeployment> wanted;
  Parsed<fleet::Assigned> assigned;
  Parsed<fleet::NodeRecord> nodes;
  Parsed<fleet::Credential> credentials;
  for (const Entry& entry : listing.entries) {
    const std::string_view key = entry.key;
    if (key == keys::project) {
      root = BERTH_TRY(project_root_of(entry));
    } else if (key == keys::counters) {
      const Counters counters = BERTH_TRY(counters_of(entry));
      state.next_generation = counters.next_generation;
      state.last_event = counters.next_event - 1;
    } else if (key == keys::leader) {
      Leader leader = BERTH_TRY(leader_of(entry));
      state.leader = std::move(leader.server);
      state.epoch = leader.epoch;
    } else if (key.starts_with(keys::assignments)) {
      state.assignments[NodeId(std::string(key.substr(keys::assignments.size())))].version = entry.version;
    } else if (key.starts_with(keys::assigned)) {
      auto replica = BERTH_TRY(unless_damaged(state, parsed(entry, assigned_, assigned, assigned_of)));
      if (!replica) replica = to_be_stopped(key);
      if (replica) state.assignments[replica->place.node].assigned.push_back(*std::move(replica));
    } else if (key.starts_with(keys::nodes)) {
      auto record = BERTH_TRY(unless_damaged(state, parsed(entry, nodes_, nodes, node_record_of)));
      if (!record) {
        record.emplace();
        record->id = NodeId(std::string(key.substr(keys::nodes.size())));
        record->intent = Intent::cordoned;
        record->intent_by = "server: its record in the store is damaged";
      }
      const NodeId id = record->id;
      state.nodes.emplace(id, *std::move(record));
    } else if (key.starts_with(keys::credentials)) {
      auto credential = BERTH_TRY(unless_damaged(state, parsed(entry, credentials_, credentials, credential_of)));
      if (!credential) continue;
      std::string id = credential->id;
      state.credentials.emplace(std::move(id), *std::move(credential));
    }
  }
  for (auto& [node, list] : state.assignments) {
    std::sort(list.assigned.begin(), list.assigned.end(),
              [](const fleet::Assigned& a, const fleet::Assigned& b) { return a.generation < b.generation; });
  }
  // Keys of deployments come before the project, which refers to those in use.
  std::map<std::string_view, const Entry*> records;
  for (const Entry& entry : listing.entries) {
    if (entry.key.starts_with(keys::deployments)) records.emplace(entry.key, &entry);
  }
  for (const auto& [name, version] : root.deployments) {
    const std::string key = keys::deployment(name, version);
    const auto at = records.find(key);
    std::optional<fleet::DesiredDeployment> record;
    if (at == records.end())
      state.damaged.push_back("the store lacks " + key + ", which its project names");
    else
      record = BERTH_TRY(unless_damaged(state, parsed(*at->second, wanted_, wanted, wanted_of)));
    if (record)
      state.desired.deployments.emplace(name, *std::move(record));
    else
      state.unreadable.insert(name);
  }
  state.desired.version = root.version;
  state.desired.cluster = std::move(root.cluster);
  state.desired.egress_preference = std::move(root.egress_preference);
  wanted_ = std::move(wanted);
  assigned_ = std::move(assigned);
  nodes_ = std::move(nodes);
  credentials_ = std::move(credentials);
  return state;
}

}  // namespace berth::store
