#include "store/change_writes.hpp"

#include <set>
#include <string>
#include <utility>

namespace berth::store {
namespace {

using AssignedList = std::vector<fleet::Assigned>;

Error contradiction(std::string what) { return {ErrorCode::invalid_argument, "the change " + std::move(what)}; }

Result<void> check(const Change& change, const Counters& counters) {
  if (change.generations &&
      (change.generations->first != counters.next_generation || change.generations->second < change.generations->first))
    return contradiction("gives out generations that are not the next ones");
  const std::uint64_t next = change.generations ? change.generations->second : counters.next_generation;
  for (const auto& [node, list] : change.assignments) {
    for (const fleet::Assigned& one : list.assigned) {
      if (one.place.node != node)
        return contradiction("has an assignment of another node in the list of " + node.text());
      if (one.generation == 0 || one.generation >= next)
        return contradiction("has " + to_string(one.key()) + ", a generation that it did not take out");
    }
  }
  for (const auto& [name, wanted] : change.deployments) {
    if (wanted && wanted->spec.name != name) return contradiction("has another deployment under " + name.text());
  }
  for (const auto& [node, record] : change.nodes) {
    if (record && record->id != node) return contradiction("has another node under " + node.text());
  }
  for (const auto& [id, credential] : change.credentials) {
    if (credential && credential->id != id) return contradiction("has another credential under " + id);
  }
  return {};
}

Write assignments_write(const NodeId& node, const AssignedList& list) {
  return {keys::assignments_of(node), list.empty() ? std::nullopt : std::optional(text_of(list))};
}

// `after` without the incarnations that `before` does not have.
AssignedList without_new(const AssignedList& before, const AssignedList& after) {
  std::set<std::uint64_t> known;
  for (const fleet::Assigned& one : before) known.insert(one.generation);
  AssignedList kept;
  for (const fleet::Assigned& one : after) {
    if (known.contains(one.generation)) kept.push_back(one);
  }
  return kept;
}

}  // namespace

Result<std::vector<Write>> writes_of(const Change& change, ProjectRoot& root, Counters& counters,
                                     const std::map<NodeId, NodeAssignments>* before) {
  BERTH_TRY(check(change, counters));
  std::vector<Write> writes, last;  // `last`: what nothing refers to any more
  const auto put = [&](std::string key, std::string value) { writes.push_back({std::move(key), std::move(value)}); };

  for (const auto& [id, credential] : change.credentials) {
    if (!credential) writes.push_back({keys::credential(id), std::nullopt});
  }
  for (const auto& [id, credential] : change.credentials) {
    if (credential) put(keys::credential(id), text_of(*credential));
  }
  for (const auto& [node, record] : change.nodes) {
    if (record) put(keys::node(node), text_of(*record));
    if (!record) last.push_back({keys::node(node), std::nullopt});
  }

  if (change.changes_desired()) {
    ++root.version;
    if (change.cluster) root.cluster = *change.cluster;
    if (change.egress_preference) root.egress_preference = *change.egress_preference;
    for (const auto& [name, wanted] : change.deployments) {
      if (const auto old = root.deployments.find(name); old != root.deployments.end()) {
        last.push_back({keys::deployment(name, old->second), std::nullopt});
        root.deployments.erase(old);
      }
      if (!wanted) continue;
      put(keys::deployment(name, root.version), text_of(*wanted));
      root.deployments.emplace(name, root.version);
    }
    put(std::string(keys::project), text_of(root));
  }

  if (change.generations) {
    counters.next_generation = change.generations->second;
    put(std::string(keys::counters), text_of(counters));
  }
  for (const auto& [node, list] : change.assignments) {
    if (!before) break;
    const auto at = before->find(node);
    if (at == before->end()) continue;
    const AssignedList kept = without_new(at->second.assigned, list.assigned);
    if (kept != at->second.assigned) writes.push_back(assignments_write(node, kept));
  }
  for (const auto& [node, list] : change.assignments) {
    const auto at = before ? before->find(node) : decltype(before->find(node))();
    const bool is_written =
        before && at != before->end() && without_new(at->second.assigned, list.assigned) == list.assigned;
    if (!is_written) writes.push_back(assignments_write(node, list.assigned));
  }

  for (Write& write : last) writes.push_back(std::move(write));
  for (fleet::Event event : change.events) {
    // The number first: an event never takes the place of another one, though one may be missing after a failure.
    event.id = counters.next_event++;
    put(std::string(keys::counters), text_of(counters));
    if (event.id > events_kept) writes.push_back({keys::event(event.id - events_kept), std::nullopt});
    put(keys::event(event.id), text_of(event));
  }
  return writes;
}

}  // namespace berth::store
