#include "store/change_writes.hpp"

#include <string>
#include <utility>

namespace berth::store {
namespace {

Error contradiction(std::string what) { return {ErrorCode::invalid_argument, "the change " + std::move(what)}; }

Result<void> check(const Change& change, const Counters& counters) {
  if (change.generations &&
      (change.generations->first != counters.next_generation || change.generations->second < change.generations->first))
    return contradiction("gives out generations that are not the next ones");
  const std::uint64_t next = change.generations ? change.generations->second : counters.next_generation;
  for (const auto& [node, list] : change.assignments) {
    for (const fleet::Assigned& replica : list.assigned) {
      if (replica.place.node != node)
        return contradiction("has an assignment of another node in the list of " + node.text());
      if (replica.generation == 0 || replica.generation >= next)
        return contradiction("has " + to_string(replica.key()) + ", a generation that it did not take out");
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

}  // namespace

Result<std::vector<Write>> writes_of(const Change& change, ProjectRoot& root, Counters& counters,
                                     std::deque<std::uint64_t>& actions, const std::map<NodeId, Incarnations>& before) {
  BERTH_TRY(check(change, counters));
  std::vector<Write> writes, last;  // `last`: entries that nothing refers to any longer
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
  // Removals and changes come before additions, over all nodes. If the change is split, the first part that touches a
  // node changes its version, so that another change that was decided on the same list is refused as a whole.
  std::vector<Write> begun;
  for (const auto& [node, list] : change.assignments) {
    writes.push_back({keys::assignments_of(node), list.assigned.empty() ? std::nullopt : std::optional(head_text())});
    Incarnations old = before.at(node);
    for (const fleet::Assigned& replica : list.assigned) {
      std::string key = keys::incarnation(replica), value = text_of(replica);
      const auto at = old.extract(key);
      if (at.empty())
        begun.push_back({std::move(key), std::move(value)});
      else if (at.mapped() != value)
        put(std::move(key), std::move(value));
    }
    for (const auto& [key, value] : old) writes.push_back({key, std::nullopt});
  }
  for (Write& write : begun) writes.push_back(std::move(write));

  for (Write& write : last) writes.push_back(std::move(write));
  for (fleet::Event event : change.events) {
    // The counter is written before the event: after a failure a number may be unused, but no event replaces another
    // one.
    event.id = counters.next_event++;
    put(std::string(keys::counters), text_of(counters));
    if (event.id > events_kept) writes.push_back({keys::event(event.id - events_kept), std::nullopt});
    if (!is_action(event)) {
      put(keys::event(event.id), text_of(event));
      continue;
    }
    put(keys::action(event.id), text_of(event));
    actions.push_back(event.id);
    while (actions.size() > actions_kept) {
      writes.push_back({keys::action(actions.front()), std::nullopt});
      actions.pop_front();
    }
  }
  return writes;
}

}  // namespace berth::store
