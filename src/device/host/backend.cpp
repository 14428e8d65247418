// The host back end: the processor of this machine, as one device or as parts that have separate cores and share the
// memory. It always exists and executes kernels for real.
//
// Work runs immediately on the thread that enqueues it, so events are complete when they are recorded. During a launch
// or run() on a part, the thread is pinned to the cores of the part, and its own affinity is restored afterwards;
// copies run on any core. If work throws an exception, only the next event of its stream fails, with work_failed.
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <utility>

#include "device/backends.hpp"
#include "device/host/cores.hpp"
#include "device/host/limits.hpp"
#include "device/local.hpp"
#include "device/partition.hpp"

namespace berth::device {
namespace {

// More than the cores of any machine.
constexpr unsigned most_devices = 1024;
// Reading the free memory costs microseconds, so it is read only for allocations that
// could exhaust the machine.
constexpr std::uint64_t checked_from_bytes = 256ULL << 20;

class HostEvent final : public Event {
 public:
  HostEvent(TimePoint at, std::optional<Error> error) : at_(at), error_(std::move(error)) {}
  Result<bool> done() override {
    if (error_) return *error_;
    return true;
  }
  Result<void> wait(Deadline) override {
    if (error_) return *error_;
    return {};
  }
  Result<Duration> since(const Event& earlier) const override {
    const auto* other = dynamic_cast<const HostEvent*>(&earlier);
    if (other == nullptr || other->at_ > at_) {
      return Error{ErrorCode::invalid_argument, "the other event is not an earlier event of this back end"};
    }
    return at_ - other->at_;
  }

 private:
  const TimePoint at_;
  const std::optional<Error> error_;
};

class HostDevice;

class HostStream final : public Stream {
 public:
  HostStream(std::shared_ptr<HostDevice> device, Priority priority) : device_(std::move(device)), priority_(priority) {}
  Device& device() noexcept override;
  Priority priority() const noexcept override { return priority_; }
  Result<void> copy_in(const Buffer& to, std::uint64_t offset, std::span<const std::byte> from) override;
  Result<void> copy_out(const Buffer& from, std::uint64_t offset, std::span<std::byte> to) override;
  Result<void> copy(const Buffer& to, std::uint64_t to_offset, const Buffer& from, std::uint64_t from_offset,
                    std::uint64_t bytes) override;
  Result<void> launch(const LoadedKernel& kernel, const LaunchShape& shape,
                      std::span<const Argument> arguments) override;
  Result<std::shared_ptr<Event>> record() override;
  Result<void> run(const std::function<Result<void>(Stream&)>& closure) override;
  void* native() const noexcept override { return nullptr; }

 private:
  const std::shared_ptr<HostDevice> device_;
  const Priority priority_;
  std::optional<Error> failed_;  // the first failure since the last event
};

// The part of a device's state that outlives its closing.
struct HostPart {
  DeviceInfo info;
  std::shared_ptr<Account> account;
  std::vector<unsigned> cores;
  std::shared_ptr<const CoreSet> pin;  // null: threads are not pinned
  std::optional<CoreTimes> times;      // at the last observation

  // The machine's free memory, but at most what Berth has not allocated yet, because an allocation must count before
  // its pages are touched.
  std::optional<std::uint64_t> memory_bytes_free() const {
    const auto available = read_host_limits().memory_bytes_free;
    if (!available || !info.memory_bytes_total) return {};
    const std::uint64_t total = *info.memory_bytes_total, used = *account->bytes_used;
    return std::min(*available, total > used ? total - used : 0);
  }
  LoadSample load() const {
    LoadSample sample;
    sample.memory_bytes_total = info.memory_bytes_total;
    sample.memory_bytes_free = memory_bytes_free();
    return sample;
  }
};

class HostDevice final : public Device, public std::enable_shared_from_this<HostDevice> {
 public:
  HostDevice(HostPart part, Clock& clock)
      : part_(std::move(part)),
        opening_{part_.account, next_generation(), std::make_shared<std::atomic<bool>>(false)},
        clock_(clock) {}
  ~HostDevice() override { close(); }

  const DeviceInfo& info() const noexcept override { return part_.info; }
  std::uint64_t generation() const noexcept override { return opening_.generation; }

  Result<Buffer> allocate(std::uint64_t bytes) override {
    if (closed()) return lost();
    const std::uint64_t limit = info().memory_bytes_total.value_or(std::numeric_limits<std::uint64_t>::max());
    if (bytes >= checked_from_bytes && bytes <= limit) {
      const auto free = part_.memory_bytes_free();
      if (free && bytes > *free) return too_much_error(id(), bytes, *free);
    }
    return allocate_local(*this, opening_, bytes, limit);
  }

