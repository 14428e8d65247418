// WorkerProcess: one process that serves a channel, from its start until it is gone. The thread that
// starts it must exist as long as it does: the kernel ends a worker when that thread ends.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "worker/channel.hpp"
#include "world/descriptor.hpp"

namespace berth::worker {

class WorkerProcess {
 public:
  // Executes `program` as a worker; `shared` is a descriptor of the shared memory.
  static Result<std::shared_ptr<WorkerProcess>> start(const std::string& program,
                                                      const std::vector<std::string>& environment, const Setup& setup,
                                                      int shared);
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  const Channel& channel() const noexcept { return channel_; }
  std::uint32_t pid() const noexcept { return static_cast<std::uint32_t>(pid_); }

  // May be called on any thread. The first reason counts.
  void kill(Error why, bool blames_device = false) noexcept;
  bool was_killed() const noexcept { return killed_.load(std::memory_order_acquire); }
  bool blames_device() const noexcept { return blames_device_.load(std::memory_order_acquire); }
  // Whether no further answer will come.
  bool is_over() const noexcept { return over_.load(std::memory_order_acquire); }
  // Why it is over, or was killed.
  Error reason() const;

  // For the thread that supervises it.
  int descriptor() const noexcept { return process_.get(); }  // readable when the process has ended
  int messages() const noexcept { return socket_.get(); }
  // Reads the worker's message that it is ready, or why it cannot be; absent: nothing yet.
  std::optional<Result<void>> read_message();
  // Whether the worker has not closed its end yet.
  bool may_send() const noexcept { return may_send_; }
  bool has_ended() const noexcept;
  // Takes the status of a process that has ended.
  void reap() noexcept;
  // Called if it was killed but does not end.
  void give_up(Error why) noexcept;
  // Wakes those that wait for an answer. `death` is the number of the death in the DeathLimit, for their use.
  void be_over(std::optional<std::uint64_t> death) noexcept;
  std::optional<std::uint64_t> death() const noexcept { return death_; }  // when it is over
  std::optional<std::uint64_t> private_memory_bytes() const;

 private:
  WorkerProcess(Channel channel, pid_t pid, world::Descriptor process, world::Descriptor socket) noexcept
      : channel_(std::move(channel)), pid_(pid), process_(std::move(process)), socket_(std::move(socket)) {}

  const Channel channel_;
  const pid_t pid_;
  const world::Descriptor process_;
  const world::Descriptor socket_;
  std::string received_;
  std::optional<std::uint64_t> death_;
  bool may_send_ = true;
  std::atomic<bool> killed_{false};
  std::atomic<bool> blames_device_{false};
  std::atomic<bool> over_{false};
  mutable std::mutex mutex_;  // guards reason_
  std::optional<Error> reason_;
};

// Descriptors that a worker inherits.
inline constexpr int worker_socket = 3;
inline constexpr int worker_channel = 4;
inline constexpr int worker_shared = 5;
// The longest text that it sends there; the program truncates longer ones.
inline constexpr std::size_t worker_text_bytes_max = 4096;
// The first argument of a worker.
inline constexpr const char* worker_argument = "--berth-worker";
// Set in a worker until worker_entry runs, so that a program without it does not start workers of
// workers.
inline constexpr const char* worker_variable = "BERTH_WORKER";

}  // namespace berth::worker
