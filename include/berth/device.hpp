// Device: the interface to hardware. One interface for CUDA, OpenCL, the host's own processor and
// simulated devices; one contract suite tests them all. Driver libraries are opened at run time: a
// missing one is a normal condition, reported as not_initialized. Nothing here chooses a device;
// see placement.hpp.
//
// Threads: a Backend and a Device may be used from any thread. A Stream, and what is enqueued on
// it, belongs to one thread at a time. Events may be watched from any thread. No call changes which
// context is current on the caller's thread.
#pragma once

#include "berth/version.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/buffer.hpp"
#include "berth/clock.hpp"
#include "berth/device_info.hpp"
#include "berth/kernel.hpp"
#include "berth/result.hpp"
#include "berth/telemetry.hpp"
#include "berth/topology.hpp"

namespace berth {

class Device;
class Stream;

// The moment at which everything enqueued before it on its stream is done.
class Event {
 public:
  virtual ~Event() = default;
  // False while pending; an error if work that was enqueued since the previous event failed. If the
  // device is lost, every pending event returns an error.
  virtual Result<bool> done() = 0;
  // Blocks until done; timeout at the deadline. Polls, so that it does not hang even on a device
  // that failed or was lost.
  virtual Result<void> wait(Deadline deadline = {}) = 0;
  // Time on the device from `earlier` to this event; both must be done.
  virtual Result<Duration> since(const Event& earlier) const = 0;
};

// An ordered queue of work on one device.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual Device& device() noexcept = 0;
  virtual Priority priority() const noexcept = 0;

  // Copies and launches return as soon as they are enqueued; host memory must stay valid until an
  // event recorded afterwards is done. A stale buffer, a buffer of another device and a range
  // outside its buffer are refused.
  virtual Result<void> copy_in(const Buffer& to, std::uint64_t offset, std::span<const std::byte> from) = 0;
  virtual Result<void> copy_out(const Buffer& from, std::uint64_t offset, std::span<std::byte> to) = 0;
  // The same for contiguous values of any type: a span, a vector, an array.
  template <class Values>
  Result<void> copy_in(const Buffer& to, const Values& from) {
    return copy_in(to, 0, std::as_bytes(std::span(from)));
  }
  template <class Values>
  Result<void> copy_out(const Buffer& from, Values&& to) {
    return copy_out(from, 0, std::as_writable_bytes(std::span(to)));
  }
  // Copies between buffers of this device, or from a buffer of another device of the same back end
  // if the hardware or the driver supports it (otherwise not_supported; OpenCL copies only between
  // parts of one device). The other device's work on `from` must have completed. Ranges of one
  // buffer that share a byte are invalid_argument.
  virtual Result<void> copy(const Buffer& to, std::uint64_t to_offset, const Buffer& from, std::uint64_t from_offset,
                            std::uint64_t bytes) = 0;
  // Allocates memory for work enqueued after this call; it is freed in stream order, without
  // blocking. On a device without stream-ordered memory this calls Device::allocate.
  virtual Result<Buffer> allocate(std::uint64_t bytes);
  virtual Result<void> launch(const LoadedKernel& kernel, const LaunchShape& shape,
                              std::span<const Argument> arguments) = 0;
  virtual Result<std::shared_ptr<Event>> record() = 0;

  // Calls `closure` on this thread with the device's context current, so that native calls reach
  // this device and stream; restores the caller's context. On a part of a GPU, only work on the
  // native stream is confined to that part.
  virtual Result<void> run(const std::function<Result<void>(Stream&)>& closure) = 0;

  // Blocks until everything enqueued so far is done; timeout at the deadline.
  Result<void> wait(Deadline deadline = {});

  // CUstream or cl_command_queue; null on host and simulated devices.
  virtual void* native() const noexcept = 0;

 protected:
  // Refuses a copy() whose ranges share a byte. Precondition: both ranges lie within their buffers.
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
  // Allocates page-aligned host memory, or pins the caller's own memory while the handle exists
  // (the caller keeps it valid), for copies to and from this device.
  virtual Result<PinnedMemory> pin(std::uint64_t bytes);
  virtual Result<PinnedMemory> pin(std::span<std::byte> memory);
  virtual Result<std::unique_ptr<Stream>> open_stream(Priority priority = Priority::normal) = 0;
  // Returns not_supported if `source` has no form for this back end.
  virtual Result<std::shared_ptr<LoadedKernel>> load(const KernelSource& source) = 0;
  virtual Result<LoadSample> sample() = 0;
  virtual NativeHandles native() const noexcept = 0;
  // Bytes of all live buffers of this device.
  std::uint64_t memory_bytes_allocated() const noexcept { return allocated_->load(std::memory_order_relaxed); }

