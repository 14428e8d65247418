// The OpenCL back end: GPUs, accelerators and processors of every platform the
// loader finds. Each opened device has a context of its own, and no lock is
// shared between devices: some drivers (PoCL's `basic`) compute inside the
// enqueue, on the caller's thread, so two devices overlap only when two threads
// may be inside the driver at once.
//
// The parts of a device are its sub-devices. They share one context while any of
// them is open, so that buffers are copied between them; between contexts OpenCL
// copies nothing.
//
// Completion is learnt by polling the status of events, never by a callback and
// never by a blocking call, so a failed or lost device cannot hang a waiter.
#include "device/opencl/backend.hpp"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "device/backends.hpp"
#include "device/host/limits.hpp"
#include "device/local.hpp"
#include "device/opencl/errors.hpp"
#include "device/opencl/pocl_devices.hpp"
#include "device/partition.hpp"

namespace berth {
namespace {

// Queries of vendors' extensions that have no header of their own.
constexpr cl_device_info device_pci_bus_id_nv = 0x4008;
constexpr cl_device_info device_pci_slot_id_nv = 0x4009;  // device << 3 | function
constexpr cl_device_info device_pci_domain_id_nv = 0x400A;
constexpr cl_device_info device_global_free_memory_amd = 0x4039;  // KiB, total and largest block

// A status query costs about 20 ns, an empty kernel on a GPU about 8 us: most
// short work ends while spinning. Yielding then leaves the core to others, and
// naps keep a long wait from costing a core.
constexpr unsigned spin_rounds = 500;
constexpr unsigned yield_rounds = 1000;
constexpr std::chrono::microseconds nap_shortest{20};
constexpr std::chrono::microseconds nap_longest{200};

// Closing waits this long for work that was enqueued before. Longer than any
// copy of a whole device's memory; a device that takes more does not answer.
constexpr std::chrono::seconds drain_limit{10};

// Events a stream remembers between two records before it drops finished ones.
constexpr std::size_t unrecorded_limit = 64;

template <class T>
std::optional<T> device_value(const OpenclApi& api, cl_device_id device, cl_device_info what) {
  T value{};
  std::size_t size = 0;
  if (api.clGetDeviceInfo(device, what, sizeof value, &value, &size) != CL_SUCCESS) return {};
  return value;
}

// The text behind a query of the form get(size, value, size_ret); empty on failure.
template <class Get>
std::string text_of(Get get) {
  std::size_t size = 0;
  if (get(std::size_t{0}, nullptr, &size) != CL_SUCCESS || size == 0) return {};
  std::string text(size, '\0');
  if (get(size, text.data(), nullptr) != CL_SUCCESS) return {};
  return text.substr(0, text.find('\0'));
}
std::string device_text(const OpenclApi& api, cl_device_id device, cl_device_info what) {
  return text_of(
      [&](std::size_t size, void* to, std::size_t* used) { return api.clGetDeviceInfo(device, what, size, to, used); });
}
std::string platform_text(const OpenclApi& api, cl_platform_id platform, cl_platform_info what) {
  return text_of([&](std::size_t size, void* to, std::size_t* used) {
    return api.clGetPlatformInfo(platform, what, size, to, used);
  });
}

bool has_word(const std::string& list, std::string_view word) {
  for (std::size_t at = 0; (at = list.find(word, at)) != std::string::npos; at += word.size()) {
    const std::size_t end = at + word.size();
    if ((at == 0 || list[at - 1] == ' ') && (end == list.size() || list[end] == ' ')) return true;
  }
  return false;
}

// Lower case letters and digits, everything between them one dash.
std::string slug(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isalnum(u)) {
      out += static_cast<char>(std::tolower(u));
    } else if (!out.empty() && out.back() != '-') {
      out += '-';
    }
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out.empty() ? "unnamed" : out;
}

std::string formatted(const char* format, auto... values) {
  char text[64];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

// "OpenCL 3.0 ..." is 3.0.
std::optional<Capability> parse_version(const std::string& text) {
  Capability version;
  if (std::sscanf(text.c_str(), "OpenCL %d.%d", &version.major, &version.minor) != 2) return {};
  return version;
}

std::optional<std::string> find_pci_address(const OpenclApi& api, cl_device_id device, const std::string& extensions) {
  if (has_word(extensions, "cl_khr_pci_bus_info")) {
    const auto at = device_value<cl_device_pci_bus_info_khr>(api, device, CL_DEVICE_PCI_BUS_INFO_KHR);
    if (at) return formatted("%04x:%02x:%02x.%x", at->pci_domain, at->pci_bus, at->pci_device, at->pci_function);
  }
  if (has_word(extensions, "cl_nv_device_attribute_query")) {
    const auto bus = device_value<cl_uint>(api, device, device_pci_bus_id_nv);
    const auto slot = device_value<cl_uint>(api, device, device_pci_slot_id_nv);
    const auto domain = device_value<cl_uint>(api, device, device_pci_domain_id_nv);
    if (bus && slot) return formatted("%04x:%02x:%02x.%x", domain.value_or(0), *bus, *slot >> 3, *slot & 7U);
  }
  return {};
}

// The form CUDA and NVML print, so that the same GPU has the same name there.
std::optional<std::string> find_uuid(const OpenclApi& api, cl_device_id device, const std::string& extensions) {
  if (!has_word(extensions, "cl_khr_device_uuid")) return {};
  const auto uuid = device_value<std::array<cl_uchar, CL_UUID_SIZE_KHR>>(api, device, CL_DEVICE_UUID_KHR);
  if (!uuid || std::ranges::all_of(*uuid, [](cl_uchar byte) { return byte == 0; })) return {};
  std::string text = "GPU";
  for (std::size_t i = 0; i < uuid->size(); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += formatted("%02x", static_cast<unsigned>((*uuid)[i]));
  }
  return text;
}

struct Found {
  DeviceInfo info;
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  bool reports_free_memory = false;  // cl_amd_device_attribute_query
  bool partitionable = false;        // by counts of compute units
  // As in Part; `device` is the whole until the part is opened.
  std::optional<std::size_t> place;
  std::vector<std::uint32_t> cut;
};

bool partitions_by_counts(const OpenclApi& api, cl_device_id device) {
  std::array<cl_device_partition_property, 8> kinds{};
  std::size_t bytes = 0;
  const cl_int code = api.clGetDeviceInfo(device, CL_DEVICE_PARTITION_PROPERTIES, sizeof kinds, kinds.data(), &bytes);
  const auto end = kinds.begin() + static_cast<std::ptrdiff_t>(std::min(bytes / sizeof kinds[0], kinds.size()));
  return code == CL_SUCCESS && std::find(kinds.begin(), end, CL_DEVICE_PARTITION_BY_COUNTS) != end;
}

Found describe(const OpenclApi& api, cl_platform_id platform, cl_device_id device, const std::vector<Found>& before) {
  Found found;
  found.platform = platform;
  found.device = device;
  DeviceInfo& info = found.info;
  const std::string extensions = device_text(api, device, CL_DEVICE_EXTENSIONS);
  const bool is_cpu = device_value<cl_device_type>(api, device, CL_DEVICE_TYPE).value_or(0) & CL_DEVICE_TYPE_CPU;

  info.backend = "opencl";
  info.name = device_text(api, device, CL_DEVICE_NAME);
  info.ordinal = static_cast<int>(before.size());
  info.memory_bytes_total = device_value<cl_ulong>(api, device, CL_DEVICE_GLOBAL_MEM_SIZE);
  info.capability = parse_version(device_text(api, device, CL_DEVICE_VERSION));
  info.compute_units = device_value<cl_uint>(api, device, CL_DEVICE_MAX_COMPUTE_UNITS);
  info.pci_address = find_pci_address(api, device, extensions);
  // A processor computes one kernel with all the cores it has; a GPU copies one
  // frame while it computes another.
  info.concurrency = is_cpu ? 1 : 2;
  info.is_fallback = is_cpu;
  if (device_value<cl_bool>(api, device, CL_DEVICE_COMPILER_AVAILABLE).value_or(CL_FALSE)) {
    info.features.insert("opencl_c");
  }
  if (api.clCreateCommandQueueWithProperties && has_word(extensions, "cl_khr_priority_hints")) {
    info.features.insert("stream_priority");
  }
  found.reports_free_memory = has_word(extensions, "cl_amd_device_attribute_query");
  found.partitionable = partitions_by_counts(api, device);

  // By hardware where it says who it is, otherwise by platform, name and place
  // among devices of that name. Drivers that make up a UUID may give it twice.
  const auto taken = [&](const std::string& id) {
    return std::ranges::any_of(before, [&](const Found& other) { return other.info.id.text() == id; });
  };
  std::string id;
  if (!is_cpu) id = find_uuid(api, device, extensions).value_or(info.pci_address ? "PCI-" + *info.pci_address : "");
  if (id.empty() || taken(id)) {
    std::string family = platform_text(api, platform, CL_PLATFORM_ICD_SUFFIX_KHR);
    if (family.empty()) family = platform_text(api, platform, CL_PLATFORM_NAME);
    const std::string stem = "opencl/" + slug(family) + "/" + slug(info.name) + ".";
    for (int place = 0; taken(id = stem + std::to_string(place)); ++place) {
    }
  }
  info.id = DeviceId(id);
  // A processor's driver can fail without the processor.
  info.memory_domain = is_cpu ? "host" : id;
  info.fault_domain = id;
  return found;
}

// Every device of every platform. A platform that does not answer is left out;
// when none does, the first one's error is the answer. PoCL leaves out what it
// does not know in its environment variable without a word, so that is looked at here.
Result<std::vector<Found>> find_devices(const OpenclApi& api) {
  cl_uint count = 0;
  if (const cl_int code = api.clGetPlatformIDs(0, nullptr, &count); code != CL_SUCCESS) {
    if (code == CL_PLATFORM_NOT_FOUND_KHR) return std::vector<Found>{};
    return opencl_error(code, "the OpenCL platforms could not be listed");
  }
  std::vector<cl_platform_id> platforms(count);
  if (count > 0) {
    const cl_int code = api.clGetPlatformIDs(count, platforms.data(), nullptr);
    if (code != CL_SUCCESS) return opencl_error(code, "the OpenCL platforms could not be listed");
  }
  constexpr cl_device_type kinds = CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_CPU;
  std::vector<Found> found;
  std::optional<Error> silent;
  bool answered = false;
  for (cl_platform_id platform : platforms) {
    if (platform_text(api, platform, CL_PLATFORM_NAME) == pocl_platform_name) {
      const char* chosen = std::getenv(pocl_devices_variable);
      std::optional<Error> problem = chosen ? pocl_devices_problem(chosen) : std::nullopt;
      if (problem) {
        if (!silent) silent = std::move(problem);
        continue;
      }
    }
    std::vector<cl_device_id> devices;
    cl_uint devices_count = 0;
    cl_int code = api.clGetDeviceIDs(platform, kinds, 0, nullptr, &devices_count);
    if (code == CL_SUCCESS && devices_count > 0) {
      devices.resize(devices_count);
      code = api.clGetDeviceIDs(platform, kinds, devices_count, devices.data(), nullptr);
    }
    if (code != CL_SUCCESS && code != CL_DEVICE_NOT_FOUND) {
      if (!silent) {
        silent = opencl_error(code, "the OpenCL platform '" + platform_text(api, platform, CL_PLATFORM_NAME) +
                                        "' could not list its devices");
      }
      continue;
    }
    answered = true;
    for (cl_device_id device : devices) found.push_back(describe(api, platform, device, found));
  }
  if (!answered && silent) return *std::move(silent);
  return found;
}

// The same, with devices that were asked to be cut given way to their parts.
Result<std::vector<Found>> find_parts(const OpenclApi& api, std::span<const PartitionRequest> requests) {
  Result<std::vector<Found>> wholes = find_devices(api);
  if (!wholes || requests.empty()) return wholes;
  std::vector<DeviceInfo> infos;
  for (const Found& whole : *wholes) infos.push_back(whole.info);
  Result<std::vector<Part>> parts = divide("opencl", "cu", infos, requests);
  if (!parts) return std::move(parts).error();
  std::vector<Found> found;
  for (Part& part : *parts) {
    const Found& whole = (*wholes)[part.whole];
    if (part.place && !whole.partitionable) {
      return Error{ErrorCode::not_supported,
                   "the device cannot be cut into parts by numbers of compute units",
                   "leave it whole; of PoCL's devices 'pthread' can be cut and 'basic' cannot",
                   whole.info.id.text(),
                   {}};
    }
    found.push_back(whole);
    found.back().info = std::move(part.info);
    found.back().place = part.place;
    found.back().cut = std::move(part.cut);
  }
  return found;
}

// CL_COMPLETE, positive while pending, negative when the command failed.
cl_int event_status(const OpenclApi& api, cl_event event) {
  cl_int status = CL_QUEUED;
  const cl_int code = api.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
  return code == CL_SUCCESS ? status : code;
}

class OpenclDevice;

// Releases a driver object when it goes; the device it belongs to stays at
// least as long.
template <class Handle>
class Owned {
 public:
  using Release = cl_int(CL_API_CALL*)(Handle);
  Owned() = default;
  Owned(Handle handle, Release release) : handle_(handle), release_(release) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)), release_(other.release_) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(release_, other.release_);
    return *this;
  }
  ~Owned() {
    if (handle_) release_(handle_);
  }
  Handle get() const noexcept { return handle_; }

 private:
  Handle handle_ = nullptr;
  Release release_ = nullptr;
};
using OwnedEvent = Owned<cl_event>;

