// Reads scripts; README.md describes the lines.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "machine.hpp"

namespace berth::standin {
namespace {

struct Wrong {
  std::string text;
};

struct Line {
  std::string verb;
  std::vector<std::string> words;             // without '='
  std::map<std::string, std::string> values;  // key=value; taken out when used
};

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  std::string part;
  bool quoted = false;
  for (const char c : text) {
    if (c == '#' && !quoted) break;
    if (c == '"') {
      quoted = !quoted;
    } else if ((c == ' ' || c == '\t' || c == '\r') && !quoted) {
      if (!part.empty()) parts.push_back(std::move(part));
      part.clear();
    } else {
      part += c;
    }
  }
  if (!part.empty()) parts.push_back(std::move(part));
  return parts;
}

std::uint64_t number(const std::string& text) {
  std::uint64_t value = 0;
  const bool hex = text.starts_with("0x");
  const char* begin = text.data() + (hex ? 2 : 0);
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(begin, last, value, hex ? 16 : 10);
  if (error != std::errc()) throw Wrong{"'" + text + "' is not a number"};
  const std::string_view unit(end, static_cast<std::size_t>(last - end));
  if (unit.empty()) return value;
  for (const auto& [name, factor] : {std::pair("KiB", 1ULL << 10), {"MiB", 1ULL << 20}, {"GiB", 1ULL << 30}}) {
    if (unit == name) return value * factor;
  }
  throw Wrong{"'" + std::string(unit) + "' is not a unit of bytes"};
}

Span duration(const std::string& text) {
  std::uint64_t value = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  const std::string_view unit(end, static_cast<std::size_t>(last - end));
  if (error == std::errc()) {
    if (unit == "us") return std::chrono::microseconds(value);
    if (unit == "ms") return std::chrono::milliseconds(value);
    if (unit == "s") return std::chrono::seconds(value);
  }
  throw Wrong{"'" + text + "' is not a duration such as 20ms"};
}

std::array<unsigned char, 16> uuid_of(const std::string& text) {
  std::array<unsigned char, 16> bytes{};
  std::string digits;
  for (const char c : text.substr(text.starts_with("GPU-") || text.starts_with("MIG-") ? 4 : 0)) {
    if (c != '-') digits += c;
  }
  if (digits.size() != 32) throw Wrong{"'" + text + "' is not a UUID"};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto [end, error] = std::from_chars(&digits[2 * i], &digits[2 * i] + 2, bytes[i], 16);
    if (error != std::errc() || end != &digits[2 * i] + 2) throw Wrong{"'" + text + "' is not a UUID"};
  }
  return bytes;
}

// The same series and place have the same UUID in every run, and UUIDs are not in the order of places.
std::array<unsigned char, 16> made_up_uuid(std::uint64_t series, std::uint64_t place, std::uint64_t slice) {
  std::array<unsigned char, 16> bytes{};
  std::uint64_t x = series * 1'000'003 + place * 131 + slice;
  for (std::size_t half = 0; half < 2; ++half) {
    x += 0x9e3779b97f4a7c15;
    std::uint64_t mixed = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    mixed ^= mixed >> 31;
    for (std::size_t i = 0; i < 8; ++i) bytes[8 * half + i] = static_cast<unsigned char>(mixed >> (8 * i));
  }
  return bytes;
}

std::array<unsigned, 3> pci_of(const std::string& text) {
  std::array<unsigned, 3> pci{};
  if (std::sscanf(text.c_str(), "%x:%x:%x", &pci[0], &pci[1], &pci[2]) != 3)
    throw Wrong{"'" + text + "' is not a PCI address"};
  return pci;
}

class Reader {
 public:
  explicit Reader(Machine& machine) : machine_(machine), state_(*machine.state) {}

