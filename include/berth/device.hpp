// Device: how to talk to hardware. One interface for CUDA, OpenCL, the host's
// own processor and simulated devices; one contract suite tests them all.
// Driver libraries are opened at run time: a missing one is a normal condition,
// reported as not_initialized. Nothing here chooses; see placement.hpp.
//
// Threads: a Backend and a Device may be used from any thread. A Stream, and what is enqueued
// on it, belongs to one thread at a time. Events may be watched from any thread.
// No call leaves a context current on the caller's thread that was not before.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "berth/assert.hpp"
#include "berth/clock.hpp"
#include "berth/device_info.hpp"
#include "berth/result.hpp"
#include "berth/telemetry.hpp"
#include "berth/topology.hpp"

namespace berth {

class Device;
class Stream;

// Device memory. Back ends derive from it; freeing happens in the destructor
// and is safe after the device was lost.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  virtual ~Memory() {
    if (counted_) counted_->fetch_sub(bytes, std::memory_order_relaxed);
  }
  std::uint64_t bytes = 0;
  std::uint64_t generation = 0;  // of the device when it was allocated
  void* native = nullptr;        // CUdeviceptr, cl_mem or a host pointer
  const Device* device = nullptr;

 private:
  friend class Device;
  std::shared_ptr<std::atomic<std::uint64_t>> counted_;
};

// Shared handle to device memory; copying it copies the handle.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::shared_ptr<Memory> memory) : memory_(std::move(memory)) {}
  explicit operator bool() const noexcept { return memory_ != nullptr; }
  std::uint64_t bytes() const noexcept { return memory_ ? memory_->bytes : 0; }
  void* native() const noexcept { return memory_ ? memory_->native : nullptr; }
  const std::shared_ptr<Memory>& memory() const noexcept { return memory_; }

 private:
  std::shared_ptr<Memory> memory_;
};

// Host memory that copies reach at the full rate of the link and without the
// copy holding up the thread that enqueues it. Shared handle; the last one lets
// the memory go (or, where it was the caller's own, unregisters it). On devices
// that gain nothing from it, ordinary memory.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  // `owner` lets go of the bytes in its destructor.
  PinnedMemory(std::span<std::byte> bytes, std::shared_ptr<void> owner) : bytes_(bytes), owner_(std::move(owner)) {}
  explicit operator bool() const noexcept { return !bytes_.empty(); }
  std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<std::byte> bytes_;
  std::shared_ptr<void> owner_;
};

// One argument of a kernel: a buffer, or a plain value of up to 16 bytes.
class Argument {
 public:
  Argument(const Buffer& buffer) : buffer_(buffer) {}
  template <class T>
    requires(std::is_trivially_copyable_v<T> && sizeof(T) <= 16 && !std::is_pointer_v<T>)
  Argument(T value) : size_(sizeof(T)) {
    std::memcpy(bytes_.data(), &value, sizeof(T));
  }
  bool is_buffer() const noexcept { return size_ == 0; }
  const Buffer& buffer() const noexcept { return buffer_; }
  const void* value() const noexcept { return bytes_.data(); }
  std::size_t value_size() const noexcept { return size_; }

 private:
  Buffer buffer_;
  alignas(16) std::array<std::byte, 16> bytes_{};
  std::size_t size_ = 0;
};

// What a host kernel sees of its arguments. Asking for one that is not there, or
// as something that it is not, is a bug of the kernel and asserts.
class HostArguments {
 public:
  explicit HostArguments(std::span<const Argument> arguments) : arguments_(arguments) {}
  template <class T>
  std::span<T> buffer(std::size_t i) const {
    BERTH_ASSERT(i < arguments_.size() && arguments_[i].is_buffer());
    const Buffer& b = arguments_[i].buffer();
    return {static_cast<T*>(b.native()), static_cast<std::size_t>(b.bytes() / sizeof(T))};
  }
  template <class T>
  T value(std::size_t i) const {
    BERTH_ASSERT(i < arguments_.size() && arguments_[i].value_size() == sizeof(T));
    T out;
    std::memcpy(&out, arguments_[i].value(), sizeof(T));
    return out;
  }

 private:
  std::span<const Argument> arguments_;
};

// Work items of a launch: `global` in all, in groups of `group` (0: the back end
// chooses). CUDA launches whole groups, so a kernel checks its bounds.
struct LaunchShape {
  std::array<std::uint32_t, 3> global{1, 1, 1};
  std::array<std::uint32_t, 3> group{0, 0, 0};

  // The last dimension that is larger than 1, or the first: 0 for a vector,
  // 1 for an image.
  constexpr std::size_t outermost() const noexcept { return global[2] > 1 ? 2 : global[1] > 1 ? 1 : 0; }
};