// A context and the sub-devices it was made for, if it was. Openings of a part
// share it with its siblings.
struct OpenclContext {
  std::vector<cl_device_id> parts;  // of find_sub_devices
  Owned<cl_context> handle;
  std::atomic<bool> lost{false};
};

class OpenclMemory final : public Memory {
 public:
  OpenclMemory(std::shared_ptr<OpenclDevice> owner, std::shared_ptr<BytesUsed> used, std::uint64_t charged)
      : owner_(std::move(owner)), used_(std::move(used)), charged_(charged) {}
  OpenclMemory(const OpenclMemory&) = delete;
  OpenclMemory& operator=(const OpenclMemory&) = delete;
  ~OpenclMemory() override { used_->fetch_sub(charged_, std::memory_order_relaxed); }
  const OpenclDevice& owner() const noexcept { return *owner_; }
  void hold(Owned<cl_mem> memory) {
    memory_ = std::move(memory);
    native = memory_.get();
  }

 private:
  const std::shared_ptr<OpenclDevice> owner_;  // keeps the context
  const std::shared_ptr<BytesUsed> used_;
  const std::uint64_t charged_;
  Owned<cl_mem> memory_;
};

class OpenclKernel;

class OpenclDevice final : public Device, public std::enable_shared_from_this<OpenclDevice> {
 public:
  OpenclDevice(const OpenclApi& api, Found found, std::shared_ptr<OpenclContext> context,
               std::shared_ptr<BytesUsed> used, Clock& clock)
      : api_(api),
        found_(std::move(found)),
        largest_bytes_(device_value<cl_ulong>(api, found_.device, CL_DEVICE_MAX_MEM_ALLOC_SIZE)
                           .value_or(std::numeric_limits<std::uint64_t>::max())),
        context_(std::move(context)),
        used_(std::move(used)),
        clock_(clock) {}
  ~OpenclDevice() override { close(); }