  Result<std::unique_ptr<Stream>> open_stream(Priority priority) override {
    if (closed()) return lost();
    return std::unique_ptr<Stream>(std::make_unique<HostStream>(shared_from_this(), priority));
  }

  Result<std::shared_ptr<LoadedKernel>> load(const KernelSource& source) override {
    if (closed()) return lost();
    if (!source.host) {
      return Error{ErrorCode::not_supported, "kernel '" + source.entry + "' has no host form",
                   "give its source a host function", id().text()};
    }
    return std::shared_ptr<LoadedKernel>(std::make_shared<LocalKernel>(opening_, source));
  }

  Result<LoadSample> sample() override {
    if (closed()) return lost();
    return part_.load();
  }

  NativeHandles native() const noexcept override { return {}; }
  void close() noexcept override { *opening_.over = true; }

  bool closed() const noexcept { return *opening_.over; }
  Error lost() const { return device_lost_error(id()); }
  const CoreSet* cores() const noexcept { return part_.pin.get(); }
  Error not_pinned() const {
    return {ErrorCode::unavailable, "this process may no longer use the cores of this device",
            "allow the process to use these cores again, or create the back end again", id().text()};
  }
  const Opening& opening() const noexcept { return opening_; }
  const Clock& clock() const noexcept { return clock_; }

 private:
  const HostPart part_;
  const Opening opening_;
  Clock& clock_;
};

Device& HostStream::device() noexcept { return *device_; }

Result<void> HostStream::copy_in(const Buffer& to, std::uint64_t offset, std::span<const std::byte> from) {
  if (device_->closed()) return device_->lost();
  const Result<std::byte*> target = locate(device_->opening(), to, offset, from.size());
  if (!target) return target.error();
  if (!from.empty()) std::memcpy(*target, from.data(), from.size());
  return {};
}

Result<void> HostStream::copy_out(const Buffer& from, std::uint64_t offset, std::span<std::byte> to) {
  if (device_->closed()) return device_->lost();
  const Result<std::byte*> source = locate(device_->opening(), from, offset, to.size());
  if (!source) return source.error();
  if (!to.empty()) std::memcpy(to.data(), *source, to.size());
  return {};
}

Result<void> HostStream::copy(const Buffer& to, std::uint64_t to_offset, const Buffer& from, std::uint64_t from_offset,
                              std::uint64_t bytes) {
  if (device_->closed()) return device_->lost();
  const Result<std::byte*> target = locate(device_->opening(), to, to_offset, bytes);
  if (!target) return target.error();
  const Result<const std::byte*> source = locate_source(device_->opening(), from, from_offset, bytes);
  if (!source) return source.error();
  if (Result<void> disjoint = check_apart(to, to_offset, from, from_offset, bytes); !disjoint) return disjoint;
  if (bytes > 0) std::memcpy(*target, *source, bytes);
  return {};
}

Result<void> HostStream::launch(const LoadedKernel& kernel, const LaunchShape& shape,
                                std::span<const Argument> arguments) {
  if (device_->closed()) return device_->lost();
  const auto* local = dynamic_cast<const LocalKernel*>(&kernel);
  if (local == nullptr) {
    return Error{ErrorCode::invalid_argument, "the kernel belongs to another back end", {}, device_->id().text()};
  }
  if (Result<void> usable = local->check(device_->opening(), shape, arguments); !usable) return usable;
  const CorePin pin(device_->cores());
  if (pin.failed()) return device_->not_pinned();
  Result<void> computed = local->compute(shape, arguments);
  if (!computed && !failed_) failed_ = std::move(computed).error();
  return {};
}

Result<std::shared_ptr<Event>> HostStream::record() {
  if (device_->closed()) return device_->lost();
  return std::shared_ptr<Event>(
      std::make_shared<HostEvent>(device_->clock().now(), std::exchange(failed_, std::nullopt)));
}

Result<void> HostStream::run(const std::function<Result<void>(Stream&)>& closure) {
  if (device_->closed()) return device_->lost();
  const CorePin pin(device_->cores());
  if (pin.failed()) return device_->not_pinned();
  return guarded(device_->id(), [&] { return closure(*this); });
}

// "model name" on x86, otherwise the architecture.
std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  utsname machine{};
  return uname(&machine) == 0 ? std::string(machine.machine) + " processor" : "processor";
}

// Divides the cores as evenly as possible.
PartitionRequest equal_shares(unsigned cores, unsigned devices) {
  PartitionRequest request{"host:0", {}};
  for (unsigned i = 0; i < devices; ++i) {
    request.units.push_back(std::max(1U, cores / devices + (i < cores % devices ? 1 : 0)));
  }
  return request;
}

class HostBackend final : public Backend {
 public:
  explicit HostBackend(const BackendOptions& options)
      : clock_(options.clock != nullptr ? *options.clock : real_clock()), parts_(make_parts(options)) {}

