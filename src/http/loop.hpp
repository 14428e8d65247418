// The event loop of a server, a client or a proxy, and what coroutines wait for on it. Kept alive by everyone who may
// post to it from another thread, so that an answer that comes after the end of its server is dropped without harm.
// Everything except post() and dispatch() is for the loop's thread.
#pragma once

#include <array>
#include <coroutine>
#include <memory>
#include <utility>
#include <vector>

#include "berth/clock.hpp"
#include "http/asio.hpp"
#include "http/async.hpp"

namespace berth::http {

class Wire;

using Buffer = std::array<char, 16 * 1024>;

struct Loop {
  asio::io_context context{1};

  // The deadlines of connections are checked every 100 ms while there are any.
  void add(Wire& wire);
  void remove(Wire& wire);
  // Closes all connections: waits for them end with an error.
  void close_all();

  // Buffers are borrowed only while they contain data, so that idle connections have none.
  std::unique_ptr<Buffer> take_buffer();
  void give_back(std::unique_ptr<Buffer> buffer);

 private:
  void sweep_later();
  void sweep();

  asio::steady_timer sweep_timer_{context};
  bool is_sweeping_ = false;
  std::vector<Wire*> wires_;
  std::vector<std::unique_ptr<Buffer>> spare_;
};

// Calls `function` on the loop's thread: at once if this is it. Dropped if the loop is gone.
template <class Function>
void run_on(const std::weak_ptr<Loop>& loop, Function function) {
  if (const auto alive = loop.lock()) asio::dispatch(alive->context, std::move(function));
}

// Lets one coroutine wait until another part of the same thread notifies it. A notification that arrives while
// nothing waits ends the next wait at once.
class Signal {
 public:
  explicit Signal(Loop& loop) : loop_(loop), timer_(loop.context) {}

  // The waiting coroutine resumes from the loop, not within this call.
  void notify();
  // False: `until` has passed first.
  Async<bool> wait(TimePoint until = TimePoint::max());

 private:
  struct Wait;

  Loop& loop_;
  asio::steady_timer timer_;
  std::coroutine_handle<> waiting_ = nullptr;
  bool is_timed_ = false;  // `timer_` resumes it
  bool is_notified_ = false;
};

}  // namespace berth::http
