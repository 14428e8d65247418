// The double keeps the promises that the other tests rely on, checked with raw
// driver calls.
#include <cstdlib>
#include <cstring>
#include <thread>

#include "driver_double/fixture.hpp"

namespace berth::test {
namespace {

using namespace std::chrono_literals;
using cuda::Code;

class DriverDouble : public testing::Test {
 protected:
  void begin(const std::string& script) {
    ASSERT_NO_FATAL_FAILURE(start(script));
    ASSERT_EQ(driver.cuInit(0), 0);
  }
  int number(int ordinal) const {
    int made = -1;
    EXPECT_EQ(driver.cuDeviceGet(&made, ordinal), 0);
    return made;
  }
  // The primary context, current on this thread until the end of the machine.
  cuda::Context primary(int ordinal) const {
    cuda::Context context = nullptr;
    EXPECT_EQ(driver.cuDevicePrimaryCtxRetain(&context, number(ordinal)), 0);
    EXPECT_EQ(driver.cuCtxSetCurrent(context), 0);
    return context;
  }
  cuda::StreamHandle stream() const {
    cuda::StreamHandle made = nullptr;
    EXPECT_EQ(driver.cuStreamCreateWithPriority(&made, cuda::stream_non_blocking, 0), 0);
    return made;
  }
  cuda::EventHandle event() const {
    cuda::EventHandle made = nullptr;
    EXPECT_EQ(driver.cuEventCreate(&made, cuda::event_default), 0);
    return made;
  }
  cuda::DevicePointer memory(std::size_t bytes) const {
    cuda::DevicePointer made = 0;
    EXPECT_EQ(driver.cuMemAlloc_v2(&made, bytes), 0);
    return made;
  }
  cuda::Function function(const char* entry) const {
    cuda::Module module = nullptr;
    cuda::Function made = nullptr;
    EXPECT_EQ(driver.cuModuleLoadDataEx(&module, kernel(entry).ptx.c_str(), 0, nullptr, nullptr), 0);
    EXPECT_EQ(driver.cuModuleGetFunction(&made, module, entry), 0);
    return made;
  }
  template <class... T>
  Code launch(cuda::Function function, cuda::StreamHandle stream, T... values) const {
    std::array<void*, sizeof...(T) + 1> parameters{&values..., nullptr};
    return driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters.data(), nullptr);
  }
  Code finish(cuda::StreamHandle stream) const {
    Code code = cuda::code_not_ready;
    while (code == cuda::code_not_ready) code = driver.cuStreamQuery(stream);
    return code;
  }
  const cuda::Driver& driver = **cuda::Driver::load();
};

TEST_F(DriverDouble, HasEverySymbolThatTheBackEndLoads) {
#define BERTH_IS_THERE(symbol, ...) EXPECT_NE(driver.symbol, nullptr) << #symbol;
  BERTH_CUDA_REQUIRED(BERTH_IS_THERE)
  BERTH_CUDA_OPTIONAL(BERTH_IS_THERE)
#undef BERTH_IS_THERE
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr);
#define BERTH_IS_THERE(symbol, ...) EXPECT_NE(dlsym(library, #symbol), nullptr) << #symbol;
  BERTH_NVML_REQUIRED(BERTH_IS_THERE)
  BERTH_NVML_OPTIONAL(BERTH_IS_THERE)
#undef BERTH_IS_THERE
  EXPECT_EQ(dlsym(library, "berth_double_count"), reinterpret_cast<void*>(Double::of_this_process().count))
      << "both names are one object with one state";
}

TEST_F(DriverDouble, HasNoPrivateTablesButAnswersWhoeverAsksForOne) {
  begin("gpu");
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr);
  const auto find = reinterpret_cast<Code (*)(const void**, const CUuuid_st*)>(dlsym(library, "cuGetExportTable"));
  ASSERT_NE(find, nullptr) << "NVRTC 13 crashes without it";
  const std::array<unsigned char, 16> name{};
  const void* table = &name;
  EXPECT_EQ(find(&table, reinterpret_cast<const CUuuid_st*>(name.data())), 500);
  EXPECT_EQ(table, nullptr);
}

