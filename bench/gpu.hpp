// What the GPU benchmarks share: the first NVIDIA GPU with its raw driver, and
// a check for calls that must not fail while timing. Without a GPU a benchmark
// says so, reports no case and ends well.
#pragma once

#include <cstdlib>

#include "device/backends.hpp"
#include "device/cuda/driver.hpp"
#include "report.hpp"

namespace berth::bench {

inline void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "%s failed\n", what);
  std::exit(1);
}

struct Gpu {
  std::unique_ptr<Backend> backend;
  std::shared_ptr<Device> device;
  const cuda::Driver* driver = nullptr;

  // For the raw side: its context, current on this thread for a scope.
  class Scope {
   public:
    explicit Scope(const Gpu& gpu) : driver_(*gpu.driver) {
      require(driver_.cuCtxPushCurrent_v2(static_cast<cuda::Context>(gpu.device->native().context)) == 0, "push");
    }
    ~Scope() {
      cuda::Context popped = nullptr;
      driver_.cuCtxPopCurrent_v2(&popped);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const cuda::Driver& driver_;
  };

  // Null, with a note in the report, where there is none.
  static std::optional<Gpu> first(Report& report) {
    Gpu gpu{device::make_cuda_backend({}), nullptr, nullptr};
    const auto found = gpu.backend->list();
    if (!found || found->empty()) {
      report.note("no NVIDIA GPU here, nothing measured" + (found ? "" : ": " + found.error().to_text()));
      return std::nullopt;
    }
    auto device = gpu.backend->open(found->front().id);
    if (!device) {
      report.note("nothing measured: " + device.error().to_text());
      return std::nullopt;
    }
    report.note("on " + found->front().name);
    gpu.device = *device;
    gpu.driver = *cuda::Driver::load();
    return gpu;
  }

  // An event of the raw side, polled like ours.
  void raw_wait(cuda::EventHandle event, cuda::StreamHandle stream) const {
    cuda::Code code = driver->cuEventRecord(event, stream);
    require(code == cuda::code_success, "a raw record");
    do {
      code = driver->cuEventQuery(event);
    } while (code == cuda::code_not_ready);
    require(code == cuda::code_success, "a raw wait");
  }
};

// The raw side of launching an empty kernel and waiting for it: it keeps its context current and uses
// one event for all rounds.
class RawLaunch {
 public:
  static constexpr const char* empty_kernel =
      ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry empty()\n{\n  ret;\n}\n";

  explicit RawLaunch(const Gpu& gpu) : gpu_(gpu) {
    const Gpu::Scope scope(gpu_);
    const cuda::Driver& driver = *gpu_.driver;
    require(driver.cuModuleLoadDataEx(&module_, empty_kernel, 0, nullptr, nullptr) == 0 &&
                driver.cuModuleGetFunction(&function_, module_, "empty") == 0 &&
                driver.cuStreamCreateWithPriority(&stream_, cuda::stream_non_blocking, 0) == 0 &&
                driver.cuEventCreate(&event_, cuda::event_default) == 0,
            "setting up the raw side");
  }
  ~RawLaunch() {
    const Gpu::Scope scope(gpu_);
    gpu_.driver->cuEventDestroy_v2(event_);
    gpu_.driver->cuStreamDestroy_v2(stream_);
    gpu_.driver->cuModuleUnload(module_);
  }
  RawLaunch(const RawLaunch&) = delete;
  RawLaunch& operator=(const RawLaunch&) = delete;

  void operator()(std::size_t launches) const {
    const Gpu::Scope scope(gpu_);
    for (std::size_t i = 0; i < launches; ++i) {
      require(gpu_.driver->cuLaunchKernel(function_, 1, 1, 1, 1, 1, 1, 0, stream_, nullptr, nullptr) == 0,
              "a raw launch");
      gpu_.raw_wait(event_, stream_);
    }
  }

 private:
  const Gpu& gpu_;
  cuda::Module module_ = nullptr;
  cuda::Function function_ = nullptr;
  cuda::StreamHandle stream_ = nullptr;
  cuda::EventHandle event_ = nullptr;
};

}  // namespace berth::bench
