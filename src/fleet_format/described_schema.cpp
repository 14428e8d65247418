#include "fleet_format/described_schema.hpp"

#include <boost/json.hpp>
#include <string>

#include "deployment/spec_description.hpp"
#include "fleet/endpoints_description.hpp"
#include "fleet/requests_description.hpp"
#include "fleet_format/described_json.hpp"

namespace berth::format {
namespace {

namespace json = boost::json;

// The name of a noun with its own schema; others are written inline.
template <class Noun>
constexpr const char* schema_name = nullptr;
template <>
constexpr const char* schema_name<DeploymentSpec> = "Spec";
template <>
constexpr const char* schema_name<Probe> = "Probe";
template <>
constexpr const char* schema_name<fleet::Traffic> = "Traffic";
template <>
constexpr const char* schema_name<fleet::RequestCounts> = "RequestCounts";
template <>
constexpr const char* schema_name<fleet::RequestCandidate> = "RequestCandidate";
template <>
constexpr const char* schema_name<fleet::RequestRecord> = "RequestRecord";

template <world::Described Noun>
json::object schema_of();

json::object list_of(json::object items) { return {{"type", "array"}, {"items", std::move(items)}}; }

template <class Value>
json::object value_schema(const world::FieldRules& rules) {
  using namespace detail;
  if constexpr (std::same_as<Value, EgressPreference>) {
    return list_of({{"type", "object"},
                    {"required", json::array{"provider", "key", "nodes"}},
                    {"properties",
                     {{"provider", value_schema<Provider>(rules)},
                      {"key", value_schema<KeyRef>(rules)},
                      {"nodes", value_schema<std::vector<std::string>>(rules)}}},
                    {"additionalProperties", false}});
  } else if constexpr (world::Described<Value>) {
    if constexpr (schema_name<Value> != nullptr)
      return {{"$ref", std::string("#/components/schemas/") + schema_name<Value>}};
    else
      return schema_of<Value>();
  } else if constexpr (std::is_enum_v<Value>) {
    json::array spellings;
    for (const Value word : world::words<Value>) spellings.emplace_back(to_string(word));
    return {{"type", "string"}, {"enum", std::move(spellings)}};
  } else if constexpr (std::same_as<Value, KeyRef>) {
    return {{"type", "string"}, {"description", "env:NAME or file:PATH"}};
  } else if constexpr (std::same_as<Value, bool>) {
    return {{"type", "boolean"}};
  } else if constexpr (std::same_as<Value, Duration> || std::same_as<Value, double>) {
    return {{"type", "number"}};
  } else if constexpr (std::unsigned_integral<Value>) {
    json::object schema{{"type", "integer"}};
    if (rules.least > 0) schema["minimum"] = rules.least;
    if (rules.most < std::numeric_limits<Value>::max()) schema["maximum"] = rules.most;
    return schema;
  } else if constexpr (is_optional<Value>) {
    return value_schema<typename Value::value_type>(rules);
  } else if constexpr (is_map<Value>) {
    return {{"type", "object"}, {"additionalProperties", value_schema<typename Value::mapped_type>(rules)}};
  } else if constexpr (is_list<Value>) {
    return list_of(value_schema<typename Value::value_type>(rules));
  } else {
    return {{"type", "string"}};
  }
}

template <world::Described Noun>
json::object schema_of() {
  json::array required;
  json::object properties;
  world::for_each_field<Noun>(
      [&](const auto& field, const auto& owner) {
        if (field.is_required) required.emplace_back(field.name);
        properties[field.name] = value_schema<std::remove_cvref_t<decltype(owner.*field.member)>>(field);
      },
      Noun());
  json::object schema{{"type", "object"}};
  if (!required.empty()) schema["required"] = std::move(required);
  schema["properties"] = std::move(properties);
  schema["additionalProperties"] = false;
  return schema;
}

}  // namespace

json::object described_schemas() {
  return {{"Spec", schema_of<DeploymentSpec>()},
          {"Probe", schema_of<Probe>()},
          {"Project", schema_of<Project>()},
          {"Traffic", schema_of<fleet::Traffic>()},
          {"CallerTraffic", schema_of<fleet::CallerTraffic>()},
          {"ServedDeployment", schema_of<fleet::ServedDeployment>()},
          {"RequestCounts", schema_of<fleet::RequestCounts>()},
          {"RequestCandidate", schema_of<fleet::RequestCandidate>()},
          {"RequestRecord", schema_of<fleet::RequestRecord>()},
          {"GatewayReport", schema_of<fleet::GatewayReport>()},
          {"RouteAnswer", schema_of<fleet::RouteAnswer>()}};
}

}  // namespace berth::format
