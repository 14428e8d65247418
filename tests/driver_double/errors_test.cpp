// Every code of the driver, returned by every kind of call: the back end's error
// is right, a passing fault leaves the device usable, a fatal one loses
// this GPU and no other, and nothing is left behind.
#include <functional>

#include "device/cuda/errors.hpp"
#include "driver_double/fixture.hpp"

namespace berth::test {
namespace {

// An opened device with one of each thing, and the host memory copies use.
struct Bench {
  std::shared_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::shared_ptr<LoadedKernel> kernel;
  Buffer buffer, other;
  std::vector<std::byte> host = std::vector<std::byte>(64);

  static Result<Bench> open(Backend& backend, const DeviceId& id) {
    Bench bench;
    auto device = backend.open(id);
    if (!device) return std::move(device).error();
    bench.device = *std::move(device);
    auto stream = bench.device->open_stream();
    if (!stream) return std::move(stream).error();
    bench.stream = *std::move(stream);
    auto kernel = bench.device->load(test::kernel("empty"));
    if (!kernel) return std::move(kernel).error();
    bench.kernel = *std::move(kernel);
    for (Buffer* buffer : {&bench.buffer, &bench.other}) {
      auto made = bench.device->allocate(64);
      if (!made) return std::move(made).error();
      *buffer = *std::move(made);
    }
    return bench;
  }
};

template <class T>
Result<void> without_value(const Result<T>& result) {
  if (result) return {};
  return result.error();
}

struct Operation {
  const char* name;
  const char* symbol;  // the call that fails
  std::function<Result<void>(Bench&)> run;
};

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all{
      {"allocate", "cuMemAlloc_v2", [](Bench& b) { return without_value(b.device->allocate(128)); }},
      {"allocate in order", "cuMemAllocAsync", [](Bench& b) { return without_value(b.stream->allocate(128)); }},
      {"pin", "cuMemHostAlloc", [](Bench& b) { return without_value(b.device->pin(128)); }},
      {"pin the caller's", "cuMemHostRegister_v2", [](Bench& b) { return without_value(b.device->pin(b.host)); }},
      {"open a stream", "cuStreamCreateWithPriority", [](Bench& b) { return without_value(b.device->open_stream()); }},
      {"range of priorities", "cuCtxGetStreamPriorityRange",
       [](Bench& b) { return without_value(b.device->open_stream()); }},
      {"load", "cuModuleLoadDataEx", [](Bench& b) { return without_value(b.device->load(kernel("empty"))); }},
      {"find the entry", "cuModuleGetFunction",
       [](Bench& b) { return without_value(b.device->load(kernel("empty"))); }},
      {"ask about the entry", "cuFuncGetAttribute",
       [](Bench& b) { return without_value(b.device->load(kernel("empty"))); }},
      {"read the parameters", "cuFuncGetParamInfo",
       [](Bench& b) { return without_value(b.device->load(kernel("empty"))); }},
      {"occupancy", "cuOccupancyMaxActiveBlocksPerMultiprocessor",
       [](Bench& b) { return without_value(b.kernel->occupancy(64)); }},
      {"copy in", "cuMemcpyHtoDAsync_v2", [](Bench& b) { return b.stream->copy_in(b.buffer, 0, b.host); }},
      {"copy out", "cuMemcpyDtoHAsync_v2", [](Bench& b) { return b.stream->copy_out(b.buffer, 0, b.host); }},
      {"copy", "cuMemcpyDtoDAsync_v2", [](Bench& b) { return b.stream->copy(b.other, 0, b.buffer, 0, 64); }},
      {"launch", "cuLaunchKernel", [](Bench& b) { return b.stream->launch(*b.kernel, {}, {}); }},
      {"make an event", "cuEventCreate", [](Bench& b) { return without_value(b.stream->record()); }},
      {"record", "cuEventRecord", [](Bench& b) { return without_value(b.stream->record()); }},
      {"wait", "cuEventQuery", [](Bench& b) { return b.stream->wait(soon()); }},
      {"done", "cuEventQuery",
       [](Bench& b) -> Result<void> {
         auto event = b.stream->record();
         if (!event) return std::move(event).error();
         return without_value((*event)->done());
       }},
      {"make its context current", "cuCtxPushCurrent_v2",
       [](Bench& b) { return b.stream->copy_in(b.buffer, 0, b.host); }},
      {"run", "cuCtxPushCurrent_v2", [](Bench& b) { return b.stream->run([](Stream&) { return Result<void>(); }); }},
  };
  return all;
}

class EveryCode : public testing::TestWithParam<cuda::DriverCode> {
 protected:
  // The error that a call with this code comes to.
  void expect_right(const Result<void>& result, const DeviceId& id) const {
    expect_right(result, id, GetParam().meaning);
  }
  void expect_right(const Result<void>& result, const DeviceId& id, ErrorCode meaning) const {
    ASSERT_TRUE(fails_with(result, meaning));
    EXPECT_EQ(result.error().driver, (DriverError{GetParam().code, std::string(GetParam().name)}));
    EXPECT_EQ(result.error().where, id.text());
    EXPECT_EQ(result.error().reaction(), reaction_to(meaning));
    if (cuda::is_fatal(GetParam().code)) {
      EXPECT_EQ(result.error().reaction(), Reaction::restart_process);
    }
  }
  std::string rule(const char* symbol) const {
    return std::string("error ") + symbol + " gpu=0 code=" + std::to_string(GetParam().code);
  }
};

TEST_P(EveryCode, OfACallHasTheRightMeaningAndLeavesNothingBehind) {
  for (const Operation& operation : operations()) {
    SCOPED_TRACE(std::string(operation.name) + ", " + operation.symbol);
    // For this call the code only means the end of the list of parameters.
    if (std::string_view(operation.symbol) == "cuFuncGetParamInfo" && GetParam().code == cuda::code_invalid_value)
      continue;
    ASSERT_NO_FATAL_FAILURE(start("gpus 2"));
    const auto backend = device::make_cuda_backend({});
    const auto listed = backend->list();
    ASSERT_TRUE(works(listed));
    const DeviceId& id = listed->front().id;
    {
      auto bench = Bench::open(*backend, id), second = Bench::open(*backend, listed->back().id);
      ASSERT_TRUE(works(bench));
      ASSERT_TRUE(works(second));
      also(rule(operation.symbol));
      expect_right(operation.run(*bench), id);
      if (cuda::is_fatal(GetParam().code)) {
        EXPECT_TRUE(fails_with(operation.run(*bench), ErrorCode::device_lost)) << "lost for good";
        EXPECT_TRUE(fails_with(bench->device->sample(), ErrorCode::device_lost));
        EXPECT_TRUE(fails_with(backend->open(id), ErrorCode::device_lost));
      } else {
        EXPECT_TRUE(works(operation.run(*bench))) << "the device still works";
        EXPECT_TRUE(works(bench->stream->wait(soon())));
      }
      EXPECT_TRUE(works(operation.run(*second))) << "the other GPU is not affected";
      EXPECT_TRUE(works(second->stream->wait(soon())));
    }
    if (!cuda::is_fatal(GetParam().code)) {
      EXPECT_EQ(left_over(0), nothing);
    }
    EXPECT_EQ(left_over(1), nothing);
  }
}

TEST_P(EveryCode, OfOpeningHidesNoOtherDeviceAndLeavesNothingBehind) {
  ASSERT_NO_FATAL_FAILURE(start("gpus 2\n" + rule("cuDevicePrimaryCtxRetain")));
  const auto backend = device::make_cuda_backend({});
  const auto listed = backend->list();
  ASSERT_TRUE(works(listed));
  // The GPU was listed but is gone when it is opened.
  const bool vanished = GetParam().meaning == ErrorCode::no_device;
  expect_right(without_value(backend->open(listed->front().id)), listed->front().id,
               vanished ? ErrorCode::not_found : GetParam().meaning);
  EXPECT_TRUE(works(backend->open(listed->back().id)));
  EXPECT_EQ(left_over(), nothing);
}

TEST_P(EveryCode, OfStartingIsTheListingsError) {
  ASSERT_NO_FATAL_FAILURE(start("gpu\nerror cuInit times=always code=" + std::to_string(GetParam().code)));
  const auto listed = device::make_cuda_backend({})->list();
  if (GetParam().code == cuda::code_no_device) {
    ASSERT_TRUE(works(listed));
    EXPECT_TRUE(listed->empty()) << "a driver without a GPU is not a failure";
    return;
  }
  ASSERT_TRUE(fails_with(listed, GetParam().meaning));
  EXPECT_EQ(listed.error().driver->code, GetParam().code);
}

// A fault of a kernel or copy is returned by the next call that asks, on any GPU.
TEST_P(EveryCode, OfWorkUnderWayComesOutOfWaitingForIt) {
  for (const char* what : {"kernel", "copy"}) {
    SCOPED_TRACE(what);
    ASSERT_NO_FATAL_FAILURE(start("gpu"));
    const auto backend = device::make_cuda_backend({});
    const DeviceId id = backend->list()->front().id;
    auto bench = Bench::open(*backend, id);
    ASSERT_TRUE(works(bench));
    // Which call asks first is random; the delay lets the event exist before the work fails.
    also(std::string("delay ") + what + " for=2ms\n" + rule(what));
    ASSERT_TRUE(works(std::string_view(what) == "kernel" ? bench->stream->launch(*bench->kernel, {}, {})
                                                         : bench->stream->copy_in(bench->buffer, 0, bench->host)));
    expect_right(bench->stream->wait(soon()), id);
  }
}

std::vector<cuda::DriverCode> errors() {
  std::vector<cuda::DriverCode> all(cuda::driver_codes().begin(), cuda::driver_codes().end());
  std::erase_if(all, [](const cuda::DriverCode& known) { return known.code == cuda::code_not_ready; });
  return all;
}
INSTANTIATE_TEST_SUITE_P(Of, EveryCode, testing::ValuesIn(errors()),
                         [](const auto& info) { return "code_" + std::to_string(info.param.code); });

// Errors while resources are released cannot be reported, and must
// not affect anything else.
TEST(Releasing, ThatFailsIsSurvived) {
  for (const char* symbol :
       {"cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeHost", "cuMemHostUnregister", "cuStreamDestroy_v2",
        "cuEventDestroy_v2", "cuModuleUnload", "cuDevicePrimaryCtxRelease_v2", "cuCtxPopCurrent_v2",
        "cuCtxPushCurrent_v2", "cuCtxGetCurrent", "cuMemPoolTrimTo", "cuStreamQuery"}) {
    for (const int code : {1, 700}) {
      SCOPED_TRACE(std::string(symbol) + " " + std::to_string(code));
      ASSERT_NO_FATAL_FAILURE(start("gpus 2"));
      const auto backend = device::make_cuda_backend({});
      const auto listed = backend->list();
      {
        auto bench = Bench::open(*backend, listed->front().id);
        ASSERT_TRUE(works(bench));
        const auto ordered = bench->stream->allocate(64);
        const auto pinned = bench->device->pin(64);
        const auto own = bench->device->pin(bench->host);
        ASSERT_TRUE(works(bench->stream->wait(soon())));
        also(std::string("error ") + symbol + " times=always code=" + std::to_string(code));
      }
      also("calm");
      auto second = backend->open(listed->back().id);
      ASSERT_TRUE(works(second));
      EXPECT_TRUE(works(add_vectors(**second, soon())));
    }
  }
}

}  // namespace
}  // namespace berth::test