  const DeviceInfo& info() const noexcept override { return found_.info; }
  std::uint64_t generation() const noexcept override { return generation_; }
  Result<Buffer> allocate(std::uint64_t bytes) override;
  Result<std::unique_ptr<Stream>> open_stream(Priority priority) override;
  Result<std::shared_ptr<Kernel>> load(const KernelSource& source) override;
  Result<LoadSample> sample() override;
  NativeHandles native() const noexcept override { return {found_.device, context_->handle.get()}; }
  void close() noexcept override;

  const OpenclApi& api() const noexcept { return api_; }
  const Clock& clock() const noexcept { return clock_; }
  bool closed() const noexcept { return closed_.load(); }
  // Nothing is waited for any more: what is still pending will not be answered.
  bool abandoned() const noexcept { return abandoned_.load(std::memory_order_acquire); }
  Error lost() const { return device_lost_error(id()); }
  Error refused(std::string message, std::string advice = "correct the call") const {
    return {ErrorCode::invalid_argument, std::move(message), std::move(advice), id().text(), {}};
  }
  // The driver's error in our words. One that takes the device away closes it.
  Error failed(cl_int code, std::string what) {
    Error error = opencl_error(code, std::move(what), id().text());
    if (error.code == ErrorCode::device_lost) {
      closed_.store(true);
      abandoned_.store(true, std::memory_order_release);
      context_->lost.store(true);
    }
    return error;
  }
  Result<void> check(const Buffer& buffer) const;
  Result<void> check(const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) const;
  // The source of a copy, which may be a buffer of another part of the same device.
  Result<void> check_source(const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) const;
  // A handle made by another device, or by an earlier incarnation of this one.
  Error misplaced(const char* what, const DeviceId& maker) const;

  void add_queue(cl_command_queue queue) {
    const std::lock_guard guard(mutex_);
    queues_.push_back(queue);
  }
  void remove_queue(cl_command_queue queue) {
    const std::lock_guard guard(mutex_);
    std::erase(queues_, queue);
  }

  // Held while a copy is enqueued: none may start behind the back of close(),
  // which promises that host memory is left alone afterwards.
  class Entry {
   public:
    explicit Entry(OpenclDevice& device) : device_(device) { device_.entered_.fetch_add(1); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry() { device_.entered_.fetch_sub(1); }
    bool refused() const noexcept { return device_.closed(); }

   private:
    OpenclDevice& device_;
  };

