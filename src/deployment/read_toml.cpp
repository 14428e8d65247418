// Project and fleet files.

#include <limits>
#include <utility>

#include "berth/deployment.hpp"
#include "deployment/described_toml.hpp"
#include "deployment/faults.hpp"
#include "deployment/identifiers.hpp"
#include "deployment/spec_description.hpp"
#include "inventory/device_description.hpp"

namespace berth::deployment {
namespace {

template <class T>
void assign(T& target, std::optional<T> value) {
  if (value) target = std::move(*value);
}

void read_device_facts(const Table& table, NodeDevice& device) {
  device.info.backend = table.text("backend").value_or("cuda");
  device.info.name = table.text("model").value_or("");
  device.info.memory_bytes_total = table.bytes("memory");
  device.info.capability = table.capability("capability");
  device.info.labels = table.labels("labels");
}

NodeView read_node(const Table& table) {
  NodeView node;
  node.id = NodeId(table.required_name("name").value_or(""));
  node.labels = table.labels("labels");
  for (std::string& taint : table.texts("taints")) node.taints.insert(std::move(taint));
  assign(node.egress, table.boolean("egress"));
  node.cpus = table.number("cpus", 1, std::numeric_limits<std::uint32_t>::max());
  node.memory_bytes = table.bytes("memory");
  assign(node.intent, table.word<Intent>("intent", world::words<Intent>));
  assign(node.health, table.word<Health>("health", world::words<Health>));

  // Each GPU of a plain count gets an id: the node's name makes it unique, and the position makes
  // it stable.
  if (const auto* source = table.table("gpus")) {
    const Table gpus(table.reading(), *source, "gpus of [[node]]",
                     {"count", "backend", "model", "memory", "capability", "labels"});
    if (!gpus.has("count")) gpus.fail({}, "gpus has no count", "add count = 8, or however many there are");
    const std::uint32_t count = gpus.number("count", 0, 1024).value_or(0);
    NodeDevice device;
    read_device_facts(gpus, device);
    for (std::uint32_t i = 0; i < count; ++i) {
      device.info.id = DeviceId(node.id.text() + "/gpu" + (count > 10 && i < 10 ? "0" : "") + std::to_string(i));
      node.devices.push_back(device);
    }
  }
  for (const toml::table* source : table.tables("device")) {
    fail_if_retired(table.reading(), *source, "[[node.device]]",
                    world::Retired{"foreign", "write memory_used: the memory that any process uses"});
    const Table entry(table.reading(), *source, "[[node.device]]",
                      {"id", "backend", "model", "memory", "capability", "labels", "memory_used", "intent", "health"});
    NodeDevice device;
    device.info.id = DeviceId(entry.required_text("id").value_or(""));
    read_device_facts(entry, device);
    device.memory_bytes_used = entry.bytes("memory_used");
    assign(device.intent, entry.word<Intent>("intent", world::words<Intent>));
    assign(device.health, entry.word<Health>("health", world::words<Health>));
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
    project.cluster = read_noun<Cluster>(table_of<Cluster>(reading, *source, "[cluster]"), "cluster");
  } else {
    top.fail("cluster", "the project file has no table [cluster]", "begin it with [cluster] and name = \"...\"");
  }

  std::vector<Table> tables;
  for (const toml::table* source : top.tables("deployment")) {
    tables.push_back(table_of<DeploymentSpec>(reading, *source, "[[deployment]]"));
    DeploymentSpec& spec = project.deployments.emplace_back(read_noun<DeploymentSpec>(tables.back(), "deployment"));
    if (spec.gpus_per_replica() > 0 && spec.memory_bytes > 0 && !tables.back().has("exclusive")) spec.exclusive = false;
    if (spec.readiness && !tables.back().has("unready_within")) spec.unready_within = unready_within_in_files;
  }
  if (!reading.failed()) {
    if (const auto fault = find_fault(project.deployments))
      reading.fail(tables[fault->deployment].place_of_path(fault->key), fault->error.message, fault->error.advice);
  }
  for (const toml::table* source : top.tables("egress_preference")) {
    const Table table(reading, *source, "[[egress_preference]]", {"provider", "key", "nodes"});
    const auto provider = table.word<Provider>("provider", world::words<Provider>);
    const auto key = table.key_reference("key");
    if (!table.has("provider") || !table.has("key") || !table.has("nodes"))
      table.fail({}, "[[egress_preference]] lacks provider, key or nodes", "give all three");
    std::vector<NodeId> nodes;
    for (std::string& name : table.texts("nodes")) nodes.emplace_back(std::move(name));
    if (provider && key && !project.egress_preference.emplace(EgressRoute{*provider, *key}, std::move(nodes)).second)
      table.fail({}, "this provider and key already have a preference", "merge the two lists of nodes");
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
  FleetIds ids;
  for (const toml::table* source : top.tables("node")) {
    const Table table(reading, *source, "[[node]]",
                      {"name", "labels", "taints", "egress", "cpus", "memory", "intent", "health", "gpus", "device"});
    fleet.nodes.push_back(read_node(table));
    if (const auto wrong = ids.add(fleet.nodes.back()))
      table.fail({}, *wrong, "give every node, and every device of a node, a unique name");
  }
  if (reading.failed()) return reading.error();
  return fleet;
}

}  // namespace berth::deployment
