#include "device/simulated.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <utility>

#include "device/backends.hpp"
#include "device/local.hpp"

namespace berth {
namespace {

using Kind = SimulatedFault::Kind;
using Trigger = SimulatedFault::Trigger;
constexpr TimePoint never = TimePoint::max();

TimePoint after(TimePoint start, Duration duration) { return duration >= never - start ? never : start + duration; }

// A time in nanoseconds that came out of floating-point arithmetic.
Duration to_duration(double nanoseconds) {
  constexpr double most = 4.0e18;  // so that the sum of two still fits the type
  return Duration(static_cast<std::int64_t>(std::clamp(nanoseconds, 0.0, most)));
}

// One opening of the device. Guarded by Hardware::mutex.
struct Life {
  std::optional<TimePoint> ended;  // closed or lost
};

// Guarded by Hardware::mutex.
struct StreamState {
  const Life* life;
  TimePoint tail{};  // when everything enqueued so far is done
  std::uint64_t launches = 0;
  std::optional<Error> failed;  // work since the last event, first failure
};

// The device itself: it survives being closed and opened again, as do the
// script's counters. Every member function wants the mutex to be held.
struct Hardware {
  Hardware(SimulatedSpec from, Clock& time)
      : spec(std::move(from)),
        account(std::make_shared<Account>(DeviceId(spec.id))),
        clock(time),
        made(time.now()),
        foreign(spec.memory_bytes_foreign),
        engines(spec.concurrency, made) {}

  const SimulatedSpec spec;
  const std::shared_ptr<Account> account;
  Clock& clock;
  const TimePoint made;

  std::mutex mutex;               // guards everything below
  std::condition_variable ended;  // a life ended
  std::uint64_t foreign;
  std::uint64_t launches = 0, allocations = 0, samples = 0;
  std::vector<TimePoint> engines;                                                  // when each is free
  TimePoint links[2]{};                                                            // the copy engines, in and out
  std::priority_queue<TimePoint, std::vector<TimePoint>, std::greater<>> pending;  // finish times of launches
  std::vector<StreamState*> streams;
  std::vector<std::shared_ptr<Life>> lives;  // those that have not ended
  TimePoint caught_up = TimePoint::min();    // losses by time up to here have struck

  TimePoint begins(const SimulatedFault& fault) const { return after(made, fault.at_time); }
  bool in_window(const SimulatedFault& fault, TimePoint now) const {
    return fault.trigger == Trigger::time && now >= begins(fault) &&
           (!fault.lasting || now < after(begins(fault), *fault.lasting));
  }
  bool strikes(Kind kind, Trigger trigger, std::uint64_t count, TimePoint now) const {
    return std::any_of(spec.faults.begin(), spec.faults.end(), [&](const SimulatedFault& fault) {
      if (fault.kind != kind) return false;
      if (fault.trigger == Trigger::time) return kind != Kind::lost && in_window(fault, now);
      return fault.trigger == trigger && count >= fault.at && count - fault.at < fault.times;
    });
  }

  void end_all(TimePoint when) {
    for (const auto& life : lives) life->ended = when;
    lives.clear();
    // Nobody is left to see the work: the engines are free for the next life.
    std::fill(engines.begin(), engines.end(), when);
    std::fill(std::begin(links), std::end(links), when);
    pending = {};
    ended.notify_all();
  }
  void end(const std::shared_ptr<Life>& life, TimePoint when) {
    if (life->ended) return;
    if (lives.size() == 1) return end_all(when);
    std::erase(lives, life);
    life->ended = when;
    ended.notify_all();
  }

  // The next scripted loss by time that has not struck yet.
  std::optional<TimePoint> next_loss(TimePoint after_this) const {
    std::optional<TimePoint> next;
    for (const SimulatedFault& fault : spec.faults) {
      if (fault.kind != Kind::lost || fault.trigger != Trigger::time || begins(fault) <= after_this) continue;
      if (!next || begins(fault) < *next) next = begins(fault);
    }
    return next;
  }
  // Applies the losses by time up to `now`.
  void catch_up(TimePoint now) {
    while (const auto loss = next_loss(caught_up)) {
      if (*loss > now) break;
      end_all(*loss);
      caught_up = *loss;
    }
  }
  bool gone(TimePoint now) const {
    return std::any_of(spec.faults.begin(), spec.faults.end(),
                       [&](const SimulatedFault& fault) { return fault.kind == Kind::lost && in_window(fault, now); });
  }

