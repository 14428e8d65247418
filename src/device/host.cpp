// The host back end: this machine's processor, as one device or as several that
// split its cores and memory. It is always there and really computes.
//
// Work runs at once on the thread that enqueues it, so events are done when
// they are recorded and a lane thread per core uses the whole machine. A device's
// share of the cores is its concurrency, not a mask: the caller's thread is not
// moved. Work that throws is work_failed at the next event of its stream, and
// only there; the stream goes on.
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "device/backends.hpp"
#include "device/host_limits.hpp"
#include "device/local.hpp"

namespace berth {
namespace {

// Far more than any machine has cores: beyond it the number is a mistake.
constexpr unsigned most_devices = 1024;
// Reading the free memory costs microseconds; only an allocation that could
// bring the machine down is worth it.
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
      return Error{ErrorCode::invalid_argument, "the other event is not an earlier one of this back end", {}, {}, {}};
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
  Result<void> launch(const Kernel& kernel, const LaunchShape& shape, std::span<const Argument> arguments) override;
  Result<std::shared_ptr<Event>> record() override;
  Result<void> run(const std::function<Result<void>(Stream&)>& closure) override;
  void* native() const noexcept override { return nullptr; }

 private:
  const std::shared_ptr<HostDevice> device_;
  const Priority priority_;
  std::optional<Error> failed_;  // work since the last event, first failure
};

class HostDevice final : public Device, public std::enable_shared_from_this<HostDevice> {
 public:
  HostDevice(DeviceInfo info, std::shared_ptr<Account> account, unsigned shares, Clock& clock)
      : info_(std::move(info)), incarnation_{std::move(account), next_generation()}, shares_(shares), clock_(clock) {}
  ~HostDevice() override { close(); }

  const DeviceInfo& info() const noexcept override { return info_; }
  std::uint64_t generation() const noexcept override { return incarnation_.generation; }

  Result<Buffer> allocate(std::uint64_t bytes) override {
    if (closed_) return lost();
    const std::uint64_t limit = info_.memory_bytes_total.value_or(std::numeric_limits<std::uint64_t>::max());
    if (bytes >= checked_from_bytes && bytes <= limit) {
      const auto free = memory_bytes_free();
      if (free && bytes > *free) return too_much_error(id(), bytes, *free);
    }
    return allocate_local(*this, incarnation_, bytes, limit);
  }

  Result<std::unique_ptr<Stream>> open_stream(Priority priority) override {
    if (closed_) return lost();
    return std::unique_ptr<Stream>(std::make_unique<HostStream>(shared_from_this(), priority));
  }

  Result<std::shared_ptr<Kernel>> load(const KernelSource& source) override {
    if (closed_) return lost();
    if (!source.host) {
      return Error{ErrorCode::not_supported,
                   "kernel '" + source.entry + "' has no host form",
                   "give its source a host function",
                   id().text(),
                   {}};
    }
    return std::shared_ptr<Kernel>(std::make_shared<LocalKernel>(incarnation_, source));
  }

  Result<LoadSample> sample() override {
    if (closed_) return lost();
    LoadSample sample;
    sample.memory_bytes_total = info_.memory_bytes_total;
    sample.memory_bytes_free = memory_bytes_free();
    return sample;
  }

  NativeHandles native() const noexcept override { return {}; }
  void close() noexcept override { closed_ = true; }

  bool closed() const noexcept { return closed_; }
  Error lost() const { return device_lost_error(info_.id); }
  const Incarnation& incarnation() const noexcept { return incarnation_; }
  const Clock& clock() const noexcept { return clock_; }

 private:
  // What the machine has left, of which this device gets its share, but never
  // more than its own share less what it holds: promised pages count before
  // they are touched.
  std::optional<std::uint64_t> memory_bytes_free() const {
    const auto available = read_host_limits().memory_bytes_free;
    if (!available || !info_.memory_bytes_total) return {};
    const std::uint64_t total = *info_.memory_bytes_total;
    const std::uint64_t used = incarnation_.account->bytes_used;
    return std::min(*available / shares_, total > used ? total - used : 0);
  }

