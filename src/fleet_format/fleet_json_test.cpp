#include "fleet_format/fleet_json.hpp"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <functional>

#include "fleet_format/report_json.hpp"
#include "fleet_format/test_fleet_nouns.hpp"
#include "format/inventory_json.hpp"
#include "world/test_random_cases.hpp"

namespace berth::format {
namespace {

namespace json = boost::json;

template <class Make, class Read>
void expect_round_trip(Make&& make, Read&& take) {
  for (std::uint64_t seed = 0; seed < world::random_cases(300); ++seed) {
    SeededRandom random(seed);
    const auto noun = make(random);
    const std::string text = document(to_json(noun));
    const auto read = read_document(text, "it", take);
    ASSERT_TRUE(read) << seed << ": " << read.error().to_text() << "\n" << text;
    ASSERT_EQ(document(to_json(*read)), text) << seed;
    if constexpr (std::equality_comparable<decltype(noun)>) {
      ASSERT_TRUE(*read == noun) << seed << ": " << text;
    }
  }
}

TEST(FleetNouns, AnEventIsAboutItsSubjectTheDeploymentOfAReplicaAndANode) {
  for (const char* name : {"chat/0", "chat"}) EXPECT_TRUE(fleet::is_about("chat/0", name)) << name;
  for (const char* name : {"node/gpu-1", "gpu-1"}) EXPECT_TRUE(fleet::is_about("node/gpu-1", name)) << name;
  EXPECT_TRUE(fleet::is_about("chat", "chat"));
  for (const char* subject : {"chat-2/0", "chat/x", "chat/", "chatty", "gateway/chat", "token/t3"})
    EXPECT_FALSE(fleet::is_about(subject, "chat")) << subject;
  EXPECT_FALSE(fleet::is_about("chat/0", "chat/1"));
  EXPECT_FALSE(fleet::is_about("chat", "chat/0"));
  EXPECT_FALSE(fleet::is_about("node/gpu-1", "node"));
}

TEST(FleetJson, ReadingWhatWasWrittenGivesTheSame) {
  expect_round_trip(some_wanted, wanted_of);
  expect_round_trip(some_assigned, assigned_of);
  expect_round_trip(some_replica_report, replica_report_of);
  expect_round_trip(some_node_report, node_report_of);
  expect_round_trip(some_orders, node_orders_of);
  expect_round_trip(some_event, event_of);
  expect_round_trip(some_credential, credential_of);
  expect_round_trip(some_record, node_record_of);
}

TEST(FleetJson, AReportCarriesTheNodeAsPlacementNeedsIt) {
  for (std::uint64_t seed = 0; seed < world::random_cases(300); ++seed) {
    SeededRandom random(seed);
    const fleet::NodeReport report = some_node_report(random);
    const auto read = read_document(document(to_json(report)), "report", node_report_of);
    ASSERT_TRUE(read) << read.error().to_text();
    const NodeView &a = report.node, &b = read->node;
    EXPECT_EQ(std::tie(a.id, a.labels, a.taints, a.egress, a.cpus, a.memory_bytes, a.intent, a.health, a.links),
              std::tie(b.id, b.labels, b.taints, b.egress, b.cpus, b.memory_bytes, b.intent, b.health, b.links));
    ASSERT_EQ(a.devices.size(), b.devices.size());
    for (std::size_t i = 0; i < a.devices.size(); ++i) {
      const NodeDevice &x = a.devices[i], &y = b.devices[i];
      EXPECT_EQ(x.info, y.info);
      EXPECT_EQ(std::tie(x.memory_bytes_used, x.memory_bytes_promised, x.holders, x.held_exclusively, x.other_processes,
                         x.used_by_others, x.answers, x.intent, x.health),
                std::tie(y.memory_bytes_used, y.memory_bytes_promised, y.holders, y.held_exclusively, y.other_processes,
                         y.used_by_others, y.answers, y.intent, y.health));
    }
    EXPECT_EQ(
        std::tie(read->agent, read->version, read->boot, read->agent_start_monotonic_ms, read->now_ms, read->number,
                 read->epoch, read->orders_number, read->devices, read->leases, read->replicas),
        std::tie(report.agent, report.version, report.boot, report.agent_start_monotonic_ms, report.now_ms,
                 report.number, report.epoch, report.orders_number, report.devices, report.leases, report.replicas));
    // What the store keeps of it is a fleet file.
    const auto fleet = read_fleet_json(json::serialize(node_view_to_json(a)), "node.json");
    ASSERT_TRUE(fleet) << fleet.error().to_text();
    EXPECT_EQ(json::serialize(node_view_to_json(fleet->nodes.at(0))), json::serialize(node_view_to_json(a)));
  }
}

TEST(FleetJson, BadRowsOfAReportAreLeftOutAndNamed) {
  const std::string head = R"({"agent":"a","now_at_ms":1,"epoch":1,"revision":1,"replicas":[],)"
                           R"("inventory":{"node":{"name":"n"},"devices":[]},)";
  const auto read = [&](const std::string& lists) {
    return read_document(head + lists + "}", "the report", node_report_of).value();
  };
  const std::string good =
      R"({"id":"GPU-0","backend":"cuda","health":"healthy","holders":[{"kind":"job","name":"j1"}]})";
  EXPECT_EQ(read(R"("devices":[)" + good + "]").problem, "");
  for (const char* bad :
       {R"({"id":"GPU-1","backend":"cuda","holders":[null]})", R"({"backend":"cuda"})", R"(null)", R"(7)", R"("x")",
        R"({"id":{},"backend":"cuda"})", R"({"id":"GPU-1","backend":"cuda","health":"fine"})",
        R"({"id":"GPU-0","backend":"cuda"})", R"({"id":"GPU-1\u001b","backend":"cuda"})",
        R"({"id":"GPU-1","backend":"cuda","memory_bytes_free":1e300})",
        R"({"id":"GPU-1","backend":"cuda","utilization":"much"})",
        R"({"id":"GPU-1","backend":"cuda","utilisation":"much"})",
        R"({"id":"GPU-1","backend":"cuda","processes":[{"pid":1,"kind":"odd"}]})",
        R"({"id":"GPU-1","backend":"cuda","holders":[{"kind":"replica","name":null}]})"}) {
    const fleet::NodeReport report = read(R"("devices":[)" + good + "," + bad + "]");
    EXPECT_EQ(report.devices.size(), 1u) << bad;
    EXPECT_EQ(report.problem.find("1 of its devices is not valid and is not shown: "), 0u) << bad << report.problem;
  }
  EXPECT_EQ(read(R"("devices":{})").problem,
            "1 of its devices is not valid and is not shown: the report.devices is not a list");
  const fleet::NodeReport leases =
      read(R"("leases":[{"kind":"lease","name":"7","state":"running","devices":["GPU-0"],"node":"another"},)"
           R"({"kind":"replica","name":"7","state":"running","devices":[]},null,{}])");
  ASSERT_EQ(leases.leases.size(), 1u);
  EXPECT_EQ(json::serialize(to_json(leases.leases[0])).find("another"), std::string::npos) << "no row names a node";
  EXPECT_EQ(leases.problem.find("3 of its leases are not valid and are not shown: "), 0u) << leases.problem;
}

TEST(FleetJson, AReportOfAnEarlierVersionIsReadByItsNamesAndWrittenByOurs) {
  const auto read = read_document(
      R"({"agent":"a","now_at_ms":1,"epoch":1,"revision":1,"replicas":[],"inventory":{"node":{"name":"n"},"devices":[)"
      R"({"id":"GPU-0","backend":"cuda","memory_bytes_total":80,"memory_bytes_foreign":70}]},"devices":[)"
      R"({"id":"GPU-0","backend":"cuda","memory_bytes_foreign":7,"utilisation":0.25,"memory_utilisation":0.5}]})",
      "the report", node_report_of);
  ASSERT_TRUE(read) << read.error().to_text();
  EXPECT_EQ(read->node.devices.at(0).memory_bytes_used, 70u) << "by any process";
  const fleet::ReportedDevice& device = read->devices.at(0);
  EXPECT_EQ(std::tie(device.memory_bytes_foreign, device.utilization, device.memory_utilization),
            std::tuple(std::optional<std::uint64_t>(7), std::optional(0.25), std::optional(0.5)));
  const std::string written = document(to_json(*read));
  EXPECT_EQ(written.find("utilisation"), std::string::npos) << written;
  EXPECT_NE(written.find(R"("memory_bytes_used":70,"memory_bytes_free":10)"), std::string::npos) << written;
  EXPECT_NE(written.find(R"("memory_bytes_foreign":7,)"), std::string::npos) << written;
}

TEST(FleetJson, ListsOfAReportedDeviceEndAtTheirBounds) {
  const auto repeated = [](const std::string& entry, std::size_t count) {
    std::string all;
    for (std::size_t i = 0; i < count; ++i) all += (i ? "," : "") + entry;
    return "[" + all + "]";
  };
  const auto device = [&](const std::string& members) {
    return reported_device_of(json::parse(R"({"id":"GPU-0","backend":"cuda",)" + members + "}"), "it");
  };
  EXPECT_EQ(device(R"("holders":)" + repeated(R"({"kind":"job","name":"j"})", 300)).holders.size(), 256u);
  EXPECT_EQ(device(R"("processes":)" + repeated(R"({"pid":1,"kind":"own"})", 300)).processes->size(), 256u);
  EXPECT_EQ(device(R"("events":)" + repeated(R"({"kind":"xid","age_ms":1})", 300)).events.size(), 64u);
  const auto reasons =
      *device(R"("throttle_reasons":)" + repeated('"' + std::string(600, 'x') + '"', 300)).throttle_reasons;
  EXPECT_EQ(reasons, std::vector(64, std::string(497, 'x') + "..."));
  EXPECT_THROW(device(R"("processes":[{"pid":4294967296,"kind":"own"}])"), JsonError);
  EXPECT_THROW(device(R"("memory_bytes_free":1125899906842625)"), JsonError);
  EXPECT_THROW(device(R"("power_watts":1e15)"), JsonError);
  EXPECT_EQ(device(R"("temperature_celsius":-3.54321)").temperature_celsius, -3.54321) << "not rounded";
  const auto lease = [](const std::string& devices) {
    return reported_lease_of(json::parse(R"({"kind":"job","name":"j","state":"running","devices":)" + devices + "}"),
                             "it");
  };
  EXPECT_EQ(lease(repeated(R"("GPU-0")", 300)).devices.size(), 256u);
  EXPECT_THROW(lease('[' + ('"' + std::string(201, 'x')) + "\"]"), JsonError);
  EXPECT_THROW(lease(R"(["\u001b"])"), JsonError);
}

TEST(FleetJson, WhatAReportSaysIsCutAndItsDevicesAreLimited) {
  fleet::NodeReport report;
  report.node.id = NodeId("a");
  report.agent = report.version = report.boot = std::string(2000, 'x');
  fleet::ReplicaReport replica;
  replica.key = {DeploymentId("d"), 0, 1};
  replica.reason = replica.job = std::string(2000, 'x');
  report.replicas = {replica};
  const auto read = read_document(document(to_json(report)), "report", node_report_of);
  ASSERT_TRUE(read) << read.error().to_text();
  const fleet::ReplicaReport& only = read->replicas.at(0);
  for (const std::string& text : {read->agent, read->version, read->boot, only.reason, only.job})
    EXPECT_EQ(text, std::string(497, 'x') + "...");
  const auto is_read = [&](std::size_t count, std::size_t bytes) {
    report.node.devices.clear();
    for (std::size_t i = 0; i < count; ++i) {
      NodeDevice& device = report.node.devices.emplace_back();
      const std::string number = std::to_string(i);
      device.info.id = DeviceId(number + std::string(bytes - number.size(), 'x'));
      device.info.backend = "cuda";
    }
    return read_document(document(to_json(report)), "report", node_report_of).has_value();
  };
  EXPECT_TRUE(is_read(1024, 200));
  EXPECT_FALSE(is_read(1025, 10));
  EXPECT_FALSE(is_read(1, 201));
  report.node.devices[0].info.id = DeviceId("gpu");
  report.node.devices[0].info.memory_bytes_total = UINT64_MAX;
  EXPECT_FALSE(read_document(document(to_json(report)), "report", node_report_of)) << "sums would wrap";
}

TEST(FleetJson, WhatANewerVersionWroteIntoARecordIsKept) {
  const auto expect_kept = [](json::object object, auto take, std::initializer_list<std::string_view> parts) {
    const auto put = [](json::object& into) { into["later"] = json::object{{"a", json::array{1, "two", nullptr}}}; };
    put(object);
    for (const std::string_view part : parts) put(object.at(part).as_object());
    const auto read = read_document(document(object), "it", take);
    ASSERT_TRUE(read) << read.error().to_text();
    EXPECT_EQ(json::parse(document(to_json(*read))), json::parse(document(object)));
  };
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SeededRandom random(seed);
    expect_kept(to_json(some_wanted(random)), wanted_of, {"spec"});
    expect_kept(to_json(some_assigned(random)), assigned_of, {});
    expect_kept(to_json(some_credential(random)), credential_of, {});
    fleet::NodeRecord record = some_record(random);
    record.devices[DeviceId("GPU-0")].intent = Intent::cordoned;
    json::object object = to_json(record);
    object.at("devices").as_array()[0].as_object()["later"] = 7;
    expect_kept(object, node_record_of, {});
    DeploymentSpec spec = some_spec(random);
    spec.readiness.emplace().tcp = true;
    spec.serving.max_concurrent = 3;
    spec.rollout.surge = 5;
    fleet::DesiredDeployment wanted;
    wanted.spec = spec;
    object = to_json(wanted);
    for (const char* part : {"readiness", "serving", "rollout"}) object.at("spec").at(part).as_object()["later"] = part;
    expect_kept(object, wanted_of, {"spec"});
  }
}

TEST(FleetJson, OneOrderOfANewerServerDoesNotHideTheOthers) {
  SeededRandom random(7);
  fleet::NodeOrders orders;
  orders.orders = {{some_assigned(random), some_spec(random)}, {some_assigned(random), some_spec(random)}};
  json::object object = to_json(orders);
  object["later"] = 1;
  object.at("orders").as_array()[0].at("spec").as_object()["later"] = true;
  const auto read = read_document(document(object), "orders", node_orders_of);
  ASSERT_TRUE(read) << read.error().to_text();
  EXPECT_EQ(read->orders.at(0).spec.unknown, (UnknownFields{{"later", "true"}}));
  EXPECT_EQ(read->orders.at(1).spec, orders.orders[1].spec);
}

TEST(FleetJson, ANewerSchemaIsRefusedAsSuch) {
  const auto read = read_document(R"({"schema":7})", "the report", node_report_of);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::not_supported);
}