// One kernel in the languages the back ends speak; each takes what it knows.
struct KernelSource {
  std::string entry;
  // Called for rows [begin, end) of shape.outermost(); a kernel whose image may
  // have a single row asks which dimension that is.
  std::function<void(const LaunchShape&, std::uint32_t begin, std::uint32_t end, const HostArguments&)> host;
  std::string opencl_c;
  // CUDA takes the first of these that works on the device: a binary made for
  // it (cubin or fat binary), PTX, CUDA C++ where the run-time compiler is
  // installed. In CUDA C++ the entry is extern "C", or its name is another.
  std::string ptx;
  std::string cubin = {};
  std::string cuda_cpp = {};
};

// How well a group size fills the device.
struct Occupancy {
  std::uint32_t groups_per_unit = 0;  // that run on one compute unit at a time
  std::uint32_t group_best = 0;       // the group size that fills a unit best
  double share = 0;                   // of the threads a unit can hold, 0 to 1
};

// A kernel ready to launch on the device that made it.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // For groups of this many work items; not_supported where it is not known.
  virtual Result<Occupancy> occupancy(std::uint32_t group_items) const;
};

// The moment at which everything enqueued before it on its stream is done.
class Event {
 public:
  virtual ~Event() = default;
  // False while pending; an error when work failed that was enqueued since the
  // event recorded before this one. A lost device is an error to every event
  // that was pending.
  virtual Result<bool> done() = 0;
  // Polls until done or until the deadline: timeout then. Never hangs, also not
  // on a device that failed or was lost.
  virtual Result<void> wait(Deadline deadline = {}) = 0;
  // Time on the device between `earlier` and this, both done.
  virtual Result<Duration> since(const Event& earlier) const = 0;
};

// An ordered queue of work on one device.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual Device& device() noexcept = 0;
  virtual Priority priority() const noexcept = 0;

  // The copies and launches return when enqueued; host memory must stay valid
  // until an event recorded afterwards is done. A stale buffer, a range outside
  // of it or a buffer of another device is refused.
  virtual Result<void> copy_in(const Buffer& to, std::uint64_t offset, std::span<const std::byte> from) = 0;
  virtual Result<void> copy_out(const Buffer& from, std::uint64_t offset, std::span<std::byte> to) = 0;
  // Between buffers of this device, or from a buffer of another device of the
  // same back end where the hardware or the driver can (not_supported if not:
  // OpenCL can between parts of one device only).
  // The other device's work on `from` must be done. Ranges of one buffer that
  // share a byte are invalid_argument.
  virtual Result<void> copy(const Buffer& to, std::uint64_t to_offset, const Buffer& from, std::uint64_t from_offset,
                            std::uint64_t bytes) = 0;
  // Memory that is there for the work enqueued after this call, and is given
  // back in stream order, without waiting. Where the device has no such memory,
  // the same as Device::allocate.
  virtual Result<Buffer> allocate(std::uint64_t bytes);
  virtual Result<void> launch(const Kernel& kernel, const LaunchShape& shape, std::span<const Argument> arguments) = 0;
  virtual Result<std::shared_ptr<Event>> record() = 0;

  // Calls `closure` on this thread with the device's context current, so that
  // native calls reach this device and stream; restores the caller's context.
  // Of a GPU's part, only what goes onto the native stream keeps to the part.
  virtual Result<void> run(const std::function<Result<void>(Stream&)>& closure) = 0;

  // Everything enqueued so far is done, or the deadline passed.
  Result<void> wait(Deadline deadline = {});

  // CUstream or cl_command_queue; null on host and simulated devices.
  virtual void* native() const noexcept = 0;

 protected:
  // Refuses a copy() whose ranges share a byte; both lie within their buffers.
  Result<void> check_apart(const Buffer& to, std::uint64_t to_offset, const Buffer& from, std::uint64_t from_offset,
                           std::uint64_t bytes);
};

struct NativeHandles {
  void* device = nullptr;   // CUdevice (as a number) or cl_device_id
  void* context = nullptr;  // CUcontext or cl_context
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const noexcept = 0;
  const DeviceId& id() const noexcept { return info().id; }
  // Incarnation of the device's context; handles of an earlier one are stale.
  virtual std::uint64_t generation() const noexcept = 0;

