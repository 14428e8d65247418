// Reads simulated devices from TOML. An unknown key is an error, because a misspelt key would silently simulate
// something else.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "berth/bytes.hpp"
#include "device/simulated/spec.hpp"
#include "inventory/toml.hpp"

namespace berth::simulated {
namespace {

Error at_position(const std::string& path, const toml::source_position& position, std::string message) {
  return {ErrorCode::invalid_argument, inventory::toml_place(path, position) + std::move(message),
          "docs/guide/simulated.md describes the format"};
}

// One table of the file. finish() refuses keys that were not read. Only the first error is kept.
class Reader {
 public:
  Reader(const toml::table& table, const std::string& path, std::string what)
      : table_(table), path_(path), what_(std::move(what)) {}

  const toml::node* find(std::string_view key) {
    known_.insert(std::string(key));
    return table_.get(key);
  }
  bool has(std::string_view key) const { return table_.contains(key); }

  void text(std::string_view key, std::string& into) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    if (const auto value = node->value_exact<std::string>(); value && !value->empty()) {
      into = *value;
    } else {
      fail(*node, key, "must be a string that is not empty");
    }
  }
  void text(std::string_view key, std::optional<std::string>& into) {
    if (!has(key)) return;
    text(key, into.emplace());
  }
  // A whole number of at least `least`.
  template <class T>
  void whole(std::string_view key, T& into, std::int64_t least) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const auto value = node->value_exact<std::int64_t>();
    if (value && *value >= least && std::in_range<T>(*value)) {
      into = static_cast<T>(*value);
    } else {
      const bool too_large = value && *value >= least;
      fail(*node, key, too_large ? "is too large" : "must be a whole number, at least " + std::to_string(least));
    }
  }
  template <class T>
  void whole(std::string_view key, std::optional<T>& into, std::int64_t least) {
    if (!has(key)) return;
    whole(key, into.emplace(), least);
  }
  void bytes(std::string_view key, std::uint64_t& into) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    std::optional<std::uint64_t> value;
    if (const auto number = node->value_exact<std::int64_t>(); number && *number >= 0) {
      value = static_cast<std::uint64_t>(*number);
    } else if (const auto words = node->value_exact<std::string>()) {
      if (const auto parsed = parse_bytes(*words)) value = *parsed;
    }
    if (value) {
      into = *value;
    } else {
      fail(*node, key, "must be a number of bytes such as 1073741824 or \"80GiB\"");
    }
  }
  // A number of at least 0, with or without decimals; greater than 0 if `positive`.
  std::optional<double> number(std::string_view key, bool positive) {
    // A year in nanoseconds: longer than any useful time, and far from overflow.
    constexpr double most = 3.2e16;
    const toml::node* node = find(key);
    if (node == nullptr) return {};
    const auto value = node->is_number() ? node->value<double>() : std::nullopt;
    if (value && std::isfinite(*value) && *value <= most && (positive ? *value > 0 : *value >= 0)) return value;
    fail(*node, key, positive ? "must be a number above 0" : "must be a number, at least 0");
    return {};
  }
  // A time in units of `unit_ns` nanoseconds.
  void time(std::string_view key, Duration& into, double unit_ns) {
    const auto value = number(key, false);
    if (!value) return;
    constexpr double most_ns = 3.2e16;
    if (*value * unit_ns > most_ns) return fail(*table_.get(key), key, "must be less than a year");
    into = Duration(static_cast<std::int64_t>(std::llround(*value * unit_ns)));
  }
  void time(std::string_view key, std::optional<Duration>& into, double unit_ns) {
    if (!has(key)) return;
    time(key, into.emplace(), unit_ns);
  }

  void fail(const toml::node& node, std::string_view key, const std::string& message) {
    fail_at(node.source().begin, "'" + std::string(key) + "' of " + what_ + " " + message);
  }
  void fail_at(const toml::source_position& position, std::string message) {
    if (!error_) error_ = at_position(path_, position, std::move(message));
  }
  void take(std::optional<Error> error) {
    if (!error_) error_ = std::move(error);
  }
  std::optional<Error> finish() {
    for (const auto& [key, node] : table_) {
      if (known_.contains(std::string(key.str()))) continue;
      fail_at(key.source().begin, what_ + " has no key '" + std::string(key.str()) + "'");
    }
    return error_;
  }

  const std::string& path() const { return path_; }

 private:
  const toml::table& table_;
  const std::string& path_;
  const std::string what_;
  std::set<std::string> known_;
  std::optional<Error> error_;
};

