// Supervises a command that has no terminal: its own session, a file for its output, time limits, an orderly
// stop, and an end that includes the processes it has started.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "berth/clock.hpp"
#include "machine/launch.hpp"
#include "world/descriptor.hpp"

namespace berth::machine {

// The process name of a supervisor (PR_SET_NAME).
inline constexpr const char* supervisor_name = "berth-job";

// Requests to stop this process (SIGTERM, SIGINT). The first one stays pending, so that a request counts from the
// moment it was sent. Create the object before any other thread.
class StopRequests {
 public:
  StopRequests();
  StopRequests(const StopRequests&) = delete;
  StopRequests& operator=(const StopRequests&) = delete;
  ~StopRequests();

  // Readable after the first request.
  int descriptor() const noexcept { return signals_.get(); }
  bool requested() const noexcept;
  // The user who sent the first request. Consumes the request: call it once, at the end.
  std::optional<std::uint32_t> sender() const noexcept;
  // While `step` runs, a request calls `end`, on another thread; it must not return.
  void during(const std::function<void()>& step, const std::function<void()>& end);

 private:
  void receive();
  world::Descriptor signals_, over_;
  std::mutex mutex_;  // guards end_
  std::function<void()> end_;
  std::thread thread_;
};

struct Supervision {
  int output = -1;                            // descriptor of its standard output and error
  std::optional<Duration> time;               // that it may run
  Duration grace = std::chrono::seconds(10);  // from SIGTERM to SIGKILL
  bool ends_with_supervisor = false;          // the kernel kills the command when this process ends
  // Called when the process exists; it becomes the command only after this has returned, so that no unrecorded
  // command ever runs.
  std::function<void(pid_t)> started;
  // Called about every second; if it returns a text, the command is ended for that reason.
  std::function<std::optional<std::string>()> look;
};

struct SupervisedExit {
  enum class Cause : std::uint8_t { itself, stop_request, time, look };
  CommandExit ended;
  Cause cause = Cause::itself;
  std::string reason;  // the text that `look` returned
};

// Runs it to its end. Processes that it leaves behind are ended too, except those of other jobs (by BERTH_JOB_FOLDER).
// This process must have no other children.
Result<SupervisedExit> supervise(const Launch& command, const Supervision& supervision, const StopRequests& stop);

}  // namespace berth::machine
