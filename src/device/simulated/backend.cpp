#include "device/simulated/backend.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <queue>
#include <utility>

#include "device/backends.hpp"
#include "device/local.hpp"

namespace berth {
namespace {

using Kind = SimulatedFault::Kind;
using Trigger = SimulatedFault::Trigger;
constexpr TimePoint never = TimePoint::max();
constexpr int link_in = 0, link_out = 1;

TimePoint after(TimePoint start, Duration duration) { return duration >= never - start ? never : start + duration; }

// A time in nanoseconds that came out of floating-point arithmetic.
Duration to_duration(double nanoseconds) {
  constexpr double most = 4.0e18;  // so that the sum of two still fits the type
  return Duration(static_cast<std::int64_t>(std::clamp(nanoseconds, 0.0, most)));
}

// One opening of the device. `ended` is guarded by FaultDomain::mutex.
struct Life {
  std::optional<TimePoint> ended;  // closed or lost
  std::atomic<bool> over{false};   // the same, for whoever holds no lock
};

// Guarded by FaultDomain::mutex.
struct StreamState {
  const Life* life;
  TimePoint tail{};  // when everything enqueued so far is done
  std::uint64_t launches = 0;
  std::optional<Error> failed;  // work since the last event, first failure
};

struct Hardware;

// What is lost together; it owns its devices. Every member function wants the
// mutex to be held.
struct FaultDomain {
  explicit FaultDomain(Clock& time) : clock(time), made(time.now()) {}
  Clock& clock;
  const TimePoint made;
  std::vector<std::unique_ptr<Hardware>> members;  // fixed once the back end is made

  std::mutex mutex;                        // guards what follows, and the members' own state
  std::condition_variable ended;           // a life ended
  TimePoint caught_up = TimePoint::min();  // losses by time up to here have struck

  TimePoint begins(const SimulatedFault& fault) const { return after(made, fault.at_time); }
  bool in_window(const SimulatedFault& fault, TimePoint now) const {
    return fault.trigger == Trigger::time && now >= begins(fault) &&
           (!fault.lasting || now < after(begins(fault), *fault.lasting));
  }
  void lose(TimePoint when);
  // The next scripted loss by time that has not struck yet.
  std::optional<TimePoint> next_loss(TimePoint after_this) const;
  // Applies the losses by time up to `now`.
  void catch_up(TimePoint now);
  // Needs no lock: the script does not change.
  bool gone(TimePoint now) const;
};

// The device itself: it survives being closed and opened again, as do the
// script's counters. Every member function wants the mutex to be held.
struct Hardware {
  Hardware(SimulatedSpec from, FaultDomain& failing, std::shared_ptr<BytesUsed> used)
      : spec(std::move(from)),
        account(std::make_shared<Account>("simulated", DeviceId(spec.id), std::move(used))),
        domain(failing),
        clock(failing.clock),
        made(failing.made),
        foreign(spec.memory_bytes_foreign),
        engines(spec.concurrency, made) {}

  const SimulatedSpec spec;
  const std::shared_ptr<Account> account;
  FaultDomain& domain;
  Clock& clock;
  const TimePoint made;

  // Guarded by the domain's mutex.
  std::uint64_t foreign;
  std::uint64_t launches = 0, allocations = 0, samples = 0;
  std::vector<TimePoint> engines;                                                  // when each is free
  TimePoint links[2]{};                                                            // the copy engines, in and out
  std::priority_queue<TimePoint, std::vector<TimePoint>, std::greater<>> pending;  // finish times of launches
  std::vector<StreamState*> streams;
  std::vector<std::shared_ptr<Life>> lives;  // those that have not ended

  bool strikes(Kind kind, Trigger trigger, std::uint64_t count, TimePoint now) const {
    return std::any_of(spec.faults.begin(), spec.faults.end(), [&](const SimulatedFault& fault) {
      if (fault.kind != kind) return false;
      if (fault.trigger == Trigger::time) return kind != Kind::lost && domain.in_window(fault, now);
      return fault.trigger == trigger && count >= fault.at && count - fault.at < fault.times;
    });
  }

  void end_all(TimePoint when) {
    for (const auto& life : lives) {
      life->ended = when;
      life->over = true;
    }
    lives.clear();
    // Nobody is left to see the work: the engines are free for the next life.
    std::fill(engines.begin(), engines.end(), when);
    std::fill(std::begin(links), std::end(links), when);
    pending = {};
    domain.ended.notify_all();
  }
  void end(const std::shared_ptr<Life>& life, TimePoint when) {
    if (life->ended) return;
    if (lives.size() == 1) return end_all(when);
    std::erase(lives, life);
    life->ended = when;
    life->over = true;
    domain.ended.notify_all();
  }

