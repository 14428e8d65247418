// The machine that the double of the driver libraries pretends to be: GPUs and
// their slices, contexts, memory, streams with work on a time line, and the
// rules of the script. One lock guards all of it; a call that has to wait lets
// go of it. Time is the steady clock's: work that is due is done by whichever
// call comes next, so the double has no threads of its own. Handles and device
// addresses are numbers that no host memory has and that are never used twice.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "device/cuda/driver.hpp"
#include "device/cuda/nvml_api.hpp"
#include "ptx.hpp"

namespace berth::standin {

using Time = std::chrono::steady_clock::time_point;
using Span = std::chrono::nanoseconds;
inline constexpr Time never = Time::max();
inline Time now() { return std::chrono::steady_clock::now(); }

// Codes that the back end has no name for.
inline constexpr int cuda_invalid_value = 1, cuda_out_of_memory = 2, cuda_deinitialized = 4, cuda_unavailable = 46,
                     cuda_invalid_device = 101, cuda_invalid_image = 200, cuda_invalid_context = 201,
                     cuda_no_binary = 209, cuda_peer_unsupported = 217, cuda_invalid_ptx = 218,
                     cuda_unsupported_ptx = 222, cuda_invalid_handle = 400, cuda_not_found = 500,
                     cuda_illegal_address = 700, cuda_out_of_resources = 701, cuda_peer_already = 704,
                     cuda_context_destroyed = 709, cuda_already_registered = 712, cuda_not_registered = 713,
                     cuda_misaligned = 716, cuda_launch_failed = 719, cuda_not_supported = 801,
                     cuda_resource_type = 914, cuda_resource_configuration = 915;
inline constexpr int nvml_uninitialized = 1, nvml_invalid_argument = 2, nvml_unknown = 999;

struct Machine;
struct Unit;

struct Context {
  enum class Kind { primary, created, green };
  Unit& unit;
  Kind kind;
  cuda::Context handle = nullptr;
  bool alive = true;
  std::set<const Unit*> peers;  // whose memory its kernels may touch
  unsigned sms = 0;

  // Whose memory, events and modules these are: a green context has none of its own.
  const std::shared_ptr<Context>& owner(const std::shared_ptr<Context>& self) const;
  // Handles of a GPU's primary context and of its green contexts mix.
  bool is_family_of(const Context& other) const {
    return this == &other || (&unit == &other.unit && kind != Kind::created && other.kind != Kind::created);
  }
};

// Memory of another process.
struct Process {
  unsigned pid = 0;
  std::string pid_file = {};  // has its number; until then there is no such process
  std::uint64_t bytes = 0;
  bool graphics = false;
  bool both = false;    // listed with those that compute, too
  bool unsaid = false;  // listed without its bytes
  bool hidden = false;  // in use but never listed
  // Empty if it is not there yet.
  std::optional<unsigned> number() const;
};

// What CUDA calls a device: a GPU, or a slice of one.
struct Unit {
  int gpu = 0;
  std::string name;
  std::array<unsigned char, 16> uuid{};
  bool is_slice = false;
  std::uint64_t memory_bytes = 0;  // that programs can have
  unsigned sms = 0;
  std::vector<Process> others;

  std::shared_ptr<Context> primary;
  unsigned retained = 0;
  std::uint64_t bytes_used = 0;         // of this process's allocations
  std::uint64_t pool_bytes_used = 0;    // of these, in stream order
  std::uint64_t pool_bytes_idle = 0;    // freed in stream order and kept
  std::uint64_t pool_bytes_unseen = 0;  // freed, and nobody has waited for it since
  std::uint64_t pool_threshold = 0;
  std::size_t contexts = 0;  // alive, of this process

  std::uint64_t bytes_of_contexts() const;
  std::uint64_t bytes_of_this_process() const { return bytes_used + pool_bytes_idle + bytes_of_contexts(); }
  std::uint64_t bytes_free() const;
  // Replaces the process's earlier entry; without bytes the process is removed.
  void put(const Process& process);
  std::string uuid_text() const;
};

inline const std::shared_ptr<Context>& Context::owner(const std::shared_ptr<Context>& self) const {
  return kind == Kind::green && unit.primary ? unit.primary : self;
}

struct NvLink {
  int remote_gpu = -1;  // -1: a switch
};

struct Gpu {
  std::string name = "NVIDIA H200";
  std::array<unsigned char, 16> uuid{};
  std::uint64_t memory_bytes = 141ULL << 30;
  unsigned sms = 132;
  std::array<unsigned, 3> pci{};  // domain, bus, device
  int capability_major = 9, capability_minor = 0;
  int numa = 0;
  int compute_mode = 0;  // 0 shared, 2 prohibited, 3 one process
  std::uint64_t reserved_bytes = 0;
  std::vector<std::size_t> units;  // the whole, or its slices
  bool is_sliced = false;
  std::vector<NvLink> links;