// Calls `each` with every table of an array of tables.
template <class Each>
void for_tables(Reader& reader, std::string_view key, Each each) {
  const toml::node* node = reader.find(key);
  if (node == nullptr) return;
  const toml::array* array = node->as_array();
  if (array == nullptr || !array->is_array_of_tables()) {
    return reader.fail(*node, key, "must be written as [[...]] tables");
  }
  for (const toml::node& element : *array) each(*element.as_table());
}

SimulatedFault read_fault(const toml::table& table, Reader& device) {
  using Kind = SimulatedFault::Kind;
  using Trigger = SimulatedFault::Trigger;
  static constexpr std::array<std::pair<std::string_view, Kind>, 6> kinds{{{"error", Kind::error},
                                                                           {"lost", Kind::lost},
                                                                           {"hang", Kind::hang},
                                                                           {"out_of_memory", Kind::out_of_memory},
                                                                           {"sample_silent", Kind::sample_silent},
                                                                           {"sample_hang", Kind::sample_hang}}};
  static constexpr std::array<std::pair<std::string_view, Trigger>, 3> counted{
      {{"at_launch", Trigger::launch}, {"at_allocation", Trigger::allocation}, {"at_sample", Trigger::sample}}};
  SimulatedFault fault;
  Reader reader(table, device.path(), "a fault");

  std::string kind;
  reader.text("kind", kind);
  const auto known = std::find_if(kinds.begin(), kinds.end(), [&](const auto& entry) { return entry.first == kind; });
  if (known != kinds.end()) {
    fault.kind = known->second;
  } else {
    const toml::node* node = table.get("kind");
    reader.fail(node != nullptr ? *node : table, "kind",
                "must be error, lost, hang, out_of_memory, sample_silent or sample_hang");
  }

  int triggers = 0;
  for (const auto& [key, trigger] : counted) {
    if (!reader.has(key)) continue;
    ++triggers;
    fault.trigger = trigger;
    reader.whole(key, fault.at, 1);
  }
  if (reader.has("at_time_ms")) {
    ++triggers;
    fault.trigger = Trigger::time;
    reader.time("at_time_ms", fault.at_time, 1e6);
    reader.time("for_ms", fault.lasting, 1e6);
  } else {
    reader.whole("times", fault.times, 1);
  }
  if (triggers != 1) {
    reader.fail_at(table.source().begin,
                   "a fault needs exactly one of at_launch, at_allocation, at_sample and at_time_ms");
  }
  device.take(reader.finish());
  return fault;
}

DeviceProcess read_process(const toml::table& table, Reader& device) {
  DeviceProcess process;
  Reader reader(table, device.path(), "a process");
  reader.whole("pid", process.pid, 1);
  if (!reader.has("pid")) reader.fail_at(table.source().begin, "a process needs a pid");
  reader.text("name", process.name);
  if (reader.has("memory_bytes")) reader.bytes("memory_bytes", process.memory_bytes.emplace());
  if (const toml::node* node = reader.find("kind")) {
    const std::string kind = node->value_exact<std::string>().value_or("");
    process.kind = kind == "berth" ? ProcessKind::berth : ProcessKind::foreign;
    if (kind != "berth" && kind != "foreign") reader.fail(*node, "kind", "must be berth or foreign");
  }
  device.take(reader.finish());
  return process;
}

ScriptedEvent read_event(const toml::table& table, Reader& device) {
  // In the order of RecoveryAction.
  static constexpr std::array<std::string_view, 5> actions{"none", "reset", "reboot", "drain_peers", "drain_and_reset"};
  ScriptedEvent event;
  Reader reader(table, device.path(), "an event");
  reader.time("at_time_ms", event.at_time, 1e6);
  reader.whole("xid", event.code, 1);
  if (const toml::node* node = reader.find("recovery_action")) {
    const std::string wanted = node->value_exact<std::string>().value_or("");
    const auto action = std::find(actions.begin(), actions.end(), wanted);
    event.kind = DeviceEvent::Kind::recovery_action;
    event.code = static_cast<std::uint32_t>(action - actions.begin());
    if (action == actions.end()) {
      reader.fail(*node, "recovery_action", "must be none, reset, reboot, drain_peers or drain_and_reset");
    }
  }
  if (!reader.has("at_time_ms") || reader.has("xid") == reader.has("recovery_action")) {
    reader.fail_at(table.source().begin, "an event needs at_time_ms and one of xid and recovery_action");
  }
  device.take(reader.finish());
  return event;
}