TEST(FleetJson, AnOtherwiseGoodListWithAWrongWordNamesIt) {
  const auto read =
      read_document(R"({"deployment":"a","replica":0,"generation":1,"state":"happy"})", "report", replica_report_of);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message,
            "report.state is \"happy\", which is not known; use one of waiting, starting, ready, unready, backing_off, "
            "refused, stopping, gone");
}

// Every reader, for hostile input. The value is dropped; what counts is that there is a value or one sentence.
using Reader = std::function<Result<void>(std::string_view)>;
template <class Take>
Reader reader(Take&& take) {
  return [take](std::string_view text) -> Result<void> {
    auto read = read_document(text, "it", take);
    if (!read) return std::move(read).error();
    return {};
  };
}
const std::vector<Reader>& readers() {
  static const std::vector<Reader> all{reader(wanted_of),         reader(assigned_of),    reader(spec_in_record),
                                       reader(replica_report_of), reader(node_report_of), reader(node_orders_of),
                                       reader(event_of),          reader(credential_of),  reader(node_record_of),
                                       reader(spec_of),           reader(project_of)};
  return all;
}
void expect_one_sentence(const Result<void>& read) {
  if (read) return;
  EXPECT_FALSE(read.error().message.empty());
  EXPECT_LT(read.error().message.size(), 2000u) << read.error().message.substr(0, 300);
  EXPECT_EQ(read.error().message.find_first_of("\n\x1b"), std::string::npos) << read.error().message.substr(0, 300);
}

