#include "format/record.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "deployment/identifiers.hpp"
#include "format/inventory_json.hpp"
#include "format/json_reading.hpp"
#include "inventory/device_description.hpp"
#include "world/printable.hpp"
#include "world/wall_time.hpp"

namespace berth::format {

namespace json = boost::json;

namespace {

// The most devices in a pool, and thus in a group.
constexpr std::size_t devices_max = 4096;

// The shortest text that reads back as the same number. Stored as text because the JSON
// parser rounds, and a share of a device's memory would change by a byte.
std::string exact_text(double number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}
double exact_number_of(const json::value& value, const std::string& where) {
  const std::string text = text_of(value, where);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number))
    throw JsonError{where + " is not a number written as text"};
  return number;
}

std::uint16_t class_of(const json::value& value, const std::string& where) {
  return static_cast<std::uint16_t>(number_of(value, std::numeric_limits<std::uint16_t>::max(), where));
}
DeviceId id_of(const json::value& value, const std::string& where) {
  std::string text = text_of(value, where);
  if (text.empty()) throw JsonError{where + " is empty"};
  return DeviceId(std::move(text));
}
std::vector<DeviceId> ids_of(const json::value& value, const std::string& where) {
  std::vector<DeviceId> ids;
  for (const json::value& entry : array_of(value, where)) ids.push_back(id_of(entry, where));
  return ids;
}
json::array ids_to_json(const std::vector<DeviceId>& ids) {
  json::array out;
  for (const DeviceId& id : ids) out.emplace_back(id.text());
  return out;
}

// An unknown key may have influenced the decision, so refuse the record.
void check_keys(const json::object& object, std::initializer_list<std::string_view> known, const std::string& where) {
  for (const auto& entry : object) {
    if (std::find(known.begin(), known.end(), std::string_view(entry.key())) == known.end())
      throw JsonError{where + " has a key \"" + std::string(entry.key()) + "\", which is not known"};
  }
}

}  // namespace

json::object requirements_to_json(const Requirements& requirements) {
  json::object out{{"memory_bytes_min", requirements.memory_bytes_min}};
  if (requirements.memory_share) out["memory_share"] = exact_text(*requirements.memory_share);
  if (requirements.capability_min) out["capability_min"] = to_string(*requirements.capability_min);
  if (requirements.priority) out["priority"] = to_string(*requirements.priority);
  if (!requirements.backends.empty())
    out["backends"] = json::array(requirements.backends.begin(), requirements.backends.end());
  if (!requirements.features.empty())
    out["features"] = json::array(requirements.features.begin(), requirements.features.end());
  json::object labels;
  for (const auto& [name, value] : requirements.labels) labels[name] = value;
  if (!labels.empty()) out["labels"] = std::move(labels);
  if (!requirements.only.empty()) out["only"] = ids_to_json(requirements.only);
  if (!requirements.avoid.empty()) out["avoid"] = ids_to_json(requirements.avoid);
  if (!requirements.prefer.empty()) out["prefer"] = ids_to_json(requirements.prefer);
  if (requirements.near) out["near"] = requirements.near->text();
  if (requirements.exclusive) out["exclusive"] = true;
  if (requirements.whole) out["whole"] = true;
  out["cost"] = exact_text(requirements.cost);
  out["work_class"] = requirements.work_class;
  return out;
}

Requirements requirements_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  check_keys(object,
             {"memory_bytes_min", "memory_share", "capability_min", "priority", "backend", "backends", "features",
              "labels", "only", "avoid", "prefer", "near", "exclusive", "whole", "cost", "work_class"},
             where);
  Requirements requirements;
  requirements.memory_bytes_min = optional_member(object, "memory_bytes_min", where, whole_of).value_or(0);
  requirements.memory_share = optional_member(object, "memory_share", where, exact_number_of);
  if (requirements.memory_share && !(*requirements.memory_share > 0 && *requirements.memory_share <= 1))
    throw JsonError{where + ".memory_share is not above 0 and at most 1"};
  requirements.capability_min = optional_member(object, "capability_min", where, capability_of);
  requirements.priority = optional_member(object, "priority", where, [](const json::value& v, const std::string& at) {
    return word_of(v, {Priority::low, Priority::normal, Priority::high}, at);
  });
  requirements.backends = optional_member(object, "backends", where, texts_of).value_or(std::vector<std::string>{});
  // Until version 2, a request named at most one back end.
  if (const auto backend = optional_member(object, "backend", where, text_of)) requirements.backends = {*backend};
  for (std::string& feature : optional_member(object, "features", where, texts_of).value_or(std::vector<std::string>{}))
    requirements.features.insert(std::move(feature));
  requirements.labels =
      optional_member(object, "labels", where, labels_of).value_or(std::map<std::string, std::string>{});
  requirements.only = optional_member(object, "only", where, ids_of).value_or(std::vector<DeviceId>{});
  requirements.avoid = optional_member(object, "avoid", where, ids_of).value_or(std::vector<DeviceId>{});
  requirements.prefer = optional_member(object, "prefer", where, ids_of).value_or(std::vector<DeviceId>{});
  requirements.near = optional_member(object, "near", where, id_of);
  requirements.exclusive = optional_member(object, "exclusive", where, bool_of).value_or(false);
  requirements.whole = optional_member(object, "whole", where, bool_of).value_or(false);
  requirements.cost = optional_member(object, "cost", where, exact_number_of).value_or(1.0);
  requirements.work_class = optional_member(object, "work_class", where, class_of).value_or(0);
  return requirements;
}