  std::uint64_t memory_limit() const {
    if (!spec.memory_bytes_total) return std::uint64_t{1} << 62;
    return *spec.memory_bytes_total > foreign ? *spec.memory_bytes_total - foreign : 0;
  }

  // What the device answers when asked how loaded it is, by a sample or by an
  // observation. A scripted silence lasts until `life` (if any) ends, at most
  // until the limit.
  Result<LoadSample> load(const Life* life, std::unique_lock<std::mutex>& lock);
  // Reported in (after_this, until].
  std::vector<DeviceEvent> events_between(TimePoint after_this, TimePoint until) const {
    std::vector<DeviceEvent> found;
    for (const ScriptedEvent& event : spec.events) {
      const TimePoint at = after(made, event.at_time);
      if (at <= after_this || at > until) continue;
      const auto later = std::upper_bound(found.begin(), found.end(), at,
                                          [](TimePoint when, const DeviceEvent& other) { return when < other.at; });
      found.insert(later, {event.kind, event.code, at});
    }
    return found;
  }
  Result<Telemetry> observe();
};

void FaultDomain::lose(TimePoint when) {
  for (const auto& hardware : members) hardware->end_all(when);
}

std::optional<TimePoint> FaultDomain::next_loss(TimePoint after_this) const {
  std::optional<TimePoint> next;
  for (const auto& hardware : members) {
    for (const SimulatedFault& fault : hardware->spec.faults) {
      if (fault.kind != Kind::lost || fault.trigger != Trigger::time || begins(fault) <= after_this) continue;
      if (!next || begins(fault) < *next) next = begins(fault);
    }
  }
  return next;
}

void FaultDomain::catch_up(TimePoint now) {
  while (const auto loss = next_loss(caught_up)) {
    if (*loss > now) break;
    lose(*loss);
    caught_up = *loss;
  }
}

bool FaultDomain::gone(TimePoint now) const {
  return std::any_of(members.begin(), members.end(), [&](const auto& hardware) {
    return std::any_of(hardware->spec.faults.begin(), hardware->spec.faults.end(),
                       [&](const SimulatedFault& fault) { return fault.kind == Kind::lost && in_window(fault, now); });
  });
}

Result<LoadSample> Hardware::load(const Life* life, std::unique_lock<std::mutex>& lock) {
  const TimePoint now = clock.now();
  const std::uint64_t count = ++samples;
  const auto error = [&](ErrorCode code, const char* message) {
    return Error{code, message, {}, account->id.text(), {}};
  };
  if (strikes(Kind::sample_silent, Trigger::sample, count, now)) {
    return error(ErrorCode::unavailable, "the device does not say how loaded it is");
  }
  if (strikes(Kind::sample_hang, Trigger::sample, count, now)) {
    const TimePoint give_up = after(now, simulated_wait_limit);
    while (!(life != nullptr && life->ended) && clock.now() < give_up) clock.wait_until(domain.ended, lock, give_up);
    if (life != nullptr && life->ended) return device_lost_error(account->id);
    return error(ErrorCode::timeout, "the device did not answer when asked how loaded it is");
  }
  LoadSample sample;
  sample.memory_bytes_total = spec.memory_bytes_total;
  if (sample.memory_bytes_total) {
    const std::uint64_t limit = memory_limit(), used = *account->bytes_used;
    sample.memory_bytes_free = limit > used ? limit - used : 0;
  }
  const auto busy = [&](TimePoint until) { return until > now; };
  while (!pending.empty() && !busy(pending.top())) pending.pop();
  sample.queue_depth = static_cast<std::uint32_t>(pending.size());
  sample.active_streams =
      static_cast<std::uint32_t>(std::count_if(streams.begin(), streams.end(), [&](const StreamState* state) {
        return !state->life->ended && busy(state->tail);
      }));
  sample.utilisation = spec.utilisation.value_or(
      static_cast<double>(std::count_if(engines.begin(), engines.end(), busy)) / static_cast<double>(engines.size()));
  return sample;
}

Result<Telemetry> Hardware::observe() {
  std::unique_lock lock(domain.mutex);
  const TimePoint now = clock.now();
  domain.catch_up(now);
  if (domain.gone(now)) return device_lost_error(account->id);
  if (strikes(Kind::lost, Trigger::sample, samples + 1, now)) domain.lose(now);
  Result<LoadSample> loaded = load(nullptr, lock);
  if (!loaded) return std::move(loaded).error();
  Telemetry seen;
  seen.sampled_at = clock.now();
  seen.load = *std::move(loaded);
  const std::uint64_t used = *account->bytes_used;
  std::vector<DeviceProcess> processes = spec.processes.value_or(std::vector<DeviceProcess>());
  if (used > 0) processes.push_back({static_cast<std::uint32_t>(getpid()), ProcessKind::own, {}, used});
  if (spec.memory_bytes_total) {
    seen.memory_use = attribute_memory(*spec.memory_bytes_total - *seen.load.memory_bytes_free, processes);
  }
  if (spec.processes) seen.processes = std::move(processes);
  seen.temperature_celsius = spec.temperature_celsius;
  seen.power_watts = spec.power_watts;
  seen.power_limit_watts = spec.power_limit_watts;
  for (const DeviceEvent& event : events_between(TimePoint::min(), now)) {
    if (event.kind == DeviceEvent::Kind::recovery_action) {
      seen.recovery_action = static_cast<RecoveryAction>(event.code);
    }
  }
  return seen;
}

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
  const std::string own = spec.parent.value_or(spec.id);
  if (spec.parent) info.parent = DeviceId(*spec.parent);
  info.memory_domain = spec.memory_domain.empty() ? own : spec.memory_domain;
  info.fault_domain = spec.fault_domain.empty() ? own : spec.fault_domain;
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
    const std::lock_guard lock(opened_.hardware->domain.mutex);
    return outcome(opened_.hardware->clock.now());
  }