 private:
  bool drained(std::vector<OwnedEvent>& markers) const;
  Result<void> check_range(const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) const;

  const OpenclApi& api_;
  const Found found_;
  const std::uint64_t largest_bytes_;  // of one allocation
  const std::shared_ptr<OpenclContext> context_;
  const std::shared_ptr<BytesUsed> used_;  // of its memory, by all of its openings and parts
  Clock& clock_;
  const std::uint64_t generation_ = next_generation();
  std::atomic<bool> closed_{false};
  std::atomic<bool> abandoned_{false};
  std::atomic<int> entered_{0};
  std::mutex mutex_;  // guards queues_
  std::vector<cl_command_queue> queues_;
};

// Compiled once, launched from any stream of its device. The arguments are part
// of a cl_kernel, so that each launch borrows one for itself: there are as many
// as threads that were ever launching at the same moment.
class OpenclKernel final : public Kernel {
 public:
  OpenclKernel(std::shared_ptr<OpenclDevice> device, Owned<cl_program> program, std::string entry)
      : device_(std::move(device)), program_(std::move(program)), entry_(std::move(entry)) {}

  const std::shared_ptr<OpenclDevice>& device() const noexcept { return device_; }
  const std::string& entry() const noexcept { return entry_; }

  // Creates the first cl_kernel and reads what its arguments are.
  Result<void> prepare();
  Result<void> check(std::span<const Argument> arguments) const;
  Result<Owned<cl_kernel>> borrow() const;
  void give_back(Owned<cl_kernel> kernel) const {
    const std::lock_guard guard(mutex_);
    idle_.push_back(std::move(kernel));
  }

 private:
  enum class Takes { anything, buffer, value, local };
  const std::shared_ptr<OpenclDevice> device_;
  const Owned<cl_program> program_;
  const std::string entry_;
  std::vector<Takes> takes_;
  mutable std::mutex mutex_;  // guards idle_
  mutable std::vector<Owned<cl_kernel>> idle_;
};

class OpenclEvent final : public Event {
 public:
  // `parts` are the commands since the event before, oldest first. The queue is
  // in order, so the last one done means all done; each may have failed.
  OpenclEvent(std::shared_ptr<OpenclDevice> device, std::vector<OwnedEvent> earlier, OwnedEvent last)
      : device_(std::move(device)), earlier_(std::move(earlier)), last_(std::move(last)) {}

  Result<bool> done() override {
    const cl_int status = poll();
    if (status == CL_COMPLETE) return true;
    if (status < 0) return device_->failed(status, "the work before this event failed");
    if (device_->abandoned()) return device_->lost();
    return false;
  }

  Result<void> wait(Deadline deadline) override {
    auto nap = nap_shortest;
    for (unsigned round = 0;; ++round) {
      const Result<bool> finished = done();
      if (!finished) return finished.error();
      if (*finished) return {};
      if (deadline.passed(device_->clock().now())) {
        return Error{ErrorCode::timeout,
                     "the work was not done at its deadline",
                     "wait longer, or give the device up",
                     device_->id().text(),
                     {}};
      }
      if (round < spin_rounds) continue;
      if (round < spin_rounds + yield_rounds) {
        std::this_thread::yield();
        continue;
      }
      // The driver works in real time, whatever clock the deadline is on.
      real_clock().sleep_for(nap);
      nap = std::min(2 * nap, nap_longest);
    }
  }

  Result<Duration> since(const Event& earlier) const override {
    const auto* other = dynamic_cast<const OpenclEvent*>(&earlier);
    if (!other || other->device_ != device_) {
      return device_->refused("the earlier event belongs to another device", "compare events of one device");
    }
    const Result<OpenclInterval> begin = other->interval();
    if (!begin) return begin.error();
    const Result<OpenclInterval> end = interval();
    if (!end) return end.error();
    if (begin->end_ns > end->end_ns) {
      return device_->refused("the other event is the later one", "ask the later event");
    }
    return Duration(end->end_ns - begin->end_ns);
  }

  Result<OpenclInterval> interval() const {
    if (poll() != CL_COMPLETE) return device_->refused("the event is not done", "wait for it first");
    OpenclInterval when;
    const auto read = [&](cl_profiling_info what, std::uint64_t& to) {
      cl_ulong value = 0;
      const cl_int code = device_->api().clGetEventProfilingInfo(last_.get(), what, sizeof value, &value, nullptr);
      to = value;
      return code;
    };
    cl_int code = read(CL_PROFILING_COMMAND_START, when.begin_ns);
    if (code == CL_SUCCESS) code = read(CL_PROFILING_COMMAND_END, when.end_ns);
    if (code != CL_SUCCESS) return device_->failed(code, "the driver does not say when the work ran");
    return when;
  }

  // CL_COMPLETE, positive while pending, or the negative code of the first
  // command that failed. Asks the driver until it is final.
  cl_int poll() const {
    cl_int status = status_.load(std::memory_order_acquire);
    if (status <= CL_COMPLETE) return status;
    status = event_status(device_->api(), last_.get());
    if (status > CL_COMPLETE) return status;
    for (const OwnedEvent& event : earlier_) {
      const cl_int other = event_status(device_->api(), event.get());
      if (other < 0) {
        status = other;
        break;
      }
    }
    status_.store(status, std::memory_order_release);
    return status;
  }

 private:
  const std::shared_ptr<OpenclDevice> device_;
  const std::vector<OwnedEvent> earlier_;
  const OwnedEvent last_;
  mutable std::atomic<cl_int> status_{CL_QUEUED};
};

class OpenclStream final : public Stream {
 public:
  OpenclStream(std::shared_ptr<OpenclDevice> device, Owned<cl_command_queue> queue, Priority priority)
      : device_(std::move(device)), queue_(std::move(queue)), priority_(priority) {
    device_->add_queue(queue_.get());
  }
  OpenclStream(const OpenclStream&) = delete;
  OpenclStream& operator=(const OpenclStream&) = delete;
  ~OpenclStream() override { device_->remove_queue(queue_.get()); }

