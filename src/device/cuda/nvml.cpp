#include "device/cuda/nvml.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "device/cuda/nvml_calls.hpp"
#include "device/presence.hpp"

namespace berth::nvml {
namespace {

constexpr unsigned whole_gpu = ~0U;  // an instance number: none
// Events kept for those who have not asked yet. At four questions a second, a
// watcher misses some only if the driver reports more than a thousand a second.
constexpr std::size_t events_kept = 256;

// What the driver has reported about one GPU, for everyone in this process who
// watches it. An event set of its own per GPU, so that asking for events never
// waits for another GPU. Never freed: the driver may report until the end.
class EventLog {
 public:
  static EventLog& of(const std::string& gpu_uuid) {
    static std::mutex mutex;  // guards logs, whose elements never move
    static auto& logs = *new std::map<std::string, EventLog>;
    const std::lock_guard lock(mutex);
    return logs[gpu_uuid];
  }

  // Appends what came since `next` (absent: nothing yet, but from now on) and
  // concerns the slice, or anything if the instances are whole_gpu.
  Code read(const Source& source, TimePoint now, std::optional<std::uint64_t>& next, std::vector<DeviceEvent>& into);

 private:
  struct Entry {
    DeviceEvent event;
    unsigned gpu_instance, compute_instance;
  };
  Code fetch(const Library& library, DeviceHandle gpu, TimePoint now);
  bool begin(const Library& library, DeviceHandle gpu);

  std::mutex mutex_;  // guards everything below; held while this GPU's events are asked for
  EventSet set_ = nullptr;
  bool not_supported_ = false;
  std::deque<Entry> entries_;
  std::uint64_t end_ = 0;  // number of the entry to come
};

}  // namespace

// Where the values of a device come from. A slice has memory and processes of
// its own; power, temperatures and events are its GPU's.
struct Source {
  const Library& library;
  DeviceHandle handle = nullptr;
  DeviceHandle gpu = nullptr;
  std::string gpu_uuid;
  unsigned gpu_instance = whole_gpu;
  unsigned compute_instance = whole_gpu;
  EventLog& events;