  std::uint64_t memory_limit() const {
    if (!spec.memory_bytes_total) return std::uint64_t{1} << 62;
    return *spec.memory_bytes_total > foreign ? *spec.memory_bytes_total - foreign : 0;
  }
};

DeviceInfo info_of(const SimulatedSpec& spec, int ordinal) {
  DeviceInfo info;
  info.id = DeviceId(spec.id);
  info.backend = "simulated";
  info.name = spec.name.empty() ? spec.id : spec.name;
  info.ordinal = ordinal;
  info.memory_bytes_total = spec.memory_bytes_total;
  info.capability = spec.capability;
  info.compute_units = spec.compute_units;
  info.pci_address = spec.pci_address;
  info.numa_node = spec.numa_node;
  info.memory_domain = spec.memory_domain.empty() ? spec.id : spec.memory_domain;
  info.fault_domain = spec.fault_domain.empty() ? spec.id : spec.fault_domain;
  info.concurrency = spec.concurrency;
  info.features = spec.features;
  info.labels = spec.labels;
  return info;
}

// The device as its streams and events see it.
struct Opened {
  std::shared_ptr<Hardware> hardware;
  std::shared_ptr<Life> life;

  const DeviceId& id() const { return hardware->account->id; }
  Error lost() const { return device_lost_error(id()); }
  Error error(ErrorCode code, std::string message, std::string advice = {}) const {
    return {code, std::move(message), std::move(advice), id().text(), {}};
  }
};

class SimulatedEvent final : public Event {
 public:
  SimulatedEvent(Opened opened, TimePoint finish, std::optional<Error> error)
      : opened_(std::move(opened)), finish_(finish), error_(std::move(error)) {}

  Result<bool> done() override {
    const std::lock_guard lock(opened_.hardware->mutex);
    return outcome(opened_.hardware->clock.now());
  }

  Result<void> wait(Deadline deadline) override {
    Hardware& hardware = *opened_.hardware;
    std::unique_lock lock(hardware.mutex);
    const TimePoint give_up = std::min(deadline.at, after(hardware.clock.now(), simulated_wait_limit));
    for (;;) {
      const TimePoint now = hardware.clock.now();
      const Result<bool> resolved = outcome(now);
      if (!resolved) return resolved.error();
      if (*resolved) return {};
      if (now >= give_up) return opened_.error(ErrorCode::timeout, "the work was not done in time");
      const TimePoint loss = hardware.next_loss(now).value_or(never);
      hardware.clock.wait_until(hardware.ended, lock, std::min({finish_, give_up, loss}));
    }
  }

  Result<Duration> since(const Event& earlier) const override {
    const auto* other = dynamic_cast<const SimulatedEvent*>(&earlier);
    if (other == nullptr || other->opened_.hardware != opened_.hardware || other->finish_ > finish_) {
      return opened_.error(ErrorCode::invalid_argument, "the other event is not an earlier one of this device");
    }
    const std::lock_guard lock(opened_.hardware->mutex);
    if (opened_.hardware->clock.now() < finish_) {
      return opened_.error(ErrorCode::unavailable, "the event is still pending", "wait for it first");
    }
    return finish_ - other->finish_;
  }

 private:
  // The mutex must be held.
  Result<bool> outcome(TimePoint now) const {
    opened_.hardware->catch_up(now);
    const auto& ended = opened_.life->ended;
    if (ended && finish_ > *ended) return opened_.lost();
    if (now < finish_) return false;
    if (error_) return *error_;
    return true;
  }

