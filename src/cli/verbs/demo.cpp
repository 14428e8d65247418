// `berth demo`: runs frames through a real filter on every device of the machine and measures
// start-up, the speed of each device, and all of them together. `make run` starts it.
#include <atomic>
#include <boost/json.hpp>
#include <cstdio>
#include <cstdlib>

#include "berth/pool.hpp"
#include "cli/demo/isolated.hpp"
#include "cli/demo/measure.hpp"
#include "cli/demo/y4m.hpp"
#include "cli/machine_access.hpp"
#include "cli/options.hpp"
#include "cli/text/devices_text.hpp"
#include "cli/text/terminal.hpp"
#include "device/opencl/pocl_devices.hpp"
#include "format/json_text.hpp"

namespace berth::cli {

using namespace format;
using namespace inventory;
using namespace world;
namespace {

struct DemoArguments {
  std::size_t frames = 0;            // 0: as many as take about two seconds
  std::optional<std::string> input;  // a .y4m file; absent: frames are generated
  std::optional<std::string> backend;
  std::string policy = "least_loaded";
  std::string isolation = "none";
  bool inject_fault = false;
  bool json = false;
  BackendOptions backends;
};

// Enough different frames that a device cannot reuse its last result unnoticed.
constexpr std::size_t distinct_frames = 4;
// The default of --frames with worker processes.
constexpr std::size_t isolated_frames = 240;

// 4K frames if there is an accelerator; on a processor, a size that takes milliseconds per frame.
std::vector<Frame> frames_for(const Pool& pool) {
  for (const DeviceStatus& status : pool.status()) {
    const DeviceInfo& info = status.info;
    if (!info.is_fallback && (info.backend == "cuda" || info.backend == "opencl"))
      return make_frames(3840, 2160, distinct_frames);
  }
  return make_frames(640, 360, distinct_frames);
}

// A line on stderr that is redrawn, on a terminal only.
class ProgressLine {
 public:
  ~ProgressLine() {
    if (drawn_) std::fprintf(stderr, "\r\033[K");
  }
  void show(const std::string& phase, double share) {
    if (!stderr_is_terminal()) return;
    const std::lock_guard lock(mutex_);
    const TimePoint now = real_clock().now();
    if (share > 0 && now - last_ < std::chrono::milliseconds(50)) return;
    last_ = now;
    drawn_ = true;
    std::fprintf(stderr, "\r\033[K%s %s", bar(share, 30).c_str(), phase.c_str());
  }