  void apply(Line line) {
    const std::string& verb = line.verb;
    if (verb == "gpu") {
      add_gpu(line);
    } else if (verb == "gpus") {
      const std::uint64_t count = number(word(line, 0));
      const Line each = line;
      for (std::uint64_t i = 0; i < count; ++i) add_gpu(line = each);
    } else if (verb == "slice") {
      add_slice(line);
    } else if (verb == "set") {
      const int gpu = gpu_of(word(line, 0));
      configure(state_.gpus[static_cast<std::size_t>(gpu)], line);
    } else if (verb == "driver") {
      if (const auto text = take(line, "version")) state_.driver_text = *text;
      if (const auto text = take(line, "cuda")) state_.driver_version = static_cast<int>(number(*text));
      if (const auto text = take(line, "own_pid")) state_.own_pid = static_cast<unsigned>(number(*text));
    } else if (verb == "series") {
      state_.series = number(word(line, 0));
    } else if (verb == "calm") {
      state_.rules.clear();
    } else if (verb == "nvlink" || verb == "nvswitch") {
      join(line);
    } else if (verb == "pcie") {
      distance(line);
    } else if (verb == "process") {
      process(line);
    } else if (verb == "error" || verb == "hang" || verb == "delay" || verb == "lost" || verb == "event") {
      rule(line);
    } else {
      throw Wrong{"'" + verb + "' is not a verb of a script"};
    }
    if (!line.values.empty()) throw Wrong{"'" + line.values.begin()->first + "' means nothing to '" + verb + "'"};
  }

 private:
  static std::optional<std::string> take(Line& line, const std::string& key) {
    const auto found = line.values.find(key);
    if (found == line.values.end()) return std::nullopt;
    std::string value = std::move(found->second);
    line.values.erase(found);
    return value;
  }
  static const std::string& word(const Line& line, std::size_t i) {
    if (i >= line.words.size()) throw Wrong{"'" + line.verb + "' lacks a word"};
    return line.words[i];
  }
  int gpu_of(const std::string& text) const {
    const std::uint64_t index = number(text);
    if (index >= state_.gpus.size()) throw Wrong{"there is no GPU " + text};
    return static_cast<int>(index);
  }
  std::optional<int> take_gpu(Line& line) const {
    const auto text = take(line, "gpu");
    return text ? std::optional(gpu_of(*text)) : std::nullopt;
  }
  template <class T>
  static void take_number(Line& line, const std::string& key, T& into) {
    if (const auto text = take(line, key)) into = static_cast<T>(number(*text));
  }

  void add_gpu(Line& line) {
    Gpu gpu;
    const std::size_t place = state_.gpus.size();
    gpu.uuid = made_up_uuid(state_.series, place, 0);
    gpu.pci = {0, static_cast<unsigned>(0x08 + 8 * place), 0};
    gpu.numa = place < 4 ? 0 : 1;
    gpu.reserved_bytes = 600ULL << 20;
    take_number(line, "memory", gpu.memory_bytes);
    take_number(line, "sms", gpu.sms);
    take_number(line, "reserved", gpu.reserved_bytes);
    if (const auto text = take(line, "name")) gpu.name = *text;
    if (const auto text = take(line, "uuid")) gpu.uuid = uuid_of(*text);
    if (const auto text = take(line, "pci")) gpu.pci = pci_of(*text);
    if (const auto text = take(line, "numa")) gpu.numa = *text == "none" ? -1 : static_cast<int>(number(*text));
    if (const auto text = take(line, "capability")) {
      if (std::sscanf(text->c_str(), "%d.%d", &gpu.capability_major, &gpu.capability_minor) != 2)
        throw Wrong{"'" + *text + "' is not a capability"};
    }
    configure(gpu, line);
    Unit unit;
    unit.gpu = static_cast<int>(place);
    unit.name = gpu.name;
    unit.uuid = gpu.uuid;
    unit.memory_bytes = gpu.memory_bytes;
    unit.sms = gpu.sms;
    gpu.units.push_back(state_.units.size());
    state_.units.push_back(std::move(unit));
    state_.gpus.push_back(std::move(gpu));
  }