  const Opened opened_;
  const TimePoint finish_;
  const std::optional<Error> error_;
};

class SimulatedDevice;

class SimulatedStream final : public Stream {
 public:
  SimulatedStream(std::shared_ptr<SimulatedDevice> device, Opened opened, Incarnation incarnation, Priority priority)
      : device_(std::move(device)),
        opened_(std::move(opened)),
        incarnation_(std::move(incarnation)),
        priority_(priority),
        state_{.life = opened_.life.get(), .failed = {}} {
    const std::lock_guard lock(opened_.hardware->mutex);
    opened_.hardware->streams.push_back(&state_);
  }
  ~SimulatedStream() override {
    const std::lock_guard lock(opened_.hardware->mutex);
    std::erase(opened_.hardware->streams, &state_);
  }

  Device& device() noexcept override;
  Priority priority() const noexcept override { return priority_; }
  void* native() const noexcept override { return nullptr; }

  Result<void> copy_in(const Buffer& to, std::uint64_t offset, std::span<const std::byte> from) override {
    return copy(to, offset, from.size(), 0, [&](std::byte* at) { std::memcpy(at, from.data(), from.size()); });
  }
  Result<void> copy_out(const Buffer& from, std::uint64_t offset, std::span<std::byte> to) override {
    return copy(from, offset, to.size(), 1, [&](std::byte* at) { std::memcpy(to.data(), at, to.size()); });
  }

  Result<void> launch(const Kernel& kernel, const LaunchShape& shape, std::span<const Argument> arguments) override {
    const auto* local = dynamic_cast<const LocalKernel*>(&kernel);
    if (local == nullptr) {
      return opened_.error(ErrorCode::invalid_argument, "the kernel belongs to another back end");
    }
    if (Result<void> alive = check_alive(); !alive) return alive;
    if (Result<void> usable = local->check(incarnation_, shape, arguments); !usable) return usable;
    double items = 1;
    for (const std::uint32_t size : shape.global) items *= size;
    const SimulatedSpec& spec = opened_.hardware->spec;
    return enqueue(items * spec.item_ns / spec.speed, [&] { return local->compute(shape, arguments); });
  }

  Result<void> work(double cost) {
    if (!(cost >= 0) || !std::isfinite(cost)) {
      return opened_.error(ErrorCode::invalid_argument, "a cost must be a number that is not negative");
    }
    return enqueue(cost * 1e6 / opened_.hardware->spec.speed, [] { return Result<void>(); });
  }

  Result<std::shared_ptr<Event>> record() override {
    Hardware& hardware = *opened_.hardware;
    const std::lock_guard lock(hardware.mutex);
    if (ended()) return opened_.lost();
    const TimePoint finish = std::max(state_.tail, hardware.clock.now());
    return std::shared_ptr<Event>(
        std::make_shared<SimulatedEvent>(opened_, finish, std::exchange(state_.failed, std::nullopt)));
  }

  // A closure that launches nothing counts, and costs, as one launch.
  Result<void> run(const std::function<Result<void>(Stream&)>& closure) override {
    if (Result<void> alive = check_alive(); !alive) return alive;
    const std::uint64_t launches_before = state_.launches;
    Result<void> ran = guarded(opened_.id(), [&] { return closure(*this); });
    if (!ran || state_.launches != launches_before) return ran;
    return enqueue(0, [] { return Result<void>(); });
  }

 private:
  // The mutex must be held.
  bool ended() const {
    opened_.hardware->catch_up(opened_.hardware->clock.now());
    return opened_.life->ended.has_value();
  }
  Result<void> check_alive() const {
    const std::lock_guard lock(opened_.hardware->mutex);
    if (ended()) return opened_.lost();
    return {};
  }

  template <class Move>
  Result<void> copy(const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes, int link, Move move) {
    if (Result<void> alive = check_alive(); !alive) return alive;
    const Result<std::byte*> at = locate(incarnation_, buffer, offset, bytes);
    if (!at) return at.error();
    Hardware& hardware = *opened_.hardware;
    std::unique_lock lock(hardware.mutex);
    if (ended()) return opened_.lost();
    const double rate = hardware.spec.copy_bytes_per_second.value_or(INFINITY);
    const TimePoint start = std::max({hardware.clock.now(), state_.tail, hardware.links[link]});
    state_.tail = after(start, to_duration(static_cast<double>(bytes) / rate * 1e9));
    // What comes after a hang never happens.
    if (state_.tail == never) return {};
    hardware.links[link] = state_.tail;
    lock.unlock();
    if (bytes > 0) move(*at);
    return {};
  }

