// Project and fleet files. Every table is read against the list of its keys, so
// that a misspelt key is an error and not a silent default; the first error
// found is the one reported.

#include <initializer_list>
#include <limits>
#include <span>
#include <utility>

#include "berth/bytes.hpp"
#include "berth/deployment.hpp"
#include "deployment/identifiers.hpp"
#include "inventory/toml.hpp"

namespace berth {
namespace {

using Known = std::initializer_list<std::string_view>;

// One file being read: its name for messages, and the first error.
class Reading {
 public:
  explicit Reading(std::string_view filename) : filename_(filename) {}

  void fail(const toml::source_region& source, std::string message, std::string advice) {
    if (error_) return;
    error_ = Error{ErrorCode::invalid_argument, inventory::toml_place(filename_, source.begin) + std::move(message),
                   std::move(advice)};
  }
  bool failed() const { return error_.has_value(); }
  const Error& error() const { return *error_; }

  std::optional<toml::table> parse(std::string_view text) {
    try {
      return inventory::parse_toml(text);
    } catch (const toml::parse_error& error) {
      fail(error.source(), "this is not TOML: " + std::string(error.description()), "correct the file at this place");
      return std::nullopt;
    }
  }

 private:
  std::string filename_;
  std::optional<Error> error_;
};

std::string_view type_text(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table: return "a table";
    case toml::node_type::array: return "an array";
    case toml::node_type::string: return "text";
    case toml::node_type::integer: return "a whole number";
    case toml::node_type::floating_point: return "a number with a point";
    case toml::node_type::boolean: return "true or false";
    default: return "a date or time";
  }
}

// One table of the file. Getters return nothing when the key is absent or wrong; a
// wrong one is the error of the Reading.
class Table {
 public:
  Table(Reading& reading, const toml::table& table, std::string title, Known known)
      : reading_(reading), table_(table), title_(std::move(title)) {
    for (const auto& [key, value] : table_) {
      if (std::find(known.begin(), known.end(), key.str()) == known.end())
        reading_.fail(key.source(), "unknown key \"" + std::string(key.str()) + "\" in " + title_,
                      deployment::suggestion(key.str(), std::span(known.begin(), known.size())));
    }
  }

  Reading& reading() const { return reading_; }
  const toml::node* node(std::string_view key) const { return table_.get(key); }
  bool has(std::string_view key) const { return table_.contains(key); }
  // The key's own place, or the table's where the key is absent.
  toml::source_region place(std::string_view key = {}) const {
    const auto found = table_.find(key);
    return found == table_.end() ? table_.source() : found->first.source();
  }
  void fail(std::string_view key, std::string message, std::string advice) const {
    reading_.fail(place(key), std::move(message), std::move(advice));
  }