  // What may change while the machine runs.
  static void configure(Gpu& gpu, Line& line) {
    take_number(line, "utilization", gpu.utilization);
    take_number(line, "memory_utilization", gpu.memory_utilization);
    take_number(line, "power_mw", gpu.power_mw);
    take_number(line, "power_limit_mw", gpu.power_limit_mw);
    take_number(line, "temperature", gpu.temperature);
    take_number(line, "memory_temperature", gpu.memory_temperature);
    take_number(line, "clock_mhz", gpu.clock_mhz);
    take_number(line, "memory_clock_mhz", gpu.memory_clock_mhz);
    take_number(line, "clock_mhz_max", gpu.clock_mhz_max);
    take_number(line, "virtualisation", gpu.virtualisation);
    take_number(line, "throttle", gpu.throttle);
    take_number(line, "ecc_corrected", gpu.ecc_corrected);
    take_number(line, "ecc_uncorrected", gpu.ecc_uncorrected);
    take_number(line, "rows_corrected", gpu.rows_corrected);
    take_number(line, "rows_uncorrected", gpu.rows_uncorrected);
    take_number(line, "rows_pending", gpu.rows_pending);
    take_number(line, "rows_failed", gpu.rows_failed);
    take_number(line, "recovery_action", gpu.recovery_action);
    take_number(line, "compute_mode", gpu.compute_mode);
    take_number(line, "event_types", gpu.event_types);
  }

  void add_slice(Line& line) {
    const std::optional<int> index = take_gpu(line);
    if (!index) throw Wrong{"a slice needs gpu="};
    Gpu& gpu = state_.gpus[static_cast<std::size_t>(*index)];
    if (!gpu.is_sliced) {
      // The whole GPU is no longer available; its unit becomes the first slice.
      gpu.is_sliced = true;
    } else {
      gpu.units.push_back(state_.units.size());
      state_.units.emplace_back();
    }
    Unit& unit = state_.units[gpu.units.back()];
    unit = Unit{};
    unit.gpu = *index;
    unit.is_slice = true;
    unit.memory_bytes = gpu.memory_bytes / 8;
    unit.sms = 16;
    unit.uuid = made_up_uuid(state_.series, static_cast<std::uint64_t>(*index), gpu.units.size());
    take_number(line, "memory", unit.memory_bytes);
    take_number(line, "sms", unit.sms);
    unit.name = gpu.name + " MIG 1g." + std::to_string(unit.memory_bytes >> 30) + "gb";
    if (const auto text = take(line, "name")) unit.name = *text;
    if (const auto text = take(line, "uuid")) unit.uuid = uuid_of(*text);
  }