 private:
  std::mutex mutex_;  // guards last_ and drawn_
  TimePoint last_{};
  bool drawn_ = false;
};

std::string fixed(double value, int digits) {
  char text[400];  // large enough for any finite double
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}
std::string rate_text(double value) { return fixed(value, value < 10 ? 1 : 0); }
std::string percent(double share) { return fixed(100 * share, 1) + " %"; }

// The table, and below it the sentence about the correctness of the frames.
template <class Report>
std::string closed(const Table& table, std::string sentence, const Report& report, const Style& style) {
  sentence += report.wrong == 0 && report.failed == 0
                  ? "; every frame matches the processor's result"
                  : "; " + std::to_string(report.wrong) + " wrong, " + std::to_string(report.failed) + " failed";
  std::string text = table.to_text(style);
  for (const std::string& line : wrapped(sentence, style.columns)) text += line + "\n";
  return text;
}

std::string report_text(const DemoReport& report, const Style& style) {
  std::vector<DeviceId> ids;
  double speed = 0;
  for (const DeviceMeasurement& device : report.devices) {
    ids.push_back(device.info.id);
    speed += device.frames_per_second;
  }
  enum Column : std::size_t { name, id, startup, speed_alone, of_speed, frames, of_frames, share_bar };
  Table table({"DEVICE", "ID", ">START-UP", ">FRAMES/S", ">OF SPEED", ">FRAMES", ">OF FRAMES", ""});
  table.may_shrink_ids(id).may_go(share_bar).may_go(id).may_go(frames).may_go(startup);
  for (const DeviceMeasurement& device : report.devices) {
    const double share = report.frame_share(device);
    table.add({device_label(device.info), printable(short_id(device.info.id, ids)),
               fixed(1000 * device.startup_seconds, 0) + " ms", rate_text(device.frames_per_second),
               percent(report.speed_share(device)), std::to_string(device.frames), percent(share), bar(share, 12)});
  }
  const double rate = static_cast<double>(report.frames - report.failed) / report.seconds;
  std::string sentence = "all devices together: " + counted(report.frames - report.failed, "frame") + " in " +
                         fixed(report.seconds, 2) + " s, " + rate_text(rate) + " frames/s";
  if (speed > 0) sentence += ", " + fixed(100 * rate / speed, 0) + " % of the sum of their speeds";
  return closed(table, std::move(sentence), report, style);
}

std::string report_json(const DemoReport& report, const Frame& frame, const std::string& policy) {
  boost::json::array devices;
  for (const DeviceMeasurement& device : report.devices) {
    devices.push_back({{"id", device.info.id.text()},
                       {"startup_seconds", device.startup_seconds},
                       {"frames_per_second", device.frames_per_second},
                       {"speed_share", report.speed_share(device)},
                       {"frames", device.frames},
                       {"frame_share", report.frame_share(device)}});
  }
  const boost::json::object out{{"width", frame.width},  {"height", frame.height},    {"passes", filter_passes},
                                {"policy", policy},      {"frames", report.frames},   {"failed", report.failed},
                                {"wrong", report.wrong}, {"seconds", report.seconds}, {"devices", std::move(devices)}};
  return json_text(out) + "\n";
}

std::string report_text(const IsolatedReport& report, const Style& style) {
  std::vector<DeviceId> ids;
  for (const IsolatedReport::OfDevice& device : report.devices) ids.push_back(device.info.id);
  enum Column : std::size_t { name, id, worker, deaths, frames, of_frames, share_bar };
  Table table({"DEVICE", "ID", ">WORKER", ">DEATHS", ">FRAMES", ">OF FRAMES", ""});
  table.may_shrink_ids(id).may_go(share_bar).may_go(id);
  const std::size_t completed = report.frames - report.failed;
  for (const IsolatedReport::OfDevice& device : report.devices) {
    const double share = completed > 0 ? static_cast<double>(device.frames) / static_cast<double>(completed) : 0;
    table.add({device_label(device.info), printable(short_id(device.info.id, ids)),
               device.worker.pid ? std::to_string(*device.worker.pid) : "-", std::to_string(device.worker.deaths),
               std::to_string(device.frames), percent(share), bar(share, 12)});
  }
  std::string sentence = "one worker process per device, started in " + fixed(1000 * report.startup_seconds, 0) +
                         " ms: " + counted(completed, "frame") + " in " + fixed(report.seconds, 2) + " s, " +
                         rate_text(static_cast<double>(completed) / report.seconds) + " frames/s";
  for (const IsolatedReport::OfDevice& device : report.devices) {
    if (report.faulty != device.info.id || !device.worker.last_death) continue;
    sentence += "; on " + device_label(device.info) + " " + device.worker.last_death->message + ", as requested";
    if (report.recovery_seconds)
      sentence += ", and the frame was ready in the next worker " + fixed(1000 * *report.recovery_seconds, 0) +
                  " ms after the fault";
  }
  return closed(table, std::move(sentence), report, style);
}

std::string report_json(const IsolatedReport& report, const Frame& frame, const std::string& policy) {
  boost::json::array devices;
  for (const IsolatedReport::OfDevice& device : report.devices) {
    boost::json::object entry{{"id", device.info.id.text()},
                              {"frames", device.frames},
                              {"worker_starts", device.worker.starts},
                              {"worker_deaths", device.worker.deaths}};
    if (device.worker.last_death) entry["last_death"] = device.worker.last_death->message;
    devices.push_back(std::move(entry));
  }
  boost::json::object out{
      {"width", frame.width},      {"height", frame.height},       {"passes", filter_passes},
      {"policy", policy},          {"isolation", "process"},       {"frames", report.frames},
      {"failed", report.failed},   {"wrong", report.wrong},        {"startup_seconds", report.startup_seconds},
      {"seconds", report.seconds}, {"devices", std::move(devices)}};
  if (report.faulty) out["faulty"] = report.faulty->text();
  if (report.recovery_seconds) out["recovery_seconds"] = *report.recovery_seconds;
  return json_text(out) + "\n";
}

// Returns the exit status of the command.
template <class Report>
int print_report(const Report& report, const DemoArguments& arguments, const Frame& frame) {
  const int printed =
      print(arguments.json ? report_json(report, frame, arguments.policy) : report_text(report, stdout_style()));
  if (report.first_error) return print_error(*report.first_error);
  return report.wrong > 0 ? static_cast<int>(environment_error) : printed;
}

int run_demo(const DemoArguments& arguments) {
  if (arguments.isolation != "none" && arguments.isolation != "process")
    return print_error(
        {ErrorCode::invalid_argument, "--isolation cannot be '" + arguments.isolation + "'", "use none or process"});
  if (arguments.inject_fault && arguments.isolation != "process")
    return print_error(
        {ErrorCode::invalid_argument, "--inject-fault would end this program", "add --isolation process"});

  PoolOptions pool_options;
  pool_options.policy = arguments.policy;
  if (const auto known = policy_named(arguments.policy); !known) return print_error(known.error());
  std::vector<Frame> frames;
  if (arguments.input) {
    auto read = read_y4m(*arguments.input, arguments.frames > 0 ? arguments.frames : ~std::size_t{0});
    if (!read) return print_error(read.error());
    frames = *std::move(read);
  }
  // The pool leaves out devices that cannot be used; the messages are printed here.
  if (const auto found = find_machine_and_report(arguments.backend, arguments.backends); !found)
    return print_error(found.error());
  const auto pool = Pool::open_all(arguments.backends, pool_options);
  if (!pool) return print_error(pool.error());
  // PoCL ignores names of devices that it does not know.
  if (const char* const chosen = std::getenv(opencl::pocl_devices_variable)) {
    if (const std::optional<Error> problem = opencl::pocl_devices_problem(chosen)) print_error(*problem);
  }
  const auto scheduler = Scheduler::start(*pool);
  if (!scheduler) return print_error(scheduler.error());
  if (frames.empty()) frames = frames_for(*pool);
  if (!arguments.json) {
    std::printf("frames of %ux%u, %zu passes of a Sobel filter each, policy %s\n", frames[0].width, frames[0].height,
                filter_passes, arguments.policy.c_str());
    std::fflush(stdout);
  }
  const std::vector<Frame> expected = filter_on_processor(frames);
  std::vector<FramePair> pairs;
  for (std::size_t n = 0; n < frames.size(); ++n)
    pairs.push_back({frames[n].width, frames[n].height, frames[n].luma, expected[n].luma});
  std::optional<std::size_t> count;
  if (arguments.input) count = frames.size();
  if (!arguments.input && arguments.frames > 0) count = arguments.frames;
  if (arguments.isolation == "process") {
    const Result<IsolatedReport> report = [&] {
      ProgressLine line;
      return run_isolated(*scheduler, pairs, count.value_or(isolated_frames), arguments.backend, arguments.inject_fault,
                          [&](const std::string& phase, double share) { line.show(phase, share); });
    }();
    if (!report) return print_error(report.error());
    return print_report(*report, arguments, frames[0]);
  }
  const DemoReport report = [&] {
    ProgressLine line;
    return measure(*scheduler, pairs, count, arguments.backend,
                   [&](const std::string& phase, double share) { line.show(phase, share); });
  }();
  for (const std::string& label : report.left_out)
    std::fprintf(stderr, "berth: note: %s is not available now and was left out\n", label.c_str());
  if (report.devices.empty()) return print_error(*report.first_error);
  return print_report(report, arguments, frames[0]);
}

}  // namespace

void add_demo(const Verb& command) {
  const auto arguments = std::make_shared<DemoArguments>();
  Verb verb = command.add("demo", "measure a filter on every device, and on all of them together");
  OptionRules count;
  count.range = {1, 100'000'000};
  verb.option("--frames", "N", &arguments->frames,
              "number of frames for the run on all devices; by default enough for about two seconds", count);
  verb.option("--input", "FILE.y4m", &arguments->input, "filter this video instead of generated frames");
  add_backend_option(verb, arguments->backend, "use only this back end:");
  add_policy_option(verb, arguments->policy, "policy that chooses the device:");
  verb.option("--isolation", "HOW", &arguments->isolation,
              "where the filter runs: in this program (none), or in one worker process per device (process)");
  verb.flag("--inject-fault", arguments->inject_fault,
            "crash the worker of one device in the middle of the run (with --isolation process)");
  verb.flag("--json", arguments->json, "print one JSON object instead of the table");
  add_backend_options(verb, arguments->backends);
  verb.footer(
      {"START-UP is compilation, allocation and the first frame. FRAMES/S is measured on all devices at the same time, "
       "each with its own queue; OF SPEED is the share of a device in the sum. FRAMES and OF FRAMES describe the run "
       "that follows, in which the policy chooses: a policy that balances load gives each device its share of the "
       "speed. "
       "With --isolation process, WORKER is the process of a device, and DEATHS counts those that were replaced."});
  verb.run([arguments] { return run_demo(*arguments); });
}

}  // namespace berth::cli