TEST_F(DriverDouble, NamesTheLineOfAMistakeInAScript) {
  const auto complaint = [](const char* script) -> std::string {
    const char* wrong = Double::of_this_process().reset(script);
    return wrong != nullptr ? wrong : "";
  };
  EXPECT_EQ(complaint("gpu\n# all is well\ngpus 2 memory=1GiB"), "");
  EXPECT_EQ(complaint("gpu\nplanet"), "line 2: 'planet' is not a verb of a script");
  EXPECT_EQ(complaint("gpu colour=green"), "line 1: 'colour' means nothing to 'gpu'");
  EXPECT_EQ(complaint("gpu memory=1GB"), "line 1: 'GB' is not a unit of bytes");
  EXPECT_EQ(complaint("gpu\nerror cuInit"), "line 2: an error needs code=");
  EXPECT_EQ(complaint("gpu\nlost gpu=1"), "line 2: there is no GPU 1");
  EXPECT_EQ(complaint("gpu\ndelay cuInit for=1"), "line 2: '1' is not a duration such as 20ms");
}

TEST_F(DriverDouble, RefusesHandlesOfAnotherContextAndCallsWithoutOne) {
  begin("gpus 2");
  primary(0);
  const cuda::StreamHandle first = stream();
  const cuda::EventHandle mark = event();
  const cuda::Function empty = function("empty");
  primary(1);
  const cuda::StreamHandle second = stream();
  EXPECT_EQ(driver.cuEventRecord(mark, second), 400);
  EXPECT_EQ(launch(empty, second), 400);
  EXPECT_EQ(driver.cuStreamQuery(first), 400);
  EXPECT_EQ(driver.cuStreamQuery(nullptr), 400);
  ASSERT_EQ(driver.cuCtxSetCurrent(nullptr), 0);
  cuda::DevicePointer pointer = 0;
  EXPECT_EQ(driver.cuMemAlloc_v2(&pointer, 64), 201);
}

TEST_F(DriverDouble, GivesEachThreadItsOwnStackOfContexts) {
  begin("gpus 2");
  const cuda::Context first = primary(0);
  cuda::Context second = nullptr, popped = nullptr, seen = first;
  ASSERT_EQ(driver.cuDevicePrimaryCtxRetain(&second, number(1)), 0);
  ASSERT_EQ(driver.cuCtxPushCurrent_v2(second), 0);
  std::thread([&] { driver.cuCtxGetCurrent(&seen); }).join();
  EXPECT_EQ(seen, nullptr);
  ASSERT_EQ(driver.cuCtxPopCurrent_v2(&popped), 0);
  EXPECT_EQ(popped, second);
  ASSERT_EQ(driver.cuCtxGetCurrent(&seen), 0);
  EXPECT_EQ(seen, first);
  ASSERT_EQ(driver.cuCtxPopCurrent_v2(&popped), 0);
  EXPECT_EQ(driver.cuCtxPopCurrent_v2(&popped), 201);
}

TEST_F(DriverDouble, CountsHoldersOfThePrimaryContextAndWhatTheyForget) {
  begin("gpu");
  const cuda::Context first = primary(0);
  EXPECT_EQ(primary(0), first);
  stream();
  memory(64);
  EXPECT_EQ(count("contexts"), 1);
  ASSERT_EQ(driver.cuDevicePrimaryCtxRelease_v2(number(0)), 0);
  EXPECT_EQ(count("abandoned"), 0);
  ASSERT_EQ(driver.cuDevicePrimaryCtxRelease_v2(number(0)), 0);
  EXPECT_EQ(count("contexts"), 0);
  EXPECT_EQ(count("abandoned"), 2) << "a stream and an allocation";
  EXPECT_EQ(driver.cuDevicePrimaryCtxRelease_v2(number(0)), 201);
}

TEST_F(DriverDouble, EventsAreNotReadyBeforeTheirTurnAndMeasureTheKernel) {
  begin("gpu\nhang kernel");
  primary(0);
  const cuda::StreamHandle where = stream();
  const cuda::EventHandle before = event(), after = event(), unused = event();
  EXPECT_EQ(driver.cuEventQuery(before), 0) << "there is nothing to wait for";
  ASSERT_EQ(launch(function("empty"), where), 0);
  ASSERT_EQ(driver.cuEventRecord(before, where), 0);
  ASSERT_EQ(launch(function("spin"), where, std::uint64_t{30'000'000}), 0);
  ASSERT_EQ(driver.cuEventRecord(after, where), 0);
  EXPECT_EQ(driver.cuEventQuery(before), 600);
  float milliseconds = 0;
  EXPECT_EQ(driver.cuEventElapsedTime(&milliseconds, before, after), 600);
  release();
  EXPECT_EQ(finish(where), 0);
  EXPECT_EQ(driver.cuEventQuery(after), 0);
  ASSERT_EQ(driver.cuEventElapsedTime(&milliseconds, before, after), 0);
  EXPECT_GE(milliseconds, 30.0F);
  EXPECT_LE(milliseconds, 33.0F) << "a time line, however busy this machine is";
  EXPECT_EQ(driver.cuEventElapsedTime(&milliseconds, unused, after), 400);
}

