#include "store/schema.hpp"

#include <algorithm>
#include <boost/json.hpp>

#include "berth/version.hpp"
#include "fleet_format/fleet_json.hpp"
#include "store/parts.hpp"
#include "store/records.hpp"
#include "store/state.hpp"

namespace berth::store {
namespace {

Result<void> migrate(Engine& engine, std::span<const Migration> migrations, Entry mark_entry, SchemaMark mark,
                     std::uint64_t to) {
  while (mark.number < to) {
    const auto step = std::find_if(migrations.begin(), migrations.end(),
                                   [&](const Migration& migration) { return migration.from == mark.number; });
    if (step == migrations.end()) {
      return Error{ErrorCode::not_supported,
                   engine.name() + " has the layout " + std::to_string(mark.number) + " of berth " + mark.berth +
                       ", which this version cannot migrate",
                   "open it with a version in between first"};
    }
    std::vector<Write> writes = BERTH_TRY(step->writes(BERTH_TRY(engine.list("")).entries));
    mark = {mark.number + 1, this_version()};
    writes.push_back({std::string(keys::schema), text_of(mark)});  // the last one
    for (const Part& part : BERTH_TRY(in_parts(std::move(writes)))) {
      const auto change_number = BERTH_TRY(engine.commit({{{mark_entry.key, mark_entry.version}}, part}));
      if (!change_number)
        return Error{ErrorCode::unavailable, engine.name() + " was changed during its migration", "try again"};
      if (part.back().key == keys::schema) mark_entry.version = *change_number;
    }
  }
  return {};
}

}  // namespace

namespace {

// Layout 1 had all incarnations of a node in one value at keys::assignments_of(), and one ring of events.
Result<std::vector<Write>> split_assignments(const std::vector<Entry>& entries) {
  std::vector<Write> writes;
  for (const Entry& entry : entries) {
    if (entry.key.starts_with(keys::assignments)) {
      const auto list = BERTH_TRY(
          format::read_document(entry.value, entry.key, [](const boost::json::value& value, const std::string& where) {
            const boost::json::value* const all = format::object_of(value, where).if_contains("assigned");
            return all ? format::entries_of(*all, where + ".assigned", format::assigned_of)
                       : std::vector<fleet::Assigned>();
          }));
      if (list.empty()) continue;  // already done by an interrupted migration
      for (const fleet::Assigned& replica : list) writes.push_back({keys::incarnation(replica), text_of(replica)});
      writes.push_back({entry.key, head_text()});
    } else if (entry.key.starts_with(keys::events)) {
      const Result<fleet::Event> event = event_of(entry);
      if (!event || !is_action(*event)) continue;
      writes.push_back({keys::action(event->id), entry.value});
      writes.push_back({entry.key, std::nullopt});
    }
  }
  return writes;
}

constexpr Migration known_migrations[] = {{1, split_assignments}};

}  // namespace

std::span<const Migration> migrations() noexcept { return known_migrations; }

std::string this_version() {
  return std::to_string(BERTH_VERSION_MAJOR) + "." + std::to_string(BERTH_VERSION_MINOR) + "." +
         std::to_string(BERTH_VERSION_PATCH);
}

std::string text_of(const SchemaMark& mark) {
  return boost::json::serialize(boost::json::object{{"store", mark.number}, {"berth", mark.berth}});
}

Result<SchemaMark> schema_mark_of(const Entry& entry) {
  return format::read_document(entry.value, entry.key, [](const boost::json::value& value, const std::string& where) {
    const boost::json::object& object = format::object_of(value, where);
    return SchemaMark{format::whole_of(format::member(object, "store", where), where + ".store"),
                      format::text_of(format::member(object, "berth", where), where + ".berth")};
  });
}

Error newer_schema(const std::string& what, const SchemaMark& mark) {
  return {ErrorCode::not_supported,
          what + " was written by berth " + mark.berth + " with the layout " + std::to_string(mark.number) +
              "; this is berth " + this_version() + ", which supports layouts up to " + std::to_string(schema_number),
          "use berth " + mark.berth + " or later, or restore a backup that an older version has made"};
}

Result<void> bring_up_to_date(Engine& engine, std::span<const Migration> migrations, std::uint64_t to) {
  const Listing meta = BERTH_TRY(engine.list("meta/"));
  const Entry* mark_entry = nullptr;
  for (const Entry& entry : meta.entries) {
    if (entry.key == keys::schema) mark_entry = &entry;
    if (entry.key == keys::restoring)
      return Error{ErrorCode::io, "a restore into " + engine.name() + " was not completed", "restore the backup again"};
  }
  if (!mark_entry) {
    const Listing first = BERTH_TRY(engine.list("", "", 1));
    if (!first.entries.empty())
      return Error{ErrorCode::io, engine.name() + " is not a Berth store: it has entries but no layout",
                   "give another store"};
    // Another process may do the same at this moment, which has the same effect.
    const std::string key(keys::schema);
    BERTH_TRY(engine.commit({{{key, 0}}, {{key, text_of(SchemaMark{to, this_version()})}}}));
    return {};
  }
  const SchemaMark mark = BERTH_TRY(schema_mark_of(*mark_entry));
  if (mark.number > to) return newer_schema(engine.name(), mark);
  if (mark.number == to) return {};
  const std::string owner = "a migration of the store";
  BERTH_TRY(engine.hold(owner, hold_duration));
  Result<void> migrated = migrate(engine, migrations, *mark_entry, mark, to);
  engine.release(owner);
  return migrated;
}

}  // namespace berth::store
