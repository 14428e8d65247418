#include "cli/demo/measure.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <thread>

#include "cli/text/devices_text.hpp"

namespace berth::cli {

namespace {

constexpr double seconds_apart = 1;
// Lanes are idle for a moment between batches, so very short batches would understate the speed.
constexpr double batch_seconds_min = 0.1;
constexpr double seconds_together = 2;
// Limits the list of frames if frames are tiny.
constexpr std::size_t frames_max = 100'000;

double seconds_since(TimePoint start) { return std::chrono::duration<double>(real_clock().now() - start).count(); }

class Measuring {
 public:
  Measuring(const Scheduler& scheduler, std::span<const FramePair> pairs, const MeasureProgress& progress,
            DemoReport& report)
      : scheduler_(scheduler), pairs_(pairs), progress_(progress), report_(report) {}

  // False if the device gets no work: it is held, cordoned or not healthy.
  bool start(DeviceMeasurement& device) {
    progress_(device_label(device.info) + " starts", 0);
    const TimePoint began = real_clock().now();
    TaskOptions work;
    work.requirements.only = {device.info.id};
    const auto results = scheduler_.map(
        std::vector<std::size_t>{0},
        [&](TaskContext& execution, std::size_t n) -> Result<bool> {
          BERTH_TRY(filter_.prepare(execution.device(), device.info.concurrency, pairs_[n].luma.size()));
          return filter_.run(execution, pairs_[n]);
        },
        work);
    device.startup_seconds = seconds_since(began);
    if (!results[0] && results[0].error().code == ErrorCode::no_eligible_device) return false;
    count_failed(results);
    return true;
  }

  // Measures all devices at the same time, each with its own queue: devices may share cores and links, so a device
  // measured alone could be faster than when all of them work.
  void measure_speeds() {
    std::vector<std::jthread> threads;
    for (DeviceMeasurement& device : report_.devices) threads.emplace_back([&] { measure_speed(device); });
  }

  void run_together(std::size_t frames, const std::optional<std::string>& backend) {
    TaskOptions work;
    if (backend) work.requirements.backends = {*backend};
    report_.frames = frames;
    const TimePoint began = real_clock().now();
    const auto results = map(frames, work, [&](std::size_t finished) {
      progress_("all devices together", static_cast<double>(finished) / static_cast<double>(frames));
    });
    report_.seconds = seconds_since(began);
    report_.failed = count_failed(results);
    for (const auto& result : results) {
      if (!result) continue;
      for (DeviceMeasurement& device : report_.devices) device.frames += device.info.id == result->device;
    }
  }

 private:
  using Results = std::vector<Result<TaskResult<bool>>>;

  void measure_speed(DeviceMeasurement& device) {
    TaskOptions work;
    work.requirements.only = {device.info.id};
    const TimePoint began = real_clock().now();
    std::size_t frames = 0;
    std::size_t batch = 2 * device.info.concurrency;
    for (double seconds = 0; seconds < seconds_apart;) {
      const double before = seconds;
      if (count_failed(map(batch, work, [](std::size_t) {})) > 0) return;
      frames += batch;
      seconds = seconds_since(began);
      device.frames_per_second = static_cast<double>(frames) / seconds;
      progress_("speed of each device", seconds / seconds_apart);
      if (seconds - before < batch_seconds_min) batch *= 2;
    }
  }

  template <class Finished>
  Results map(std::size_t count, const TaskOptions& work, const Finished& report_finished) {
    std::vector<std::size_t> numbers(count);
    std::iota(numbers.begin(), numbers.end(), std::size_t{0});
    std::atomic<std::size_t> finished{0};
    return scheduler_.map(
        numbers,
        [&](TaskContext& execution, std::size_t n) {
          Result<bool> equal = filter_.run(execution, pairs_[n % pairs_.size()]);
          report_finished(++finished);
          return equal;
        },
        work);
  }
  std::size_t count_failed(const Results& results) {
    const std::lock_guard lock(mutex_);
    std::size_t failed = 0;
    for (const auto& result : results) {
      if (result) {
        report_.wrong += !result->value;
      } else {
        ++failed;
        if (!report_.first_error) report_.first_error = result.error();
      }
    }
    return failed;
  }

  const Scheduler& scheduler_;
  const std::span<const FramePair> pairs_;
  FrameFilter filter_;
  const MeasureProgress& progress_;
  std::mutex mutex_;  // guards the counts of report_
  DemoReport& report_;
};

}  // namespace

double DemoReport::speed_share(const DeviceMeasurement& device) const {
  double sum = 0;
  for (const DeviceMeasurement& each : devices) sum += each.frames_per_second;
  return sum > 0 ? device.frames_per_second / sum : 0;
}

double DemoReport::frame_share(const DeviceMeasurement& device) const {
  const std::size_t completed = frames - failed;
  return completed > 0 ? static_cast<double>(device.frames) / static_cast<double>(completed) : 0;
}

DemoReport measure(const Scheduler& scheduler, std::span<const FramePair> pairs, std::optional<std::size_t> frames,
                   const std::optional<std::string>& backend, const MeasureProgress& progress) {
  DemoReport report;
  for (const DeviceStatus& status : scheduler.pool().status()) {
    if (!backend || status.info.backend == *backend) report.devices.push_back({status.info, 0, 0, 0});
  }
  Measuring measuring(scheduler, pairs, progress, report);
  double speed = 0;
  std::size_t lanes = 0;
  std::vector<DeviceMeasurement> found = std::move(report.devices);
  report.devices.clear();
  for (DeviceMeasurement& device : found) {
    if (measuring.start(device)) {
      lanes += device.info.concurrency;
      report.devices.push_back(std::move(device));
    } else {
      report.left_out.push_back(device_label(device.info));
    }
  }
  if (report.devices.empty()) {
    report.first_error = Error{
        ErrorCode::no_eligible_device, "no device is available now", "berth devices shows who holds them", {}, {}};
    return report;
  }
  measuring.measure_speeds();
  for (const DeviceMeasurement& device : report.devices) speed += device.frames_per_second;
  const auto enough = static_cast<std::size_t>(speed * seconds_together);
  measuring.run_together(frames.value_or(std::clamp(enough, 2 * lanes, frames_max)), backend);
  return report;
}

}  // namespace berth::cli