  // Ends all use of the device: later calls return device_lost, and pending events complete.
  // Idempotent; the destructor calls it.
  virtual void close() noexcept = 0;

  // For back ends: counts a new allocation, whose `bytes` must be set, until it is freed.
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
  // The devices present now: empty if the driver library works but finds none, not_initialized if
  // there is no library.
  virtual Result<std::vector<DeviceInfo>> list() = 0;
  virtual Result<std::shared_ptr<Device>> open(const DeviceId& id) = 0;
  // Reads the telemetry of a device without opening it. If the driver cannot do that, the device is
  // opened, sampled and closed again.
  virtual Result<Telemetry> observe(const DeviceId& id);
  // The links between its devices; empty if they are not known.
  virtual Result<std::vector<Link>> links() { return std::vector<Link>{}; }
};

// Presents one device as several that share its memory and fail together. `device` is a back end
// and an ordinal or id ("cuda:0", "cuda:GPU-ea3b..."); each part gets the number of compute units
// in `units`, and the rest stays idle.
struct PartitionRequest {
  std::string device = {};
  std::vector<std::uint32_t> units = {};
};
// Reads "cuda:0=64,32,16,16".
Result<PartitionRequest> parse_partition(std::string_view text);

struct BackendOptions {
  // At most one per device. If the sizes do not fit the device, list() of its back end fails with
  // invalid_argument; if the device cannot be partitioned, with not_supported. Other back ends are
  // not affected.
  std::vector<PartitionRequest> partitions = {};
  // Number of host devices, among which the cores are divided.
  unsigned host_devices = 1;
  // TOML file of simulated devices; empty: none, or in Pool::open_all the file of
  // BERTH_SIMULATED. See docs/guide/simulated.md.
  std::string simulated_file = {};
  Clock* clock = nullptr;  // null: the real clock
  // If false, CUDA's list() and links() use the management library instead of starting CUDA, which
  // takes a fifth of a second or more, unless only CUDA can report everything. That CUDA cannot
  // start is then reported only by open().
  bool listing_starts_driver = true;
};

// Fills in options that the caller has not set: `simulated_file` from BERTH_SIMULATED and
// `partitions` from BERTH_PARTITION (as for parse_partition, separated by semicolons). So a program
// that `berth run` starts on a simulated device or on a part of a device finds that device.
Result<BackendOptions> with_environment(BackendOptions options);

struct BackendEntry {
  std::string_view name;
  std::unique_ptr<Backend> (*make)(const BackendOptions&);
};
// Every back end of the product, preferred ones first. Adding one is a file
// and a line in this list.
std::span<const BackendEntry> backend_list();
// An unknown name is invalid_argument; the error lists the known ones.
Result<std::unique_ptr<Backend>> make_backend(std::string_view name, const BackendOptions& options = {});

// How long to wait for a driver to list or open devices: one that has to wake many
// GPUs takes seconds.
inline constexpr Duration driver_deadline = std::chrono::seconds(15);

// What a machine offers: devices of all back ends, and the back ends that did not answer, each with
// the reason. A GPU seen through CUDA and OpenCL (same PCI address) is listed once, CUDA preferred.
// If BERTH_VISIBLE_DEVICES is set, only the devices in its comma-separated list of ids are listed.
struct Listing {
  std::vector<DeviceInfo> devices;
  struct FailedBackend {
    std::string backend;
    Error error;
  };
  std::vector<FailedBackend> failed;
  // Names in BERTH_VISIBLE_DEVICES that no listed device has.
  std::vector<std::string> unknown;
};
// The back ends are queried in parallel, each on its own thread. A back end that has not answered
// by the deadline fails with `timeout`, and its thread is abandoned.
Listing list_devices(std::span<const std::shared_ptr<Backend>> backends, Duration deadline = driver_deadline);
// The same from answers collected elsewhere, in the order of backend_list().
struct BackendAnswer {
  std::string backend;
  Result<std::vector<DeviceInfo>> devices;
};
Listing merge_lists(std::vector<BackendAnswer> answers);

}  // namespace berth