  Result<void> wait(Deadline deadline) override {
    Hardware& hardware = *opened_.hardware;
    std::unique_lock lock(hardware.domain.mutex);
    const TimePoint give_up = std::min(deadline.at, after(hardware.clock.now(), simulated_wait_limit));
    for (;;) {
      const TimePoint now = hardware.clock.now();
      const Result<bool> resolved = outcome(now);
      if (!resolved) return resolved.error();
      if (*resolved) return {};
      if (now >= give_up) return opened_.error(ErrorCode::timeout, "the work was not done in time");
      const TimePoint loss = hardware.domain.next_loss(now).value_or(never);
      hardware.clock.wait_until(hardware.domain.ended, lock, std::min({finish_, give_up, loss}));
    }
  }

  Result<Duration> since(const Event& earlier) const override {
    const auto* other = dynamic_cast<const SimulatedEvent*>(&earlier);
    if (other == nullptr || other->opened_.hardware != opened_.hardware || other->finish_ > finish_) {
      return opened_.error(ErrorCode::invalid_argument, "the other event is not an earlier one of this device");
    }
    const std::lock_guard lock(opened_.hardware->domain.mutex);
    if (opened_.hardware->clock.now() < finish_) {
      return opened_.error(ErrorCode::unavailable, "the event is still pending", "wait for it first");
    }
    return finish_ - other->finish_;
  }

 private:
  // The mutex must be held.
  Result<bool> outcome(TimePoint now) const {
    opened_.hardware->domain.catch_up(now);
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
    const std::lock_guard lock(opened_.hardware->domain.mutex);
    opened_.hardware->streams.push_back(&state_);
  }
  ~SimulatedStream() override {
    const std::lock_guard lock(opened_.hardware->domain.mutex);
    std::erase(opened_.hardware->streams, &state_);
  }

  Device& device() noexcept override;
  Priority priority() const noexcept override { return priority_; }
  void* native() const noexcept override { return nullptr; }

