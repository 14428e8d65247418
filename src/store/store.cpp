#include "store/store.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "store/change_writes.hpp"
#include "store/parts.hpp"
#include "store/schema.hpp"

namespace berth::store {
namespace {

constexpr std::string_view own_keys[] = {keys::leader, keys::project, keys::counters};

const Entry* find(const Listing& listing, std::string_view key) {
  for (const Entry& entry : listing.entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

std::vector<fleet::Event> readable(const std::vector<Entry>& entries) {
  std::vector<fleet::Event> events;
  for (const Entry& entry : entries) {
    if (auto event = event_of(entry)) events.push_back(*std::move(event));
  }
  return events;
}

Committed moved(Moved what, std::string reason) { return {what, std::move(reason), 0}; }

}  // namespace

Result<std::unique_ptr<Store>> Store::open(std::shared_ptr<Engine> engine) {
  BERTH_TRY(bring_up_to_date(*engine, migrations()));
  return std::unique_ptr<Store>(new Store(std::move(engine)));
}

Result<State> Store::load() {
  const Listing listing = BERTH_TRY(engine_->list(keys::state));
  const std::lock_guard lock(reading_);
  return reader_.read(listing);
}

Result<std::vector<fleet::Event>> Store::events(std::uint64_t after, std::size_t limit) {
  std::vector<fleet::Event> events =
      readable(BERTH_TRY(engine_->list(keys::events, keys::event(after), limit)).entries);
  for (fleet::Event& event : readable(BERTH_TRY(engine_->list(keys::actions, keys::action(after), limit)).entries))
    events.push_back(std::move(event));
  std::sort(events.begin(), events.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  if (events.size() > limit) events.erase(events.begin() + static_cast<std::ptrdiff_t>(limit), events.end());
  return events;
}

Result<std::vector<fleet::Event>> Store::actions(std::size_t limit) {
  std::vector<Entry> entries = BERTH_TRY(engine_->list(keys::actions)).entries;
  if (entries.size() > limit) entries.erase(entries.begin(), entries.end() - static_cast<std::ptrdiff_t>(limit));
  return readable(entries);
}

Result<Store::OwnEntries> Store::read_known(const Listing& listing) {
  OwnEntries known;
  for (const std::string_view key : own_keys) {
    const Entry* const entry = find(listing, key);
    known.versions.emplace(key, entry ? entry->version : 0);
    if (entry && key == keys::project) known.root = BERTH_TRY(project_root_of(*entry));
    if (entry && key == keys::counters) known.counters = BERTH_TRY(counters_of(*entry));
  }
  for (const Entry& entry : BERTH_TRY(engine_->list(keys::actions)).entries) {
    if (const auto id = keys::action_at(entry.key)) known.actions.push_back(*id);
  }
  return known;
}

Result<std::uint64_t> Store::lead(const std::string& server, Duration duration) {
  const std::lock_guard lock(leading_);
  epoch_ = 0;
  BERTH_TRY(engine_->hold(server, duration));
  Result<std::uint64_t> epoch = begin_epoch(server);
  if (!epoch) {
    engine_->release(server);
    return epoch;
  }
  server_ = server;
  duration_ = duration;
  epoch_ = *epoch;
  return epoch;
}

Result<std::uint64_t> Store::begin_epoch(const std::string& server) {
  const Listing listing = BERTH_TRY(engine_->list(keys::state));
  Leader leader;
  const Entry* const entry = find(listing, keys::leader);
  if (entry) leader = BERTH_TRY(leader_of(*entry));
  leader = {server, leader.epoch + 1};
  const auto committed = BERTH_TRY(engine_->commit(
      {{{std::string(keys::leader), entry ? entry->version : 0}}, {{std::string(keys::leader), text_of(leader)}}}));
  if (!committed) return Error{ErrorCode::unavailable, "another server became leader at the same moment", "try again"};
  known_ = BERTH_TRY(read_known(listing));
  known_.versions[std::string(keys::leader)] = *committed;
  is_known_ = true;
  BERTH_TRY(remove_leftovers(listing));
  return leader.epoch;
}

// Removes leftovers of failed changes: records of deployments to which the project does not refer, and events that are
// too old (each new event removes an old one, except where a number was taken and not used).
Result<void> Store::remove_leftovers(const Listing& listing) {
  std::set<std::string> counted;
  for (const auto& [name, version] : known_.root.deployments) counted.insert(keys::deployment(name, version));
  std::vector<Write> writes;
  for (const Entry& entry : listing.entries) {
    if (entry.key.starts_with(keys::deployments) && !counted.contains(entry.key))
      writes.push_back({entry.key, std::nullopt});
  }
  if (const std::uint64_t next = known_.counters.next_event; next > events_kept) {
    const std::string oldest = keys::event(next - events_kept);
    const Listing events = BERTH_TRY(engine_->list(keys::events, {}, events_kept));
    for (const Entry& entry : events.entries) {
      if (entry.key < oldest) writes.push_back({entry.key, std::nullopt});
    }
  }
  const Condition leads{std::string(keys::leader), known_.versions.find(keys::leader)->second};
  const std::vector<Part> parts = BERTH_TRY(in_parts(std::move(writes)));
  for (const Part& part : parts) BERTH_TRY(engine_->commit({{leads}, part}));
  return {};
}

Result<bool> Store::still_leads() {
  if (epoch_ == 0) return false;
  const Listing listing = BERTH_TRY(engine_->list(keys::state));
  OwnEntries known = BERTH_TRY(read_known(listing));
  if (known.versions.find(keys::leader)->second != known_.versions.find(keys::leader)->second) {
    epoch_ = 0;
    return false;
  }
  known_ = std::move(known);
  is_known_ = true;
  return true;
}

Result<void> Store::renew() {
  const std::lock_guard lock(leading_);
  if (epoch_ != 0) {
    Result<void> held = engine_->hold(server_, duration_);
    if (!held && held.error().code != ErrorCode::unavailable) return held;
    const Listing listing = BERTH_TRY(engine_->list(keys::leader));
    const Entry* const entry = find(listing, keys::leader);
    if (held && entry && entry->version == known_.versions.find(keys::leader)->second) return {};
    if (held) engine_->release(server_);
    epoch_ = 0;
  }
  return Error{ErrorCode::unavailable, BERTH_TRY(who_leads()), "let that server do it, or stop it and try again"};
}

Result<std::string> Store::who_leads() {
  const Listing listing = BERTH_TRY(engine_->list(keys::leader));
  const Entry* const entry = find(listing, keys::leader);
  if (!entry) return std::string("no server leads");
  const Leader leader = BERTH_TRY(leader_of(*entry));
  return "this server is not the leader; the most recent leader is " + leader.server + " (epoch " +
         std::to_string(leader.epoch) + ")";
}

void Store::give_up() {
  const std::lock_guard lock(leading_);
  if (epoch_ != 0) engine_->release(server_);
  epoch_ = 0;
}

Result<Committed> Store::commit(const Change& change) {
  const std::lock_guard lock(leading_);
  if (!is_known_) BERTH_TRY(still_leads());
  if (epoch_ == 0) return moved(Moved::leader, BERTH_TRY(who_leads()));
  if (change.epoch != epoch_) {
    return moved(Moved::leader, "this was decided in epoch " + std::to_string(change.epoch) + ", but it is epoch " +
                                    std::to_string(epoch_) + " now");
  }
  if (change.project_version && *change.project_version != known_.root.version) {
    return moved(Moved::project, "this was decided for version " + std::to_string(*change.project_version) +
                                     " of the project, which has version " + std::to_string(known_.root.version) +
                                     " now");
  }
  if (change.generations && change.generations->first != known_.counters.next_generation)
    return moved(Moved::assignments, "other replicas were assigned in the meantime");

  OwnEntries after = known_;
  std::map<NodeId, Incarnations> before;
  for (const auto& [node, list] : change.assignments) {
    Incarnations& of_node = before[node];
    for (Entry& entry : BERTH_TRY(engine_->list(keys::assigned_to(node))).entries)
      of_node.emplace(std::move(entry.key), std::move(entry.value));
  }
  std::vector<Part> parts =
      BERTH_TRY(in_parts(BERTH_TRY(writes_of(change, after.root, after.counters, after.actions, before))));

  std::map<std::string, std::uint64_t, std::less<>> versions = known_.versions;
  for (const auto& [node, list] : change.assignments) versions.emplace(keys::assignments_of(node), list.version);
  if (parts.empty()) parts.emplace_back();  // still checks whether this server leads
  Committed committed;
  is_known_ = false;  // until all parts are committed
  for (const Part& part : parts) {
    Transaction transaction;
    transaction.conditions.push_back({std::string(keys::leader), versions.find(keys::leader)->second});
    for (const Write& write : part) {
      if (const auto at = versions.find(write.key); at != versions.end())
        transaction.conditions.push_back({write.key, at->second});
    }
    transaction.writes = part;
    const auto change_number = BERTH_TRY(engine_->commit(transaction));
    if (!change_number) return what_moved(change);
    committed.change_number = *change_number;
    for (const Write& write : part) {
      if (const auto at = versions.find(write.key); at != versions.end()) at->second = write.value ? *change_number : 0;
    }
  }
  for (auto& [key, version] : after.versions) version = versions.find(key)->second;
  known_ = std::move(after);
  is_known_ = true;
  return committed;
}

// Called when a condition did not hold: finds out which.
Result<Committed> Store::what_moved(const Change& change) {
  if (!BERTH_TRY(still_leads())) return moved(Moved::leader, BERTH_TRY(who_leads()));
  for (const auto& [node, list] : change.assignments) {
    const Listing listing = BERTH_TRY(engine_->list(keys::assignments_of(node), {}, 1));
    const Entry* const entry = find(listing, keys::assignments_of(node));
    if ((entry ? entry->version : 0) != list.version)
      return moved(Moved::assignments, "the assignments of node " + node.text() + " changed in the meantime");
  }
  return moved(Moved::project, "the project changed in the meantime");
}

}  // namespace berth::store
