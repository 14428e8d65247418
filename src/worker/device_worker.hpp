// DeviceWorker: the worker of one device, and the next one when it dies. Lanes call tasks in it; one
// thread supervises it (step). Whom a death is blamed on is decided here.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "worker/death_limit.hpp"
#include "worker/worker_process.hpp"

namespace berth::worker {

class DeviceWorker {
 public:
  struct Options {
    std::string program;
    Setup setup;
    int shared = -1;  // descriptor of the shared memory
    std::optional<std::uint64_t> host_memory_bytes_max;
    Duration start_deadline;
  };
  // Work in the device's worker may run for this long after its deadline before its worker is ended:
  // a worker that sees the deadline itself answers sooner.
  static constexpr Duration grace = std::chrono::milliseconds(50);
  // For a worker that was killed to be gone.
  static constexpr Duration kill_deadline = std::chrono::seconds(2);
  static constexpr Duration memory_period = std::chrono::milliseconds(100);

  // `supervise` has the supervising thread call step() soon.
  DeviceWorker(DeviceId device, Options options, std::function<void()> supervise)
      : device_(std::move(device)), options_(std::move(options)), supervise_(std::move(supervise)) {}

  using Call = detail::WorkerCall;
  // Runs it in the worker and waits for its end. `clock` is that of the context's deadline.
  Result<void> call(TaskContext& context, const Call& call, const Clock& clock);

  // The first worker is ready, or why it is not.
  Result<void> wait_ready();
  WorkerStatus status() const;

  // For the supervising thread. Sees to everything that has happened, starts a worker where one is
  // due, and gives the time by which it must be called again.
  TimePoint step(TimePoint now);
  // To be watched: -1 when there is none.
  int process_descriptor() const;
  int message_descriptor() const;
  // Ends the worker for good.
  void stop() noexcept;

 private:
  // A worker and who uses it. Guarded by mutex_.
  struct Incarnation {
    std::shared_ptr<WorkerProcess> process;
    std::uint64_t free = 0;  // mailboxes, one bit each
    std::size_t users = 0;
    bool alone = false;                          // the one user wants no other beside it
    std::optional<std::uint64_t> earlier_death;  // of a worker, with that user in it
  };
  struct Place {
    std::shared_ptr<Incarnation> in;
    std::size_t index = 0;
    std::uint64_t request = 0;  // its number
    WorkerProcess& process() const noexcept { return *in->process; }
    Mailbox& mailbox() const noexcept { return process().channel().mailbox(index); }
  };
  // A mailbox of a worker that is ready; alone for work with which a worker has died.
  Result<Place> enter(TaskContext& context, std::optional<std::uint64_t> earlier_death, const Clock& clock);
  void leave(const Place& place);
  // Absent: the worker is lost.
  std::optional<Result<void>> exchange(const Place& place, TaskContext& context, const Call& call, const Clock& clock);
  std::optional<Result<void>> read_answer(WorkerProcess& process, const Mailbox& mailbox, std::span<std::byte> value);
  void kill(WorkerProcess& process, std::string why);
  void wait_until_over(const WorkerProcess& process);

  void start(TimePoint now);
  void see_to_start(TimePoint now);
  void see_to_kill(TimePoint now);
  void see_to_memory(TimePoint now);
  void bury(TimePoint now);
  Error lost(std::string message) const;

  const DeviceId device_;
  const Options options_;
  const std::function<void()> supervise_;

  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::shared_ptr<Incarnation> current_;  // null: none, or the next is about to be started
  bool ready_ = false;
  bool was_ready_ = false;  // ever
  bool stopping_ = false;
  std::uint64_t requests_ = 0;
  std::size_t waiting_ = 0;
  std::size_t waiting_alone_ = 0;
  TimePoint start_by_{};
  std::optional<TimePoint> kill_by_;
  TimePoint next_memory_{};
  DeathLimit limit_;
  std::uint64_t starts_ = 0;
  std::uint64_t deaths_ = 0;
  std::optional<Error> last_death_;
  std::optional<Error> out_of_service_;
};

}  // namespace berth::worker