  bool is_slice() const { return handle != gpu; }
};

namespace {

std::string uuid_of(const DeviceId& id) { return id.text().substr(0, id.text().find('/')); }

Result<Source> find_source(const std::string& uuid) {
  Result<const Library*> loaded = Library::load();
  if (!loaded) return std::move(loaded).error();
  const Library& library = **loaded;
  DeviceHandle handle = nullptr;
  if (const Code code = library.nvmlDeviceGetHandleByUUID(uuid.c_str(), &handle); code != success) {
    Error error = error_of(code, "looking for the device", uuid);
    if (error.code == ErrorCode::not_found) {
      error.message = "the NVIDIA driver has no device '" + uuid + "'";
      error.advice = "see `nvidia-smi -L` for those it has";
    }
    return error;
  }
  Calls calls;
  DeviceHandle gpu = handle;
  unsigned gpu_instance = whole_gpu, compute_instance = whole_gpu;
  if (uuid.starts_with("MIG-")) {
    calls.ok(library.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle, &gpu);
    calls.ok(library.nvmlDeviceGetGpuInstanceId, handle, &gpu_instance);
    calls.ok(library.nvmlDeviceGetComputeInstanceId, handle, &compute_instance);
  }
  std::string gpu_uuid = gpu == handle ? uuid : uuid_of(library, gpu).value_or(uuid);
  EventLog& events = EventLog::of(gpu_uuid);
  return Source{library, handle, gpu, std::move(gpu_uuid), gpu_instance, compute_instance, events};
}

bool EventLog::begin(const Library& library, DeviceHandle gpu) {
  if (set_ != nullptr) return true;
  if (not_supported_) return false;
  constexpr unsigned long long wanted = event_xid | event_ecc_double_bit | event_gpu_unavailable;
  unsigned long long supported = 0;
  Calls calls;
  if (!library.nvmlEventSetWait_v2 || !library.nvmlDeviceRegisterEvents ||
      !calls.ok(library.nvmlDeviceGetSupportedEventTypes, gpu, &supported) || (supported & wanted) == 0) {
    not_supported_ = calls.fatal() == success;
    return false;
  }
  if (!calls.ok(library.nvmlEventSetCreate, &set_)) return false;
  if (calls.ok(library.nvmlDeviceRegisterEvents, gpu, supported & wanted, set_)) return true;
  calls.ok(library.nvmlEventSetFree, set_);
  set_ = nullptr;
  return false;
}

Code EventLog::fetch(const Library& library, DeviceHandle gpu, TimePoint now) {
  if (!begin(library, gpu)) return success;
  for (std::size_t fetched = 0; fetched < events_kept; ++fetched) {
    EventRecord record{};
    const Code code = library.nvmlEventSetWait_v2(set_, &record, /*timeout_ms=*/0);
    if (code == timed_out) return success;
    if (code != success) {
      // Begins anew with the next question.
      if (library.nvmlEventSetFree) library.nvmlEventSetFree(set_);
      set_ = nullptr;
      return code == gpu_is_lost || code == reset_required ? code : success;
    }
    const auto kind = record.type == event_xid              ? DeviceEvent::Kind::xid
                      : record.type == event_ecc_double_bit ? DeviceEvent::Kind::ecc_error
                                                            : DeviceEvent::Kind::unavailable;
    const auto number = kind == DeviceEvent::Kind::xid ? static_cast<std::uint32_t>(record.data) : 0;
    entries_.push_back({{kind, number, now}, record.gpu_instance, record.compute_instance});
    if (entries_.size() > events_kept) entries_.pop_front();
    ++end_;
  }
  return success;
}

Code EventLog::read(const Source& source, TimePoint now, std::optional<std::uint64_t>& next,
                    std::vector<DeviceEvent>& into) {
  const std::lock_guard lock(mutex_);
  if (!next) next = end_;
  const Code code = fetch(source.library, source.gpu, now);
  const auto concerns = [](unsigned theirs, unsigned ours) {
    return theirs == whole_gpu || ours == whole_gpu || theirs == ours;
  };
  const std::uint64_t first = end_ - entries_.size();
  for (std::uint64_t i = std::max(*next, first); i < end_; ++i) {
    const Entry& entry = entries_[static_cast<std::size_t>(i - first)];
    if (concerns(entry.gpu_instance, source.gpu_instance) && concerns(entry.compute_instance, source.compute_instance))
      into.push_back(entry.event);
  }
  next = end_;
  return code;
}

std::optional<std::uint64_t> number_in(const FieldValue& field) {
  constexpr int type_unsigned_long = 2, type_unsigned_long_long = 3;
  if (field.code != success) return std::nullopt;
  const bool is_long = field.value_type == type_unsigned_long || field.value_type == type_unsigned_long_long;
  return is_long ? field.value.as_long : field.value.as_unsigned;
}

std::optional<std::uint64_t> read_field(const Library& library, DeviceHandle gpu, unsigned field, Calls& calls) {
  FieldValue value{};
  value.field = field;
  if (!calls.ok(library.nvmlDeviceGetFieldValues, gpu, 1, &value)) return std::nullopt;
  calls.ok(value.code);
  return number_in(value);
}

std::optional<RecoveryAction> recovery_action(std::optional<std::uint64_t> number) {
  if (!number) return std::nullopt;
  switch (*number) {
    case 0: return RecoveryAction::none;
    case 1: return RecoveryAction::reset;
    case 2: return RecoveryAction::reboot;
    case 3: return RecoveryAction::drain_peers;
    case 4: return RecoveryAction::drain_and_reset;
    case 5: return RecoveryAction::drain_peers;  // sharing memory with other machines is broken
    case 6: return RecoveryAction::reset;        // of its bus
    case 7: return RecoveryAction::reboot;
    default: return std::nullopt;
  }
}

using ListProcesses = Code(DeviceHandle, unsigned*, Process*);

// False: the driver does not list them.
bool list_processes(ListProcesses* call, DeviceHandle device, std::vector<Process>& into) {
  if (call == nullptr) return false;
  unsigned count = 32;
  // Others may start between two tries.
  for (int tries = 0; tries < 8; ++tries) {
    into.resize(count);
    const Code code = call(device, &count, into.data());
    if (code == success) {
      into.resize(count);
      return true;
    }
    if (code != insufficient_size) break;
    count += 8;
  }
  into.clear();
  return false;
}

// Computing and drawing processes by number. One that does both is listed twice
// with the same memory; one on several slices once for each, with its memory there.
std::optional<std::vector<DeviceProcess>> read_processes(const Library& library, DeviceHandle device) {
  constexpr std::uint64_t unknown = ~0ULL;
  std::map<std::uint32_t, DeviceProcess> by_pid;
  bool listed = false;
  for (const bool graphics : {false, true}) {
    std::vector<Process> found;
    listed = list_processes(graphics ? library.nvmlDeviceGetGraphicsRunningProcesses_v3
                                     : library.nvmlDeviceGetComputeRunningProcesses_v3,
                            device, found) ||
             listed;
    std::map<std::uint32_t, std::optional<std::uint64_t>> bytes;
    for (const Process& process : found) {
      std::optional<std::uint64_t>& sum = bytes[process.pid];
      if (process.used_bytes != unknown) sum = sum.value_or(0) + process.used_bytes;
    }
    for (const auto& [pid, sum] : bytes) {
      const auto [at, is_new] = by_pid.try_emplace(pid);
      DeviceProcess& process = at->second;
      process.pid = pid;
      if (is_new) process.graphics = graphics;
      process.memory_bytes = std::max(process.memory_bytes, sum);
    }
  }
  if (!listed) return std::nullopt;
  std::vector<DeviceProcess> processes;
  for (auto& [pid, process] : by_pid) processes.push_back(std::move(process));
  return processes;
}

// The processes of `now`, each with no more memory than it had `before`. The
// memory of the device is read between the two: a process that frees some of its
// own meanwhile would else be counted with bytes that are also free.
void use_smaller(std::span<const DeviceProcess> before, std::vector<DeviceProcess>& now) {
  for (DeviceProcess& process : now) {
    const auto known = std::lower_bound(before.begin(), before.end(), process.pid,
                                        [](const DeviceProcess& at, std::uint32_t pid) { return at.pid < pid; });
    if (!process.memory_bytes) continue;
    const bool was_there = known != before.end() && known->pid == process.pid;
    process.memory_bytes = was_there ? std::min(process.memory_bytes, known->memory_bytes) : 0;
  }
}

void read_gauges(const Library& library, DeviceHandle gpu, Calls& calls, Telemetry& seen) {
  const auto watts = [&](Code (*call)(DeviceHandle, unsigned*), std::optional<double>& into) {
    unsigned milliwatts = 0;
    if (calls.ok(call, gpu, &milliwatts)) into = milliwatts / 1000.0;
  };
  watts(library.nvmlDeviceGetPowerUsage, seen.power_watts);
  watts(library.nvmlDeviceGetEnforcedPowerLimit, seen.power_limit_watts);
  unsigned number = 0;
  if (calls.ok(library.nvmlDeviceGetTemperature, gpu, sensor_gpu, &number))
    seen.temperature_celsius = static_cast<std::int32_t>(number);
  // Boards without that sensor answer 0.
  if (const auto celsius = read_field(library, gpu, field_memory_temperature, calls); celsius.value_or(0) != 0)
    seen.memory_temperature_celsius = static_cast<std::int32_t>(*celsius);
  if (calls.ok(library.nvmlDeviceGetClockInfo, gpu, clock_sm, &number)) seen.clock_mhz = number;
  if (calls.ok(library.nvmlDeviceGetClockInfo, gpu, clock_memory, &number)) seen.memory_clock_mhz = number;
  unsigned long long reasons = 0;
  // The second is the same under its name of before 2023.
  if (calls.ok(library.nvmlDeviceGetCurrentClocksEventReasons, gpu, &reasons) ||
      calls.ok(library.nvmlDeviceGetCurrentClocksThrottleReasons, gpu, &reasons))
    seen.throttle_reasons = throttle_words(reasons);
  unsigned long long errors = 0;
  if (calls.ok(library.nvmlDeviceGetTotalEccErrors, gpu, error_corrected, counter_volatile, &errors))
    seen.ecc_corrected = errors;
  if (calls.ok(library.nvmlDeviceGetTotalEccErrors, gpu, error_uncorrected, counter_volatile, &errors))
    seen.ecc_uncorrected = errors;
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  if (calls.ok(library.nvmlDeviceGetRemappedRows, gpu, &corrected, &uncorrected, &pending, &failed))
    seen.remapped_rows = corrected + uncorrected;
}

}  // namespace

std::vector<std::string> throttle_words(unsigned long long reasons) {
  constexpr unsigned long long idle = 0x1;
  constexpr std::array<std::pair<unsigned long long, const char*>, 8> words{{
      {0x2, "clock set by an application"},
      {0x4, "power cap"},
      {0x8, "hardware slowdown"},
      {0x10, "clock of a group of GPUs"},
      {0x20, "temperature"},
      {0x40, "temperature, by the hardware"},
      {0x80, "power brake"},
      {0x100, "clock set by the display"},
  }};
  reasons &= ~idle;
  std::vector<std::string> found;
  for (const auto& [bit, text] : words) {
    if (reasons & bit) found.emplace_back(text);
    reasons &= ~bit;
  }
  if (reasons != 0) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "reason 0x%llx", reasons);
    found.emplace_back(text.data());
  }
  return found;
}