  std::string_view name() const noexcept override { return "host"; }

  Result<std::vector<DeviceInfo>> list() override {
    if (!parts_) return parts_.error();
    std::vector<DeviceInfo> infos;
    for (const HostPart& part : *parts_) infos.push_back(part.info);
    return infos;
  }

  Result<std::shared_ptr<Device>> open(const DeviceId& id) override {
    const std::lock_guard guard(mutex_);
    const Result<HostPart*> part = find(id);
    if (!part) return part.error();
    return std::shared_ptr<Device>(std::make_shared<HostDevice>(**part, clock_));
  }

  // The utilization covers the time since the last observation.
  Result<Telemetry> observe(const DeviceId& id) override {
    const std::lock_guard guard(mutex_);
    const Result<HostPart*> part = find(id);
    if (!part) return part.error();
    Telemetry seen;
    seen.sampled_at = clock_.now();
    seen.load = (*part)->load();
    const std::optional<CoreTimes> now = read_core_times("/", (*part)->cores);
    if (now && (*part)->times) seen.load.utilization = utilization_between(*(*part)->times, *now);
    if (!(*part)->times || seen.load.utilization) (*part)->times = now;
    return seen;
  }

 private:
  static Result<std::vector<HostPart>> make_parts(const BackendOptions& options) {
    const unsigned devices = options.host_devices;
    if (devices == 0 || devices > most_devices) {
      return Error{ErrorCode::invalid_argument, "the host cannot be split into " + std::to_string(devices) + " devices",
                   "ask for 1 to " + std::to_string(most_devices)};
    }
    const HostLimits limits = read_host_limits();
    DeviceInfo whole;
    whole.id = DeviceId("host");
    whole.backend = "host";
    whole.name = processor_name();
    whole.memory_bytes_total = limits.memory_bytes_total;
    // With more devices than cores, devices share a core.
    whole.compute_units = devices > 1 ? std::max(limits.cores, devices) : limits.cores;
    whole.memory_domain = "host";
    whole.fault_domain = "host";
    whole.is_fallback = true;
    whole.features = {"host_kernel"};
    std::vector<PartitionRequest> requests = options.partitions;
    if (devices > 1) requests.push_back(equal_shares(limits.cores, devices));

    Result<std::vector<Part>> divided = divide("host", "core", {&whole, 1}, requests);
    if (!divided) return std::move(divided).error();
    const std::vector<unsigned> allowed = allowed_cores();
    const auto used = std::make_shared<BytesUsed>(0);
    std::vector<HostPart> parts;
    std::size_t next_core = 0;
    for (Part& part : *divided) {
      part.info.concurrency = *part.info.compute_units;
      HostPart made{std::move(part.info), {}, {}, {}, {}};
      made.account = std::make_shared<Account>("host", made.info.id, used);
      if (!part.place) {
        made.cores = allowed;
      } else if (!allowed.empty()) {
        for (unsigned i = 0; i < made.info.concurrency; ++i)
          made.cores.push_back(allowed[next_core++ % allowed.size()]);
        made.pin = std::make_shared<const CoreSet>(made.cores);
        std::string& names = made.info.labels["cores"];
        for (const unsigned core : made.cores) names += (names.empty() ? "" : ",") + std::to_string(core);
      }
      parts.push_back(std::move(made));
    }
    return parts;
  }

  Result<HostPart*> find(const DeviceId& id) {
    if (!parts_) return parts_.error();
    for (HostPart& part : *parts_) {
      if (part.info.id == id) return &part;
    }
    return Error{ErrorCode::not_found, "there is no host device called '" + id.text() + "'",
                 "see `berth devices` for the ids", id.text()};
  }

  Clock& clock_;
  std::mutex mutex_;  // guards HostPart::times
  Result<std::vector<HostPart>> parts_;
};

}  // namespace

std::unique_ptr<Backend> make_host_backend(const BackendOptions& options) {
  return std::make_unique<device::HostBackend>(options);
}

}  // namespace berth::device