SimulatedSpec read_device(const toml::table& table, Reader& file) {
  SimulatedSpec spec;
  Reader reader(table, file.path(), "a device");
  reader.text("id", spec.id);
  reader.text("name", spec.name);
  std::uint64_t bytes = 0;
  reader.bytes("memory_bytes", bytes);
  spec.memory_bytes_total = reader.has("memory_bytes") ? std::optional(bytes) : std::nullopt;
  reader.bytes("foreign_bytes", spec.memory_bytes_foreign);
  if (const toml::node* node = reader.find("capability")) {
    spec.capability = parse_capability(node->value_exact<std::string>().value_or(""));
    if (!spec.capability) reader.fail(*node, "capability", "must be a string such as \"9.0\"");
  }
  reader.whole("compute_units", spec.compute_units, 1);
  reader.whole("concurrency", spec.concurrency, 1);
  reader.whole("numa_node", spec.numa_node, 0);
  reader.text("pci_address", spec.pci_address);
  reader.text("parent", spec.parent);
  reader.text("memory_domain", spec.memory_domain);
  reader.text("fault_domain", spec.fault_domain);
  if (const auto speed = reader.number("speed", true)) spec.speed = *speed;
  reader.time("launch_us", spec.launch_time, 1e3);
  if (const auto item = reader.number("item_ns", false)) spec.item_ns = *item;
  if (const auto rate = reader.number("copy_gbps", true)) spec.copy_bytes_per_second = *rate * 1e9;
  if (const toml::node* node = reader.find("features")) {
    if (const toml::array* features = node->as_array()) {
      for (const toml::node& element : *features) {
        const auto feature = element.value_exact<std::string>();
        if (!feature) reader.fail(element, "features", "must be a list of strings");
        spec.features.insert(feature.value_or(""));
      }
    } else {
      reader.fail(*node, "features", "must be a list of strings");
    }
  }
  if (const toml::node* node = reader.find("labels")) {
    if (const toml::table* labels = node->as_table()) {
      for (const auto& [key, value] : *labels) {
        const auto label = value.value_exact<std::string>();
        if (!label) reader.fail(value, "labels", "must be a table of strings");
        spec.labels.emplace(key.str(), label.value_or(""));
      }
    } else {
      reader.fail(*node, "labels", "must be a table of strings");
    }
  }
  if (const toml::node* node = reader.find("utilisation"))
    reader.fail(*node, "utilisation", "is now called 'utilization'");
  spec.utilization = reader.number("utilization", false);
  reader.whole("temperature_celsius", spec.temperature_celsius, -273);
  spec.power_watts = reader.number("power_watts", false);
  spec.power_limit_watts = reader.number("power_limit_watts", false);
  for_tables(reader, "process", [&](const toml::table& process) {
    if (!spec.processes) spec.processes.emplace();
    spec.processes->push_back(read_process(process, reader));
  });
  for_tables(reader, "event", [&](const toml::table& event) { spec.events.push_back(read_event(event, reader)); });
  for_tables(reader, "fault", [&](const toml::table& fault) { spec.faults.push_back(read_fault(fault, reader)); });

  std::optional<Error> error = reader.finish();
  const std::optional<std::string> problem = problem_with(spec);
  if (!error && problem) error = at_position(file.path(), table.source().begin, *problem);
  file.take(std::move(error));
  return spec;
}

}  // namespace

Result<std::vector<SimulatedSpec>> parse_simulated(std::string_view text, const std::string& path) {
  toml::table parsed;
  try {
    parsed = inventory::parse_toml(text, path);
  } catch (const toml::parse_error& error) {
    return at_position(path, error.source().begin, std::string(error.description()));
  }
  Reader file(parsed, path, "the file");
  std::vector<SimulatedSpec> specs;
  std::set<std::string> ids;
  for_tables(file, "device", [&](const toml::table& table) {
    specs.push_back(read_device(table, file));
    const std::string& id = specs.back().id;
    if (!id.empty() && !ids.insert(id).second) file.fail(*table.get("id"), "id", "repeats '" + id + "'");
  });
  if (std::optional<Error> error = file.finish()) return *std::move(error);
  return specs;
}

Result<std::vector<SimulatedSpec>> read_simulated_file(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (in.peek() != std::ifstream::traits_type::eof()) text << in.rdbuf();
  if (!in.is_open() || in.bad() || !text) {
    return Error{errno == ENOENT ? ErrorCode::not_found : ErrorCode::io,
                 "cannot read the file of simulated devices '" + path + "': " + std::strerror(errno != 0 ? errno : EIO),
                 "give the path of a file in the format of docs/guide/simulated.md",
                 {},
                 {}};
  }
  return parse_simulated(std::move(text).str(), path);
}

}  // namespace berth::simulated