Watch::Watch(const DeviceId& id, Clock& clock) : uuid_(uuid_of(id)), clock_(clock) {}

template <class Read>
Result<void> Watch::ask(Read&& read) {
  for (int tries = 0;; ++tries) {
    if (!source_) {
      Result<Source> found = find_source(uuid_);
      if (!found && found.error().code == ErrorCode::not_found && was_there_) {
        Error error = std::move(found).error();
        error.code = ErrorCode::device_lost;
        error.message = "the device is gone from the machine";
        error.advice = "list the devices again: the GPU may have been cut into other slices";
        return error;
      }
      if (!found) return std::move(found).error();
      source_ = std::make_shared<const Source>(*std::move(found));
      was_there_ = true;
    }
    const Code code = read(*source_);
    if (code == success) return {};
    const bool is_void = code == invalid_argument || code == not_found;
    if (is_void) source_.reset();
    if (!is_void || tries > 0) return error_of(code, "reading the load of the device", uuid_);
  }
}

Code Watch::read_load(const Source& source, LoadSample& load, std::optional<RecoveryAction>& action) {
  const Library& library = source.library;
  // Processes before and after: what is freed in between must not count twice.
  const std::optional<std::vector<DeviceProcess>> before = read_processes(library, source.handle);
  MemoryBytes bytes;
  const Code code = read_memory(library, source.handle, bytes);
  if (code != success && code != not_supported) return code;
  if (code == success) {
    load.memory_bytes_total = bytes.total;
    load.memory_bytes_free = bytes.free;
  }
  if (before) load.processes = read_processes(library, source.handle);
  if (load.processes) use_smaller(*before, *load.processes);
  Calls calls;
  Utilization rates{};
  if (calls.ok(library.nvmlDeviceGetUtilizationRates, source.handle, &rates)) load.utilisation = rates.gpu / 100.0;
  action = recovery_action(read_field(library, source.gpu, field_recovery_action, calls));
  if (calls.fatal() != success) return calls.fatal();

  const TimePoint now = clock_.now();
  std::vector<DeviceEvent> events;
  if (const Code lost = source.events.read(source, now, next_event_, events); lost != success) return lost;
  if (action && *action != told_) {
    told_ = *action;
    events.push_back({DeviceEvent::Kind::recovery_action, static_cast<std::uint32_t>(told_), now});
  }
  load.events = std::move(events);
  return success;
}