// Calls `visit` with the text of `root` in which one value is replaced, for every value and replacement.
void replace_each(json::value& root, json::value& at, const std::function<void(const std::string&)>& visit) {
  static const std::vector<json::value> replacements{
      nullptr, true, -1, 0, 0.5, 1e300, ~std::uint64_t{0}, "", "\x1b[2J", json::array{1}, json::object{{"x", nullptr}}};
  const json::value kept = at;
  for (const json::value& replacement : replacements) {
    at = replacement;
    visit(json::serialize(root));
  }
  at = kept;
  if (at.is_object()) {
    for (auto& entry : at.get_object()) replace_each(root, entry.value(), visit);
  } else if (at.is_array()) {
    for (json::value& entry : at.get_array()) replace_each(root, entry, visit);
  }
}

TEST(HostileJson, AnyValueOfAWrongTypeIsAValueOrOneSentence) {
  const auto attack = [](json::object object, auto take) {
    json::value root = std::move(object);
    std::size_t refused = 0;
    const Reader read = reader(take);
    replace_each(root, root, [&](const std::string& text) {
      const Result<void> result = read(text);
      refused += !result;
      expect_one_sentence(result);
    });
    EXPECT_GT(refused, 10u);
  };
  SeededRandom random(20261115);
  for (std::uint64_t i = 0; i < world::random_cases(5); ++i) {
    attack(to_json(some_wanted(random)), wanted_of);
    attack(to_json(some_node_report(random)), node_report_of);
    attack(to_json(some_orders(random)), node_orders_of);
    attack(to_json(some_assigned(random)), assigned_of);
    attack(to_json(some_event(random)), event_of);
    attack(to_json(some_credential(random)), credential_of);
    attack(to_json(some_record(random)), node_record_of);
  }
}

