// `berth demo`: frames through a real filter on every device of the machine, with
// progress and a closing table. What `make run` starts.

#include <atomic>
#include <boost/json.hpp>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "berth/pool.hpp"
#include "berth/scheduler.hpp"
#include "cli/demo/sobel_kernel.hpp"
#include "cli/demo/y4m.hpp"
#include "cli/machine_access.hpp"
#include "cli/options.hpp"
#include "cli/text/devices_text.hpp"
#include "cli/text/terminal.hpp"
#include "device/pocl_devices.hpp"

namespace berth::cli {
namespace {

// Frames of a moving pattern; this many different ones, then they repeat.
constexpr std::size_t distinct_frames = 16;

std::vector<Frame> make_frames(std::size_t count) {
  std::vector<Frame> frames(std::min(count, distinct_frames), Frame{640, 360, {}});
  for (std::size_t n = 0; n < frames.size(); ++n) {
    Frame& frame = frames[n];
    frame.luma.resize(std::size_t{frame.width} * frame.height);
    for (std::uint32_t y = 0; y < frame.height; ++y) {
      for (std::uint32_t x = 0; x < frame.width; ++x)
        frame.luma[std::size_t{y} * frame.width + x] =
            static_cast<std::uint8_t>(((x + 8 * n) ^ (y + 4 * n)) + ((x * y) >> 8));
    }
  }
  return frames;
}

// What one lane needs to filter a frame on its device; made on first use, then
// handed from frame to frame.
struct Workspace {
  std::shared_ptr<Kernel> kernel;
  Buffer in, out;
  std::vector<std::uint8_t> picture;
};

class Workspaces {
 public:
  Result<std::unique_ptr<Workspace>> take(Device& device, std::uint64_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      auto& idle = idle_[device.id()];
      if (!idle.empty()) {
        auto workspace = std::move(idle.back());
        idle.pop_back();
        return workspace;
      }
    }
    auto workspace = std::make_unique<Workspace>();
    auto kernel = device.load(sobel_source());
    if (!kernel) return std::move(kernel).error();
    auto in = device.allocate(bytes);
    if (!in) return std::move(in).error();
    auto out = device.allocate(bytes);
    if (!out) return std::move(out).error();
    workspace->kernel = *std::move(kernel);
    workspace->in = *std::move(in);
    workspace->out = *std::move(out);
    workspace->picture.resize(bytes);
    return workspace;
  }
  void give_back(const Device& device, std::unique_ptr<Workspace> workspace) {
    const std::lock_guard lock(mutex_);
    idle_[device.id()].push_back(std::move(workspace));
  }

 private:
  std::mutex mutex_;  // guards idle_
  std::map<DeviceId, std::vector<std::unique_ptr<Workspace>>> idle_;
};

// One frame on the device the scheduler chose; answers the picture's checksum.
Result<std::uint64_t> filter(Execution& execution, const Frame& frame, Workspaces& workspaces) {
  auto workspace = workspaces.take(execution.device(), frame.luma.size());
  if (!workspace) return std::move(workspace).error();
  Workspace& w = **workspace;
  auto stream = execution.stream();
  if (!stream) return std::move(stream).error();
  const Argument arguments[] = {w.in, w.out, frame.width, frame.height};
  auto steps =
      (*stream)
          ->copy_in(w.in, 0, std::as_bytes(std::span(frame.luma)))
          .and_then([&] { return (*stream)->launch(*w.kernel, sobel_shape(frame.width, frame.height), arguments); })
          .and_then([&] { return (*stream)->copy_out(w.out, 0, std::as_writable_bytes(std::span(w.picture))); })
          .and_then([&] { return (*stream)->wait(execution.deadline()); });
  if (!steps) return std::move(steps).error();
  const std::uint64_t sum = checksum(w.picture);
  workspaces.give_back(execution.device(), *std::move(workspace));
  return sum;
}

// A line on stderr that follows the work, on a terminal only.
class Progress {
 public:
  Progress(std::size_t total, const std::atomic<std::size_t>& finished) {
    if (!stderr_is_terminal()) return;
    thread_ = std::jthread([total, &finished](std::stop_token stop) {
      const TimePoint start = real_clock().now();
      while (!stop.stop_requested()) {
        real_clock().sleep_for(std::chrono::milliseconds(50));
        const std::size_t n = finished.load();
        const double seconds = std::chrono::duration<double>(real_clock().now() - start).count();
        const double share = total ? static_cast<double>(n) / static_cast<double>(total) : 1.0;
        const double rate = static_cast<double>(n) / seconds;
        std::fprintf(stderr, "\r%s %zu of %zu frames, %.0f frames/s ", bar(share, 30).c_str(), n, total, rate);
      }
      std::fprintf(stderr, "\r\033[K");
    });
  }