  // One launch: asks the script, computes, and takes its time on an engine.
  Result<void> enqueue(double nanoseconds, const std::function<Result<void>()>& compute) {
    Hardware& hardware = *opened_.hardware;
    std::unique_lock lock(hardware.mutex);
    if (ended()) return opened_.lost();
    TimePoint now = hardware.clock.now();
    const std::uint64_t count = ++hardware.launches;
    ++state_.launches;
    const auto struck = [&](Kind kind) { return hardware.strikes(kind, Trigger::launch, count, now); };
    if (struck(Kind::lost)) {
      hardware.end_all(now);
      return opened_.lost();
    }
    if (struck(Kind::out_of_memory)) {
      return opened_.error(ErrorCode::out_of_memory, "the device has no memory for this launch");
    }
    const bool hangs = struck(Kind::hang) || state_.tail == never;
    Result<void> computed;
    if (struck(Kind::error)) {
      computed = opened_.error(ErrorCode::work_failed, "launch " + std::to_string(count) + " failed as scripted");
    } else if (!hangs) {
      lock.unlock();
      computed = compute();
      lock.lock();
      if (ended()) return opened_.lost();
      now = hardware.clock.now();
    }
    if (!computed && !state_.failed) state_.failed = std::move(computed).error();

    TimePoint& engine = *std::min_element(hardware.engines.begin(), hardware.engines.end());
    const TimePoint start = std::max({now, state_.tail, engine});
    state_.tail = hangs ? never : after(start, hardware.spec.launch_time + to_duration(nanoseconds));
    engine = state_.tail;
    while (!hardware.pending.empty() && hardware.pending.top() <= now) hardware.pending.pop();
    hardware.pending.push(state_.tail);
    return {};
  }

  const std::shared_ptr<SimulatedDevice> device_;
  const Opened opened_;
  const Incarnation incarnation_;
  const Priority priority_;
  StreamState state_;
};

class SimulatedDevice final : public Device, public std::enable_shared_from_this<SimulatedDevice> {
 public:
  SimulatedDevice(std::shared_ptr<Hardware> hardware, DeviceInfo info)
      : opened_{std::move(hardware), std::make_shared<Life>()},
        info_(std::move(info)),
        incarnation_{opened_.hardware->account, next_generation()} {
    const std::lock_guard lock(opened_.hardware->mutex);
    opened_.hardware->catch_up(opened_.hardware->clock.now());
    opened_.hardware->lives.push_back(opened_.life);
  }
  ~SimulatedDevice() override { close(); }

  const DeviceInfo& info() const noexcept override { return info_; }
  std::uint64_t generation() const noexcept override { return incarnation_.generation; }

  Result<Buffer> allocate(std::uint64_t bytes) override {
    Hardware& hardware = *opened_.hardware;
    std::unique_lock lock(hardware.mutex);
    const TimePoint now = hardware.clock.now();
    const std::uint64_t count = hardware.allocations + 1;
    if (!alive(Trigger::allocation, count, now)) return opened_.lost();
    hardware.allocations = count;
    if (hardware.strikes(Kind::out_of_memory, Trigger::allocation, count, now)) {
      return opened_.error(ErrorCode::out_of_memory, "allocation " + std::to_string(count) + " failed as scripted");
    }
    const std::uint64_t limit = hardware.memory_limit();
    lock.unlock();
    return allocate_local(*this, incarnation_, bytes, limit);
  }

  Result<std::unique_ptr<Stream>> open_stream(Priority priority) override {
    if (!alive()) return opened_.lost();
    return std::unique_ptr<Stream>(
        std::make_unique<SimulatedStream>(shared_from_this(), opened_, incarnation_, priority));
  }

  // Every language is understood; only the host form computes.
  Result<std::shared_ptr<Kernel>> load(const KernelSource& source) override {
    if (!alive()) return opened_.lost();
    if (!source.host && source.opencl_c.empty() && source.ptx.empty()) {
      return opened_.error(ErrorCode::not_supported, "kernel '" + source.entry + "' has no form at all",
                           "give its source a host function");
    }
    return std::shared_ptr<Kernel>(std::make_shared<LocalKernel>(incarnation_, source));
  }