TEST_F(DriverDouble, StreamsRunSideBySideAndEachInOrder) {
  begin("gpu");
  primary(0);
  const cuda::StreamHandle slow = stream(), fast = stream();
  ASSERT_EQ(launch(function("spin"), slow, std::uint64_t{3'600'000'000'000}), 0);
  EXPECT_EQ(launch(function("empty"), fast), 0);
  EXPECT_EQ(finish(fast), 0);
  EXPECT_EQ(launch(function("empty"), slow), 0);
  EXPECT_EQ(driver.cuStreamQuery(slow), 600);
}

TEST_F(DriverDouble, CopiesTakeEffectWhenTheyAreReached) {
  begin("gpu\nhang kernel");
  primary(0);
  const cuda::StreamHandle where = stream();
  const cuda::DevicePointer pointer = memory(4);
  int from = 1, to = 0;
  ASSERT_EQ(launch(function("empty"), where), 0);
  ASSERT_EQ(driver.cuMemcpyHtoDAsync_v2(pointer, &from, 4, where), 0);
  ASSERT_EQ(driver.cuMemcpyDtoHAsync_v2(&to, pointer, 4, where), 0);
  EXPECT_EQ(driver.cuStreamQuery(where), 600);
  EXPECT_EQ(to, 0);
  from = 2;
  release();
  EXPECT_EQ(finish(where), 0);
  EXPECT_EQ(to, 2) << "a change during a copy is copied";
}

TEST_F(DriverDouble, MemoryThatIsNotThereIsAFaultThatNoContextSurvives) {
  for (const char* what : {"nobody's", "freed", "one too far", "another GPU's", "trap"}) {
    SCOPED_TRACE(what);
    begin("gpus 2");
    primary(1);
    const cuda::DevicePointer others = memory(64);
    primary(0);
    const cuda::DevicePointer freed = memory(64), own = memory(64);
    ASSERT_EQ(driver.cuMemFree_v2(freed), 0);
    const cuda::StreamHandle where = stream();
    const std::string_view kind = what;
    const cuda::DevicePointer address = kind == "nobody's"      ? 16
                                        : kind == "freed"       ? freed
                                        : kind == "one too far" ? own + 64
                                                                : others;
    if (kind == "trap") {
      ASSERT_EQ(launch(function("trap"), where), 0);
    } else {
      ASSERT_EQ(launch(function("poke"), where, own), 0);
      ASSERT_EQ(launch(function("poke"), where, address), 0);
    }
    const Code fault = kind == "trap" ? 719 : 700;
    EXPECT_EQ(finish(where), fault);
    cuda::DevicePointer pointer = 0;
    EXPECT_EQ(driver.cuMemAlloc_v2(&pointer, 64), fault);
    cuda::Context context = nullptr;
    EXPECT_EQ(driver.cuDevicePrimaryCtxRetain(&context, number(0)), fault);
    EXPECT_EQ(driver.cuDevicePrimaryCtxRetain(&context, number(1)), fault);
  }
}

TEST_F(DriverDouble, MemoryEndsWhereOtherProcessesBegin) {
  begin("gpu memory=8GiB\nprocess gpu=0 pid=4194711 bytes=5GiB");
  primary(0);
  std::size_t free = 0, total = 0;
  ASSERT_EQ(driver.cuMemGetInfo_v2(&free, &total), 0);
  EXPECT_EQ(total, 8ULL << 30);
  EXPECT_LT(free, 3ULL << 30) << "the context needs some";
  cuda::DevicePointer pointer = 0;
  EXPECT_EQ(driver.cuMemAlloc_v2(&pointer, free + 1), 2);
  EXPECT_EQ(driver.cuMemAlloc_v2(&pointer, free), 0);
  EXPECT_EQ(driver.cuMemAlloc_v2(&pointer, 1), 2);
  also("process gpu=0 pid=4194711 bytes=0");
  EXPECT_EQ(driver.cuMemAlloc_v2(&pointer, 5ULL << 30), 0);
}

