#include "fleet_format/spec_json.hpp"

#include <boost/json.hpp>

#include "deployment/spec_description.hpp"
#include "fleet_format/described_json.hpp"

namespace berth::format {

namespace json = boost::json;

namespace {
struct EgressEntry {
  Provider provider = Provider::http;
  std::optional<KeyRef> key;
  std::vector<NodeId> nodes;
};
}  // namespace

}  // namespace berth::format

namespace berth::world {

template <>
inline constexpr auto fields<format::EgressEntry> = std::tuple{
    Field{"provider", &format::EgressEntry::provider}.required(), Field{"key", &format::EgressEntry::key}.required(),
    Field{"nodes", &format::EgressEntry::nodes}.required()};

}  // namespace berth::world

namespace berth::format {

json::value JsonOf<EgressPreference>::encode(const EgressPreference& preference) {
  json::array out;
  for (const auto& [route, nodes] : preference)
    out.push_back(noun_to_json(EgressEntry{route.provider, route.key, nodes}));
  return out;
}

EgressPreference JsonOf<EgressPreference>::decode(const json::value& value, const std::string& where,
                                                  const world::FieldRules&, From from) {
  EgressPreference out;
  std::size_t index = 0;
  for (const json::value& given : array_of(value, where)) {
    const std::string at = where + "[" + std::to_string(index++) + "]";
    EgressEntry entry = noun_of<EgressEntry>(given, at, from);
    if (!out.emplace(EgressRoute{entry.provider, *std::move(entry.key)}, std::move(entry.nodes)).second)
      throw JsonError{at + ": this provider and key already have a preference"};
  }
  return out;
}

json::object spec_to_json(const DeploymentSpec& spec) { return noun_to_json(spec); }

DeploymentSpec spec_of(const json::value& value, const std::string& where) {
  return noun_of<DeploymentSpec>(value, where, From::request);
}

DeploymentSpec spec_in_record(const json::value& value, const std::string& where) {
  return noun_of<DeploymentSpec>(value, where, From::record);
}

json::value egress_preference_to_json(const EgressPreference& preference) {
  return JsonOf<EgressPreference>::encode(preference);
}

EgressPreference egress_preference_of(const json::value& value, const std::string& where) {
  return JsonOf<EgressPreference>::decode(value, where, {}, From::record);
}

json::object project_to_json(const Project& project) { return noun_to_json(project); }

Project project_of(const json::value& value, const std::string& where) {
  check_schema(object_of(value, where), where);
  return noun_of<Project>(value, where, From::request);
}

Result<Project> read_project_json(std::string_view text, std::string_view filename) {
  Project project = BERTH_TRY(read_document(text, std::string(filename), project_of));
  if (auto valid = validate(project); !valid) return std::move(valid).error();
  return project;
}

}  // namespace berth::format