namespace {

json::object to_json(const DecisionRecord::Device& device) {
  const DeviceView& view = device.view;
  json::object out{{"info", device_info_to_json(device.info)}, {"id_order", view.id_order}};
  const auto put = [&](std::string_view key, const OptionalU64& value) {
    if (value) out[key] = *value;
  };
  out["in_flight"] = view.in_flight;
  out["backlog_ns"] = view.backlog_ns;
  out["memory_bytes_promised"] = view.memory_bytes_promised;
  out["charged_total"] = view.charged_total;
  out["holders"] = view.holders;
  out["held_exclusively"] = view.held_exclusively;
  if (view.used_by_others) out["used_by_others"] = true;
  if (view.kept_for_waiting) out["kept_for_waiting"] = true;
  if (view.other_processes > 0) out["other_processes"] = view.other_processes;
  put("memory_bytes_free", view.memory_bytes_free);
  put("active_streams", view.active_streams);
  put("queue_depth", view.queue_depth);
  out["sample"] = to_string(view.sample);
  put("unit_cost_ns", view.unit_cost_ns);
  out["measurements"] = view.measurements;
  out["weight_milli"] = view.weight_milli;
  out["intent"] = to_string(view.intent);
  out["health"] = to_string(view.health);
  return out;
}

DecisionRecord::Device recorded_device_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  check_keys(object,
             {"info",
              "id_order",
              "in_flight",
              "backlog_ns",
              "memory_bytes_promised",
              "charged_total",
              "holders",
              "held_exclusively",
              "used_by_others",
              "kept_for_waiting",
              "other_processes",
              "memory_bytes_free",
              "active_streams",
              "queue_depth",
              "sample",
              "unit_cost_ns",
              "measurements",
              "weight_milli",
              "intent",
              "health"},
             where);
  DecisionRecord::Device device;
  device.info = device_info_of(member(object, "info", where), where + ".info");
  DeviceView& view = device.view;
  const auto need = [&](std::string_view key, auto take) {
    return take(member(object, key, where), where + "." + std::string(key));
  };
  const auto unless_unknown = [&](std::string_view key) {
    return OptionalU64(optional_member(object, key, where, whole_of));
  };
  view.id_order = need("id_order", small_of);
  view.in_flight = need("in_flight", small_of);
  view.backlog_ns = need("backlog_ns", whole_of);
  view.memory_bytes_promised = need("memory_bytes_promised", whole_of);
  view.charged_total = need("charged_total", whole_of);
  view.holders = need("holders", small_of);
  view.held_exclusively = need("held_exclusively", bool_of);
  // Absent in version 1.
  view.used_by_others = optional_member(object, "used_by_others", where, bool_of).value_or(false);
  view.kept_for_waiting = optional_member(object, "kept_for_waiting", where, bool_of).value_or(false);
  view.other_processes = optional_member(object, "other_processes", where, small_of).value_or(0);
  view.memory_bytes_free = unless_unknown("memory_bytes_free");
  view.active_streams = unless_unknown("active_streams");
  view.queue_depth = unless_unknown("queue_depth");
  view.unit_cost_ns = unless_unknown("unit_cost_ns");
  view.measurements = need("measurements", small_of);
  view.weight_milli = need("weight_milli", small_of);
  if (view.weight_milli == 0) throw JsonError{where + ".weight_milli is zero"};
  view.sample = word_of(member(object, "sample", where), {SampleState::unknown, SampleState::fresh, SampleState::stale},
                        where + ".sample");
  view.intent = word_of<Intent>(member(object, "intent", where), world::words<Intent>, where + ".intent");
  view.health = word_of<Health>(member(object, "health", where), world::words<Health>, where + ".health");
  return device;
}