  Device& device() noexcept override { return *device_; }
  Priority priority() const noexcept override { return priority_; }

  Result<void> copy_in(const Buffer& to, std::uint64_t offset, std::span<const std::byte> from) override {
    const OpenclDevice::Entry entry(*device_);
    if (entry.refused()) return device_->lost();
    if (Result<void> allowed = device_->check(to, offset, from.size()); !allowed || from.empty()) return allowed;
    cl_event event = nullptr;
    const cl_int code = api().clEnqueueWriteBuffer(queue_.get(), static_cast<cl_mem>(to.native()), CL_FALSE, offset,
                                                   from.size(), from.data(), 0, nullptr, &event);
    return accept(code, event, "the copy to the device could not be enqueued");
  }

  Result<void> copy_out(const Buffer& from, std::uint64_t offset, std::span<std::byte> to) override {
    const OpenclDevice::Entry entry(*device_);
    if (entry.refused()) return device_->lost();
    if (Result<void> allowed = device_->check(from, offset, to.size()); !allowed || to.empty()) return allowed;
    cl_event event = nullptr;
    const cl_int code = api().clEnqueueReadBuffer(queue_.get(), static_cast<cl_mem>(from.native()), CL_FALSE, offset,
                                                  to.size(), to.data(), 0, nullptr, &event);
    return accept(code, event, "the copy from the device could not be enqueued");
  }

  Result<void> copy(const Buffer& to, std::uint64_t to_offset, const Buffer& from, std::uint64_t from_offset,
                    std::uint64_t bytes) override {
    if (device_->closed()) return device_->lost();
    if (Result<void> allowed = device_->check(to, to_offset, bytes); !allowed) return allowed;
    if (Result<void> allowed = device_->check_source(from, from_offset, bytes); !allowed) return allowed;
    if (Result<void> apart = check_apart(to, to_offset, from, from_offset, bytes); !apart || bytes == 0) return apart;
    cl_event event = nullptr;
    const cl_int code =
        api().clEnqueueCopyBuffer(queue_.get(), static_cast<cl_mem>(from.native()), static_cast<cl_mem>(to.native()),
                                  from_offset, to_offset, bytes, 0, nullptr, &event);
    return accept(code, event, "the copy between buffers could not be enqueued");
  }

  Result<void> launch(const Kernel& kernel, const LaunchShape& shape, std::span<const Argument> arguments) override;

  // The last command's own event stands for the record: a marker would cost as
  // much as an empty kernel. It needs one when nothing was enqueued since the
  // last record, and when the caller may have enqueued past this stream.
  Result<std::shared_ptr<Event>> record() override {
    if (device_->closed()) return device_->lost();
    if (unrecorded_.empty() || native_given_) {
      cl_event event = nullptr;
      const cl_int code = api().clEnqueueMarkerWithWaitList(queue_.get(), 0, nullptr, &event);
      if (Result<void> accepted = accept(code, event, "the event could not be recorded"); !accepted) {
        return std::move(accepted).error();
      }
    }
    OwnedEvent last = std::move(unrecorded_.back());
    unrecorded_.pop_back();
    std::vector<OwnedEvent> earlier;
    if (!unrecorded_.empty()) earlier.swap(unrecorded_);
    auto event = std::make_shared<OpenclEvent>(device_, std::move(earlier), std::move(last));
    // Nothing makes a queued command start but a flush, and watchers only look.
    if (event->poll() > CL_COMPLETE) {
      const cl_int code = api().clFlush(queue_.get());
      if (code != CL_SUCCESS) return device_->failed(code, "the queue could not be flushed");
    }
    return std::shared_ptr<Event>(std::move(event));
  }

  Result<void> run(const std::function<Result<void>(Stream&)>& closure) override {
    if (device_->closed()) return device_->lost();
    return guarded(device_->id(), [&] { return closure(*this); });
  }

  void* native() const noexcept override {
    native_given_ = true;
    return queue_.get();
  }

 private:
  const OpenclApi& api() const noexcept { return device_->api(); }

  Result<void> accept(cl_int code, cl_event event, const char* what) {
    if (code != CL_SUCCESS) return device_->failed(code, what);
    if (unrecorded_.size() >= forget_at_) forget_finished();
    unrecorded_.emplace_back(event, api().clReleaseEvent);
    return {};
  }

  // Keeps a stream without records from growing; failures stay for the record.
  void forget_finished() {
    std::erase_if(unrecorded_,
                  [&](const OwnedEvent& event) { return event_status(api(), event.get()) == CL_COMPLETE; });
    forget_at_ = std::max(unrecorded_limit, 2 * unrecorded_.size());
  }