  std::optional<std::string> text(std::string_view key) const {
    const toml::node* value = table_.get(key);
    if (!value) return std::nullopt;
    const auto* string = value->as_string();
    if (!string) {
      wrong_type(key, *value, "text in quotes");
      return std::nullopt;
    }
    if (string->get().empty()) {
      fail(key, std::string(key) + " in " + title_ + " is empty", "give a value, or leave the key out");
      return std::nullopt;
    }
    return string->get();
  }
  std::optional<std::string> required_text(std::string_view key) const {
    if (!has(key)) fail({}, title_ + " has no " + std::string(key), "add " + std::string(key) + " = \"...\"");
    return text(key);
  }
  std::optional<std::string> required_name(std::string_view key) const {
    auto name = required_text(key);
    if (name && !deployment::is_name(*name)) {
      fail(key, "\"" + *name + "\" is no name: it is empty or has characters beyond letters, digits, '.', '_', '-'",
           "choose a plain name");
      return std::nullopt;
    }
    return name;
  }
  std::optional<bool> boolean(std::string_view key) const {
    const toml::node* value = table_.get(key);
    if (!value) return std::nullopt;
    if (const auto* boolean = value->as_boolean()) return boolean->get();
    wrong_type(key, *value, "true or false");
    return std::nullopt;
  }
  std::optional<std::uint32_t> number(std::string_view key, std::uint32_t least, std::uint32_t largest) const {
    const toml::node* value = table_.get(key);
    if (!value) return std::nullopt;
    const auto* integer = value->as_integer();
    if (!integer) {
      wrong_type(key, *value, "a whole number");
      return std::nullopt;
    }
    if (integer->get() < least || integer->get() > largest) {
      fail(key, std::string(key) + " is " + std::to_string(integer->get()),
           "give a number from " + std::to_string(least) + " to " + std::to_string(largest));
      return std::nullopt;
    }
    return static_cast<std::uint32_t>(integer->get());
  }
  std::optional<std::uint64_t> bytes(std::string_view key) const {
    const toml::node* value = table_.get(key);
    if (!value) return std::nullopt;
    const auto* integer = value->as_integer();
    const auto* string = value->as_string();
    if (string || (integer && integer->get() >= 0)) {
      const auto bytes = parse_amount(string ? string->get() : std::to_string(integer->get()));
      if (bytes) return *bytes;
      fail(key, std::string(key) + ": " + bytes.error().message, bytes.error().advice);
      return std::nullopt;
    }
    wrong_type(key, *value, "an amount of memory, such as \"20GiB\"");
    return std::nullopt;
  }
  std::optional<Capability> capability(std::string_view key) const {
    const toml::node* value = table_.get(key);
    if (!value) return std::nullopt;
    const auto* string = value->as_string();
    const auto capability = string ? parse_capability(string->get()) : std::nullopt;
    if (!capability)
      fail(key, std::string(key) + " is not a version in quotes", "write it as major and minor, such as \"9.0\"");
    return capability;
  }
  std::vector<std::string> texts(std::string_view key) const {
    std::vector<std::string> out;
    const toml::node* value = table_.get(key);
    if (!value) return out;
    const auto* array = value->as_array();
    if (!array) wrong_type(key, *value, "a list of text, such as [\"a\", \"b\"]");
    for (std::size_t i = 0; array && i < array->size(); ++i) {
      if (const auto* string = (*array)[i].as_string()) {
        out.push_back(string->get());
      } else {
        wrong_type(key, (*array)[i], "text in quotes for every entry");
      }
    }
    return out;
  }
  std::map<std::string, std::string> labels(std::string_view key) const {
    std::map<std::string, std::string> out;
    const toml::node* value = table_.get(key);
    if (!value) return out;
    const auto* table = value->as_table();
    if (!table) {
      wrong_type(key, *value, "a table of labels, such as { zone = \"a\" }");
      return out;
    }
    for (const auto& [name, label] : *table) {
      if (const auto* string = label.as_string()) {
        out.emplace(name.str(), string->get());
      } else {
        reading_.fail(name.source(), "label \"" + std::string(name.str()) + "\" is " + std::string(type_text(label)),
                      "labels are text in quotes");
      }
    }
    return out;
  }
  // One of a fixed set of words, as to_string spells them.
  template <class Word>
  std::optional<Word> word(std::string_view key, std::initializer_list<Word> words) const {
    const auto given = text(key);
    if (!given) return std::nullopt;
    std::vector<std::string_view> spellings;
    for (const Word word : words) {
      if (*given == to_string(word)) return word;
      spellings.push_back(to_string(word));
    }
    fail(key, std::string(key) + " = \"" + *given + "\" is not known", deployment::suggestion(*given, spellings));
    return std::nullopt;
  }
  std::optional<KeyRef> key_reference(std::string_view key) const {
    const auto given = text(key);
    if (!given) return std::nullopt;
    const auto reference = KeyRef::parse(*given);
    if (reference) return *reference;
    fail(key, reference.error().message, reference.error().advice);
    return std::nullopt;
  }
  const toml::table* table(std::string_view key) const {
    const toml::node* value = table_.get(key);
    if (!value) return nullptr;
    if (const auto* table = value->as_table()) return table;
    wrong_type(key, *value, "a table");
    return nullptr;
  }
  // The entries of [[key]].
  std::vector<const toml::table*> tables(std::string_view key) const {
    std::vector<const toml::table*> out;
    const toml::node* value = table_.get(key);
    if (!value) return out;
    const auto* array = value->as_array();
    if (!array) wrong_type(key, *value, "a list of tables: write [[" + std::string(key) + "]] before each");
    for (std::size_t i = 0; array && i < array->size(); ++i) {
      if (const auto* table = (*array)[i].as_table()) {
        out.push_back(table);
      } else {
        wrong_type(key, (*array)[i], "a list of tables: write [[" + std::string(key) + "]] before each");
      }
    }
    return out;
  }

 private:
  void wrong_type(std::string_view key, const toml::node& value, std::string_view wanted) const {
    reading_.fail(value.source().begin ? value.source() : place(key),
                  std::string(key) + " in " + title_ + " is " + std::string(type_text(value)),
                  "it takes " + std::string(wanted));
  }

  Reading& reading_;
  const toml::table& table_;
  std::string title_;
};

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

DeploymentSpec read_deployment(const Table& table) {
  DeploymentSpec spec;
  spec.name = DeploymentId(table.required_name("name").value_or(""));
  spec.model = table.required_text("model").value_or("");
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
  if (!table.reading().failed()) {
    if (const auto valid = validate(spec); !valid) table.fail({}, valid.error().message, valid.error().advice);
  }
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

  std::set<DeploymentId> names;
  const auto sources = top.tables("deployment");
  for (const toml::table* source : sources) {
    const Table table(reading, *source, "[[deployment]]",
                      {"name", "model", "runtime", "gpus", "replicas", "cpu", "memory", "capability", "node_selector",
                       "device_labels", "tolerates", "sharing", "spread", "policy", "priority", "on_shortage",
                       "idempotent", "key", "serving"});
    project.deployments.push_back(read_deployment(table));
    if (!names.insert(project.deployments.back().name).second)
      table.fail("name", "two deployments are named \"" + project.deployments.back().name.text() + "\"",
                 "rename one of them");
  }
  for (std::size_t i = 0; i < project.deployments.size(); ++i) {
    const auto& fallback = project.deployments[i].serving.fallback;
    if (fallback && !names.contains(*fallback))
      reading.fail(sources[i]->source(),
                   "deployment \"" + project.deployments[i].name.text() + "\" falls back to \"" + fallback->text() +
                       "\", which is not in this file",
                   "name a deployment of this file");
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
      table.fail({}, *wrong, "give every node and device of the fleet a name of its own");
  }
  if (reading.failed()) return reading.error();
  return fleet;
}

}  // namespace berth
