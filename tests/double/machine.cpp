#include "machine.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <tuple>

#include "device/cuda/identity.hpp"

namespace berth::standin {
namespace {

// What a context takes of the GPU's memory for itself.
constexpr std::uint64_t context_bytes = 256ULL << 20;
// The same in every machine: a handle that is kept across a reset still names the same GPU.
constexpr std::uint64_t nvml_handles = 0x00a0'0000'0000'0000;

bool matches(const Rule& rule, std::string_view symbol, int gpu) {
  // Events and losses name the GPU they happen to: a call that concerns no GPU may set them off.
  const bool for_any = rule.action == Rule::Action::event || rule.action == Rule::Action::lose;
  if (rule.gpu && *rule.gpu != gpu && !(for_any && gpu < 0)) return false;
  const std::string_view wanted = rule.symbol;
  return wanted.ends_with('*') ? symbol.starts_with(wanted.substr(0, wanted.size() - 1)) : symbol == wanted;
}

bool fires(Rule& rule) {
  if (!rule.file.empty() && access(rule.file.c_str(), F_OK) != 0) return false;
  const std::uint64_t seen = ++rule.seen;
  return seen >= rule.at && seen - rule.at < rule.times;
}

std::string read_file(const char* path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) {
    std::fprintf(stderr, "driver double: cannot read %s, which BERTH_DOUBLE names\n", path);
    std::abort();
  }
  return text.str();
}

}  // namespace

std::optional<unsigned> Process::number() const {
  unsigned read = pid;
  if (!pid_file.empty() && !(std::ifstream(pid_file) >> read)) return std::nullopt;
  return read;
}

std::uint64_t Unit::bytes_of_contexts() const { return contexts > 0 ? std::min(context_bytes, memory_bytes / 8) : 0; }

std::uint64_t Unit::bytes_free() const {
  std::uint64_t used = bytes_of_this_process();
  for (const Process& process : others)
    if (process.number()) used += process.bytes;
  return used < memory_bytes ? memory_bytes - used : 0;
}

void Unit::put(const Process& process) {
  std::erase_if(others, [&](const Process& known) { return known.pid == process.pid; });
  if (process.bytes > 0) others.push_back(process);
}

std::string Unit::uuid_text() const {
  cuda::UuidBytes bytes{};
  std::copy(uuid.begin(), uuid.end(), bytes.begin());
  return cuda::uuid_text(is_slice ? "MIG" : "GPU", bytes);
}

State::~State() {
  for (auto& [address, allocation] : allocations) munmap(allocation.host, allocation.bytes);
  for (auto& [address, range] : host_ranges) {
    if (range.owned) std::free(reinterpret_cast<void*>(address));
  }
}

Machine& Machine::instance() {
  // Never destroyed: threads may be held in here when the process ends.
  static Machine* machine = [] {
    auto* made = new Machine;
    const char* file = std::getenv("BERTH_DOUBLE");
    const std::optional<std::string> wrong = made->reset(file != nullptr ? read_file(file) : "gpu");
    if (!wrong) return made;
    std::fprintf(stderr, "driver double: %s: %s\n", file, wrong->c_str());
    std::abort();
  }();
  return *machine;
}

std::optional<std::string> Machine::reset(std::string_view script) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return !resetting; });
  resetting = true;
  ++generation;
  changed.notify_all();
  changed.wait(lock, [&] { return inside == 0; });
  state = std::make_unique<State>();
  resetting = false;
  changed.notify_all();
  return apply_script(*this, script);
}

std::optional<std::string> Machine::add(std::string_view script) {
  const std::lock_guard lock(mutex);
  std::optional<std::string> wrong = apply_script(*this, script);
  changed.notify_all();
  return wrong;
}

void Machine::release() {
  const std::lock_guard lock(mutex);
  ++releases;
  for (const auto& stream : state->running) {
    if (!stream->work.empty() && stream->work.front().begun && stream->work.front().until == never)
      stream->work.front().until = now();
  }
  changed.notify_all();
}

void Machine::post(int gpu, unsigned long long type, unsigned long long data, int slice) {
  const nvml::EventRecord record{nvml_handle(gpu, -1), type, data, slice < 0 ? ~0U : instance_of(slice),
                                 slice < 0 ? ~0U : 0U};
  for (auto& [handle, set] : state->event_sets.all()) {
    const auto registered = set->types.find(gpu);
    if (registered != set->types.end() && (registered->second & type) != 0) set->records.push_back(record);
  }
  changed.notify_all();
}

void Machine::lose(int gpu, int code) {
  Gpu& lost = state->gpus[static_cast<std::size_t>(gpu)];
  if (lost.lost) return;
  lost.lost = true;
  lost.lost_code = code;
  for (const auto& stream : state->running) {
    if (stream->context->unit.gpu == gpu) stream->work.clear();
  }
  constexpr unsigned long long fallen_off_the_bus = 79;
  post(gpu, nvml::event_xid, fallen_off_the_bus);
}

void Machine::find_again() {
  for (Gpu& gpu : state->gpus) {
    if (gpu.lost && !gpu.lost_while.empty() && access(gpu.lost_while.c_str(), F_OK) != 0) gpu.lost = false;
  }
}

std::vector<int> Machine::nvml_order() const {
  std::vector<int> order(state->gpus.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    const auto &pci_a = state->gpus[static_cast<std::size_t>(a)].pci,
               &pci_b = state->gpus[static_cast<std::size_t>(b)].pci;
    return std::tie(pci_a, a) < std::tie(pci_b, b);
  });
  return order;
}

