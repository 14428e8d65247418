// Project and fleet files.

#include <limits>
#include <utility>

#include "berth/deployment.hpp"
#include "deployment/faults.hpp"
#include "deployment/identifiers.hpp"
#include "deployment/read_toml_table.hpp"

namespace berth {
namespace {

using deployment::Reading;
using deployment::Table;

template <class T>
void assign(T& target, std::optional<T> value) {
  if (value) target = std::move(*value);
}

Serving read_serving(Reading& reading, const toml::table& source) {
  const Table table(reading, source, "[deployment.serving]", {"max_concurrent", "on_capacity_exhausted", "fallback"});
  Serving serving;
  assign(serving.max_concurrent, table.number("max_concurrent", 1, 1'000'000));
  assign(serving.on_capacity_exhausted,
         table.word("on_capacity_exhausted",
                    {OnCapacityExhausted::queue, OnCapacityExhausted::reject, OnCapacityExhausted::fallback}));
  if (const auto fallback = table.text("fallback")) serving.fallback = DeploymentId(*fallback);
  return serving;
}

Probe read_probe(Reading& reading, const toml::table& source, const std::string& title) {
  const Table table(reading, source, title, {"http", "tcp", "command", "port", "every", "timeout", "failures"});
  Probe probe;
  probe.http = table.text("http");
  assign(probe.tcp, table.boolean("tcp"));
  probe.command = table.texts("command");
  if (const auto port = table.number("port", 1, 65535)) probe.port = static_cast<std::uint16_t>(*port);
  assign(probe.every, table.duration("every"));
  assign(probe.timeout, table.duration("timeout"));
  assign(probe.failures, table.number("failures", 1, 1'000'000));
  return probe;
}

Rollout read_rollout(Reading& reading, const toml::table& source) {
  const Table table(reading, source, "[deployment.rollout]", {"surge", "unavailable"});
  Rollout rollout;
  assign(rollout.surge, table.number("surge", 0, replicas_max));
  assign(rollout.unavailable, table.number("unavailable", 0, replicas_max));
  return rollout;
}

// What a node starts, and how it is watched and replaced.
void read_what_runs(const Table& table, DeploymentSpec& spec) {
  spec.command = table.texts("command");
  spec.environment = table.labels("environment", "variable");
  spec.secrets = table.key_references("secrets");
  spec.user = table.text("user");
  spec.folder = table.text("folder");
  if (const auto* probe = table.table("readiness"))
    spec.readiness = read_probe(table.reading(), *probe, "[deployment.readiness]");
  if (const auto* probe = table.table("liveness"))
    spec.liveness = read_probe(table.reading(), *probe, "[deployment.liveness]");
  assign(spec.ready_within, table.duration("ready_within"));
  assign(spec.stop_grace, table.duration("stop_grace"));
  spec.host_memory_bytes = table.bytes("host_memory");
  spec.cpus = table.real("cpus");
  if (const auto* rollout = table.table("rollout")) spec.rollout = read_rollout(table.reading(), *rollout);
  assign(spec.single, table.boolean("single"));
  assign(spec.stop_after, table.duration("stop_after"));
  assign(spec.replace_after, table.duration("replace_after"));
}

DeploymentSpec read_deployment(const Table& table) {
  DeploymentSpec spec;
  spec.name = DeploymentId(table.required_name("name").value_or(""));
  spec.model = (table.has("command") ? table.text("model") : table.required_text("model")).value_or("");
  if (const auto runtime = table.text("runtime")) spec.runtime = runtime_from(*runtime);
  spec.gpus = table.number("gpus", 0, 1024);
  assign(spec.replicas, table.number("replicas", 0, replicas_max));
  assign(spec.cpu, table.boolean("cpu"));
  assign(spec.memory_bytes, table.bytes("memory"));
  spec.capability_min = table.capability("capability");
  spec.node_selector = table.labels("node_selector");
  spec.device_labels = table.labels("device_labels");
  for (std::string& taint : table.texts("tolerates")) spec.tolerates.insert(std::move(taint));
  assign(spec.sharing, table.word("sharing", {Sharing::exclusive, Sharing::memory}));
  assign(spec.spread, table.word("spread", {Spread::spread, Spread::pack, Spread::one_per_node}));
  spec.policy = table.text("policy");
  assign(spec.priority, table.word("priority", {Priority::low, Priority::normal, Priority::high}));
  assign(spec.on_shortage, table.word("on_shortage", {OnShortage::all, OnShortage::best_effort}));
  assign(spec.idempotent, table.boolean("idempotent"));
  spec.key = table.key_reference("key");
  if (const auto* serving = table.table("serving")) spec.serving = read_serving(table.reading(), *serving);
  read_what_runs(table, spec);
  return spec;
}

void read_device_facts(const Table& table, NodeDevice& device) {
  device.info.backend = table.text("backend").value_or("cuda");
  device.info.name = table.text("model").value_or("");
  device.info.memory_bytes_total = table.bytes("memory");
  device.info.capability = table.capability("capability");
  device.info.labels = table.labels("labels");
}

constexpr auto intents = {Intent::in_service, Intent::cordoned, Intent::draining};
constexpr auto healths = {Health::healthy, Health::suspect, Health::quarantined, Health::probation, Health::lost};

NodeView read_node(const Table& table) {
  NodeView node;
  node.id = NodeId(table.required_name("name").value_or(""));
  node.labels = table.labels("labels");
  for (std::string& taint : table.texts("taints")) node.taints.insert(std::move(taint));
  assign(node.egress, table.boolean("egress"));
  node.cpus = table.number("cpus", 1, std::numeric_limits<std::uint32_t>::max());
  node.memory_bytes = table.bytes("memory");
  assign(node.intent, table.word<Intent>("intent", intents));
  assign(node.health, table.word<Health>("health", healths));

  // An id of its own for each GPU of a plain count: the node's name makes it
  // unique, its position stable.
  if (const auto* source = table.table("gpus")) {
    const Table gpus(table.reading(), *source, "gpus of [[node]]",
                     {"count", "backend", "model", "memory", "capability", "labels"});
    if (!gpus.has("count")) gpus.fail({}, "gpus has no count", "add count = 8 or as many as there are");
    const std::uint32_t count = gpus.number("count", 0, 1024).value_or(0);
    NodeDevice device;
    read_device_facts(gpus, device);
    for (std::uint32_t i = 0; i < count; ++i) {
      device.info.id = DeviceId(node.id.text() + "/gpu" + (count > 10 && i < 10 ? "0" : "") + std::to_string(i));
      node.devices.push_back(device);
    }
  }
  for (const toml::table* source : table.tables("device")) {
    const Table entry(table.reading(), *source, "[[node.device]]",
                      {"id", "backend", "model", "memory", "capability", "labels", "foreign", "intent", "health"});
    NodeDevice device;
    device.info.id = DeviceId(entry.required_text("id").value_or(""));
    read_device_facts(entry, device);
    device.memory_bytes_foreign = entry.bytes("foreign");
    assign(device.intent, entry.word<Intent>("intent", intents));
    assign(device.health, entry.word<Health>("health", healths));
    if (device.info.id.empty()) entry.fail("id", "the id of a device is empty", "use the device's UUID");
    node.devices.push_back(std::move(device));
  }
  int ordinal = 0;
  for (NodeDevice& device : node.devices) {
    device.info.ordinal = ordinal++;
    device.info.memory_domain = device.info.fault_domain = device.info.id.text();
  }
  return node;
}

}  // namespace

Result<Project> read_project(std::string_view text, std::string_view filename) {
  Reading reading(filename);
  const auto file = reading.parse(text);
  if (!file) return reading.error();
  const Table top(reading, *file, "the project file", {"cluster", "deployment", "egress_preference"});

  Project project;
  if (const auto* source = top.table("cluster")) {
    const Table cluster(reading, *source, "[cluster]", {"name", "bind", "endpoint"});
    assign(project.cluster.name, cluster.required_name("name"));
    assign(project.cluster.bind, cluster.text("bind"));
    project.cluster.endpoint = cluster.text("endpoint");
  } else {
    top.fail("cluster", "the project file has no table [cluster]", "begin it with [cluster] and name = \"...\"");
  }

  std::vector<Table> tables;
  for (const toml::table* source : top.tables("deployment")) {
    tables.emplace_back(
        reading, *source, "[[deployment]]",
        deployment::Known{"name",      "model",      "runtime",       "gpus",          "replicas",   "cpu",
                          "memory",    "capability", "node_selector", "device_labels", "tolerates",  "sharing",
                          "spread",    "policy",     "priority",      "on_shortage",   "idempotent", "key",
                          "serving",   "command",    "environment",   "secrets",       "user",       "folder",
                          "readiness", "liveness",   "stop_grace",    "host_memory",   "cpus",       "rollout",
                          "single",    "stop_after", "replace_after", "ready_within"});
    project.deployments.push_back(read_deployment(tables.back()));
  }
  if (!reading.failed()) {
    if (const auto fault = deployment::find_fault(project.deployments))
      reading.fail(tables[fault->deployment].place_of_path(fault->key), fault->error.message, fault->error.advice);
  }
  for (const toml::table* source : top.tables("egress_preference")) {
    const Table table(reading, *source, "[[egress_preference]]", {"provider", "key", "nodes"});
    const auto provider = table.word<Provider>(
        "provider", {Provider::open_ai, Provider::anthropic, Provider::gemini, Provider::lite_llm, Provider::http});
    const auto key = table.key_reference("key");
    if (!table.has("provider") || !table.has("key") || !table.has("nodes"))
      table.fail({}, "[[egress_preference]] lacks provider, key or nodes", "give all three");
    std::vector<NodeId> nodes;
    for (std::string& name : table.texts("nodes")) nodes.emplace_back(std::move(name));
    if (provider && key && !project.egress_preference.emplace(EgressRoute{*provider, *key}, std::move(nodes)).second)
      table.fail({}, "this provider and key have a preference already", "join the two lists of nodes");
  }
  if (reading.failed()) return reading.error();
  return project;
}

Result<Fleet> read_fleet(std::string_view text, std::string_view filename) {
  Reading reading(filename);
  const auto file = reading.parse(text);
  if (!file) return reading.error();
  const Table top(reading, *file, "the fleet file", {"node"});
  Fleet fleet;
  deployment::FleetIds ids;
  for (const toml::table* source : top.tables("node")) {
    const Table table(reading, *source, "[[node]]",
                      {"name", "labels", "taints", "egress", "cpus", "memory", "intent", "health", "gpus", "device"});
    fleet.nodes.push_back(read_node(table));
    if (const auto wrong = ids.add(fleet.nodes.back()))
      table.fail({}, *wrong, "give every node, and every device of a node, a name of its own");
  }
  if (reading.failed()) return reading.error();
  return fleet;
}

}  // namespace berth
