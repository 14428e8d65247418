#include "cli/demo/isolated.hpp"

#include <atomic>
#include <cstring>
#include <memory>

#include "cli/text/devices_text.hpp"

namespace berth::cli {

namespace {

// A worker's record of one frame, in shared memory.
struct FrameLog {
  std::atomic<std::int64_t> faulted{0};  // time of the fault; 0 if none
  std::atomic<std::int64_t> done{0};
};

struct FrameTask {
  std::uint32_t width = 0, height = 0;
  bool inject_fault = false;
  SharedSpan<std::uint8_t> luma, expected;
  SharedSpan<std::byte> log;
};

// Writes to an address that is not mapped, as a broken kernel does.
const Kernel broken_kernel({.entry = "broken",
                            .ptx = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry broken() {\n"
                                   "  .reg .b64 %a;\n  mov.u64 %a, 64;\n  st.global.u32 [%a], %a;\n  ret;\n}\n"});

std::int64_t now() { return real_clock().now().time_since_epoch().count(); }

Result<void> fault(WorkerContext& task) {
  if (task.device().info().backend == "cuda") {
    BERTH_TRY(task.launch(broken_kernel, {1}, {}));
    return task.wait();
  }
  volatile std::uintptr_t unmapped = 64;
  *reinterpret_cast<volatile int*>(unmapped) = 1;
  return {};
}

Result<bool> filter_frame(WorkerContext& task, const FrameTask& in, std::unique_ptr<FrameFilter>& filter) {
  FrameLog& log = *reinterpret_cast<FrameLog*>(BERTH_TRY(task.shared(in.log)).data());
  if (in.inject_fault && log.faulted.load() == 0) {
    log.faulted.store(now());
    BERTH_TRY(fault(task));
  }
  const FramePair pair{in.width, in.height, BERTH_TRY(task.shared(in.luma)), BERTH_TRY(task.shared(in.expected))};
  const bool equal = BERTH_TRY(filter->run(task, pair));
  log.done.store(now());
  return equal;
}

BERTH_TASK(demo_frame, filter_frame,
           [](WorkerContext&) -> Result<std::unique_ptr<FrameFilter>> { return std::make_unique<FrameFilter>(); });

Result<SharedMemory> shared_copy(const Workers& workers, std::span<const std::uint8_t> bytes) {
  SharedMemory memory = BERTH_TRY(workers.share(bytes.size()));
  std::memcpy(memory.bytes().data(), bytes.data(), bytes.size());
  return memory;
}

FrameLog& log_of(const SharedMemory& logs, std::size_t frame) {
  return *reinterpret_cast<FrameLog*>(logs.bytes().data() + frame * sizeof(FrameLog));
}

}  // namespace

Result<IsolatedReport> run_isolated(const Scheduler& scheduler, std::span<const FramePair> pairs, std::size_t frames,
                                    const std::optional<std::string>& backend, bool inject_fault,
                                    const MeasureProgress& progress) {
  IsolatedReport report;
  report.frames = frames;
  WorkerOptions options;
  options.shared_bytes = (std::uint64_t{1} << 20) + frames * sizeof(FrameLog);
  for (const FramePair& pair : pairs) options.shared_bytes += 2 * pair.luma.size() + (std::uint64_t{1} << 18);
  progress("workers start", 0);
  TimePoint began = real_clock().now();
  const Workers workers = BERTH_TRY(Workers::start(scheduler, options));
  report.startup_seconds = std::chrono::duration<double>(real_clock().now() - began).count();

  std::vector<SharedMemory> memory;  // two blocks for each pair of frames
  for (const FramePair& pair : pairs)
    for (const auto& bytes : {pair.luma, pair.expected}) memory.push_back(BERTH_TRY(shared_copy(workers, bytes)));
  const SharedMemory logs = BERTH_TRY(workers.share(frames * sizeof(FrameLog)));
  std::vector<FrameTask> tasks;
  for (std::size_t i = 0; i < frames; ++i) {
    new (&log_of(logs, i)) FrameLog;
    const std::size_t n = i % pairs.size();
    tasks.push_back({pairs[n].width, pairs[n].height, inject_fault && i == frames / 2,
                     memory[2 * n].as_argument<std::uint8_t>(), memory[2 * n + 1].as_argument<std::uint8_t>(),
                     logs.as_argument<std::byte>().subspan(i * sizeof(FrameLog), sizeof(FrameLog))});
  }
  TaskOptions work;
  work.may_run_twice = true;
  if (backend) work.requirements.backends = {*backend};
  progress("all devices together", 0);
  began = real_clock().now();
  const auto results = workers.map(demo_frame, tasks, work);
  report.seconds = std::chrono::duration<double>(real_clock().now() - began).count();

  for (const auto& result : results) {
    if (!result && !report.first_error) report.first_error = result.error();
    report.failed += !result;
    report.wrong += result && !result->value;
  }
  if (report.failed == frames) return *report.first_error;
  if (inject_fault && results[frames / 2]) {
    report.faulty = results[frames / 2]->device;
    // The replacement worker runs the faulted frame first, so recovery ends when that frame is done.
    const FrameLog& log = log_of(logs, frames / 2);
    report.recovery_seconds = static_cast<double>(log.done.load() - log.faulted.load()) / 1e9;
  }
  for (const DeviceStatus& device : scheduler.pool().status()) {
    for (const WorkerStatus& worker : workers.status()) {
      if (device.info.id != worker.device || (backend && device.info.backend != *backend)) continue;
      report.devices.push_back({device.info, worker, 0});
      for (const auto& result : results) report.devices.back().frames += result && result->device == worker.device;
    }
  }
  return report;
}

}  // namespace berth::cli