int Machine::level_between(int a, int b) const {
  if (a == b) return nvml::topology_internal;
  const auto known = state->pcie_level.find(std::minmax(a, b));
  if (known != state->pcie_level.end()) return known->second;
  const auto numa = [&](int gpu) { return state->gpus[static_cast<std::size_t>(gpu)].numa; };
  return numa(a) == numa(b) ? nvml::topology_node : nvml::topology_system;
}

bool Machine::can_access(const Unit& from, const Unit& to) const {
  if (from.gpu == to.gpu || from.is_slice || to.is_slice) return false;
  const auto known = state->peer_access.find(std::minmax(from.gpu, to.gpu));
  if (known != state->peer_access.end()) return known->second;
  const auto& links = state->gpus[static_cast<std::size_t>(from.gpu)].links;
  const auto& other = state->gpus[static_cast<std::size_t>(to.gpu)].links;
  const auto joins = [&](const NvLink& link) {
    if (link.remote_gpu >= 0) return link.remote_gpu == to.gpu;
    return std::any_of(other.begin(), other.end(), [](const NvLink& back) { return back.remote_gpu < 0; });
  };
  return std::any_of(links.begin(), links.end(), joins) || level_between(from.gpu, to.gpu) <= nvml::topology_multiple;
}

nvml::DeviceHandle nvml_handle(int gpu, int slice) {
  return reinterpret_cast<nvml::DeviceHandle>(nvml_handles + 256 * static_cast<unsigned>(gpu) +
                                              static_cast<unsigned>(slice + 1));
}

WorkOrders orders_for(State& state, std::string_view what, int gpu) {
  WorkOrders orders;
  for (Rule& rule : state.rules) {
    if (!matches(rule, what, gpu) || !fires(rule)) continue;
    if (rule.action == Rule::Action::error) orders.code = rule.code;
    if (rule.action == Rule::Action::delay) orders.delay += rule.delay;
    if (rule.action == Rule::Action::hang) orders.hang = true;
  }
  return orders;
}

std::vector<cuda::Context>& context_stack(const Machine& machine) {
  struct Stack {
    std::uint64_t generation = 0;
    std::vector<cuda::Context> contexts;
  };
  thread_local Stack stack;
  if (stack.generation != machine.generation) stack = {machine.generation, {}};
  return stack.contexts;
}

Call::Call(const char* symbol, Library library)
    : machine(Machine::instance()), symbol_(symbol), library_(library), lock_(machine.mutex) {
  machine.changed.wait(lock_, [&] { return !machine.resetting; });
  generation_ = machine.generation;
  ++machine.inside;
  ++state().calls[symbol];
}

Call::~Call() {
  --machine.inside;
  if (machine.generation != generation_) machine.changed.notify_all();
}

bool Call::wait_until(Time when, const std::function<bool()>& over) {
  const auto ended = [&] { return machine.generation != generation_ || over(); };
  while (!ended()) {
    if (when == never) {
      machine.changed.wait(lock_);
    } else if (now() >= when) {
      break;
    } else {
      machine.changed.wait_until(lock_, when);
    }
  }
  return machine.generation == generation_;
}

int Call::begin(int gpu, bool reaches) {
  const int gone = library_ == Library::cuda ? cuda_deinitialized : nvml_unknown;
  int code = 0;
  // A wait lets others add rules: positions stay valid, references do not.
  for (std::size_t i = 0; i < state().rules.size(); ++i) {
    Rule& rule = state().rules[i];
    if (!matches(rule, symbol_, gpu) || !fires(rule)) continue;
    bool here = true;
    switch (rule.action) {
      case Rule::Action::error: code = code != 0 ? code : rule.code; break;
      case Rule::Action::delay: here = wait_until(now() + rule.delay, [] { return false; }); break;
      case Rule::Action::hang: {
        ++machine.hung;
        machine.changed.notify_all();
        const std::uint64_t releases = machine.releases;
        here = wait_until(never, [&] { return machine.releases != releases; });
        --machine.hung;
        break;
      }
      case Rule::Action::lose:
        machine.lose(*rule.gpu, rule.code);
        state().gpus[static_cast<std::size_t>(*rule.gpu)].lost_while = rule.file;
        break;
      case Rule::Action::event:
        machine.post(*rule.gpu, rule.event_type, static_cast<unsigned>(rule.code), rule.slice);
        break;
      case Rule::Action::process: state().units[rule.unit].put(rule.process); break;
    }
    if (!here) return gone;
  }
  if (code != 0) return code;
  if (reaches && gpu >= 0 && static_cast<std::size_t>(gpu) < state().gpus.size()) {
    const Gpu& asked = state().gpus[static_cast<std::size_t>(gpu)];
    if (asked.lost) return library_ == Library::cuda ? asked.lost_code : nvml::gpu_is_lost;
  }
  machine.advance(now());
  return 0;
}

int Call::wait_idle(const Unit& unit) {
  while (machine.is_busy(unit)) {
    bool once = false;
    if (!wait_until(machine.next_change(), [&] { return std::exchange(once, true); })) return cuda_deinitialized;
    machine.advance(now());
    if (state().gpus[static_cast<std::size_t>(unit.gpu)].lost)
      return state().gpus[static_cast<std::size_t>(unit.gpu)].lost_code;
    if (state().sticky != 0) return state().sticky;
  }
  return 0;
}

}  // namespace berth::standin
