#include "store/backup.hpp"

#include <unistd.h>

#include <boost/json.hpp>
#include <cinttypes>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "format/json_reading.hpp"
#include "store/memory_engine.hpp"
#include "store/parts.hpp"
#include "store/records.hpp"
#include "store/schema.hpp"
#include "world/files.hpp"
#include "world/user_name.hpp"
#include "world/wall_time.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace berth::store {
namespace {

namespace json = boost::json;

constexpr std::uint64_t backup_format = 1;

// Holds the store until this object is destroyed.
class HeldStore {
 public:
  static Result<HeldStore> take(Engine& engine, const std::string& owner) {
    BERTH_TRY(engine.hold(owner, hold_duration));
    return HeldStore(engine, owner);
  }
  HeldStore(HeldStore&& other) noexcept
      : engine_(std::exchange(other.engine_, nullptr)), owner_(std::move(other.owner_)) {}
  HeldStore& operator=(HeldStore&&) = delete;
  ~HeldStore() {
    if (engine_ != nullptr) engine_->release(owner_);
  }

 private:
  HeldStore(Engine& engine, std::string owner) : engine_(&engine), owner_(std::move(owner)) {}
  Engine* engine_;
  std::string owner_;
};

std::string checksum_of(std::string_view text) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016" PRIx64,
                static_cast<std::uint64_t>(XXH3_64bits(text.data(), text.size())));
  return digits;
}

Error damaged(const std::string& file, const std::string& how) {
  return {ErrorCode::invalid_argument, file + " " + how, "use another backup; the store was not changed"};
}

// The schema mark of a complete store.
Result<SchemaMark> mark_of(const std::vector<Entry>& entries, const std::string& where) {
  const Entry* found = nullptr;
  for (const Entry& entry : entries) {
    if (entry.key == keys::schema) found = &entry;
    if (entry.key == keys::restoring)
      return Error{ErrorCode::io, "a restore into " + where + " was not completed", "restore the backup again"};
  }
  if (!found) return Error{ErrorCode::io, where + " is not a Berth store, or is empty", "give another one"};
  SchemaMark mark = BERTH_TRY(schema_mark_of(*found));
  if (mark.number > schema_number) return newer_schema(where, mark);
  return mark;
}

struct Backup {
  std::string made;  // time, UTC
  std::vector<Entry> entries;
};

// Reads and checks the whole file.
Result<Backup> read_backup(const std::string& file) {
  const std::string text = BERTH_TRY(world::read_text(file));
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) return damaged(file, "is truncated: its last line does not end");
    lines.push_back(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
  }
  if (lines.empty() || !lines.front().starts_with("{\"berth_backup\":"))
    return damaged(file, "is not a backup of a store");
  try {
    const auto parsed = [&](std::size_t line) {
      json::error_code error;
      json::value value = json::parse({lines[line].data(), lines[line].size()}, error);
      if (error) throw format::JsonError{"line " + std::to_string(line + 1) + " is not JSON"};
      return value;
    };
    const json::value first = parsed(0);
    const json::object& head = format::object_of(first, "line 1");
    const SchemaMark mark{format::whole_of(format::member(head, "store", "line 1"), "store"),
                          format::text_of(format::member(head, "berth", "line 1"), "berth")};
    if (format::whole_of(head.at("berth_backup"), "line 1") > backup_format || mark.number > schema_number)
      return newer_schema(file, mark);
    const std::uint64_t count = format::whole_of(format::member(head, "entries", "line 1"), "entries");
    if (lines.size() != count + 2) {
      return damaged(
          file, "is truncated: it has " + std::to_string(lines.size()) + " of " + std::to_string(count + 2) + " lines");
    }
    const json::value last = parsed(lines.size() - 1);
    const std::string checksum = format::text_of(
        format::member(format::object_of(last, "the last line"), "checksum", "the last line"), "checksum");
    const std::size_t summed = static_cast<std::size_t>(lines.back().data() - text.data());
    if (checksum != checksum_of(std::string_view(text).substr(0, summed)))
      return damaged(file, "was edited or damaged: the checksum does not match");
    Backup backup{format::text_of(format::member(head, "made", "line 1"), "made"), {}};
    for (std::size_t line = 1; line + 1 < lines.size(); ++line) {
      const json::value value = parsed(line);
      const json::object& object = format::object_of(value, "an entry");
      backup.entries.push_back({format::text_of(format::member(object, "key", "an entry"), "key"),
                                format::text_of(format::member(object, "value", "an entry"), "value"), 0});
    }
    BERTH_TRY(mark_of(backup.entries, file));
    return backup;
  } catch (const format::JsonError& error) {
    return damaged(file, "was edited or damaged: " + error.what);
  }
}

