#include "http/loop.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "http/wire.hpp"

namespace berth::http {
namespace {

constexpr std::chrono::milliseconds sweep_every{100};
constexpr std::size_t spare_buffers = 64;

}  // namespace

void Loop::add(Wire& wire) {
  wire.place_ = wires_.size();
  wires_.push_back(&wire);
  sweep_later();
}

void Loop::remove(Wire& wire) {
  wires_[wire.place_] = wires_.back();
  wires_[wire.place_]->place_ = wire.place_;
  wires_.pop_back();
}

void Loop::close_all() {
  for (Wire* const wire : wires_) wire->close();
}

void Loop::sweep_later() {
  if (is_sweeping_ || wires_.empty()) return;
  is_sweeping_ = true;
  sweep_timer_.expires_after(sweep_every);
  sweep_timer_.async_wait([this](ErrorValue error) {
    is_sweeping_ = false;
    if (!error) sweep();
  });
}

void Loop::sweep() {
  const TimePoint now = real_clock().now();
  for (Wire* const wire : wires_) wire->sweep(now);  // the loop resumes what this cancels
  sweep_later();
}

std::unique_ptr<Buffer> Loop::take_buffer() {
  if (spare_.empty()) return std::unique_ptr<Buffer>(new Buffer);  // not filled with zeros
  auto buffer = std::move(spare_.back());
  spare_.pop_back();
  return buffer;
}

void Loop::give_back(std::unique_ptr<Buffer> buffer) {
  if (spare_.size() < spare_buffers) spare_.push_back(std::move(buffer));
}

void Signal::notify() {
  if (std::exchange(is_notified_, true) || !waiting_) return;
  if (is_timed_)
    timer_.cancel();  // its handler resumes the coroutine
  else
    asio::post(loop_.context, [this] { std::exchange(waiting_, nullptr).resume(); });
}

struct Signal::Wait {
  Signal& signal;
  TimePoint until;
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> handle) const {
    signal.waiting_ = handle;
    signal.is_timed_ = until != TimePoint::max();
    if (!signal.is_timed_) return;
    // Bounded, because Asio adds it to the time of its own clock, which could overflow.
    signal.timer_.expires_after(std::min<Duration>(until - real_clock().now(), std::chrono::hours(1)));
    signal.timer_.async_wait([of = &signal](ErrorValue) { std::exchange(of->waiting_, nullptr).resume(); });
  }
  void await_resume() const {}
};

Async<bool> Signal::wait(TimePoint until) {
  while (!is_notified_) {
    if (real_clock().now() >= until) co_return false;
    co_await Wait{*this, until};
  }
  is_notified_ = false;
  co_return true;
}

}  // namespace berth::http