TEST_F(DriverDouble, HostMemoryIsPinnedOnce) {
  begin("gpu");
  primary(0);
  std::vector<std::byte> own(10000);
  ASSERT_EQ(driver.cuMemHostRegister_v2(own.data(), own.size(), 0), 0);
  EXPECT_EQ(driver.cuMemHostRegister_v2(own.data() + 100, 100, 0), 712);
  EXPECT_EQ(driver.cuMemHostUnregister(own.data() + 100), 713);
  EXPECT_EQ(count("registered"), 1);
  // A kernel reaches it at the same address.
  const cuda::StreamHandle where = stream();
  auto* word = own.data() + (8 - reinterpret_cast<std::uintptr_t>(own.data()) % 8);
  ASSERT_EQ(launch(function("poke"), where, reinterpret_cast<std::uint64_t>(word)), 0);
  EXPECT_EQ(finish(where), 0);
  EXPECT_EQ(*word, std::byte{1});
  EXPECT_EQ(driver.cuMemHostUnregister(own.data()), 0);
  EXPECT_EQ(driver.cuMemHostUnregister(own.data()), 713);
}

TEST_F(DriverDouble, PartitionsComeInTheSizesOfTheHardware) {
  begin("gpu sms=132");
  cuda::Resource whole;
  ASSERT_EQ(driver.cuDeviceGetDevResource(number(0), &whole, cuda::resource_sm), 0);
  EXPECT_EQ(whole.sm.count, 132U);
  for (const auto& [size, groups] : {std::pair(8U, 15U), {16U, 8U}, {32U, 4U}, {64U, 2U}, {3U, 15U}}) {
    unsigned made = 0;
    ASSERT_EQ(driver.cuDevSmResourceSplitByCount(nullptr, &made, &whole, nullptr, 0, size), 0);
    EXPECT_EQ(made, groups) << size;
  }
  std::array<cuda::Resource, 8> parts;
  cuda::Resource rest;
  unsigned made = parts.size();
  ASSERT_EQ(driver.cuDevSmResourceSplitByCount(parts.data(), &made, &whole, &rest, 0, 16), 0);
  EXPECT_EQ(rest.sm.count, 4U);
  unsigned again = 1;
  cuda::Resource smaller;
  EXPECT_EQ(driver.cuDevSmResourceSplitByCount(&smaller, &again, &rest, nullptr, 0, 1), 915);
  EXPECT_EQ(driver.cuDevSmResourceSplitByCount(&smaller, &again, &parts[0], nullptr, 0, 8), 915);

  cuda::ResourceDescription description = nullptr;
  std::array<cuda::Resource, 2> twice{parts[0], parts[0]};
  EXPECT_EQ(driver.cuDevResourceGenerateDesc(&description, twice.data(), 2), 915);
  ASSERT_EQ(driver.cuDevResourceGenerateDesc(&description, parts.data(), 2), 0);
  cuda::GreenContext green = nullptr;
  EXPECT_EQ(driver.cuGreenCtxCreate(&green, description, number(0), 0), 1) << "the flag is required";
  ASSERT_EQ(driver.cuGreenCtxCreate(&green, description, number(0), cuda::green_default_stream), 0);
  cuda::Context context = nullptr;
  ASSERT_EQ(driver.cuCtxFromGreenCtx(&context, green), 0);
  ASSERT_EQ(driver.cuCtxSetCurrent(context), 0);
  cuda::StreamHandle where = nullptr;
  EXPECT_EQ(driver.cuGreenCtxStreamCreate(&where, green, 0, 0), 1);
  ASSERT_EQ(driver.cuGreenCtxStreamCreate(&where, green, cuda::stream_non_blocking, 0), 0);
  EXPECT_EQ(launch(function("empty"), where), 0);
  EXPECT_EQ(finish(where), 0);
  ASSERT_EQ(driver.cuGreenCtxDestroy(green), 0);
  EXPECT_EQ(driver.cuCtxSetCurrent(context), 201);
  primary(0);
  EXPECT_EQ(driver.cuStreamDestroy_v2(where), 709) << "a stream of a green context that is gone";
}

