#include "store/records.hpp"

#include <boost/json.hpp>
#include <charconv>
#include <cinttypes>
#include <cstdio>

#include "deployment/spec_description.hpp"
#include "fleet_format/described_json.hpp"
#include "fleet_format/fleet_json.hpp"

namespace berth::world {

template <>
inline constexpr auto fields<store::ProjectRoot> =
    std::tuple{Field{"version", &store::ProjectRoot::version}.required(),
               Field{"cluster", &store::ProjectRoot::cluster}.required(),
               Field{"egress_preference", &store::ProjectRoot::egress_preference}.required(),
               Field{"deployments", &store::ProjectRoot::deployments}.required()};
template <>
inline constexpr auto fields<store::Counters> =
    std::tuple{Field{"next_generation", &store::Counters::next_generation}.required(),
               Field{"next_event", &store::Counters::next_event}.required()};
template <>
inline constexpr auto fields<store::Leader> =
    std::tuple{Field{"server", &store::Leader::server}.required(), Field{"epoch", &store::Leader::epoch}.required()};

}  // namespace berth::world

namespace berth::store {

namespace json = boost::json;

namespace {
std::string twenty_digits(std::uint64_t number) {
  char digits[21];
  std::snprintf(digits, sizeof digits, "%020" PRIu64, number);
  return digits;
}
template <class Number>
bool read_digits(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}
}  // namespace

namespace keys {
std::string deployment(const DeploymentId& name, std::uint64_t version) {
  return std::string(deployments) + name.text() + "/" + std::to_string(version);
}
std::string node(const NodeId& name) { return std::string(nodes) + name.text(); }
std::string assignments_of(const NodeId& node) { return std::string(assignments) + node.text(); }
std::string assigned_to(const NodeId& node) { return std::string(assigned) + node.text() + "/"; }
std::string incarnation(const fleet::Assigned& replica) {
  return assigned_to(replica.place.node) + name_of(replica.key()) + "/" + std::to_string(replica.generation);
}
std::optional<fleet::Assigned> incarnation_at(std::string_view key) {
  if (!key.starts_with(assigned)) return std::nullopt;
  key.remove_prefix(assigned.size());
  std::vector<std::string_view> words;
  for (std::size_t end = 0; end != std::string_view::npos; key.remove_prefix(std::min(end + 1, key.size()))) {
    end = key.find('/');
    words.push_back(key.substr(0, end));
    if (end == std::string_view::npos) break;
  }
  fleet::Assigned replica;
  if (words.size() != 4 || words[0].empty() || words[1].empty() || !read_digits(words[2], replica.place.replica) ||
      !read_digits(words[3], replica.generation))
    return std::nullopt;
  replica.place.node = NodeId(std::string(words[0]));
  replica.place.deployment = DeploymentId(std::string(words[1]));
  return replica;
}
std::string credential(std::string_view id) { return std::string(credentials) + std::string(id); }
std::string event(std::uint64_t id) { return std::string(events) + twenty_digits(id); }
std::string action(std::uint64_t id) { return std::string(actions) + twenty_digits(id); }
std::optional<std::uint64_t> action_at(std::string_view key) {
  std::uint64_t id = 0;
  if (!key.starts_with(actions) || !read_digits(key.substr(actions.size()), id)) return std::nullopt;
  return id;
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

template <class Noun>
Noun record_of(const json::value& value, const std::string& where) {
  return format::noun_of<Noun>(value, where, format::From::record);
}

}  // namespace

std::string text_of(const ProjectRoot& root) { return format::document(format::noun_to_json(root)); }
std::string text_of(const Counters& counters) { return format::document(format::noun_to_json(counters)); }
std::string text_of(const Leader& leader) { return format::document(format::noun_to_json(leader)); }
std::string text_of(const fleet::Assigned& assigned) { return format::document(format::to_json(assigned)); }
std::string head_text() { return format::document({}); }
std::string text_of(const fleet::DesiredDeployment& wanted) { return format::document(format::to_json(wanted)); }
std::string text_of(const fleet::NodeRecord& record) { return format::document(format::to_json(record)); }
std::string text_of(const fleet::Credential& credential) { return format::document(format::to_json(credential)); }
std::string text_of(const fleet::Event& event) { return format::document(format::to_json(event)); }

Result<ProjectRoot> project_root_of(const Entry& entry) { return read_entry(entry, record_of<ProjectRoot>); }
Result<Counters> counters_of(const Entry& entry) { return read_entry(entry, record_of<Counters>); }
Result<Leader> leader_of(const Entry& entry) { return read_entry(entry, record_of<Leader>); }
Result<fleet::Assigned> assigned_of(const Entry& entry) {
  return read_entry(entry, [](const json::value& value, const std::string& where) {
    fleet::Assigned replica = format::assigned_of(value, where);
    if (keys::incarnation(replica) != where) throw format::JsonError{where + " has another incarnation"};
    return replica;
  });
}
Result<fleet::DesiredDeployment> wanted_of(const Entry& entry) { return read_entry(entry, format::wanted_of); }
Result<fleet::NodeRecord> node_record_of(const Entry& entry) { return read_entry(entry, format::node_record_of); }
Result<fleet::Credential> credential_of(const Entry& entry) { return read_entry(entry, format::credential_of); }
Result<fleet::Event> event_of(const Entry& entry) { return read_entry(entry, format::event_of); }

}  // namespace berth::store
