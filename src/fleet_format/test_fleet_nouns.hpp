// Random nouns of a fleet for tests, each from one seed. They have every field, also with values that no valid
// deployment has: what was written is read back as it was.
#pragma once

#include <concepts>
#include <string>
#include <type_traits>
#include <vector>

#include "berth/random.hpp"
#include "deployment/spec_description.hpp"
#include "fleet/endpoints_description.hpp"
#include "fleet/fleet.hpp"
#include "fleet/requests_description.hpp"
#include "fleet_format/described_json.hpp"

namespace berth::format {

inline std::string some_text(Random& random) {
  static const std::vector<std::string> texts{"",          "a",        "x y",  "\"quoted\\\"", "grün\n\t",
                                              "{port}",    "\x01\x7f", "/a/b", "日本",         std::string("\0z", 2),
                                              "</script>", "--flag=1", "0",    "true",         "\xf0\x9f\x9a\xa2"};
  return texts[random.below(texts.size())] + (random.below(3) ? "" : std::to_string(random.below(1000)));
}
inline bool some_bool(Random& random) { return random.below(2) == 0; }
inline std::uint64_t some_number(Random& random) { return random.next() >> random.below(64); }
inline std::uint32_t some_small(Random& random) {
  return static_cast<std::uint32_t>(random.next() >> (32 + random.below(32)));
}
inline Duration some_duration(Random& random) {
  return std::chrono::milliseconds(some_bool(random) ? random.below(100'000) : random.below(31'622'400'000));
}
template <class Make>
auto some(Random& random, Make&& make) -> std::optional<decltype(make(random))> {
  if (some_bool(random)) return std::nullopt;
  return make(random);
}
template <class Make>
auto several(Random& random, Make&& make) -> std::vector<decltype(make(random))> {
  std::vector<decltype(make(random))> out;
  for (std::uint64_t count = random.below(4); count > 0; --count) out.push_back(make(random));
  return out;
}
template <class Word>
Word some_word(Random& random, std::uint64_t count) {
  return static_cast<Word>(random.below(count));
}
inline std::map<std::string, std::string> some_labels(Random& random) {
  std::map<std::string, std::string> out;
  for (const std::string& key : several(random, some_text)) out[key] = some_text(random);
  return out;
}
inline KeyRef some_key(Random& random) {
  return KeyRef::parse(some_bool(random) ? "env:KEY_" + std::to_string(random.below(9)) : "file:/run/secrets/a")
      .value();
}
inline std::uint16_t some_port(Random& random) { return static_cast<std::uint16_t>(random.below(65536)); }
inline double some_cpus(Random& random) { return static_cast<double>(random.below(1'000'000)) / 1000; }

// Covers every field of a spec, so that the tests also read and write a new one.
template <class Value>
Value some_value(Random& random, const world::FieldRules& rules) {
  using namespace detail;
  if constexpr (is_optional<Value>) {
    if (some_bool(random)) return std::nullopt;
    return some_value<typename Value::value_type>(random, rules);
  } else if constexpr (world::Described<Value>) {
    Value noun;
    world::for_each_field<Value>(
        [&](const auto& field, Value& owner) {
          auto& target = owner.*field.member;
          target = some_value<std::remove_cvref_t<decltype(target)>>(random, field);
        },
        noun);
    return noun;
  } else if constexpr (std::is_enum_v<Value>) {
    return some_word<Value>(random, world::words<Value>.size());
  } else if constexpr (std::same_as<Value, Runtime>) {
    return runtime_from(some_bool(random) ? "python:x" : "vllm");
  } else if constexpr (std::same_as<Value, Capability>) {
    return {static_cast<std::int32_t>(random.below(13)), static_cast<std::int32_t>(random.below(10))};
  } else if constexpr (std::same_as<Value, KeyRef>) {
    return some_key(random);
  } else if constexpr (std::same_as<Value, Duration>) {
    return some_duration(random);
  } else if constexpr (std::same_as<Value, bool>) {
    return some_bool(random);
  } else if constexpr (std::same_as<Value, double>) {
    return some_cpus(random);
  } else if constexpr (std::unsigned_integral<Value>) {
    return static_cast<Value>(random.next() >> random.below(64));
  } else if constexpr (is_map<Value>) {
    Value out;
    for (std::string& key : several(random, some_text))
      out.emplace(std::move(key), some_value<typename Value::mapped_type>(random, rules));
    return out;
  } else if constexpr (is_list<Value>) {
    using Entry = typename Value::value_type;
    Value out;
    if constexpr (world::Described<Entry> || std::unsigned_integral<Entry>)
      out = several(random, [&](Random& of) { return some_value<Entry>(of, rules); });
    else
      for (std::string& text : several(random, some_text)) out.insert(out.end(), Entry(std::move(text)));
    return out;
  } else {
    return Value(rules.text == world::Text::name || is_id<Value> ? "d" + std::to_string(random.below(1000))
                                                                 : some_text(random));
  }
}

inline DeploymentSpec some_spec(Random& random) { return some_value<DeploymentSpec>(random, {}); }

inline EgressPreference some_preference(Random& random) {
  EgressPreference out;
  for (std::uint64_t count = random.below(3); count > 0; --count)
    out[{some_word<Provider>(random, 5), some_key(random)}] =
        several(random, [](Random& r) { return NodeId("n" + std::to_string(r.below(9))); });
  return out;
}

inline fleet::DesiredDeployment some_wanted(Random& random) {
  return {some_spec(random), some_number(random), several(random, some_spec), some(random, some_text)};
}

inline fleet::Assigned some_assigned(Random& random) {
  fleet::Assigned out;
  out.place.deployment = DeploymentId("d" + std::to_string(random.below(9)));
  out.place.replica = some_small(random);
  out.place.node = NodeId("n" + std::to_string(random.below(9)));
  for (std::uint64_t i = random.below(4); i > 0; --i) out.place.devices.emplace_back("GPU-" + std::to_string(9 - i));
  out.place.memory_bytes = some_number(random);
  out.place.exclusive = some_bool(random);
  out.generation = some_number(random);
  out.revision = some_number(random);
  out.stopping = some_bool(random);
  out.since_ms = some_number(random);
  return out;
}

inline fleet::ReplicaReport some_replica_report(Random& random) {
  return {{DeploymentId("d" + std::to_string(random.below(9))), some_small(random), some_number(random)},
          some_word<fleet::ReplicaState>(random, 8),
          some_text(random),
          some_small(random),
          some(random, some_port),
          some_text(random),
          some(random, some_number),
          some(random, some_number),
          some(random, some_number)};
}

inline NodeView some_node(Random& random) {
  NodeView node;
  node.id = NodeId("n" + std::to_string(random.below(9)));
  node.labels = some_labels(random);
  for (std::string& taint : several(random, some_text)) node.taints.insert(std::move(taint));
  node.egress = some_bool(random);
  node.cpus = some(random, some_small);
  node.memory_bytes = some(random, some_number);
  node.intent = some_word<Intent>(random, 3);
  node.health = some_word<Health>(random, 5);
  for (std::uint64_t i = 0, count = random.below(4); i < count; ++i) {
    NodeDevice device;
    device.info.id = DeviceId("GPU-" + std::to_string(i));
    device.info.backend = "cuda";
    device.info.name = some_text(random);
    device.info.ordinal = static_cast<int>(i);
    device.info.memory_bytes_total = some(random, [](Random& r) { return some_number(r) >> 14; });  // up to 1 PiB
    device.info.memory_domain = device.info.fault_domain = device.info.id.text();
    device.info.concurrency = 1 + some_small(random) / 2;
    device.info.labels = some_labels(random);
    device.memory_bytes_used = some(random, some_number);
    device.memory_bytes_promised = some_number(random);
    device.holders = some_small(random);
    device.held_exclusively = some_bool(random);
    device.other_processes = some_small(random);
    device.used_by_others = some_bool(random);
    device.answers = some_bool(random);
    device.intent = some_word<Intent>(random, 3);
    device.health = some_word<Health>(random, 5);
    if (i > 0)
      node.links.push_back(
          {DeviceId("GPU-0"), device.info.id, LinkKind::nvlink, some_small(random), some(random, some_bool)});
    node.devices.push_back(std::move(device));
  }
  return node;
}

inline std::uint64_t some_amount(Random& random) { return random.below(1ULL << 50); }

inline fleet::ReportedDevice some_reported_device(Random& random) {
  fleet::ReportedDevice device;
  NodeView node = some_node(random);
  if (!node.devices.empty()) device.info = node.devices.front().info;
  device.info.id = DeviceId("GPU-0");
  device.info.backend = "cuda";
  device.info.memory_bytes_total = some_amount(random);
  if (device.info.memory_domain.empty()) device.info.memory_domain = "GPU-0";
  if (device.info.fault_domain.empty()) device.info.fault_domain = "GPU-0";
  device.health = some_word<Health>(random, 5);
  device.intent = some_word<Intent>(random, 3);
  device.intent_by = some_text(random);
  device.held_exclusively = some_bool(random);
  device.holders = several(random, [](Random& r) {
    return fleet::ReportedHolder{some_bool(r) ? fleet::HolderKind::job : fleet::HolderKind::foreign, some_text(r),
                                 some_text(r), some(r, some_amount)};
  });
  device.memory_bytes_free = some(random, some_amount);
  device.memory_bytes_promised = some(random, some_amount);
  device.ecc_corrected = some(random, some_amount);
  device.utilization = some(random, some_cpus);
  device.temperature_celsius = -3.5;
  device.throttle_reasons = some(random, [](Random& r) { return several(r, some_text); });
  device.processes = some(random, [](Random& r) {
    return several(r, [](Random& of) {
      return fleet::ReportedProcess{of.below(9),           ProcessKind::berth, some_text(of),
                                    some(of, some_amount), of.below(9),        some_bool(of)};
    });
  });
  device.events = several(random, [](Random& r) {
    return fleet::ReportedDeviceEvent{DeviceEvent::Kind::xid, some(r, some_amount), some_text(r), some_amount(r)};
  });
  device.error = some_text(random);
  return device;
}

inline fleet::ReportedLease some_reported_lease(Random& random) {
  fleet::ReportedLease lease;
  lease.kind = some_bool(random) ? fleet::LeaseKind::job : fleet::LeaseKind::lease;
  lease.name = some_text(random);
  lease.id = some_text(random);
  lease.user = some_text(random);
  lease.command = some_text(random);
  lease.state = some_bool(random) ? fleet::LeaseState::waiting : fleet::LeaseState::running;
  lease.devices = {"GPU-0"};
  lease.exclusive = some_bool(random);
  lease.age_s = some_cpus(random);
  lease.memory_bytes = some(random, some_amount);
  lease.place = some(random, some_amount);
  lease.devices_wanted = some(random, some_amount);
  return lease;
}

inline fleet::NodeReport some_node_report(Random& random) {
  fleet::NodeReport out;
  out.node = some_node(random);
  out.agent = some_text(random);
  out.version = some_text(random);
  out.boot = some_text(random);
  out.agent_start_monotonic_ms = some_number(random);
  out.now_ms = some_number(random);
  out.number = some_number(random);
  out.replicas = several(random, some_replica_report);
  out.epoch = some_number(random);
  out.orders_number = some_number(random);
  if (some_bool(random)) out.devices.push_back(some_reported_device(random));
  if (some_bool(random)) out.leases.push_back(some_reported_lease(random));
  return out;
}

inline fleet::NodeOrders some_orders(Random& random) {
  return {some_number(random), some_number(random),
          several(random, [](Random& r) { return fleet::ReplicaOrder{some_assigned(r), some_spec(r)}; }),
          several(random, [](Random& r) { return fleet::GatewayOrder{some_text(r), some_text(r), some_text(r)}; })};
}

inline fleet::GatewayView some_gateway_view(Random& random) { return some_value<fleet::GatewayView>(random, {}); }

inline fleet::GatewayReport some_gateway_report(Random& random) { return some_value<fleet::GatewayReport>(random, {}); }

inline fleet::Event some_event(Random& random) {
  return {some_number(random), some_number(random), some_word<fleet::EventKind>(random, 14),
          some_text(random),   some_text(random),   some_text(random)};
}

inline fleet::Credential some_credential(Random& random) {
  fleet::Credential credential{
      some_text(random),         some_word<fleet::Role>(random, 7),
      some_text(random),         some(random, [](Random& r) { return NodeId("n" + std::to_string(r.below(9))); }),
      some(random, some_number), some_text(random),
      some_number(random)};
  credential.for_gateway = random.below(2) == 1;
  credential.name = some(random, some_text);
  credential.address = some(random, some_text);
  credential.deployment = some(random, [](Random& r) { return DeploymentId("d" + std::to_string(r.below(9))); });
  credential.weight = static_cast<std::uint32_t>(random.below(5));
  credential.concurrent_max = some(random, [](Random& r) { return static_cast<std::uint32_t>(r.below(99)); });
  credential.may_explain = random.below(2) == 0;
  return credential;
}

inline fleet::NodeRecord some_record(Random& random) {
  fleet::NodeRecord record{NodeId("n" + std::to_string(random.below(9))),
                           some_word<Intent>(random, 3),
                           some_text(random),
                           some_text(random),
                           some_text(random),
                           some_number(random),
                           {}};
  for (std::uint64_t left = random.below(3); left > 0; --left)
    record.devices[DeviceId("d" + std::to_string(left))] = {some_word<Intent>(random, 3), some_text(random),
                                                            some_text(random)};
  return record;
}

}  // namespace berth::format