TEST_F(DriverDouble, PeersAreReachedWhereTheMachineAllowsIt) {
  begin("gpus 3\nnvlink 0,1");
  int can = -1;
  ASSERT_EQ(driver.cuDeviceCanAccessPeer(&can, number(0), number(1)), 0);
  EXPECT_EQ(can, 1);
  ASSERT_EQ(driver.cuDeviceCanAccessPeer(&can, number(0), number(2)), 0);
  EXPECT_EQ(can, 0);
  const cuda::Context far = primary(2), near = primary(1);
  const cuda::DevicePointer others = memory(64);
  const cuda::Context own = primary(0);
  EXPECT_EQ(driver.cuCtxEnablePeerAccess(far, 0), 217);
  EXPECT_EQ(driver.cuCtxEnablePeerAccess(near, 0), 0);
  EXPECT_EQ(driver.cuCtxEnablePeerAccess(near, 0), 704);
  EXPECT_EQ(driver.cuCtxEnablePeerAccess(own, 0), 101);
  const cuda::StreamHandle where = stream();
  ASSERT_EQ(launch(function("poke"), where, others), 0);
  EXPECT_EQ(finish(where), 0);
}

TEST_F(DriverDouble, BinariesAreForOneArchitecture) {
  begin("gpu capability=8.9");
  primary(0);
  cuda::Module module = nullptr;
  const auto load = [&](const std::string& image) {
    return driver.cuModuleLoadDataEx(&module, image.c_str(), 0, nullptr, nullptr);
  };
  EXPECT_EQ(load("cubin sm_89\n" + kernel("empty").ptx), 0);
  EXPECT_EQ(load("cubin sm_90\n" + kernel("empty").ptx), 209);
  EXPECT_EQ(load("\x7f"
                 "ELF"),
            200);
  EXPECT_EQ(load(".version 7.8\n.target sm_90\n"), 218) << "PTX for a newer GPU";
  EXPECT_EQ(load(".version 99.0\n.target sm_52\n"), 222) << "PTX of a newer toolkit";
}

TEST_F(DriverDouble, ComputesWhatPtxSays) {
  begin("gpu");
  primary(0);
  // out[0..] = what each line of the table computes.
  struct Line {
    const char* code;  // leaves its result in %rd0
    std::uint64_t wanted;
  };
  const std::vector<Line> lines{
      {"mov.u32 %r0, 7; add.u32 %r0, %r0, 4294967295; cvt.u64.u32 %rd0, %r0;", 6},
      {"mov.s32 %r0, -7; cvt.s64.s32 %rd0, %r0; neg.s64 %rd0, %rd0;", 7},
      {"mov.u32 %r0, 100000; mul.wide.u32 %rd0, %r0, 100000;", 10'000'000'000},
      {"mov.s32 %r0, -3; mul.wide.s32 %rd0, %r0, 5; sub.s64 %rd0, 0, %rd0;", 15},
      {"mov.s32 %r0, -9; div.s32 %r0, %r0, 2; sub.s32 %r0, 0, %r0; cvt.u64.u32 %rd0, %r0;", 4},
      {"mov.u32 %r0, 17; rem.u32 %r0, %r0, 5; cvt.u64.u32 %rd0, %r0;", 2},
      {"mov.s32 %r0, -8; shr.s32 %r0, %r0, 1; abs.s32 %r0, %r0; cvt.u64.u32 %rd0, %r0;", 4},
      {"mov.u32 %r0, 1; shl.b32 %r0, %r0, 32; cvt.u64.u32 %rd0, %r0;", 0},
      {"mov.f32 %f0, 0f40400000; fma.rn.f32 %f0, %f0, 2.0, 0.5; cvt.rzi.u64.f32 %rd0, %f0;", 6},
      {"mov.f64 %fd0, 2.5; cvt.rni.s64.f64 %rd0, %fd0;", 2},
      {"mov.f32 %f0, -1.5; cvt.rzi.u32.f32 %r0, %f0; cvt.u64.u32 %rd0, %r0;", 0},
      {"mov.u32 %r0, 5; setp.gt.s32 %p0, %r0, -1; selp.u64 %rd0, 11, 22, %p0;", 11},
      {"setp.lt.u32 %p0, 1, 2; not.pred %p0, %p0; mov.u64 %rd0, 1; @!%p0 mov.u64 %rd0, 2;", 2},
      {"mov.u64 %rd0, 12; and.b64 %rd0, %rd0, 10; xor.b64 %rd0, %rd0, 1; or.b64 %rd0, %rd0, 64;", 73},
      {"mov.u64 %rd0, 3; bra.uni out; mov.u64 %rd0, 4; out:", 3},
      {"mov.u32 %r0, 9; min.u32 %r0, %r0, 4; max.u32 %r0, %r0, 2; cvt.u64.u32 %rd0, %r0;", 4},
  };
  const cuda::StreamHandle where = stream();
  const cuda::DevicePointer result = memory(8);
  for (const Line& line : lines) {
    const std::string text =
        std::string(
            ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry k(.param .u64 .ptr .global .align 8 p) {\n"
            ".reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %rd<3>; .reg .f32 %f<2>; .reg .f64 %fd<2>;\n") +
        line.code + "\nld.param.u64 %rd1, [p]; st.global.u64 [%rd1], %rd0; ret; }\n";
    std::array<char, 256> log{};
    std::array<int, 2> options{cuda::jit_error_log_buffer, cuda::jit_error_log_buffer_size_bytes};
    std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size())};
    cuda::Module module = nullptr;
    cuda::Function function = nullptr;
    ASSERT_EQ(driver.cuModuleLoadDataEx(&module, text.c_str(), 2, options.data(), values.data()), 0)
        << line.code << "\n"
        << log.data();
    ASSERT_EQ(driver.cuModuleGetFunction(&function, module, "k"), 0);
    std::uint64_t got = 0;
    ASSERT_EQ(launch(function, where, result), 0);
    ASSERT_EQ(driver.cuMemcpyDtoHAsync_v2(&got, result, 8, where), 0);
    ASSERT_EQ(finish(where), 0);
    EXPECT_EQ(got, line.wanted) << line.code;
  }
}