  Result<LoadSample> sample() override {
    Hardware& hardware = *opened_.hardware;
    std::unique_lock lock(hardware.mutex);
    TimePoint now = hardware.clock.now();
    const std::uint64_t count = hardware.samples + 1;
    if (!alive(Trigger::sample, count, now)) return opened_.lost();
    hardware.samples = count;
    if (hardware.strikes(Kind::sample_silent, Trigger::sample, count, now)) {
      return opened_.error(ErrorCode::unavailable, "the device does not say how loaded it is");
    }
    if (hardware.strikes(Kind::sample_hang, Trigger::sample, count, now)) {
      const TimePoint give_up = after(now, simulated_wait_limit);
      while (!opened_.life->ended && hardware.clock.now() < give_up) {
        hardware.clock.wait_until(hardware.ended, lock, give_up);
      }
      if (opened_.life->ended) return opened_.lost();
      return opened_.error(ErrorCode::timeout, "the device did not answer when asked how loaded it is");
    }
    LoadSample sample;
    sample.memory_bytes_total = hardware.spec.memory_bytes_total;
    if (sample.memory_bytes_total) {
      const std::uint64_t limit = hardware.memory_limit(), used = hardware.account->bytes_used;
      sample.memory_bytes_free = limit > used ? limit - used : 0;
    }
    const auto busy = [&](TimePoint until) { return until > now; };
    while (!hardware.pending.empty() && !busy(hardware.pending.top())) hardware.pending.pop();
    sample.queue_depth = static_cast<std::uint32_t>(hardware.pending.size());
    sample.active_streams = static_cast<std::uint32_t>(
        std::count_if(hardware.streams.begin(), hardware.streams.end(),
                      [&](const StreamState* state) { return !state->life->ended && busy(state->tail); }));
    sample.utilisation = static_cast<double>(std::count_if(hardware.engines.begin(), hardware.engines.end(), busy)) /
                         static_cast<double>(hardware.engines.size());
    return sample;
  }

  NativeHandles native() const noexcept override { return {}; }

  void close() noexcept override {
    const std::lock_guard lock(opened_.hardware->mutex);
    opened_.hardware->end(opened_.life, opened_.hardware->clock.now());
  }

  void lose() {
    const std::lock_guard lock(opened_.hardware->mutex);
    opened_.hardware->end_all(opened_.hardware->clock.now());
  }
  void set_foreign(std::uint64_t bytes) {
    const std::lock_guard lock(opened_.hardware->mutex);
    opened_.hardware->foreign = bytes;
  }

 private:
  bool alive() {
    const std::lock_guard lock(opened_.hardware->mutex);
    opened_.hardware->catch_up(opened_.hardware->clock.now());
    return !opened_.life->ended;
  }
  // The same before a scripted call; the mutex must be held.
  bool alive(Trigger trigger, std::uint64_t count, TimePoint now) {
    Hardware& hardware = *opened_.hardware;
    hardware.catch_up(now);
    if (!opened_.life->ended && hardware.strikes(Kind::lost, trigger, count, now)) hardware.end_all(now);
    return !opened_.life->ended;
  }

  const Opened opened_;
  const DeviceInfo info_;
  const Incarnation incarnation_;
};

Device& SimulatedStream::device() noexcept { return *device_; }

class SimulatedBackend final : public Backend {
 public:
  SimulatedBackend(Result<std::vector<SimulatedSpec>> specs, Clock& clock) {
    if (!specs) {
      error_ = std::move(specs).error();
      return;
    }
    for (SimulatedSpec& spec : *specs) hardware_.push_back(std::make_shared<Hardware>(std::move(spec), clock));
  }

  std::string_view name() const noexcept override { return "simulated"; }

  Result<std::vector<DeviceInfo>> list() override {
    if (error_) return *error_;
    std::vector<DeviceInfo> infos;
    for (const auto& hardware : hardware_) infos.push_back(info_of(hardware->spec, static_cast<int>(infos.size())));
    return infos;
  }

