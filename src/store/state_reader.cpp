#include "store/state_reader.hpp"

#include <string_view>

#include "store/records.hpp"

namespace berth::store {
namespace {

// The value of the entry, from `before` where that has it; kept in `after`.
template <class Parsed, class Read>
auto parsed(const Entry& entry, Parsed& before, Parsed& after, Read&& read) -> decltype(read(entry)) {
  auto node = before.extract(entry.key);
  if (!node.empty() && node.mapped().first == entry.version)
    return after.insert(std::move(node)).position->second.second;
  auto value = read(entry);
  if (value) after.emplace(entry.key, std::pair(entry.version, *value));
  return value;
}

}  // namespace

Result<State> StateReader::read(const Listing& listing) {
  State state;
  state.change_number = listing.change_number;
  ProjectRoot root;
  Parsed<fleet::Wanted> wanted;
  Parsed<std::vector<fleet::Assigned>> assigned;
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
      NodeAssignments list{entry.version, BERTH_TRY(parsed(entry, assigned_, assigned, assigned_of))};
      state.assignments.emplace(NodeId(std::string(key.substr(keys::assignments.size()))), std::move(list));
    } else if (key.starts_with(keys::nodes)) {
      fleet::NodeRecord record = BERTH_TRY(parsed(entry, nodes_, nodes, node_record_of));
      state.nodes.emplace(record.id, std::move(record));
    } else if (key.starts_with(keys::credentials)) {
      fleet::Credential credential = BERTH_TRY(parsed(entry, credentials_, credentials, credential_of));
      state.credentials.emplace(credential.id, std::move(credential));
    }
  }
  // Keys of deployments come before the project, which says which of them count.
  std::map<std::string_view, const Entry*> records;
  for (const Entry& entry : listing.entries) {
    if (entry.key.starts_with(keys::deployments)) records.emplace(entry.key, &entry);
  }
  for (const auto& [name, version] : root.deployments) {
    const std::string key = keys::deployment(name, version);
    const auto at = records.find(key);
    if (at == records.end()) {
      return Error{ErrorCode::io, "the store lacks " + key + ", which its project names", "restore the last backup"};
    }
    state.desired.deployments.emplace(name, BERTH_TRY(parsed(*at->second, wanted_, wanted, wanted_of)));
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