TEST(HostileJson, DamagedTextIsAValueOrOneSentence) {
  SeededRandom random(4);
  const std::string text = document(to_json(some_node_report(random)));
  for (std::size_t cut = 0; cut < text.size(); ++cut) EXPECT_FALSE(reader(node_report_of)(text.substr(0, cut))) << cut;
  for (std::uint64_t i = 0; i < world::random_cases(5000); ++i) {
    std::string damaged = text;
    damaged[random.below(damaged.size())] = static_cast<char>(random.below(256));
    expect_one_sentence(reader(node_report_of)(damaged));
  }
}

TEST(HostileJson, DeepLargeAndInvalidTextsAreOneSentence) {
  const std::string deep = std::string(5'000'000, '[');
  const std::string deep_object = [] {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += "{\"spec\":";
    return text;
  }();
  const std::string long_key = "{\"" + std::string(10'000'000, 'k') + "\":1,\"name\":\"a\",\"model\":\"b\"}";
  const std::string long_word = R"({"name":"a","model":"b","spread":")" + std::string(10'000'000, 'w') + "\"}";
  const std::string many = "{\"orders\":[" + [] {
    std::string text;
    for (int i = 0; i < 1'000'000; ++i) text += "1,";
    return text;
  }() + "1],\"epoch\":1,\"revision\":1}";
  for (const std::string& text :
       {std::string(), std::string(10, '\0'), std::string("{\"name\":\"\xff\xfe\"}"), std::string("{\"name\":\"\xc3"),
        std::string("{\"replicas\":1e999999999}"), std::string("{\"replicas\":") + std::string(100'000, '9') + "}",
        std::string("null"), std::string("\"text\""), deep, deep_object}) {
    for (const Reader& read : readers()) {
      const Result<void> result = read(text);
      EXPECT_FALSE(result) << text.substr(0, 60);
      expect_one_sentence(result);
    }
  }
  // Each with the reader that goes furthest into it: 10 MB take a while.
  for (const auto& [text, read] : {std::pair(&long_key, reader(spec_of)), std::pair(&long_word, reader(spec_of)),
                                   std::pair(&many, reader(node_orders_of))}) {
    const Result<void> result = read(*text);
    EXPECT_FALSE(result) << text->substr(0, 60);
    expect_one_sentence(result);
  }
}

// The node stays visible; which of the two is meant cannot be known, so only the first can be used.
TEST(FleetJson, OfTwoDevicesWithOneIdInAReportTheFirstCounts) {
  fleet::NodeReport report;
  report.node.id = NodeId("a");
  for (const char* const name : {"first", "second", "third"}) {
    NodeDevice& device = report.node.devices.emplace_back();
    device.info.id = DeviceId(std::string(name) == "third" ? "other" : "same");
    device.info.backend = "cuda";
    device.info.name = name;
    device.info.former_id = DeviceId(std::string("former ") + name);
  }
  const auto read = read_document(document(to_json(report)), "report", node_report_of);
  ASSERT_TRUE(read) << read.error().to_text();
  ASSERT_EQ(read->node.devices.size(), 2u);
  EXPECT_EQ(read->node.devices[0].info.name, "first");
  EXPECT_EQ(read->node.devices[0].info.former_id, DeviceId("former first"));
  EXPECT_EQ(read->node.devices[1].info.name, "third");
}

}  // namespace
}  // namespace berth::format