  const std::shared_ptr<OpenclDevice> device_;
  const Owned<cl_command_queue> queue_;
  const Priority priority_;
  std::vector<OwnedEvent> unrecorded_;  // commands since the last record, oldest first
  std::size_t forget_at_ = unrecorded_limit;
  mutable bool native_given_ = false;
};

Error OpenclDevice::misplaced(const char* what, const DeviceId& maker) const {
  if (maker != id()) {
    return refused(std::string("the ") + what + " belongs to " + maker.text(), "use it on the device that made it");
  }
  return {ErrorCode::stale_handle,
          std::string("the ") + what + " belongs to an earlier opening of the device",
          "make it anew on the reopened device",
          id().text(),
          {}};
}

Result<void> OpenclDevice::check(const Buffer& buffer) const {
  if (!buffer) return refused("the buffer is empty", "allocate it first");
  const Memory& memory = *buffer.memory();
  if (memory.device == this && memory.generation == generation_) return {};
  const auto* ours = dynamic_cast<const OpenclMemory*>(&memory);
  if (!ours) return refused("the buffer belongs to a device of another back end", "use it on the device that made it");
  return misplaced("buffer", ours->owner().id());
}

Result<void> OpenclDevice::check(const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) const {
  if (Result<void> usable = check(buffer); !usable) return usable;
  return check_range(buffer, offset, bytes);
}

Result<void> OpenclDevice::check_source(const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) const {
  const auto* ours = dynamic_cast<const OpenclMemory*>(buffer.memory().get());
  if (!ours || ours->owner().id() == id()) return check(buffer, offset, bytes);
  if (ours->owner().closed()) {
    return Error{ErrorCode::stale_handle,
                 "the buffer belongs to an opening of " + ours->owner().id().text() + " that is over",
                 "make it anew on the reopened device",
                 id().text(),
                 {}};
  }
  if (ours->owner().context_ != context_) {
    return Error{ErrorCode::not_supported,
                 "OpenCL does not copy from " + ours->owner().id().text() + " to this device",
                 "copy out to the host and in again",
                 id().text(),
                 {}};
  }
  return check_range(buffer, offset, bytes);
}

Result<void> OpenclDevice::check_range(const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) const {
  if (offset > buffer.bytes() || bytes > buffer.bytes() - offset) {
    return refused(std::to_string(bytes) + " bytes at offset " + std::to_string(offset) +
                   " reach beyond the buffer of " + std::to_string(buffer.bytes()));
  }
  return {};
}

// Enqueued copies read and write host memory that the caller frees once its
// event has resolved, so closing waits for them; but not for ever.
void OpenclDevice::close() noexcept {
  if (closed_.exchange(true)) return;
  std::vector<OwnedEvent> markers;
  bool marked = false;
  const TimePoint until = clock_.now() + drain_limit;
  while (!(marked && drained(markers)) && clock_.now() < until) {
    if (!marked && entered_.load() == 0) {
      const std::lock_guard guard(mutex_);
      for (cl_command_queue queue : queues_) {
        cl_event event = nullptr;
        if (api_.clEnqueueMarkerWithWaitList(queue, 0, nullptr, &event) != CL_SUCCESS) continue;
        markers.emplace_back(event, api_.clReleaseEvent);
        api_.clFlush(queue);
      }
      marked = true;
      continue;
    }
    clock_.sleep_for(nap_shortest);
  }
  abandoned_.store(true, std::memory_order_release);
}

bool OpenclDevice::drained(std::vector<OwnedEvent>& markers) const {
  return std::ranges::all_of(markers,
                             [&](const OwnedEvent& marker) { return event_status(api_, marker.get()) <= CL_COMPLETE; });
}

Result<Buffer> OpenclDevice::allocate(std::uint64_t bytes) {
  if (closed()) return lost();
  if (bytes == 0) return refused("a buffer of zero bytes was asked for");
  if (bytes > largest_bytes_) {
    Error error = too_much_error(id(), bytes, largest_bytes_);
    error.message = std::to_string(bytes) + " bytes do not fit, the device gives at most " +
                    std::to_string(largest_bytes_) + " in one buffer";
    return error;
  }
  // Drivers promise more than there is and fail when the memory is touched.
  const std::uint64_t total = info().memory_bytes_total.value_or(std::numeric_limits<std::uint64_t>::max());
  const std::uint64_t used = used_->fetch_add(bytes, std::memory_order_relaxed);
  auto memory = std::make_shared<OpenclMemory>(shared_from_this(), used_, bytes);
  if (used > total || bytes > total - used) return too_much_error(id(), bytes, total > used ? total - used : 0);
  cl_int code = CL_SUCCESS;
  cl_mem handle = api_.clCreateBuffer(context_->handle.get(), CL_MEM_READ_WRITE, bytes, nullptr, &code);
  if (code != CL_SUCCESS) return failed(code, std::to_string(bytes) + " bytes could not be allocated");
  memory->hold({handle, api_.clReleaseMemObject});
  memory->bytes = bytes;
  memory->generation = generation_;
  memory->device = this;
  count(*memory);
  return Buffer(std::move(memory));
}

Result<std::unique_ptr<Stream>> OpenclDevice::open_stream(Priority priority) {
  if (closed()) return lost();
  // Profiling is the only way to the device's own times. It costs 0.1 us per
  // launch on PoCL and 6 us on NVIDIA, whose GPUs are CUDA's by preference.
  cl_int code = CL_SUCCESS;
  cl_command_queue queue = nullptr;
  if (info().features.contains("stream_priority")) {
    const cl_queue_properties level = priority == Priority::high  ? CL_QUEUE_PRIORITY_HIGH_KHR
                                      : priority == Priority::low ? CL_QUEUE_PRIORITY_LOW_KHR
                                                                  : CL_QUEUE_PRIORITY_MED_KHR;
    const cl_queue_properties wanted[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, CL_QUEUE_PRIORITY_KHR, level,
                                          0};
    queue = api_.clCreateCommandQueueWithProperties(context_->handle.get(), found_.device, wanted, &code);
  } else {
    queue = api_.clCreateCommandQueue(context_->handle.get(), found_.device, CL_QUEUE_PROFILING_ENABLE, &code);
  }
  if (code != CL_SUCCESS) return failed(code, "a stream could not be opened");
  return std::unique_ptr<Stream>(std::make_unique<OpenclStream>(
      shared_from_this(), Owned<cl_command_queue>(queue, api_.clReleaseCommandQueue), priority));
}

Result<std::shared_ptr<Kernel>> OpenclDevice::load(const KernelSource& source) {
  if (closed()) return lost();
  if (source.opencl_c.empty()) {
    return Error{ErrorCode::not_supported,
                 "kernel '" + source.entry + "' has no OpenCL C form",
                 "give its source in OpenCL C",
                 id().text(),
                 {}};
  }
  const char* text = source.opencl_c.data();
  const std::size_t size = source.opencl_c.size();
  cl_int code = CL_SUCCESS;
  Owned<cl_program> program(api_.clCreateProgramWithSource(context_->handle.get(), 1, &text, &size, &code),
                            api_.clReleaseProgram);
  if (code != CL_SUCCESS) return failed(code, "kernel '" + source.entry + "' could not be read");
  // With the kinds of its arguments at hand, a value in the place of a buffer is
  // refused; drivers take its bytes for an address.
  code = api_.clBuildProgram(program.get(), 1, &found_.device, "-cl-kernel-arg-info", nullptr, nullptr);
  if (code != CL_SUCCESS) {
    std::string log = text_of([&](std::size_t space, void* to, std::size_t* used) {
      return api_.clGetProgramBuildInfo(program.get(), found_.device, CL_PROGRAM_BUILD_LOG, space, to, used);
    });
    while (!log.empty() && std::isspace(static_cast<unsigned char>(log.back()))) log.pop_back();
    return failed(code, "kernel '" + source.entry + "' does not compile: " + (log.empty() ? "no build log" : log));
  }
  auto kernel = std::make_shared<OpenclKernel>(shared_from_this(), std::move(program), source.entry);
  if (Result<void> ready = kernel->prepare(); !ready) return std::move(ready).error();
  return std::shared_ptr<Kernel>(std::move(kernel));
}

Result<LoadSample> OpenclDevice::sample() {
  if (closed()) return lost();
  LoadSample sample;
  sample.memory_bytes_total = info().memory_bytes_total;
  {
    const std::lock_guard guard(mutex_);
    sample.active_streams = static_cast<std::uint32_t>(queues_.size());
  }
  if (info().is_fallback && info().memory_bytes_total) {
    // The host's memory: what the machine has left, and never more than this
    // device has not promised yet.
    const std::uint64_t total = *info().memory_bytes_total;
    const std::uint64_t used = used_->load(std::memory_order_relaxed);
    const auto available = read_host_limits().memory_bytes_free;
    if (available) sample.memory_bytes_free = std::min(*available, total > used ? total - used : 0);
  } else if (found_.reports_free_memory) {
    const auto kib = device_value<std::array<std::size_t, 2>>(api_, found_.device, device_global_free_memory_amd);
    if (kib) sample.memory_bytes_free = std::uint64_t{(*kib)[0]} * 1024;
  }
  return sample;
}

Result<void> OpenclKernel::prepare() {
  Result<Owned<cl_kernel>> first = borrow();
  if (!first) return std::move(first).error();
  const OpenclApi& api = device_->api();
  cl_uint count = 0;
  const cl_int code = api.clGetKernelInfo(first->get(), CL_KERNEL_NUM_ARGS, sizeof count, &count, nullptr);
  if (code != CL_SUCCESS) return device_->failed(code, "the arguments of kernel '" + entry_ + "' could not be counted");
  for (cl_uint i = 0; i < count; ++i) {
    cl_kernel_arg_address_qualifier space = 0;
    if (api.clGetKernelArgInfo(first->get(), i, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof space, &space, nullptr) !=
        CL_SUCCESS) {
      space = 0;
    }
    takes_.push_back(space == CL_KERNEL_ARG_ADDRESS_GLOBAL || space == CL_KERNEL_ARG_ADDRESS_CONSTANT ? Takes::buffer
                     : space == CL_KERNEL_ARG_ADDRESS_PRIVATE                                         ? Takes::value
                     : space == CL_KERNEL_ARG_ADDRESS_LOCAL                                           ? Takes::local
                                                            : Takes::anything);
  }
  give_back(*std::move(first));
  return {};
}

Result<void> OpenclKernel::check(std::span<const Argument> arguments) const {
  const auto refused = [&](std::size_t i, const char* why) {
    return device_->refused("argument " + std::to_string(i) + " of kernel '" + entry_ + "' " + why);
  };
  if (arguments.size() != takes_.size()) {
    return device_->refused("kernel '" + entry_ + "' takes " + std::to_string(takes_.size()) + " arguments and got " +
                            std::to_string(arguments.size()));
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (takes_[i] == Takes::local) return refused(i, "is local memory, which no argument can give");
    if (arguments[i].is_buffer()) {
      if (takes_[i] == Takes::value) return refused(i, "is a plain value and got a buffer");
      if (Result<void> usable = device_->check(arguments[i].buffer()); !usable) return usable;
    } else if (takes_[i] == Takes::buffer) {
      return refused(i, "is a buffer and got a plain value");
    }
  }
  return {};
}

Result<Owned<cl_kernel>> OpenclKernel::borrow() const {
  {
    const std::lock_guard guard(mutex_);
    if (!idle_.empty()) {
      Owned<cl_kernel> kernel = std::move(idle_.back());
      idle_.pop_back();
      return kernel;
    }
  }
  cl_int code = CL_SUCCESS;
  cl_kernel kernel = device_->api().clCreateKernel(program_.get(), entry_.c_str(), &code);
  if (code != CL_SUCCESS) return device_->failed(code, "there is no kernel '" + entry_ + "' in the program");
  return Owned<cl_kernel>(kernel, device_->api().clReleaseKernel);
}

Result<void> OpenclStream::launch(const Kernel& kernel, const LaunchShape& shape, std::span<const Argument> arguments) {
  if (device_->closed()) return device_->lost();
  const auto* ours = dynamic_cast<const OpenclKernel*>(&kernel);
  if (!ours) return device_->refused("the kernel belongs to another back end", "load it on this device");
  if (ours->device() != device_) return device_->misplaced("kernel", ours->device()->id());
  if (Result<void> fits = ours->check(arguments); !fits) return fits;

  // Whole groups, as on CUDA: not every driver takes a rest. A size nobody chose
  // is left to the driver, which then needs no rounding.
  const bool grouped = shape.group[0] || shape.group[1] || shape.group[2];
  std::size_t global[3];
  std::size_t group[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (shape.global[i] == 0) {
      return device_->refused("the launch of '" + ours->entry() + "' has a dimension of size zero");
    }
    group[i] = std::max<std::size_t>(1, shape.group[i]);
    global[i] = (shape.global[i] + group[i] - 1) / group[i] * group[i];
  }
  cl_uint dimensions = 3;
  while (dimensions > 1 && global[dimensions - 1] == 1) --dimensions;

  Result<Owned<cl_kernel>> borrowed = ours->borrow();
  if (!borrowed) return std::move(borrowed).error();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Argument& argument = arguments[i];
    cl_mem memory = argument.is_buffer() ? static_cast<cl_mem>(argument.buffer().native()) : nullptr;
    const cl_int code = api().clSetKernelArg(borrowed->get(), static_cast<cl_uint>(i),
                                             argument.is_buffer() ? sizeof memory : argument.value_size(),
                                             argument.is_buffer() ? &memory : argument.value());
    if (code != CL_SUCCESS) {
      ours->give_back(*std::move(borrowed));
      return device_->failed(code, "argument " + std::to_string(i) + " of kernel '" + ours->entry() + "' does not fit");
    }
  }
  cl_event event = nullptr;
  const cl_int code = api().clEnqueueNDRangeKernel(queue_.get(), borrowed->get(), dimensions, nullptr, global,
                                                   grouped ? group : nullptr, 0, nullptr, &event);
  ours->give_back(*std::move(borrowed));
  return accept(code, event, "the kernel could not be enqueued");
}