  unsigned utilization = 0, memory_utilization = 0;
  unsigned power_mw = 75'000, power_limit_mw = 700'000;
  unsigned temperature = 35, memory_temperature = 40;
  unsigned clock_mhz = 1980, clock_mhz_max = 1980, memory_clock_mhz = 2619;
  int virtualisation = 0;           // nvmlGpuVirtualizationMode_t
  unsigned long long throttle = 1;  // idle
  unsigned long long ecc_corrected = 0, ecc_uncorrected = 0;
  unsigned rows_corrected = 0, rows_uncorrected = 0, rows_pending = 0, rows_failed = 0;
  unsigned recovery_action = 0;
  unsigned long long event_types = nvml::event_ecc_double_bit | nvml::event_xid | nvml::event_recovery_action;

  // The least multiprocessors of a partition, and of what its size is a multiple.
  unsigned part_min() const { return capability_major >= 9 ? 8 : capability_major == 8 ? 4 : 2; }
  unsigned part_alignment() const { return capability_major >= 9 ? 8 : 2; }

  bool lost = false;            // fell off the bus
  int lost_code = 0;            // what CUDA returns since then
  std::string lost_while = {};  // the loss ends when NVML starts again and this file is gone; empty: never
};

struct Allocation {
  std::uint64_t bytes = 0;
  std::byte* host = nullptr;
  std::shared_ptr<Context> context;
  bool from_pool = false;
};

struct HostRange {
  std::uint64_t bytes = 0;
  bool owned = false;  // allocated by the driver, not registered
  std::shared_ptr<Context> context;
};

struct Event {
  std::shared_ptr<Context> context;
  bool timed = true;
  std::uint64_t records = 0;   // how often it was recorded
  std::uint64_t finished = 0;  // how often its stream reached it
  Time at{};                   // of the last one that was reached
};

struct Work {
  enum class Kind { kernel, copy, other } kind = Kind::other;
  Time enqueued{};
  // How long it takes, once reached; never: until released. May leave a code.
  std::function<Time(Time begin, int& code)> begin;
  std::function<int(Time end)> end;  // its effect, or the code it fails with
  bool begun = false;
  Time until{};
  int code = 0;
};

struct Stream {
  std::shared_ptr<Context> context;
  int priority = 0;
  bool destroyed = false;
  std::deque<Work> work;
  Time idle_since{};
};

struct Module {
  std::shared_ptr<Context> context;
  ptx::Module code;
};
struct Function {
  std::shared_ptr<Module> module;
  const ptx::Entry* entry = nullptr;
};

struct GreenContext {
  std::shared_ptr<Context> context;
};
struct ResourceDescription {
  Unit* unit = nullptr;
  unsigned sms = 0;
};

struct EventSet {
  std::map<int, unsigned long long> types;  // by GPU
  std::deque<nvml::EventRecord> records;
};

struct Rule {
  enum class Action { error, hang, delay, lose, event, process } action{};
  std::string symbol;  // may end with *
  std::optional<int> gpu;
  std::uint64_t at = 1, times = 1;
  std::string file = {};  // it applies while this file is there; empty: always
  int code = 0;
  Span delay{};
  unsigned long long event_type = 0;
  int slice = -1;
  Process process;       // of that pid from then on
  std::size_t unit = 0;  // where it is
  std::uint64_t seen = 0;
};

// Things of one kind by handle.
template <class Handle, class T>
class Registry {
 public:
  std::shared_ptr<T> find(Handle handle) const {
    const auto found = things_.find(reinterpret_cast<std::uint64_t>(handle));
    return found == things_.end() ? nullptr : found->second;
  }
  Handle add(std::uint64_t number, std::shared_ptr<T> thing) {
    things_.emplace(number, std::move(thing));
    return reinterpret_cast<Handle>(number);
  }
  void remove(Handle handle) { things_.erase(reinterpret_cast<std::uint64_t>(handle)); }
  const std::map<std::uint64_t, std::shared_ptr<T>>& all() const { return things_; }
  std::map<std::uint64_t, std::shared_ptr<T>>& all() { return things_; }