// Raises numbers of which agents and clients may have seen higher values than those in the backup. The events keep
// their distances, because the newest ones are found by their ids.
Result<void> leap(std::vector<Entry>& entries) {
  for (Entry& entry : entries) {
    if (entry.key.starts_with(keys::events) || entry.key.starts_with(keys::actions)) {
      Result<fleet::Event> event = event_of(entry);
      if (!event) continue;  // damaged: not shown, and removed with the oldest ones
      event->id += restore_leap;
      entry = {entry.key.starts_with(keys::events) ? keys::event(event->id) : keys::action(event->id), text_of(*event)};
    } else if (entry.key == keys::project) {
      ProjectRoot root = BERTH_TRY(project_root_of(entry));
      root.version += restore_leap;
      entry.value = text_of(root);
    } else if (entry.key == keys::counters) {
      Counters counters = BERTH_TRY(counters_of(entry));
      counters.next_generation += restore_leap;
      counters.next_event += restore_leap;
      entry.value = text_of(counters);
    } else if (entry.key == keys::leader) {
      Leader leader = BERTH_TRY(leader_of(entry));
      leader.epoch += restore_leap;
      entry.value = text_of(leader);
    }
  }
  return {};
}

// Adds the event that the store was restored. A store without counters has not been used yet.
Result<void> note_restore(std::vector<Entry>& entries, const std::string& made) {
  for (Entry& entry : entries) {
    if (entry.key != keys::counters) continue;
    Counters counters = BERTH_TRY(counters_of(entry));
    const fleet::Event event{counters.next_event++,
                             world::wall_time_ms(),
                             fleet::EventKind::server,
                             "user:" + world::user_name(::geteuid()),
                             "server",
                             "the store was restored from the backup of " + made};
    entry.value = text_of(counters);
    entries.push_back({keys::action(event.id), text_of(event)});
    break;
  }
  return {};
}

// Replaces the content of `to`. A mark shows that this is in progress until everything is written.
Result<void> fill(Engine& to, const std::vector<Entry>& entries, IfNotEmpty if_not_empty) {
  const Listing present = BERTH_TRY(to.list(""));
  // A store that was opened but never used contains only its schema; one from an interrupted restore may be filled
  // again.
  bool is_free = true;
  for (const Entry& entry : present.entries) is_free = is_free && entry.key == keys::schema;
  for (const Entry& entry : present.entries) is_free = is_free || entry.key == keys::restoring;
  if (!is_free && if_not_empty == IfNotEmpty::refuse) {
    return Error{ErrorCode::already_exists, to.name() + " is not empty",
                 "name an empty or new store, or replace the contents of this one with --replace"};
  }
  std::vector<Write> writes;
  writes.push_back({std::string(keys::restoring), "{}"});
  for (const Entry& entry : present.entries) {
    if (entry.key != keys::restoring) writes.push_back({entry.key, std::nullopt});
  }
  std::vector<Part> parts = BERTH_TRY(in_parts(std::move(writes)));
  std::vector<Write> puts;
  for (const Entry& entry : entries) puts.push_back({entry.key, entry.value});
  for (Part& part : BERTH_TRY(in_parts(std::move(puts)))) parts.push_back(std::move(part));
  parts.push_back({{std::string(keys::restoring), std::nullopt}});
  for (Part& part : parts) BERTH_TRY(to.commit({{}, std::move(part)}));
  return {};
}

}  // namespace

Result<void> backup(Engine& engine, const std::string& file) {
  const Listing listing = BERTH_TRY(engine.list(""));
  const SchemaMark mark = BERTH_TRY(mark_of(listing.entries, engine.name()));
  std::string text = json::serialize(json::object{{"berth_backup", backup_format},
                                                  {"store", mark.number},
                                                  {"berth", this_version()},
                                                  {"made", world::utc_text(world::wall_time_us())},
                                                  {"revision", listing.change_number},
                                                  {"entries", listing.entries.size()}}) +
                     "\n";
  for (const Entry& entry : listing.entries)
    text += json::serialize(json::object{{"key", entry.key}, {"value", entry.value}}) + "\n";
  text += json::serialize(json::object{{"checksum", checksum_of(text)}}) + "\n";
  return world::create_private_text(file, text);
}

Result<void> check_backup(const std::string& file) {
  BERTH_TRY(read_backup(file));
  return {};
}

Result<void> restore(Engine& engine, const std::string& file, IfNotEmpty if_not_empty) {
  // Restores into memory first, where a backup of an older version is brought up to date.
  const std::shared_ptr<Engine> memory = make_memory_engine();
  const Backup backup = BERTH_TRY(read_backup(file));
  BERTH_TRY(fill(*memory, backup.entries, IfNotEmpty::refuse));
  BERTH_TRY(bring_up_to_date(*memory, migrations()));
  std::vector<Entry> entries = BERTH_TRY(memory->list("")).entries;
  BERTH_TRY(leap(entries));
  BERTH_TRY(note_restore(entries, backup.made));
  const HeldStore held = BERTH_TRY(HeldStore::take(engine, "a restore of the store"));
  return fill(engine, entries, if_not_empty);
}

Result<bool> is_half_restored(Engine& engine) {
  return !BERTH_TRY(engine.list(std::string(keys::restoring))).entries.empty();
}

Result<void> copy(Engine& from, Engine& to, IfNotEmpty if_not_empty) {
  const HeldStore source = BERTH_TRY(HeldStore::take(from, "a copy of the store"));
  const HeldStore target = BERTH_TRY(HeldStore::take(to, "a copy of the store"));
  const Listing listing = BERTH_TRY(from.list(""));
  BERTH_TRY(mark_of(listing.entries, from.name()));
  return fill(to, listing.entries, if_not_empty);
}

}  // namespace berth::store