// Reads a text that must not contain control characters.
std::string printable_of(const json::value& value, const std::string& where) {
  std::string text = text_of(value, where);
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    throw JsonError{where + " holds control characters"};
  return text;
}
void check_printable(const json::value& value, const std::string& where) {
  if (value.is_string()) printable_of(value, where);
  if (value.is_array()) {
    for (const json::value& entry : value.get_array()) check_printable(entry, where);
  }
  if (!value.is_object()) return;
  for (const auto& entry : value.get_object()) {
    printable_of(json::value(json::string_view(entry.key())), where);
    check_printable(entry.value(), where + "." + std::string(entry.key()));
  }
}

// Applied when writing: names of commands, features and devices may contain any bytes,
// and the record must stay readable.
json::value escaped(const json::value& value) {
  if (value.is_string()) return json::value(world::printable(std::string_view(value.get_string())));
  if (value.is_array()) {
    json::array out;
    for (const json::value& entry : value.get_array()) out.push_back(escaped(entry));
    return out;
  }
  if (!value.is_object()) return value;
  json::object out;
  for (const auto& entry : value.get_object()) out[world::printable(entry.key())] = escaped(entry.value());
  return out;
}

struct Newer {};
struct Edited {};

// Members in the order of their names, so that reformatting the record does not change
// the checksum.
void put_canonical(std::string& out, const json::value& value) {
  if (value.is_array()) {
    out += '[';
    for (const json::value& entry : value.get_array()) {
      put_canonical(out, entry);
      out += ',';
    }
    out += ']';
  } else if (value.is_object()) {
    std::map<std::string_view, const json::value*> members;
    for (const auto& entry : value.get_object()) members.emplace(entry.key(), &entry.value());
    out += '{';
    for (const auto& [key, member] : members) {
      out += json::serialize(json::string_view(key)) + ':';
      put_canonical(out, *member);
      out += ',';
    }
    out += '}';
  } else {
    out += json::serialize(value);
  }
}

// FNV-1a of the record in canonical form, without the members that `berth why --json` adds.
std::string check_of(json::object record) {
  for (const char* added : {"check", "explanation", "changes"}) record.erase(added);
  std::string text;
  put_canonical(text, record);
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

DecisionRecord record_of(const json::value& value) {
  const std::string where = "the record";
  const json::object& object = object_of(value, where);
  const std::uint64_t version = whole_of(member(object, "version", where), where + ".version");
  if (version > record_version) throw Newer{};
  if (version == 0) throw JsonError{where + " has version " + std::to_string(version)};
  check_keys(object,
             {"version", "id", "wall_time_us", "time", "verb", "program", "waited", "limit", "policy", "ticket",
              "hints", "count", "devices", "links", "outcome", "check", "explanation", "changes"},
             where);
  check_printable(value, where);
  DecisionRecord record;
  const auto need = [&](std::string_view key, auto take) {
    return take(member(object, key, where), where + "." + std::string(key));
  };
  record.id = need("id", text_of);
  if (!deployment::is_name(record.id)) throw JsonError{where + ".id is not a name"};
  record.wall_time_us = need("wall_time_us", whole_of);
  record.verb = need("verb", text_of);
  record.program = need("program", text_of);
  record.waited = optional_member(object, "waited", where, bool_of).value_or(false);
  record.limit = optional_member(object, "limit", where, text_of).value_or("");
  record.policy = need("policy", text_of);
  record.ticket = need("ticket", whole_of);
  record.requirements = need("hints", requirements_of);
  record.count = need("count", [](const json::value& v, const std::string& at) {
    return static_cast<std::size_t>(number_of(v, devices_max, at));
  });
  if (record.count == 0) throw JsonError{where + ".count is zero"};

  const json::array& devices = need("devices", array_of);
  if (devices.size() > devices_max) throw JsonError{where + ".devices has too many entries"};
  std::vector<DeviceId> ids;
  for (const json::value& device : devices) {
    record.devices.push_back(recorded_device_of(device, where + ".devices[" + std::to_string(ids.size()) + "]"));
    ids.push_back(record.devices.back().info.id);
  }
  const std::set<DeviceId> distinct(ids.begin(), ids.end());
  if (distinct.size() != ids.size()) throw JsonError{where + ".devices names a device twice"};
  const json::array& links = need("links", array_of);
  for (const json::value& link : links)
    record.links.push_back(link_of(link, where + ".links[" + std::to_string(record.links.size()) + "]"));
  const auto topology = make_topology(std::move(ids), record.links);
  if (!topology) throw JsonError{where + ".links: " + topology.error().message};

  const json::object& outcome = need("outcome", object_of);
  const std::string at = where + ".outcome";
  check_keys(outcome, {"winners", "policy_misbehaved", "reason", "funnel"}, at);
  record.winners = ids_of(member(outcome, "winners", at), at + ".winners");
  for (const DeviceId& id : record.winners) {
    if (!distinct.contains(id))
      throw JsonError{at + ".winners names " + id.text() + ", which is not among the devices"};
  }
  record.policy_misbehaved = bool_of(member(outcome, "policy_misbehaved", at), at + ".policy_misbehaved");
  record.reason = text_of(member(outcome, "reason", at), at + ".reason");
  record.funnel = text_of(member(outcome, "funnel", at), at + ".funnel");
  // Checked last, so that errors in the file itself are reported first.
  const auto check = optional_member(object, "check", where, text_of);
  if (version > 1 && check != check_of(object)) throw Edited{};
  return record;
}

}  // namespace