Result<LoadSample> Watch::sample() {
  const std::lock_guard lock(mutex_);
  LoadSample load;
  std::optional<RecoveryAction> action;
  Result<void> asked = ask([&](const Source& source) { return read_load(source, load, action); });
  if (!asked) return std::move(asked).error();
  return load;
}

Result<Telemetry> Watch::observe() {
  const std::lock_guard lock(mutex_);
  Telemetry seen;
  seen.sampled_at = clock_.now();
  Result<void> asked = ask([&](const Source& source) {
    const Library& library = source.library;
    Calls calls;
    Utilization rates{};
    if (calls.ok(library.nvmlDeviceGetUtilizationRates, source.handle, &rates))
      seen.memory_utilisation = rates.memory / 100.0;
    read_gauges(library, source.gpu, calls, seen);
    if (calls.fatal() != success) return calls.fatal();
    // Last, because it takes the events.
    return read_load(source, seen.load, seen.recovery_action);
  });
  if (!asked) return std::move(asked).error();
  seen.processes = std::exchange(seen.load.processes, std::nullopt);

  std::optional<std::uint64_t> used;
  if (seen.load.memory_bytes_total && seen.load.memory_bytes_free)
    used = *seen.load.memory_bytes_total - std::min(*seen.load.memory_bytes_free, *seen.load.memory_bytes_total);
  if (!seen.processes) {
    seen.memory_use.unattributed = used;
  } else {
    const bool ours = identify(uuid_, *seen.processes);
    seen.memory_use = attribute_memory(used, *seen.processes);
    if (!ours) seen.memory_use.own.reset();
  }
  return seen;
}