  Result<void> copy_in(const Buffer& to, std::uint64_t offset, std::span<const std::byte> from) override {
    if (Result<void> alive = check_alive(); !alive) return alive;
    const Result<std::byte*> target = locate(incarnation_, to, offset, from.size());
    if (!target) return target.error();
    return transfer(*target, from.data(), from.size(), link_in);
  }
  Result<void> copy_out(const Buffer& from, std::uint64_t offset, std::span<std::byte> to) override {
    if (Result<void> alive = check_alive(); !alive) return alive;
    const Result<std::byte*> source = locate(incarnation_, from, offset, to.size());
    if (!source) return source.error();
    return transfer(to.data(), *source, to.size(), link_out);
  }
  Result<void> copy(const Buffer& to, std::uint64_t to_offset, const Buffer& from, std::uint64_t from_offset,
                    std::uint64_t bytes) override;

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
    const std::lock_guard lock(hardware.domain.mutex);
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
    opened_.hardware->domain.catch_up(opened_.hardware->clock.now());
    return opened_.life->ended.has_value();
  }
  Result<void> check_alive() const {
    const std::lock_guard lock(opened_.hardware->domain.mutex);
    if (ended()) return opened_.lost();
    return {};
  }

  Result<void> transfer(std::byte* to, const std::byte* from, std::uint64_t bytes, int link) {
    Hardware& hardware = *opened_.hardware;
    const double rate = hardware.spec.copy_bytes_per_second.value_or(INFINITY);
    std::unique_lock lock(hardware.domain.mutex);
    if (ended()) return opened_.lost();
    const TimePoint start = std::max({hardware.clock.now(), state_.tail, hardware.links[link]});
    state_.tail = after(start, to_duration(static_cast<double>(bytes) / rate * 1e9));
    // What comes after a hang never happens.
    if (state_.tail == never) return {};
    hardware.links[link] = state_.tail;
    lock.unlock();
    if (bytes > 0) std::memcpy(to, from, bytes);
    return {};
  }

  // One launch: asks the script, computes, and takes its time on an engine.
  Result<void> enqueue(double nanoseconds, const std::function<Result<void>()>& compute) {
    Hardware& hardware = *opened_.hardware;
    std::unique_lock lock(hardware.domain.mutex);
    if (ended()) return opened_.lost();
    TimePoint now = hardware.clock.now();
    const std::uint64_t count = ++hardware.launches;
    ++state_.launches;
    const auto struck = [&](Kind kind) { return hardware.strikes(kind, Trigger::launch, count, now); };
    if (struck(Kind::lost)) {
      hardware.domain.lose(now);
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
        incarnation_{opened_.hardware->account, next_generation(), {opened_.life, &opened_.life->over}},
        // What is reported at this very moment is news to this opening.
        reported_(opened_.hardware->clock.now() - Duration(1)) {
    const std::lock_guard lock(opened_.hardware->domain.mutex);
    opened_.hardware->domain.catch_up(opened_.hardware->clock.now());
    opened_.hardware->lives.push_back(opened_.life);
  }
  ~SimulatedDevice() override { close(); }

  const DeviceInfo& info() const noexcept override { return info_; }
  std::uint64_t generation() const noexcept override { return incarnation_.generation; }

  Result<Buffer> allocate(std::uint64_t bytes) override {
    Hardware& hardware = *opened_.hardware;
    std::unique_lock lock(hardware.domain.mutex);
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
    std::unique_lock lock(hardware.domain.mutex);
    if (!alive(Trigger::sample, hardware.samples + 1, hardware.clock.now())) return opened_.lost();
    Result<LoadSample> sample = hardware.load(opened_.life.get(), lock);
    if (!sample) return sample;
    const TimePoint now = hardware.clock.now();
    sample->events = hardware.events_between(std::exchange(reported_, now), now);
    return sample;
  }

  NativeHandles native() const noexcept override { return {}; }

  void close() noexcept override {
    const std::lock_guard lock(opened_.hardware->domain.mutex);
    opened_.hardware->end(opened_.life, opened_.hardware->clock.now());
  }

  void lose() {
    const std::lock_guard lock(opened_.hardware->domain.mutex);
    opened_.hardware->domain.lose(opened_.hardware->clock.now());
  }
  void set_foreign(std::uint64_t bytes) {
    const std::lock_guard lock(opened_.hardware->domain.mutex);
    opened_.hardware->foreign = bytes;
  }

 private:
  bool alive() {
    const std::lock_guard lock(opened_.hardware->domain.mutex);
    opened_.hardware->domain.catch_up(opened_.hardware->clock.now());
    return !opened_.life->ended;
  }
  // The same before a scripted call; the mutex must be held.
  bool alive(Trigger trigger, std::uint64_t count, TimePoint now) {
    Hardware& hardware = *opened_.hardware;
    hardware.domain.catch_up(now);
    if (!opened_.life->ended && hardware.strikes(Kind::lost, trigger, count, now)) hardware.domain.lose(now);
    return !opened_.life->ended;
  }

  const Opened opened_;
  const DeviceInfo info_;
  const Incarnation incarnation_;
  TimePoint reported_;  // events up to here were in a sample; guarded by the domain's mutex
};

Device& SimulatedStream::device() noexcept { return *device_; }

// On the copy engine of this device that brings bytes in.
Result<void> SimulatedStream::copy(const Buffer& to, std::uint64_t to_offset, const Buffer& from,
                                   std::uint64_t from_offset, std::uint64_t bytes) {
  if (Result<void> alive = check_alive(); !alive) return alive;
  const Result<std::byte*> target = locate(incarnation_, to, to_offset, bytes);
  if (!target) return target.error();
  const Result<const std::byte*> source = locate_source(incarnation_, from, from_offset, bytes);
  if (!source) return source.error();
  if (Result<void> apart = check_apart(to, to_offset, from, from_offset, bytes); !apart) return apart;
  return transfer(*target, *source, bytes, link_in);
}

// A device of the domain, which lives as long as any of its devices is held.
std::shared_ptr<Hardware> add(const std::shared_ptr<FaultDomain>& domain, SimulatedSpec spec,
                              std::shared_ptr<BytesUsed> used) {
  domain->members.push_back(std::make_unique<Hardware>(std::move(spec), *domain, std::move(used)));
  return {domain, domain->members.back().get()};
}

class SimulatedBackend final : public Backend {
 public:
  SimulatedBackend(Result<std::vector<SimulatedSpec>> specs, Clock& clock) {
    if (!specs) {
      error_ = std::move(specs).error();
      return;
    }
    std::map<std::string, std::shared_ptr<FaultDomain>> domains;
    std::map<std::string, std::shared_ptr<BytesUsed>> memories;
    for (SimulatedSpec& spec : *specs) {
      const DeviceInfo info = info_of(spec, 0);
      auto& domain = domains[info.fault_domain];
      if (!domain) domain = std::make_shared<FaultDomain>(clock);
      auto& memory = memories[info.memory_domain];
      if (!memory) memory = std::make_shared<BytesUsed>(0);
      hardware_.push_back(add(domain, std::move(spec), memory));
    }
  }

  std::string_view name() const noexcept override { return "simulated"; }

  Result<std::vector<DeviceInfo>> list() override {
    if (error_) return *error_;
    std::vector<DeviceInfo> infos;
    for (const auto& hardware : hardware_) infos.push_back(info_of(hardware->spec, static_cast<int>(infos.size())));
    return infos;
  }

  Result<std::shared_ptr<Device>> open(const DeviceId& id) override {
    const Result<std::size_t> at = find(id);
    if (!at) return at.error();
    const Hardware& hardware = *hardware_[*at];
    if (hardware.domain.gone(hardware.clock.now())) return device_lost_error(id);
    return std::shared_ptr<Device>(
        std::make_shared<SimulatedDevice>(hardware_[*at], info_of(hardware.spec, static_cast<int>(*at))));
  }

  Result<Telemetry> observe(const DeviceId& id) override {
    const Result<std::size_t> at = find(id);
    if (!at) return at.error();
    return hardware_[*at]->observe();
  }

 private:
  Result<std::size_t> find(const DeviceId& id) const {
    if (error_) return *error_;
    for (std::size_t i = 0; i < hardware_.size(); ++i) {
      if (hardware_[i]->account->id == id) return i;
    }
    return Error{ErrorCode::not_found,
                 "there is no simulated device '" + id.text() + "'",
                 "see the list of devices",
                 id.text(),
                 {}};
  }

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
  return std::make_shared<SimulatedDevice>(
      add(std::make_shared<FaultDomain>(clock), std::move(spec), std::make_shared<BytesUsed>(0)), std::move(info));
}

std::unique_ptr<Backend> make_simulated_backend(std::vector<SimulatedSpec> specs, Clock& clock) {
  for (const SimulatedSpec& spec : specs) BERTH_ASSERT(!problem_with(spec));
  return std::make_unique<SimulatedBackend>(std::move(specs), clock);
}

std::unique_ptr<Backend> make_simulated_backend(const BackendOptions& options) {
  Clock& clock = options.clock != nullptr ? *options.clock : real_clock();
  for (const PartitionRequest& request : options.partitions) {
    if (!request.device.starts_with("simulated:")) continue;
    const Error error{ErrorCode::invalid_argument,
                      "a simulated device has the parts that its file gives it",
                      "write them there, each with its parent",
                      request.device,
                      {}};
    return std::make_unique<SimulatedBackend>(error, clock);
  }
  return std::make_unique<SimulatedBackend>(
      options.simulated_file.empty() ? std::vector<SimulatedSpec>() : read_simulated_file(options.simulated_file),
      clock);
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
  if (spec.parent && (spec.parent->empty() || *spec.parent == spec.id)) return "the parent must be another device";
  if (spec.utilisation && !(*spec.utilisation >= 0 && *spec.utilisation <= 1)) return "utilisation must be 0 to 1";
  for (const auto& watts : {spec.power_watts, spec.power_limit_watts}) {
    if (watts && !(std::isfinite(*watts) && *watts >= 0)) return "power must not be negative";
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