  // "0-3" or "0,2,5" as GPUs.
  std::vector<int> gpus_of(const std::string& text) const {
    std::vector<int> found;
    const std::size_t dash = text.find('-');
    if (dash != std::string::npos) {
      for (int i = gpu_of(text.substr(0, dash)); i <= gpu_of(text.substr(dash + 1)); ++i) found.push_back(i);
      return found;
    }
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t comma = std::min(text.find(',', begin), text.size());
      found.push_back(gpu_of(text.substr(begin, comma - begin)));
      begin = comma + 1;
    }
    return found;
  }

  // All of these with one another: by links, or over a switch.
  void join(Line& line) {
    const std::vector<int> gpus = gpus_of(word(line, 0));
    std::size_t links = line.verb == "nvswitch" ? 18 : 4;
    take_number(line, "links", links);
    for (const int a : gpus) {
      auto& own = state_.gpus[static_cast<std::size_t>(a)].links;
      if (line.verb == "nvswitch") {
        own.insert(own.end(), links, NvLink{});
        continue;
      }
      for (const int b : gpus) {
        if (a != b) own.insert(own.end(), links, NvLink{b});
      }
    }
  }

  void distance(Line& line) {
    static const std::map<std::string, int> levels{{"switch", nvml::topology_single},
                                                   {"switches", nvml::topology_multiple},
                                                   {"bridge", nvml::topology_host_bridge},
                                                   {"node", nvml::topology_node},
                                                   {"system", nvml::topology_system}};
    const std::vector<int> gpus = gpus_of(word(line, 0));
    const auto level = take(line, "level"), peer = take(line, "peer");
    if (level && !levels.contains(*level)) throw Wrong{"'" + *level + "' is not a level"};
    if (peer && *peer != "yes" && *peer != "no") throw Wrong{"peer is yes or no"};
    for (const int a : gpus) {
      for (const int b : gpus) {
        if (a >= b) continue;
        if (level) state_.pcie_level[{a, b}] = levels.at(*level);
        if (peer) state_.peer_access[{a, b}] = *peer == "yes";
      }
    }
  }

  void process(Line& line) {
    const std::optional<int> gpu = take_gpu(line);
    if (!gpu) throw Wrong{"a process needs gpu="};
    std::size_t slice = 0;
    take_number(line, "slice", slice);
    Process made;
    take_number(line, "pid", made.pid);
    made.pid_file = take(line, "pid_file").value_or("");
    take_number(line, "bytes", made.bytes);
    for (const std::string& text : line.words) {
      if (text == "graphics") {
        made.graphics = true;
      } else if (text == "both") {
        made.both = true;
      } else if (text == "unsaid") {
        made.unsaid = true;
      } else if (text == "hidden") {
        made.hidden = true;
      } else {
        throw Wrong{"'" + text + "' is not a kind of process"};
      }
    }
    const auto& units = state_.gpus[static_cast<std::size_t>(*gpu)].units;
    if (slice >= units.size()) throw Wrong{"there is no such slice"};
    const auto when = take(line, "when");
    if (!when) return state_.units[units[slice]].put(made);
    Rule rule;
    rule.action = Rule::Action::process;
    rule.symbol = *when;
    rule.gpu = gpu;
    take_number(line, "at", rule.at);
    rule.process = made;
    rule.unit = units[slice];
    state_.rules.push_back(std::move(rule));
  }

  void rule(Line& line) {
    static const std::map<std::string, Rule::Action> actions{{"error", Rule::Action::error},
                                                             {"hang", Rule::Action::hang},
                                                             {"delay", Rule::Action::delay},
                                                             {"lost", Rule::Action::lose},
                                                             {"event", Rule::Action::event}};
    Rule made;
    made.action = actions.at(line.verb);
    made.gpu = take_gpu(line);
    const bool at_once = line.words.empty();
    made.symbol = at_once ? "" : line.words.front();
    take_number(line, "at", made.at);
    made.file = take(line, "file").value_or("");
    if (const auto text = take(line, "times")) made.times = *text == "always" ? ~std::uint64_t{0} : number(*text);
    if (made.action == Rule::Action::lose) made.code = cuda_launch_failed;
    if (made.action == Rule::Action::error && !line.values.contains("code")) throw Wrong{"an error needs code="};
    if (made.action == Rule::Action::delay) {
      const auto text = take(line, "for");
      if (!text) throw Wrong{"a delay needs for="};
      made.delay = duration(*text);
    }
    take_number(line, "code", made.code);
    if (made.action == Rule::Action::event) {
      static const std::map<std::string, unsigned long long> kinds{{"xid", nvml::event_xid},
                                                                   {"ecc", nvml::event_ecc_double_bit},
                                                                   {"recovery", nvml::event_recovery_action},
                                                                   {"unavailable", nvml::event_gpu_unavailable}};
      const std::string kind = take(line, "kind").value_or("xid");
      if (!kinds.contains(kind)) throw Wrong{"'" + kind + "' is not a kind of event"};
      made.event_type = kinds.at(kind);
      take_number(line, "slice", made.slice);
    }
    const bool needs_gpu = made.action == Rule::Action::lose || made.action == Rule::Action::event;
    if (needs_gpu && !made.gpu) throw Wrong{"'" + line.verb + "' needs gpu="};
    if (!at_once) return state_.rules.push_back(std::move(made));
    if (!needs_gpu) throw Wrong{"'" + line.verb + "' needs the name of a call"};
    if (made.action == Rule::Action::lose) return machine_.lose(*made.gpu, made.code);
    machine_.post(*made.gpu, made.event_type, static_cast<unsigned>(made.code), made.slice);
  }

  Machine& machine_;
  State& state_;
};

}  // namespace

std::optional<std::string> apply_script(Machine& machine, std::string_view text) {
  Reader reader(machine);
  std::size_t number_of_line = 0;
  while (!text.empty()) {
    ++number_of_line;
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::vector<std::string> parts = split(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (parts.empty()) continue;
    Line line;
    line.verb = parts.front();
    for (std::size_t i = 1; i < parts.size(); ++i) {
      const std::size_t equals = parts[i].find('=');
      if (equals == std::string::npos) {
        line.words.push_back(parts[i]);
      } else {
        line.values.emplace(parts[i].substr(0, equals), parts[i].substr(equals + 1));
      }
    }
    try {
      reader.apply(std::move(line));
    } catch (const Wrong& wrong) {
      return "line " + std::to_string(number_of_line) + ": " + wrong.text;
    }
  }
  return std::nullopt;
}

}  // namespace berth::standin
