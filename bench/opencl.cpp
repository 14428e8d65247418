// The time that Berth adds to an empty kernel on PoCL's `basic` devices: launching, recording and waiting through a
// stream or through a lane of the scheduler, compared with the fewest raw calls that do the same (enqueue and finish,
// without profiling). There is one host thread per device, because a `basic` device computes during the enqueue. The
// goal is to add at most 1 us, or 2 us for a lane; as a limit of the ratio, that is 1 + 1 us / peer.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "berth/scheduler.hpp"
#include "device/backends.hpp"
#include "device/opencl/backend.hpp"
#include "report.hpp"

#include <barrier>

namespace {

using namespace berth;

// A round is shorter than a time slice of the operating system, so that most rounds run undisturbed even on a busy
// machine, and the median is one of those.
constexpr std::size_t rounds = 801;
constexpr std::size_t iterations = 200;

KernelSource empty_source() {
  KernelSource source;
  source.entry = "empty";
  source.opencl_c = "kernel void empty() {}";
  return source;
}

[[noreturn]] void give_up(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

// The same work on one device, in three ways.
class Direct {
 public:
  explicit Direct(Device& device)
      : stream_(device.open_stream().value()), kernel_(device.load(empty_source()).value()) {}
  void operator()(std::size_t times) {
    for (std::size_t i = 0; i < times; ++i) {
      if (!stream_->launch(*kernel_, {}, {}) || !stream_->wait()) give_up("a launch failed");
    }
  }

 private:
  std::unique_ptr<Stream> stream_;
  std::shared_ptr<LoadedKernel> kernel_;
};

// These objects live until the process ends.
class Raw {
 public:
  Raw(const opencl::Api& api, Device& device) : api_(api) {
    auto* id = static_cast<cl_device_id>(device.native().device);
    cl_context context = api.clCreateContext(nullptr, 1, &id, nullptr, nullptr, nullptr);
    queue_ = api.clCreateCommandQueue(context, id, 0, nullptr);
    const std::string source = empty_source().opencl_c;
    const char* text = source.c_str();
    cl_program program = api.clCreateProgramWithSource(context, 1, &text, nullptr, nullptr);
    api.clBuildProgram(program, 1, &id, "", nullptr, nullptr);
    kernel_ = api.clCreateKernel(program, "empty", nullptr);
  }
  void operator()(std::size_t times) {
    const std::size_t work_items = 1;
    for (std::size_t i = 0; i < times; ++i) {
      if (api_.clEnqueueNDRangeKernel(queue_, kernel_, 1, nullptr, &work_items, nullptr, 0, nullptr, nullptr) !=
              CL_SUCCESS ||
          api_.clFinish(queue_) != CL_SUCCESS) {
        give_up("a raw launch failed");
      }
    }
  }

 private:
  const opencl::Api& api_;
  cl_command_queue queue_ = nullptr;
  cl_kernel kernel_ = nullptr;
};

// The launch as a task of the scheduler.
class Lane {
 public:
  explicit Lane(Device& device)
      : pool_(Pool::open({std::shared_ptr<Device>(std::shared_ptr<void>(), &device)}).value()),
        scheduler_(Scheduler::start(pool_).value()),
        kernel_(device.load(empty_source()).value()) {}
  void operator()(std::size_t times) {
    const auto launch = [this](TaskContext& context) -> Result<void> {
      Result<Stream*> stream = context.stream();
      if (!stream) return std::move(stream).error();
      return (*stream)->launch(*kernel_, {}, {});
    };
    for (std::size_t i = 0; i < times; ++i) {
      if (!scheduler_.submit(launch).get()) give_up("a launch through a lane failed");
    }
  }

 private:
  Pool pool_;
  Scheduler scheduler_;
  std::shared_ptr<LoadedKernel> kernel_;
};

template <class Ours>
void measure(bench::Report& report, const std::string& name, double added_us_goal, const opencl::Api& api,
             std::span<const std::shared_ptr<Device>> devices) {
  if (!report.wants(name)) return;
  // All devices are in the same phase at the same time.
  std::vector<std::vector<double>> ours_us(devices.size()), raw_us(devices.size());
  std::barrier phase(static_cast<std::ptrdiff_t>(devices.size()));
  const auto work = [&](std::size_t i) {
    Ours ours(*devices[i]);
    Raw raw(api, *devices[i]);
    ours(iterations);
    raw(iterations);
    for (std::size_t round = 0; round < rounds; ++round) {
      phase.arrive_and_wait();
      ours_us[i].push_back(bench::time_ns(iterations, std::ref(ours)) / 1000);
      phase.arrive_and_wait();
      raw_us[i].push_back(bench::time_ns(iterations, std::ref(raw)) / 1000);
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < devices.size(); ++i) threads.emplace_back(work, i);
  work(0);
  for (std::thread& thread : threads) thread.join();

  bench::Case result;
  result.name = name;
  result.unit = "us";
  result.better = bench::Better::lower;
  double raw = 0;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    result.ours += bench::median(ours_us[i]) / static_cast<double>(devices.size());
    raw += bench::median(raw_us[i]) / static_cast<double>(devices.size());
  }
  result.peer = raw;
  result.goal = 1 + added_us_goal / raw;
  result.fields.emplace_back("added_us", result.ours - raw);
  report.add(result);
}

}  // namespace

int main(int argc, char** argv) {
  setenv("POCL_DEVICES", "basic basic", /*overwrite=*/1);
  bench::Report report("opencl", argc, argv);
  const Result<const opencl::Api*> api = opencl::system_api();
  if (!api) {
    report.note(api.error().to_text());
    return 0;
  }
  const auto backend = device::make_opencl_backend({});
  const auto infos = backend->list();
  if (!infos) {
    report.note(infos.error().to_text());
    return 0;
  }
  std::vector<std::shared_ptr<Device>> devices;
  for (const DeviceInfo& info : *infos) {
    // `basic` is called cpu-minimal since PoCL 4.
    if (!info.name.starts_with("basic") && !info.name.starts_with("cpu-minimal")) continue;
    auto device = backend->open(info.id);
    if (device) devices.push_back(*device);
  }
  if (devices.size() < 2) {
    report.note("no two PoCL `basic` devices here; install pocl-opencl-icd");
    return 0;
  }
  measure<Direct>(report, "basic/1", 1, **api, std::span(devices).first(1));
  measure<Direct>(report, "basic/2", 1, **api, std::span(devices).first(2));
  measure<Lane>(report, "lane/1", 2, **api, std::span(devices).first(1));
}
