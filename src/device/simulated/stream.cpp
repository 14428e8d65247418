#include "device/simulated/stream.hpp"

#include <cmath>

#include "device/simulated/backend.hpp"

namespace berth::simulated {
namespace {

Duration to_duration(double nanoseconds) {
  constexpr double most = 4.0e18;  // the sum of two such times still fits the type
  return Duration(static_cast<std::int64_t>(std::clamp(nanoseconds, 0.0, most)));
}

}  // namespace

Result<void> SimulatedStream::copy(const Buffer& to, std::uint64_t to_offset, const Buffer& from,
                                   std::uint64_t from_offset, std::uint64_t bytes) {
  if (Result<void> alive = check_alive(); !alive) return alive;
  const Result<std::byte*> target = device::locate(opening_, to, to_offset, bytes);
  if (!target) return target.error();
  const Result<const std::byte*> source = device::locate_source(opening_, from, from_offset, bytes);
  if (!source) return source.error();
  if (Result<void> disjoint = check_apart(to, to_offset, from, from_offset, bytes); !disjoint) return disjoint;
  return transfer(*target, *source, bytes, link_in);
}

Result<bool> SimulatedEvent::done() {
  const std::lock_guard lock(opened_.hardware->domain.mutex);
  return outcome(opened_.hardware->clock.now());
}

Result<void> SimulatedEvent::wait(Deadline deadline) {
  Hardware& hardware = *opened_.hardware;
  std::unique_lock lock(hardware.domain.mutex);
  const TimePoint give_up = std::min(deadline.at, after(hardware.clock.now(), simulated_wait_limit));
  for (;;) {
    const TimePoint now = hardware.clock.now();
    const Result<bool> resolved = outcome(now);
    if (!resolved) return resolved.error();
    if (*resolved) return {};
    if (now >= give_up) return opened_.error(ErrorCode::timeout, "the work did not finish before the deadline");
    const TimePoint loss = hardware.domain.next_loss(now).value_or(never);
    hardware.clock.wait_until(hardware.domain.ended, lock, std::min({finish_, give_up, loss}));
  }
}

Result<Duration> SimulatedEvent::since(const Event& earlier) const {
  const auto* other = dynamic_cast<const SimulatedEvent*>(&earlier);
  if (other == nullptr || other->opened_.hardware != opened_.hardware || other->finish_ > finish_) {
    return opened_.error(ErrorCode::invalid_argument, "the other event is not an earlier event of this device");
  }
  const std::lock_guard lock(opened_.hardware->domain.mutex);
  if (opened_.hardware->clock.now() < finish_) {
    return opened_.error(ErrorCode::unavailable, "the event is still pending", "wait for it first");
  }
  return finish_ - other->finish_;
}

Result<bool> SimulatedEvent::outcome(TimePoint now) const {
  opened_.hardware->domain.catch_up(now);
  const auto& ended = opened_.opening->ended;
  if (ended && finish_ > *ended) return opened_.lost();
  if (now < finish_) return false;
  if (error_) return *error_;
  return true;
}

Result<void> SimulatedStream::copy_in(const Buffer& to, std::uint64_t offset, std::span<const std::byte> from) {
  if (Result<void> alive = check_alive(); !alive) return alive;
  const Result<std::byte*> target = device::locate(opening_, to, offset, from.size());
  if (!target) return target.error();
  return transfer(*target, from.data(), from.size(), link_in);
}

Result<void> SimulatedStream::copy_out(const Buffer& from, std::uint64_t offset, std::span<std::byte> to) {
  if (Result<void> alive = check_alive(); !alive) return alive;
  const Result<std::byte*> source = device::locate(opening_, from, offset, to.size());
  if (!source) return source.error();
  return transfer(to.data(), *source, to.size(), link_out);
}

Result<void> SimulatedStream::launch(const LoadedKernel& kernel, const LaunchShape& shape,
                                     std::span<const Argument> arguments) {
  const auto* local = dynamic_cast<const device::LocalKernel*>(&kernel);
  if (local == nullptr) {
    return opened_.error(ErrorCode::invalid_argument, "the kernel belongs to another back end");
  }
  if (Result<void> alive = check_alive(); !alive) return alive;
  if (Result<void> usable = local->check(opening_, shape, arguments); !usable) return usable;
  double items = 1;
  for (const std::uint32_t size : shape.global) items *= size;
  const SimulatedSpec& spec = opened_.hardware->spec;
  return enqueue(items * spec.item_ns / spec.speed, [&] { return local->compute(shape, arguments); });
}

Result<std::shared_ptr<Event>> SimulatedStream::record() {
  Hardware& hardware = *opened_.hardware;
  const std::lock_guard lock(hardware.domain.mutex);
  if (ended()) return opened_.lost();
  const TimePoint finish = std::max(state_.tail, hardware.clock.now());
  return std::shared_ptr<Event>(
      std::make_shared<SimulatedEvent>(opened_, finish, std::exchange(state_.failed, std::nullopt)));
}

Result<void> SimulatedStream::work(double cost) {
  if (!(cost >= 0) || !std::isfinite(cost)) {
    return opened_.error(ErrorCode::invalid_argument, "the cost must be a finite number, at least 0");
  }
  return enqueue(cost * 1e6 / opened_.hardware->spec.speed, [] { return Result<void>(); });
}

Result<void> SimulatedStream::run(const std::function<Result<void>(Stream&)>& closure) {
  if (Result<void> alive = check_alive(); !alive) return alive;
  const std::uint64_t launches_before = state_.launches;
  Result<void> ran = device::guarded(opened_.id(), [&] { return closure(*this); });
  if (!ran || state_.launches != launches_before) return ran;
  return enqueue(0, [] { return Result<void>(); });
}

Result<void> SimulatedStream::transfer(std::byte* to, const std::byte* from, std::uint64_t bytes, int link) {
  Hardware& hardware = *opened_.hardware;
  const double rate = hardware.spec.copy_bytes_per_second.value_or(INFINITY);
  std::unique_lock lock(hardware.domain.mutex);
  if (ended()) return opened_.lost();
  const TimePoint start = std::max({hardware.clock.now(), state_.tail, hardware.links[link]});
  state_.tail = after(start, to_duration(static_cast<double>(bytes) / rate * 1e9));
  // Work enqueued after a hang never runs.
  if (state_.tail == never) return {};
  hardware.links[link] = state_.tail;
  lock.unlock();
  if (bytes > 0) std::memcpy(to, from, bytes);
  return {};
}

Result<void> SimulatedStream::enqueue(double nanoseconds, const std::function<Result<void>()>& compute) {
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

}  // namespace berth::simulated