  const DeviceInfo info_;
  const Incarnation incarnation_;
  const unsigned shares_;
  Clock& clock_;
  std::atomic<bool> closed_{false};
};

Device& HostStream::device() noexcept { return *device_; }

Result<void> HostStream::copy_in(const Buffer& to, std::uint64_t offset, std::span<const std::byte> from) {
  if (device_->closed()) return device_->lost();
  const Result<std::byte*> target = locate(device_->incarnation(), to, offset, from.size());
  if (!target) return target.error();
  if (!from.empty()) std::memcpy(*target, from.data(), from.size());
  return {};
}

Result<void> HostStream::copy_out(const Buffer& from, std::uint64_t offset, std::span<std::byte> to) {
  if (device_->closed()) return device_->lost();
  const Result<std::byte*> source = locate(device_->incarnation(), from, offset, to.size());
  if (!source) return source.error();
  if (!to.empty()) std::memcpy(to.data(), *source, to.size());
  return {};
}

Result<void> HostStream::launch(const Kernel& kernel, const LaunchShape& shape, std::span<const Argument> arguments) {
  if (device_->closed()) return device_->lost();
  const auto* local = dynamic_cast<const LocalKernel*>(&kernel);
  if (local == nullptr) {
    return Error{ErrorCode::invalid_argument, "the kernel belongs to another back end", {}, device_->id().text(), {}};
  }
  if (Result<void> usable = local->check(device_->incarnation(), shape, arguments); !usable) return usable;
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
  return guarded(device_->id(), [&] { return closure(*this); });
}

// "model name" on x86; other processors do not say, so their architecture must do.
std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  utsname machine{};
  return uname(&machine) == 0 ? std::string(machine.machine) + " processor" : "processor";
}

class HostBackend final : public Backend {
 public:
  explicit HostBackend(const BackendOptions& options)
      : count_(options.host_devices), clock_(options.clock != nullptr ? *options.clock : real_clock()) {
    if (count_ == 0 || count_ > most_devices) return;
    const HostLimits limits = read_host_limits();
    const std::string name = processor_name();
    for (unsigned i = 0; i < count_; ++i) {
      DeviceInfo info;
      info.id = DeviceId(count_ == 1 ? "host" : "host/" + std::to_string(i) + "of" + std::to_string(count_));
      info.backend = "host";
      info.name = name;
      info.ordinal = static_cast<int>(i);
      if (limits.memory_bytes_total) info.memory_bytes_total = *limits.memory_bytes_total / count_;
      // With more devices than cores, devices share a core.
      info.compute_units = std::max(1U, limits.cores / count_ + (i < limits.cores % count_ ? 1 : 0));
      info.concurrency = *info.compute_units;
      info.memory_domain = "host";
      info.fault_domain = "host";
      info.is_fallback = true;
      info.features = {"host_kernel"};
      accounts_.push_back(std::make_shared<Account>(info.id));
      infos_.push_back(std::move(info));
    }
  }

  std::string_view name() const noexcept override { return "host"; }

  Result<std::vector<DeviceInfo>> list() override {
    if (infos_.empty()) {
      return Error{ErrorCode::invalid_argument,
                   "the host cannot be split into " + std::to_string(count_) + " devices",
                   "ask for 1 to " + std::to_string(most_devices),
                   {},
                   {}};
    }
    return infos_;
  }

  Result<std::shared_ptr<Device>> open(const DeviceId& id) override {
    for (std::size_t i = 0; i < infos_.size(); ++i) {
      if (infos_[i].id != id) continue;
      return std::shared_ptr<Device>(std::make_shared<HostDevice>(infos_[i], accounts_[i], count_, clock_));
    }
    return Error{
        ErrorCode::not_found, "there is no host device '" + id.text() + "'", "see the list of devices", id.text(), {}};
  }

 private:
  const unsigned count_;
  Clock& clock_;
  std::vector<DeviceInfo> infos_;
  std::vector<std::shared_ptr<Account>> accounts_;
};

}  // namespace

std::unique_ptr<Backend> make_host_backend(const BackendOptions& options) {
  return std::make_unique<HostBackend>(options);
}

}  // namespace berth