 private:
  std::jthread thread_;
};

std::string fixed(double value, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

struct DemoArguments {
  std::size_t frames = 600;          // with an input: at most this many
  std::optional<std::string> input;  // a .y4m file; absent: frames are generated
  std::string policy = "least_loaded";
  bool json = false;
  BackendOptions backends;
};

int run_demo(const DemoArguments& arguments) {
  PoolOptions pool_options;
  pool_options.policy = arguments.policy;
  if (auto known = policy_named(arguments.policy); !known) return print_error(known.error());
  std::vector<Frame> frames;
  if (arguments.input) {
    auto read = read_y4m(*arguments.input, arguments.frames);
    if (!read) return print_error(read.error());
    frames = *std::move(read);
  } else {
    frames = make_frames(arguments.frames);
  }
  const std::size_t count = arguments.input ? frames.size() : arguments.frames;

  // A pool uses what it can have; what it cannot is said here.
  if (const auto found = find_machine_and_report(std::nullopt, arguments.backends); !found)
    return print_error(found.error());
  auto pool = Pool::open_all(arguments.backends, pool_options);
  if (!pool) return print_error(pool.error());
  // PoCL itself leaves out what it does not know without a word.
  if (const char* const chosen = std::getenv(pocl_devices_variable)) {
    if (const std::optional<Error> problem = pocl_devices_problem(chosen)) print_error(*problem);
  }
  auto scheduler = Scheduler::start(**pool);
  if (!scheduler) return print_error(scheduler.error());
  if (!arguments.json) {
    std::printf("%s of %ux%u, edge filter, policy %s, %s\n", counted(count, "frame").c_str(), frames[0].width,
                frames[0].height, arguments.policy.c_str(), counted((*pool)->devices().size(), "device").c_str());
    std::fflush(stdout);
  }

  // What every device must answer, computed here.
  std::vector<std::uint64_t> expected;
  std::vector<std::uint8_t> picture(frames[0].luma.size());
  for (const Frame& frame : frames) {
    sobel_rows(frame.luma, picture, frame.width, frame.height, 0, frame.height);
    expected.push_back(checksum(picture));
  }

  Workspaces workspaces;
  std::vector<std::size_t> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = i;
  std::atomic<std::size_t> finished{0};
  const TimePoint start = real_clock().now();
  const auto results = [&] {
    const Progress progress(count, finished);
    return (*scheduler)->map(numbers, [&](Execution& execution, std::size_t n) {
      auto sum = filter(execution, frames[n % frames.size()], workspaces);
      ++finished;
      return sum;
    });
  }();
  const double seconds = std::chrono::duration<double>(real_clock().now() - start).count();

  std::size_t wrong = 0, failed = 0;
  std::optional<Error> first_error;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i]) {
      if (++failed == 1) first_error = results[i].error();
    } else if (results[i]->value != expected[i % frames.size()]) {
      ++wrong;
    }
  }

  const Statistics statistics = (*scheduler)->statistics();
  const auto infos = (*pool)->status();
  const auto info_of = [&](const DeviceId& id) -> const DeviceInfo* {
    for (const DeviceStatus& status : infos)
      if (status.info.id == id) return &status.info;
    return nullptr;
  };
  if (arguments.json) {
    boost::json::array devices;
    for (const DeviceStatistics& d : statistics.devices) {
      boost::json::object row{{"id", d.device.text()}, {"frames", d.completed}, {"failed", d.failed}};
      if (d.rate) row["frames_per_second"] = *d.rate;
      devices.push_back(row);
    }
    const boost::json::object out{{"frames", count},    {"failed", failed},           {"wrong", wrong},
                                  {"seconds", seconds}, {"policy", arguments.policy}, {"devices", devices}};
    std::printf("%s\n", boost::json::serialize(out).c_str());
  } else {
    std::vector<DeviceId> ids;
    for (const DeviceStatistics& d : statistics.devices) ids.push_back(d.device);
    Table table({"DEVICE", "ID", ">FRAMES", ">SHARE", "", ">FRAMES/S", ">FAILED"});
    table.may_shrink(1, 12).may_go(4).may_go(1).may_go(6);
    for (const DeviceStatistics& d : statistics.devices) {
      const DeviceInfo* info = info_of(d.device);
      const double share = count ? static_cast<double>(d.completed) / static_cast<double>(count) : 0;
      table.add({info ? device_label(*info) : "-", printable(short_id(d.device, ids)), std::to_string(d.completed),
                 fixed(100 * share, 1) + " %", bar(share, 12), d.rate ? fixed(*d.rate, 0) : "-",
                 std::to_string(d.failed)});
    }
    const Style style = stdout_style();
    std::string text = table.to_text(style);
    const std::string verdict = wrong == 0 && failed == 0
                                    ? "every frame is what the processor alone computes"
                                    : std::to_string(wrong) + " wrong, " + std::to_string(failed) + " failed";
    const std::string sentence = counted(count - failed, "frame") + " in " + fixed(seconds, 2) + " s, " +
                                 fixed(static_cast<double>(count - failed) / seconds, 0) + " frames/s; " + verdict;
    for (const std::string& line : wrapped(sentence, style.columns)) text += line + "\n";
    std::fputs(text.c_str(), stdout);
  }
  if (first_error) return print_error(*first_error);
  return wrong == 0 ? done : environment_error;
}

}  // namespace

void add_demo(const Verb& command) {
  const auto arguments = std::make_shared<DemoArguments>();
  Verb verb = command.add("demo", "frames through a real filter on every device");
  OptionRules count;
  count.range = {1, 100'000'000};
  verb.option("--frames", "N", &arguments->frames, "how many frames", count);
  verb.option("--input", "FILE.y4m", &arguments->input, "filter this video instead of generated frames");
  add_policy_option(verb, arguments->policy, "how a device is chosen:");
  verb.flag("--json", arguments->json, "print one JSON object instead of the table");
  add_backend_options(verb, arguments->backends);
  verb.run([arguments] { return run_demo(*arguments); });
}

}  // namespace berth::cli