namespace {

using PciKey = std::array<unsigned, 3>;

// A GPU's ends of NVLinks.
struct Lanes {
  std::map<PciKey, std::uint32_t> to_gpu;
  std::uint32_t to_switch = 0;
};

Lanes read_lanes(const Library& library, DeviceHandle gpu) {
  Lanes lanes;
  Calls calls;
  for (unsigned link = 0; link < most_links; ++link) {
    int is_active = 0, remote = remote_gpu;
    PciInfo pci{};
    if (!calls.ok(library.nvmlDeviceGetNvLinkState, gpu, link, &is_active) || is_active == 0) continue;
    calls.ok(library.nvmlDeviceGetNvLinkRemoteDeviceType, gpu, link, &remote);
    if (remote == remote_switch)
      ++lanes.to_switch;
    else if (calls.ok(library.nvmlDeviceGetNvLinkRemotePciInfo_v2, gpu, link, &pci))
      ++lanes.to_gpu[{pci.domain, pci.bus, pci.device}];
  }
  return lanes;
}

// Whether each can use the other's memory.
std::optional<bool> are_peers(const Library& library, DeviceHandle a, DeviceHandle b) {
  Calls calls;
  bool all = true;
  for (const auto& [from, to] : {std::pair(a, b), {b, a}}) {
    for (const int what : {peer_read, peer_write}) {
      int status = peer_ok;
      if (!calls.ok(library.nvmlDeviceGetP2PStatus, from, to, what, &status)) return std::nullopt;
      all = all && status == peer_ok;
    }
  }
  return all;
}

std::optional<LinkKind> pcie_kind(const Library& library, DeviceHandle a, DeviceHandle b) {
  int level = 0;
  Calls calls;
  if (!calls.ok(library.nvmlDeviceGetTopologyCommonAncestor, a, b, &level)) return std::nullopt;
  switch (level) {
    case topology_internal:  // two GPUs on one board
    case topology_single: return LinkKind::pcie_switch;
    case topology_multiple: return LinkKind::pcie_switches;
    case topology_host_bridge: return LinkKind::host_bridge;
    case topology_node: return LinkKind::numa_node;
    case topology_system: return LinkKind::system;
    default: return std::nullopt;
  }
}

}  // namespace

Result<std::vector<Link>> links(std::span<const DeviceId> devices) {
  Result<const Library*> loaded = Library::load();
  if (!loaded) return std::move(loaded).error();
  const Library& library = **loaded;
  struct Node {
    DeviceId id;
    Source source;
    PciKey pci{};
    Lanes lanes;
  };
  std::vector<Node> nodes;
  for (const DeviceId& id : devices) {
    Result<Source> source = find_source(uuid_of(id));
    if (!source) continue;
    Node node{id, *std::move(source), {}, {}};
    Calls calls;
    PciInfo pci{};
    if (calls.ok(library.nvmlDeviceGetPciInfo_v3, node.source.gpu, &pci)) node.pci = {pci.domain, pci.bus, pci.device};
    // Slices do not reach other GPUs over NVLink.
    if (!node.source.is_slice()) node.lanes = read_lanes(library, node.source.gpu);
    nodes.push_back(std::move(node));
  }
  std::vector<Link> found;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (std::size_t j = i + 1; j < nodes.size(); ++j) {
      const bool in_order = nodes[i].id < nodes[j].id;
      const Node& a = nodes[in_order ? i : j];
      const Node& b = nodes[in_order ? j : i];
      Link link{a.id, b.id, LinkKind::same_device, 0, {}};
      if (a.source.gpu_uuid == b.source.gpu_uuid) {
        found.push_back(link);
        continue;
      }
      const auto direct = a.lanes.to_gpu.find(b.pci);
      if (direct != a.lanes.to_gpu.end()) {
        link.kind = LinkKind::nvlink;
        link.lanes = direct->second;
      } else if (a.lanes.to_switch > 0 && b.lanes.to_switch > 0) {
        link.kind = LinkKind::nvswitch;
        link.lanes = std::min(a.lanes.to_switch, b.lanes.to_switch);
      } else if (const auto kind = pcie_kind(library, a.source.gpu, b.source.gpu)) {
        link.kind = *kind;
      } else {
        continue;
      }
      if (!a.source.is_slice() && !b.source.is_slice())
        link.peer_access = are_peers(library, a.source.gpu, b.source.gpu);
      found.push_back(std::move(link));
    }
  }
  return found;
}

}  // namespace berth::nvml