TEST_F(DriverDouble, HoldsTheCallThatARuleNamesUntilReleased) {
  begin("gpus 2\nhang cuMemGetInfo_v2 gpu=1 at=2");
  const cuda::Context context = primary(1);
  std::size_t free = 0, total = 0;
  EXPECT_EQ(driver.cuMemGetInfo_v2(&free, &total), 0) << "the first call is not held";
  Code code = -1;
  std::thread held([&] {
    driver.cuCtxSetCurrent(context);
    code = driver.cuMemGetInfo_v2(&free, &total);
  });
  while (count("hung") == 0) std::this_thread::yield();
  primary(0);
  EXPECT_EQ(driver.cuMemGetInfo_v2(&free, &total), 0) << "no other call is held";
  release();
  held.join();
  EXPECT_EQ(code, 0);
}

TEST_F(DriverDouble, AResetLetsEverybodyOut) {
  begin("gpu\nhang cuMemGetInfo_v2");
  const cuda::Context context = primary(0);
  Code code = -1;
  std::thread held([&] {
    std::size_t free = 0, total = 0;
    driver.cuCtxSetCurrent(context);
    code = driver.cuMemGetInfo_v2(&free, &total);
  });
  while (count("hung") == 0) std::this_thread::yield();
  ASSERT_NO_FATAL_FAILURE(start("gpu"));
  held.join();
  EXPECT_EQ(code, 4);
  EXPECT_EQ(left_over(), nothing);
}

TEST_F(DriverDouble, ShowsWhatTheEnvironmentAllows) {
  const std::string machine =
      "gpu uuid=GPU-aaaaaaaa-0000-0000-0000-000000000000 pci=0:30:0\n"
      "gpu uuid=GPU-aabbbbbb-0000-0000-0000-000000000000 pci=0:20:0\n"
      "gpu uuid=GPU-cccccccc-0000-0000-0000-000000000000 pci=0:10:0\n";
  const auto shown = [&](const char* wish) {
    const Environment visible("CUDA_VISIBLE_DEVICES", wish);
    EXPECT_EQ(Double::of_this_process().reset(machine.c_str()), nullptr);
    std::string first;
    if (driver.cuInit(0) == 100) return first;
    int count = 0;
    driver.cuDeviceGetCount(&count);
    for (int i = 0; i < count; ++i) {
      std::array<unsigned char, 16> uuid{};
      driver.cuDeviceGetUuid(reinterpret_cast<CUuuid_st*>(uuid.data()), number(i));
      first += uuid[0] == 0xcc ? 'c' : uuid[1] == 0xbb ? 'b' : 'a';
    }
    return first;
  };
  EXPECT_EQ(shown("0,1,2"), "abc");
  EXPECT_EQ(shown("2, 0"), "ca");
  EXPECT_EQ(shown(""), "");
  EXPECT_EQ(shown("-1"), "");
  EXPECT_EQ(shown("1,7,2"), "b") << "the list ends at the first mistake";
  EXPECT_EQ(shown("GPU-cc,0"), "ca");
  EXPECT_EQ(shown("GPU-aa"), "") << "two ids begin like this";
  EXPECT_EQ(shown("1,1"), "") << "named twice";
  EXPECT_EQ(shown("NoDevFiles"), "");
  const Environment order("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  EXPECT_EQ(shown("0,1,2"), "cba");
}

}  // namespace
}  // namespace berth::test