 private:
  std::map<std::uint64_t, std::shared_ptr<T>> things_;
};

// Everything that a reset throws away.
struct State {
  std::deque<Unit> units;  // stays in place
  std::vector<Gpu> gpus;
  std::map<std::pair<int, int>, int> pcie_level;    // by GPUs, smaller first
  std::map<std::pair<int, int>, bool> peer_access;  // where the script says so
  int driver_version = 13000;
  std::string driver_text = "580.159.04";
  std::optional<unsigned> own_pid;
  std::vector<Rule> rules;
  std::uint64_t series = 0;  // of made-up UUIDs

  std::vector<std::size_t> visible;  // units in CUDA's order, since cuInit
  bool cuda_started = false;
  int sticky = 0;  // the fault after which no context of the process works

  Registry<cuda::Context, Context> contexts;
  Registry<cuda::StreamHandle, Stream> streams;
  std::list<std::shared_ptr<Stream>> running;  // also those destroyed with work left
  Registry<cuda::EventHandle, Event> events;
  Registry<cuda::Module, Module> modules;
  Registry<cuda::Function, Function> functions;
  Registry<cuda::GreenContext, GreenContext> greens;
  Registry<cuda::ResourceDescription, ResourceDescription> descriptions;
  std::map<std::uint64_t, Allocation> allocations;  // by device address
  std::map<std::uint64_t, HostRange> host_ranges;   // by host address
  Registry<nvml::EventSet, EventSet> event_sets;
  std::uint64_t abandoned = 0;  // still there when their context went
  std::map<std::string, std::uint64_t, std::less<>> calls;

  State() = default;
  State(State&&) = delete;
  ~State();
};

struct Machine {
  static Machine& instance();

  std::mutex mutex;  // guards everything below
  std::condition_variable changed;
  std::unique_ptr<State> state;
  std::uint64_t generation = 0;  // counts resets
  std::uint64_t releases = 0;
  std::size_t inside = 0;  // calls under way
  std::size_t hung = 0;    // of these, held by a rule
  std::uint64_t next_handle = 0x00e0'0000'0000'0000;
  std::uint64_t next_address = 0x00d0'0000'0000'0000;
  std::uint64_t next_split = 1;
  bool resetting = false;     // no call may enter
  bool nvml_started = false;  // the management library starts once in a process, whatever is reset

  // Releases all waiting calls, then restarts with this script. Returns what is wrong with it.
  std::optional<std::string> reset(std::string_view script);
  // More lines for the machine as it is.
  std::optional<std::string> add(std::string_view script);
  void release();

  std::uint64_t handle() { return next_handle += 16; }
  void post(int gpu, unsigned long long type, unsigned long long data, int slice = -1);
  void lose(int gpu, int code);
  void find_again();  // those whose loss is over
  std::vector<int> nvml_order() const;

  // The time line.
  void advance(Time until);
  Time next_change() const;
  bool is_busy(const Unit& unit) const;
  void enqueue(Stream& stream, Work work);

  // Memory. `reach`: what code of that context may touch there.
  std::optional<ptx::Range> reach(const Context& context, std::uint64_t address);
  Allocation* allocation_at(std::uint64_t address, std::uint64_t bytes);
  std::optional<std::uint64_t> allocate(const std::shared_ptr<Context>& context, std::uint64_t bytes, bool from_pool);
  void free(std::uint64_t address);