  virtual Result<Buffer> allocate(std::uint64_t bytes) = 0;
  // New page-aligned host memory, or the caller's own memory for as long as the
  // handle lives (the caller keeps it valid). Both are for copies with this device.
  virtual Result<PinnedMemory> pin(std::uint64_t bytes);
  virtual Result<PinnedMemory> pin(std::span<std::byte> memory);
  virtual Result<std::unique_ptr<Stream>> open_stream(Priority priority = Priority::normal) = 0;
  // not_supported when `source` has no form this back end speaks.
  virtual Result<std::shared_ptr<Kernel>> load(const KernelSource& source) = 0;
  virtual Result<LoadSample> sample() = 0;
  virtual NativeHandles native() const noexcept = 0;
  // Bytes of all buffers of this device that are alive.
  std::uint64_t memory_bytes_allocated() const noexcept { return allocated_->load(std::memory_order_relaxed); }

  // Ends all use: later calls answer device_lost, pending events resolve.
  // Idempotent; the destructor calls it.
  virtual void close() noexcept = 0;

  // For back ends: a new allocation, with its `bytes` set, counts until it goes.
  void count(Memory& memory) const {
    allocated_->fetch_add(memory.bytes, std::memory_order_relaxed);
    memory.counted_ = allocated_;
  }

 private:
  // Shared: memory may outlive its device.
  const std::shared_ptr<std::atomic<std::uint64_t>> allocated_ = std::make_shared<std::atomic<std::uint64_t>>(0);
};

// One way to reach devices.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const noexcept = 0;
  // What is there now; empty when the library works but finds nothing,
  // not_initialized when there is no library.
  virtual Result<std::vector<DeviceInfo>> list() = 0;
  virtual Result<std::shared_ptr<Device>> open(const DeviceId& id) = 0;
  // What can be learnt about a device without using it. Where the driver has no
  // way for that, the device is opened, sampled and closed again.
  virtual Result<Telemetry> observe(const DeviceId& id);
  // How its devices are joined. Empty: not known.
  virtual Result<std::vector<Link>> links() { return std::vector<Link>{}; }
};

// One device as several that share its memory and fail together. `device` is a
// back end and an ordinal or id ("cuda:0", "cuda:GPU-ea3b..."); each part gets
// so many compute units, and what is left over stays idle.
struct PartitionRequest {
  std::string device;
  std::vector<std::uint32_t> units;
};
// Reads "cuda:0=64,32,16,16".
Result<PartitionRequest> parse_partition(std::string_view text);

struct BackendOptions {
  // A request that does not fit its device makes that back end's list() fail
  // with invalid_argument, one for a device that cannot be cut with
  // not_supported; the others are not touched. At most one per device.
  std::vector<PartitionRequest> partitions;
  // Host devices that split the cores among them; 1 owns them all.
  unsigned host_devices = 1;
  // TOML file of simulated devices; empty: none. See docs/simulated.md.
  std::string simulated_file;
  Clock* clock = nullptr;  // null: the real clock
  // False: list() and links() of CUDA ask the management library, where that
  // knows all that CUDA would say, and do not start CUDA, which takes a fifth of a
  // second or more. That CUDA does not start is then said by open() alone.
  bool listing_starts_driver = true;
};

// The same, with the partitions of BERTH_PARTITION where the caller names none: so
// a program that `berth run` starts on a part of a device has that part. They are
// written as for parse_partition, with semicolons between.
Result<BackendOptions> with_environment(BackendOptions options);

struct BackendEntry {
  std::string_view name;
  std::unique_ptr<Backend> (*make)(const BackendOptions&);
};
// Every back end of the product, preferred ones first. Adding one is a file
// and a line in this list.
std::span<const BackendEntry> backend_list();
// Unknown names are invalid_argument and list the known ones.
Result<std::unique_ptr<Backend>> make_backend(std::string_view name, const BackendOptions& options = {});

// How long to wait for a driver to list or open devices: one that has to wake many
// GPUs takes seconds.
inline constexpr Duration driver_deadline = std::chrono::seconds(15);

// What a machine offers: devices of all back ends, and the back ends that
// could not be asked, each with its reason. A GPU seen through CUDA and OpenCL
// (same PCI address) is listed once, CUDA preferred. Where BERTH_VISIBLE_DEVICES
// is set, only the devices whose ids it names, with commas between, are listed.
struct Listing {
  std::vector<DeviceInfo> devices;
  struct Silent {
    std::string backend;
    Error error;
  };
  std::vector<Silent> silent;
};
// The back ends are asked in parallel, each on its own thread. One that has not
// answered at the deadline is silent, with `timeout`; its thread is abandoned.
Listing list_devices(std::span<const std::shared_ptr<Backend>> backends, Duration deadline = driver_deadline);
// The same from answers that were asked for elsewhere, in the order of backend_list().
struct BackendAnswer {
  std::string backend;
  Result<std::vector<DeviceInfo>> devices;
};
Listing merge_lists(std::vector<BackendAnswer> answers);

}  // namespace berth