class OpenclBackend final : public Backend {
 public:
  OpenclBackend(const OpenclApi* api, const BackendOptions& options)
      : api_(api), requests_(options.partitions), clock_(options.clock ? *options.clock : real_clock()) {}

  std::string_view name() const noexcept override { return "opencl"; }

  Result<std::vector<DeviceInfo>> list() override {
    return api()
        .and_then([&](const OpenclApi* api) { return find_parts(*api, requests_); })
        .transform([](std::vector<Found> found) {
          std::vector<DeviceInfo> infos;
          for (Found& device : found) infos.push_back(std::move(device.info));
          return infos;
        });
  }

  Result<std::shared_ptr<Device>> open(const DeviceId& id) override {
    const Result<const OpenclApi*> api = this->api();
    if (!api) return api.error();
    Result<std::vector<Found>> found = find_parts(**api, requests_);
    if (!found) return std::move(found).error();
    for (Found& device : *found) {
      if (device.info.id != id) continue;
      const std::lock_guard guard(mutex_);
      Kept& kept = kept_[device.info.parent.value_or(id)];
      std::shared_ptr<OpenclContext> context = device.place ? kept.context.lock() : nullptr;
      if (!context || context->lost) {
        Result<std::shared_ptr<OpenclContext>> made = make_context(**api, device);
        if (!made) return std::move(made).error();
        context = *std::move(made);
        kept.context = context;
      }
      if (device.place) device.device = context->parts[*device.place];
      return std::shared_ptr<Device>(
          std::make_shared<OpenclDevice>(**api, std::move(device), std::move(context), kept.used, clock_));
    }
    return Error{ErrorCode::not_found,
                 "there is no OpenCL device '" + id.text() + "'",
                 "see the list of devices",
                 id.text(),
                 {}};
  }

