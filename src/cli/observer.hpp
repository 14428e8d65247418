// Asks drivers that may be slow, or never answer. Every question runs on a
// thread of its own; what is not there by the deadline is an error of that
// device or back end alone, and nobody waits for it again. A thread that is
// stuck in a driver is left behind, also when the command ends.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "berth/device.hpp"
#include "berth/device_view.hpp"

namespace berth::cli {

// A device that answers at all does so in microseconds; one second is what a
// person waits without wondering.
inline constexpr Duration look_deadline = std::chrono::seconds(1);
// Starting a driver takes seconds where it has to wake many GPUs first.
inline constexpr Duration list_deadline = std::chrono::seconds(15);

// A driver tells an event once; a person should have the time to see it.
inline constexpr Duration events_kept_for = std::chrono::minutes(1);

using Backends = std::vector<std::shared_ptr<Backend>>;

// One device, and what it said last.
struct DeviceRow {
  DeviceInfo info;
  // Its last answer, which may be old: see sampled_at. With the events of the
  // answers before it that are younger than events_kept_for.
  std::optional<Telemetry> seen;
  std::optional<Error> error;  // it did not answer the last question, or not in time
  // What the ledger of the machine says: bytes promised and not yet allocated,
  // entries that hold the device, what the operator wants. See add_ledger.
  std::uint64_t memory_bytes_promised = 0;
  std::uint32_t holders = 0;
  Intent intent = Intent::in_service;
};

// Starts `work` on a thread of its own and does not wait for it. False: this
// process cannot start another thread.
bool run_apart(std::function<void()> work);
// Threads of run_apart that have not come back.
std::size_t threads_under_way() noexcept;

// What `question` answers, or `late` when the deadline comes first.
template <class T>
class Answer {
 public:
  Answer(std::function<Result<T>()> question, Error late) : late_(std::move(late)) {
    const bool started = run_apart([state = state_, question = std::move(question)] {
      Result<T> answer = question();
      const std::lock_guard lock(state->mutex);
      state->answer = std::move(answer);
      state->arrived.notify_all();
    });
    if (!started) late_.message = "there is no thread left to ask with";
  }
  Result<T> wait(Deadline deadline) {
    std::unique_lock lock(state_->mutex);
    while (!state_->answer && !deadline.passed(real_clock().now()))
      real_clock().wait_until(state_->arrived, lock, deadline.at);
    if (state_->answer) return *std::move(state_->answer);
    return late_;
  }

 private:
  struct State {
    std::mutex mutex;  // guards answer
    std::condition_variable arrived;
    std::optional<Result<T>> answer;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
  Error late_;
};

// The devices of each back end, asked at the same time.
std::vector<BackendAnswer> ask_lists(const Backends& backends, Duration deadline = list_deadline);
// How the devices of all back ends are joined; one that cannot say says nothing.
std::vector<Link> ask_links(const Backends& backends, Duration deadline = list_deadline);

class Observer {
 public:
  Observer(Backends backends, std::vector<DeviceInfo> devices, Clock& clock = real_clock());

  // Asks every device that is not still busy with the question before, and
  // waits for those, at most until the deadline. In the order of the devices.
  std::vector<DeviceRow> look(Duration deadline = look_deadline);

 private:
  struct State;
  const Backends backends_;
  Clock& clock_;
  std::shared_ptr<State> state_;
};

}  // namespace berth::cli