  std::shared_ptr<Context> current();
  std::shared_ptr<Context> make_context(Unit& unit, Context::Kind kind, unsigned sms);
  cuda::Code may_open(Unit& unit);
  cuda::Code retain(Unit& unit);
  void release_primary(Unit& unit);
  void destroy(const std::shared_ptr<Context>& context);
  bool can_access(const Unit& from, const Unit& to) const;
  int level_between(int a, int b) const;
};

// The handle of a GPU, or of its slice with that index.
nvml::DeviceHandle nvml_handle(int gpu, int slice);
// Instances are counted from 1, and not all numbers are taken.
inline unsigned instance_of(int slice) { return 2 * static_cast<unsigned>(slice) + 1; }

// What rules decide about work when it is reached.
struct WorkOrders {
  int code = 0;
  Span delay{};
  bool hang = false;
};
WorkOrders orders_for(State& state, std::string_view what, int gpu);

// This thread's stack of contexts.
std::vector<cuda::Context>& context_stack(const Machine& machine);
inline cuda::Context top_of(const std::vector<cuda::Context>& stack) { return stack.empty() ? nullptr : stack.back(); }

// One call into the double: counted, and held by the lock.
class Call {
 public:
  enum class Library { cuda, nvml };
  Call(const char* symbol, Library library);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Applies the rules for this call on that GPU (-1: none). Returns 0, or what to
  // answer. `reaches`: the call needs the GPU, so it fails on a lost one.
  int begin(int gpu, bool reaches = true);
  // Waits; false when the machine was reset meanwhile.
  bool wait_until(Time when, const std::function<bool()>& over);
  // Waits until this unit has no work left, as the driver does before it frees.
  int wait_idle(const Unit& unit);

  Machine& machine;
  State& state() { return *machine.state; }

 private:
  const char* symbol_;
  const Library library_;
  std::unique_lock<std::mutex> lock_;
  std::uint64_t generation_ = 0;
};

// The shapes of a CUDA call. `after_fault`: it still works then.
enum class AfterFault { fails, works };

// f(Call&) -> Code.
template <class F>
cuda::Code plain_call(const char* symbol, F&& f) {
  Call call(symbol, Call::Library::cuda);
  if (const int code = call.begin(-1)) return code;
  if (!call.state().cuda_started) return cuda::code_not_initialized;
  return f(call);
}

Unit* unit_of(Machine& machine, cuda::DeviceNumber number);

// f(Call&, Unit&) -> Code. What the driver has read once, it also returns for a
// GPU that it can no longer reach.
enum class Needs { memory_of_driver, gpu };
template <class F>
cuda::Code device_call(const char* symbol, Needs needs, cuda::DeviceNumber number, F&& f) {
  Call call(symbol, Call::Library::cuda);
  const Unit* known = unit_of(call.machine, number);
  if (const int code = call.begin(known ? known->gpu : -1, needs == Needs::gpu)) return code;
  if (!call.state().cuda_started) return cuda::code_not_initialized;
  Unit* unit = unit_of(call.machine, number);
  if (unit == nullptr) return cuda_invalid_device;
  return f(call, *unit);
}

// f(Call&, const std::shared_ptr<Context>&) -> Code, in the current context.
template <class F>
cuda::Code context_call(const char* symbol, AfterFault after, F&& f) {
  Call call(symbol, Call::Library::cuda);
  const std::shared_ptr<Context> known = call.machine.current();
  if (const int code = call.begin(known ? known->unit.gpu : -1)) return code;
  if (!call.state().cuda_started) return cuda::code_not_initialized;
  const std::shared_ptr<Context> context = call.machine.current();
  if (context == nullptr) return cuda_invalid_context;
  if (!context->alive) return cuda_context_destroyed;
  if (after == AfterFault::fails && call.state().sticky != 0) return call.state().sticky;
  return f(call, context);
}

// f(Call&, const std::shared_ptr<GreenContext>&) -> Code.
template <class F>
cuda::Code green_call(const char* symbol, cuda::GreenContext handle, F&& f) {
  Call call(symbol, Call::Library::cuda);
  const std::shared_ptr<GreenContext> known = call.state().greens.find(handle);
  if (const int code = call.begin(known ? known->context->unit.gpu : -1)) return code;
  if (!call.state().cuda_started) return cuda::code_not_initialized;
  const std::shared_ptr<GreenContext> green = call.state().greens.find(handle);
  if (green == nullptr) return cuda_invalid_context;
  return f(call, green);
}

// The stream, if it may be used in this context; else the code to answer.
cuda::Code use_stream(Call& call, const Context& context, cuda::StreamHandle handle, std::shared_ptr<Stream>& stream);

// A script's lines, applied to the machine. What is wrong, with its line.
std::optional<std::string> apply_script(Machine& machine, std::string_view text);

}  // namespace berth::standin