 private:
  Result<const OpenclApi*> api() const {
    if (api_) return api_;
    return opencl_api();
  }
  // Made once for each way to cut a device, and kept until the process ends: PoCL
  // (seen in 5.0, clReleaseCommandQueue) asks a queue's device after it has let
  // go of the context, which may have held the last reference to a sub-device.
  static Result<std::vector<cl_device_id>> find_sub_devices(const OpenclApi& api, const Found& device) {
    using Cuts = std::map<std::pair<cl_device_id, std::vector<std::uint32_t>>, std::vector<cl_device_id>>;
    static std::mutex mutex;  // guards cuts
    static Cuts& cuts = *new Cuts;
    const std::lock_guard lock(mutex);
    std::vector<cl_device_id>& parts = cuts[{device.device, device.cut}];
    if (!parts.empty()) return parts;
    std::vector<cl_device_partition_property> counts{CL_DEVICE_PARTITION_BY_COUNTS};
    counts.insert(counts.end(), device.cut.begin(), device.cut.end());
    counts.insert(counts.end(), {CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0});
    std::vector<cl_device_id> made(device.cut.size());
    const cl_int code =
        api.clCreateSubDevices(device.device, counts.data(), static_cast<cl_uint>(made.size()), made.data(), nullptr);
    if (code != CL_SUCCESS)
      return opencl_error(code, "the device could not be cut into its parts", device.info.id.text());
    parts = std::move(made);
    return parts;
  }
  static Result<std::shared_ptr<OpenclContext>> make_context(const OpenclApi& api, const Found& device) {
    auto context = std::make_shared<OpenclContext>();
    std::vector<cl_device_id> devices{device.device};
    cl_int code = CL_SUCCESS;
    if (device.place) {
      Result<std::vector<cl_device_id>> parts = find_sub_devices(api, device);
      if (!parts) return std::move(parts).error();
      context->parts = devices = *std::move(parts);
    }
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                                reinterpret_cast<cl_context_properties>(device.platform), 0};
    context->handle = {
        api.clCreateContext(properties, static_cast<cl_uint>(devices.size()), devices.data(), nullptr, nullptr, &code),
        api.clReleaseContext};
    if (code != CL_SUCCESS) return opencl_error(code, "the device could not be opened", device.info.id.text());
    return context;
  }

  // What the openings of one device, or of its parts, have in common.
  struct Kept {
    std::shared_ptr<BytesUsed> used = std::make_shared<BytesUsed>(0);
    std::weak_ptr<OpenclContext> context;  // that the open parts share
  };

  const OpenclApi* const api_;  // null: the system's
  const std::vector<PartitionRequest> requests_;
  Clock& clock_;
  std::mutex mutex_;  // guards kept_
  std::map<DeviceId, Kept> kept_;
};

}  // namespace

std::unique_ptr<Backend> make_opencl_backend(const BackendOptions& options) {
  return std::make_unique<OpenclBackend>(nullptr, options);
}

std::unique_ptr<Backend> make_opencl_backend(const OpenclApi& api, const BackendOptions& options) {
  return std::make_unique<OpenclBackend>(&api, options);
}

Result<OpenclInterval> opencl_interval(const Event& event) {
  const auto* ours = dynamic_cast<const OpenclEvent*>(&event);
  BERTH_ASSERT(ours != nullptr);
  return ours->interval();
}

}  // namespace berth
