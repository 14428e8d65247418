#include "store/records.hpp"

#include <boost/json.hpp>
#include <cinttypes>
#include <cstdio>

#include "format/fleet_json.hpp"

namespace berth::store {

namespace json = boost::json;
using format::member;
using format::whole_of;

namespace keys {
std::string deployment(const DeploymentId& name, std::uint64_t version) {
  return std::string(deployments) + name.text() + "/" + std::to_string(version);
}
std::string node(const NodeId& name) { return std::string(nodes) + name.text(); }
std::string assignments_of(const NodeId& node) { return std::string(assignments) + node.text(); }
std::string credential(std::string_view id) { return std::string(credentials) + std::string(id); }
std::string event(std::uint64_t id) {
  char digits[21];
  std::snprintf(digits, sizeof digits, "%020" PRIu64, id);
  return std::string(events) + digits;
}
}  // namespace keys

namespace {

template <class Read>
auto read_entry(const Entry& entry, Read&& take) -> Result<decltype(take(json::value(), entry.key))> {
  auto read = format::read_document(entry.value, entry.key, take);
  if (read) return read;
  Error error = std::move(read).error();
  if (error.code == ErrorCode::not_supported) {
    error.advice = "use the version of berth that wrote it, or restore a backup";
  } else {
    error = {ErrorCode::io, "the store has an entry that cannot be read: " + error.message, "restore the last backup"};
  }
  return error;
}

}  // namespace

std::string text_of(const ProjectRoot& root) {
  json::object deployments;
  for (const auto& [name, version] : root.deployments) deployments[name.text()] = version;
  return format::document({{"version", root.version},
                           {"cluster", root.cluster},
                           {"egress_preference", format::egress_preference_to_json(root.egress_preference)},
                           {"deployments", std::move(deployments)}});
}
std::string text_of(const Counters& counters) {
  return format::document({{"next_generation", counters.next_generation}, {"next_event", counters.next_event}});
}
std::string text_of(const Leader& leader) {
  return format::document({{"server", leader.server}, {"epoch", leader.epoch}});
}
std::string text_of(const std::vector<fleet::Assigned>& assigned) {
  json::array list;
  for (const fleet::Assigned& one : assigned) list.push_back(format::to_json(one));
  return format::document({{"assigned", std::move(list)}});
}
std::string text_of(const fleet::Wanted& wanted) { return format::document(format::to_json(wanted)); }
std::string text_of(const fleet::NodeRecord& record) { return format::document(format::to_json(record)); }
std::string text_of(const fleet::Credential& credential) { return format::document(format::to_json(credential)); }
std::string text_of(const fleet::Event& event) { return format::document(format::to_json(event)); }

Result<ProjectRoot> project_root_of(const Entry& entry) {
  return read_entry(entry, [](const json::value& value, const std::string& where) {
    const json::object& object = format::object_of(value, where);
    ProjectRoot root;
    root.version = whole_of(member(object, "version", where), where + ".version");
    root.cluster = format::text_of(member(object, "cluster", where), where + ".cluster");
    root.egress_preference =
        format::egress_preference_of(member(object, "egress_preference", where), where + ".egress_preference");
    const std::string list = where + ".deployments";
    for (const auto& [name, version] : format::object_of(member(object, "deployments", where), list))
      root.deployments.emplace(DeploymentId(std::string(name)), whole_of(version, list));
    return root;
  });
}
Result<Counters> counters_of(const Entry& entry) {
  return read_entry(entry, [](const json::value& value, const std::string& where) {
    const json::object& object = format::object_of(value, where);
    return Counters{whole_of(member(object, "next_generation", where), where + ".next_generation"),
                    whole_of(member(object, "next_event", where), where + ".next_event")};
  });
}
Result<Leader> leader_of(const Entry& entry) {
  return read_entry(entry, [](const json::value& value, const std::string& where) {
    const json::object& object = format::object_of(value, where);
    return Leader{format::text_of(member(object, "server", where), where + ".server"),
                  whole_of(member(object, "epoch", where), where + ".epoch")};
  });
}
Result<std::vector<fleet::Assigned>> assigned_of(const Entry& entry) {
  return read_entry(entry, [](const json::value& value, const std::string& where) {
    return format::entries_of(member(format::object_of(value, where), "assigned", where), where + ".assigned",
                              format::assigned_of);
  });
}
Result<fleet::Wanted> wanted_of(const Entry& entry) { return read_entry(entry, format::wanted_of); }
Result<fleet::NodeRecord> node_record_of(const Entry& entry) { return read_entry(entry, format::node_record_of); }
Result<fleet::Credential> credential_of(const Entry& entry) { return read_entry(entry, format::credential_of); }
Result<fleet::Event> event_of(const Entry& entry) { return read_entry(entry, format::event_of); }

}  // namespace berth::store