  Result<std::shared_ptr<Device>> open(const DeviceId& id) override {
    if (error_) return *error_;
    for (std::size_t i = 0; i < hardware_.size(); ++i) {
      Hardware& hardware = *hardware_[i];
      if (hardware.account->id != id) continue;
      if (hardware.gone(hardware.clock.now())) return device_lost_error(id);
      return std::shared_ptr<Device>(
          std::make_shared<SimulatedDevice>(hardware_[i], info_of(hardware.spec, static_cast<int>(i))));
    }
    return Error{ErrorCode::not_found,
                 "there is no simulated device '" + id.text() + "'",
                 "see the list of devices",
                 id.text(),
                 {}};
  }

 private:
  std::optional<Error> error_;
  std::vector<std::shared_ptr<Hardware>> hardware_;
};

Error not_simulated(const DeviceId& id) {
  return {ErrorCode::not_supported, "only a simulated device does this", {}, id.text(), {}};
}

}  // namespace

std::shared_ptr<Device> make_simulated_device(SimulatedSpec spec, Clock& clock) {
  BERTH_ASSERT(!problem_with(spec));
  DeviceInfo info = info_of(spec, 0);
  return std::make_shared<SimulatedDevice>(std::make_shared<Hardware>(std::move(spec), clock), std::move(info));
}

std::unique_ptr<Backend> make_simulated_backend(std::vector<SimulatedSpec> specs, Clock& clock) {
  for (const SimulatedSpec& spec : specs) BERTH_ASSERT(!problem_with(spec));
  return std::make_unique<SimulatedBackend>(std::move(specs), clock);
}

std::unique_ptr<Backend> make_simulated_backend(const BackendOptions& options) {
  return std::make_unique<SimulatedBackend>(
      options.simulated_file.empty() ? std::vector<SimulatedSpec>() : read_simulated_file(options.simulated_file),
      options.clock != nullptr ? *options.clock : real_clock());
}

std::optional<std::string> problem_with(const SimulatedSpec& spec) {
  if (spec.id.empty()) return "the device has no id";
  if (spec.concurrency == 0) return "concurrency must be at least 1";
  if (!std::isfinite(spec.speed) || spec.speed <= 0) return "speed must be a positive number";
  constexpr Duration longest = std::chrono::hours(24 * 365);
  if (spec.launch_time < Duration::zero() || spec.launch_time > longest) return "launch time must be 0 to a year";
  if (!std::isfinite(spec.item_ns) || spec.item_ns < 0) return "item time must not be negative";
  if (spec.copy_bytes_per_second && !(*spec.copy_bytes_per_second > 0)) return "copy rate must be positive";
  if (spec.memory_bytes_total && spec.memory_bytes_foreign > *spec.memory_bytes_total) {
    return "others hold more memory than there is";
  }
  for (const SimulatedFault& fault : spec.faults) {
    if (fault.trigger != Trigger::time && (fault.at == 0 || fault.times == 0)) return "a fault counts from 1";
    const bool of_sample = fault.kind == Kind::sample_silent || fault.kind == Kind::sample_hang;
    const bool of_launch = fault.kind == Kind::error || fault.kind == Kind::hang;
    if ((fault.trigger == Trigger::launch && of_sample) ||
        (fault.trigger == Trigger::allocation && (of_sample || of_launch)) ||
        (fault.trigger == Trigger::sample && (of_launch || fault.kind == Kind::out_of_memory))) {
      return "this kind of fault cannot happen at that point";
    }
  }
  return {};
}

Result<void> simulated_work(Stream& stream, double cost) {
  auto* simulated = dynamic_cast<SimulatedStream*>(&stream);
  return simulated != nullptr ? simulated->work(cost) : not_simulated(stream.device().id());
}

Result<void> set_simulated_foreign_bytes(Device& device, std::uint64_t bytes) {
  auto* simulated = dynamic_cast<SimulatedDevice*>(&device);
  if (simulated == nullptr) return not_simulated(device.id());
  simulated->set_foreign(bytes);
  return {};
}

Result<void> lose_simulated_device(Device& device) {
  auto* simulated = dynamic_cast<SimulatedDevice*>(&device);
  if (simulated == nullptr) return not_simulated(device.id());
  simulated->lose();
  return {};
}

}  // namespace berth
