// DeviceWorker: the worker of one device, and its successor when it dies. Lanes call tasks in it;
// one thread supervises it (step). The cause of a death is decided here.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "worker/death_limit.hpp"
#include "worker/worker_process.hpp"

namespace berth::worker {

class DeviceWorker {
 public:
  struct Options {
    std::string program;
    std::shared_ptr<const std::vector<std::string>> environment;
    Setup setup;
    int shared = -1;  // descriptor of the shared memory
    std::optional<std::uint64_t> host_memory_bytes_max;
    Duration start_deadline{};
    Duration kill_deadline{};
  };
  // How long after its deadline a task may still answer before its worker is killed.
  static constexpr Duration grace = std::chrono::milliseconds(50);
  // The grace period of a running task when the workers are closed.
  static constexpr Duration closing_grace = std::chrono::seconds(1);

  // `supervise` makes the supervising thread call step() soon.
  DeviceWorker(DeviceId device, Options options, std::function<void()> supervise)
      : device_(std::move(device)), options_(std::move(options)), supervise_(std::move(supervise)) {}

  using Call = detail::WorkerCall;
  // Runs the task in the worker and waits for its end. `clock` is the clock of the context's deadline.
  Result<void> call(TaskContext& context, const Call& call, const Clock& clock);
  // Cancels running tasks, and kills them soon after; no other task starts.
  void close() noexcept;

  // Waits until the first worker is ready, or returns why it is not.
  Result<void> wait_ready();
  WorkerStatus status() const;

  // For the supervising thread. Handles everything that has happened, starts a worker if one is
  // due, and returns the time by which it must be called again.
  TimePoint step(TimePoint now);
  // Descriptors to be watched.
  std::vector<int> descriptors() const;
  // Ends the worker for good.
  void stop() noexcept;
  // Whether there is no worker, or one that does not end.
  bool is_gone() const;

 private:
  // A worker and its users. Guarded by mutex_.
  struct Incarnation {
    std::shared_ptr<WorkerProcess> process;
    std::uint64_t free = 0;  // mailboxes, one bit each
    std::size_t users = 0;
    std::size_t users_that_may_run_twice = 0;
    std::array<std::string_view, 64> tasks;      // by mailbox
    bool alone = false;                          // its one user must be alone
    std::optional<std::uint64_t> earlier_death;  // of a worker with that user
  };
  struct Place {
    std::shared_ptr<Incarnation> in;
    std::size_t index = 0;
    std::uint64_t request = 0;  // its number
    bool may_run_twice = false;
    bool waited = false;  // for it
    WorkerProcess& process() const noexcept { return *in->process; }
    Mailbox& mailbox() const noexcept { return process().channel().mailbox(index); }
  };
  // Waits for a mailbox of a ready worker; work with which a worker has died gets the worker alone.
  Result<Place> enter(TaskContext& context, const Call& call, std::optional<std::uint64_t> earlier_death,
                      const Clock& clock);
  std::optional<Error> end_before_begin(TaskContext& context, const Clock& clock) const;
  void leave(const Place& place, bool succeeded);
  void ask(const Place& place, const Call& call, Deadline deadline);
  // Returns nullopt if the worker is lost and has ended.
  std::optional<Result<void>> exchange(const Place& place, TaskContext& context, const Call& call, const Clock& clock);
  std::optional<Result<void>> read_answer(const Place& place, TaskContext& context, std::span<std::byte> value);
  // Waits until it is gone.
  void kill(WorkerProcess& process, std::string why, bool blames_device = false);
  void wait_until_over(const WorkerProcess& process);

  void start(TimePoint now);
  void see_to_start(TimePoint now);
  void see_to_kill(TimePoint now);
  void see_to_memory(TimePoint now);
  void bury(TimePoint now);
  void see_to_limit(TimePoint now);
  void take_out_of_service(std::string message, std::string advice, TimePoint until);
  void lose_current();

  const DeviceId device_;
  const Options options_;
  const std::function<void()> supervise_;
  std::atomic<TimePoint> close_by_{TimePoint::max()};

  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::shared_ptr<Incarnation> current_;     // null: none, or the next one is about to be started
  std::shared_ptr<WorkerProcess> given_up_;  // was killed but did not end
  bool ready_ = false;
  bool stopping_ = false;
  std::uint64_t requests_ = 0;
  std::size_t waiting_ = 0;
  std::size_t waiting_alone_ = 0;
  TimePoint start_by_{};
  std::optional<TimePoint> kill_by_;
  TimePoint next_memory_{};
  DeathLimit limit_;
  std::uint64_t failed_starts_ = 0;  // in a row
  std::uint64_t poison_tasks_ = 0;   // in a row, without a success in between
  std::uint64_t starts_ = 0;
  std::uint64_t deaths_ = 0;
  std::optional<Error> last_death_;
  std::optional<Error> out_of_service_;
  TimePoint out_of_service_until_{};
};

}  // namespace berth::worker