std::vector<DeviceView> DecisionRecord::views() const {
  std::vector<DeviceView> out;
  for (const Device& device : devices) {
    out.push_back(device.view);
    out.back().info = &device.info;
  }
  return out;
}

Topology DecisionRecord::topology() const {
  std::vector<DeviceId> ids;
  for (const Device& device : devices) ids.push_back(device.info.id);
  return make_topology(std::move(ids), links).value_or(Topology{});
}

json::object record_to_json(const DecisionRecord& record) {
  json::array devices;
  for (const DecisionRecord::Device& device : record.devices) devices.push_back(to_json(device));
  json::object out{{"version", record_version},
                   {"id", record.id},
                   {"wall_time_us", record.wall_time_us},
                   {"time", world::utc_text(record.wall_time_us)},
                   {"verb", record.verb},
                   {"program", record.program},
                   {"policy", record.policy},
                   {"ticket", record.ticket},
                   {"hints", requirements_to_json(record.requirements)},
                   {"count", record.count},
                   {"devices", std::move(devices)},
                   {"links", links_to_json(record.links)},
                   {"outcome",
                    {{"winners", ids_to_json(record.winners)},
                     {"policy_misbehaved", record.policy_misbehaved},
                     {"reason", record.reason},
                     {"funnel", record.funnel}}}};
  if (record.waited) out["waited"] = true;
  if (!record.limit.empty()) out["limit"] = record.limit;
  out = escaped(out).get_object();
  out["check"] = check_of(out);
  return out;
}

Result<DecisionRecord> read_record(std::string_view text, std::string_view filename) {
  const std::string advice = "give a file that berth pick or berth run has recorded, or berth why --json has printed";
  const auto parsed = parse_json(text, filename, advice);
  if (!parsed) return parsed.error();
  try {
    return record_of(*parsed);
  } catch (const JsonError& error) {
    return Error{ErrorCode::invalid_argument, std::string(filename) + " is not the record of a decision: " + error.what,
                 advice};
  } catch (const Edited&) {
    return Error{ErrorCode::invalid_argument, std::string(filename) + " was edited after the decision was recorded",
                 "give the record as it was; to try other values, see berth pick"};
  } catch (const Newer&) {
    return Error{ErrorCode::not_supported, std::string(filename) + " was recorded by a newer version of berth",
                 "read it with that version"};
  }
}

void refuse_for_limit(Explanation& explanation) {
  explanation.winners.clear();
  explanation.winner.reset();
  explanation.runner_up.reset();
  explanation.funnel.push_back({"within the limits of the user", 0});
}

Result<Explanation> decide_again(const DecisionRecord& record) {
  const auto policy = policy_named(record.policy);
  if (!policy) return policy.error();
  const std::vector<DeviceView> views = record.views();
  Explanation explanation;
  choose_group(**policy, record.requirements, record.count, views, record.topology(), record.ticket, &explanation);
  if (!record.limit.empty()) refuse_for_limit(explanation);
  return explanation;
}

}  // namespace berth::format
