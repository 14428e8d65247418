// Which driver calls the CUDA back end makes, counted on the double: what is
// made once, how resources are released, and what the driver's errors turn into.
#include <array>
#include <cstdlib>

#include "driver_double/fixture.hpp"

namespace berth::test {
namespace {

BackendOptions cut(std::vector<std::uint32_t> units) {
  BackendOptions options;
  options.partitions.push_back({"cuda:0", std::move(units)});
  return options;
}

TEST(CudaCalls, PartsComeFromOneSplitAndListingMakesNothing) {
  ASSERT_NO_FATAL_FAILURE(start("gpu"));
  {
    const auto backend = device::make_cuda_backend(cut({64, 32, 16, 16}));
    const auto listed = backend->list();
    ASSERT_TRUE(works(listed));
    EXPECT_EQ(left_over(), nothing);
    const long long splits = count("cuDevSmResourceSplitByCount");
    const auto devices = open_all(*backend);
    ASSERT_EQ(devices.size(), 4U);
    EXPECT_EQ(count("greens"), 4);
    for (const auto& device : devices) EXPECT_EQ(device->native().context, devices[0]->native().context);
    EXPECT_EQ(count("cuDevSmResourceSplitByCount"), splits) << "groups of two splits may overlap";
    for (const auto& device : devices) EXPECT_TRUE(works(add_vectors(*device, soon())));
    EXPECT_EQ(*backend->list(), *listed);
  }
  EXPECT_EQ(left_over(), nothing);
}

TEST(CudaCalls, APartThatCannotBeMadeLeavesNothingBehind) {
  ASSERT_NO_FATAL_FAILURE(start("gpu"));
  const auto backend = device::make_cuda_backend(cut({64, 32}));
  const auto listed = backend->list();
  ASSERT_TRUE(works(listed));
  for (const char* symbol : {"cuDevResourceGenerateDesc", "cuGreenCtxCreate", "cuCtxFromGreenCtx"}) {
    SCOPED_TRACE(symbol);
    also(std::string("error ") + symbol + " code=801");
    const auto refused = backend->open(listed->front().id);
    ASSERT_TRUE(fails_with(refused, ErrorCode::not_supported));
    EXPECT_NE(refused.error().message.find("64 SMs"), std::string::npos) << refused.error().message;
    EXPECT_EQ(left_over(), nothing);
  }
  EXPECT_TRUE(works(backend->open(listed->front().id))) << "a failure is not remembered";
}

TEST(CudaCalls, ASliceCannotBeCut) {
  ASSERT_NO_FATAL_FAILURE(start("gpu\nslice gpu=0 memory=20GiB sms=32"));
  const auto refused = device::make_cuda_backend(cut({16}))->list();
  ASSERT_TRUE(fails_with(refused, ErrorCode::not_supported));
  EXPECT_NE(refused.error().message.find("MIG"), std::string::npos);
  EXPECT_FALSE(refused.error().advice.empty());
}

TEST(CudaCalls, ADriverThatAnswersASplitWithAnErrorIsQuoted) {
  ASSERT_NO_FATAL_FAILURE(start("gpu\nerror cuDeviceGetDevResource code=801 times=always"));
  const auto refused = device::make_cuda_backend(cut({16}))->list();
  ASSERT_TRUE(fails_with(refused, ErrorCode::not_supported));
  EXPECT_EQ(refused.error().driver, (DriverError{801, "CUDA_ERROR_NOT_SUPPORTED"}));
  EXPECT_TRUE(works(device::make_cuda_backend({})->list())) << "the whole GPU is still there";
}

TEST(CudaCalls, PeerAccessIsSwitchedOnOnceAndOnlyWhereItIsAllowed) {
  ASSERT_NO_FATAL_FAILURE(start("gpus 3\nnvlink 0,1\npcie 0,2 peer=no"));
  {
    const auto backend = device::make_cuda_backend({});
    const auto devices = open_all(*backend);
    ASSERT_EQ(devices.size(), 3U);
    const auto stream = devices[0]->open_stream();
    const auto here = devices[0]->allocate(64), linked = devices[1]->allocate(64), far = devices[2]->allocate(64);
    ASSERT_TRUE(works(stream) && works(here) && works(linked) && works(far));
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(works((*stream)->copy(*here, 0, *linked, 0, 64)));
    EXPECT_EQ(count("cuCtxEnablePeerAccess"), 1);
    EXPECT_TRUE(works((*stream)->copy(*here, 0, *far, 0, 64))) << "through the host";
    EXPECT_EQ(count("cuCtxEnablePeerAccess"), 1);
    EXPECT_EQ(count("cuMemcpyPeerAsync"), 4);
    EXPECT_EQ(count("cuMemcpyDtoDAsync_v2"), 0);
    EXPECT_TRUE(works((*stream)->wait(soon())));
  }
  EXPECT_EQ(left_over(), nothing);
}

TEST(CudaCalls, WhoeverSwitchedPeerAccessOnBeforeIsNoError) {
  ASSERT_NO_FATAL_FAILURE(start("gpus 2\nnvlink 0,1\nerror cuCtxEnablePeerAccess code=704"));
  const auto devices = open_all(*device::make_cuda_backend({}));
  const auto stream = devices[0]->open_stream();
  const auto here = devices[0]->allocate(64), there = devices[1]->allocate(64);
  ASSERT_TRUE(works(stream) && works(here) && works(there));
  EXPECT_TRUE(works((*stream)->copy(*here, 0, *there, 0, 64)));
  EXPECT_TRUE(works((*stream)->wait(soon())));
}

TEST(CudaCalls, MemoryOfAStreamGoesBackInItsOrderAndKeepsItAlive) {
  ASSERT_NO_FATAL_FAILURE(start("gpu"));
  {
    const auto devices = open_all(*device::make_cuda_backend({}));
    auto stream = devices[0]->open_stream();
    ASSERT_TRUE(works(stream));
    auto buffer = (*stream)->allocate(4096);
    ASSERT_TRUE(works(buffer));
    EXPECT_EQ(count("cuMemAllocAsync"), 1);
    EXPECT_EQ(count("cuMemAlloc_v2"), 0);
    stream->reset();
    EXPECT_EQ(count("streams"), 1) << "the buffer still needs it";
    *buffer = Buffer();
    EXPECT_EQ(count("cuMemFreeAsync"), 1);
    EXPECT_EQ(count("cuMemFree_v2"), 0);
    EXPECT_EQ(count("streams"), 0);
  }
  EXPECT_EQ(left_over(), nothing);
}

TEST(CudaCalls, SamplesTrimThePoolAndTheLastHandleEmptiesIt) {
  ASSERT_NO_FATAL_FAILURE(start("gpu"));
  auto devices = open_all(*device::make_cuda_backend({}));
  EXPECT_TRUE(works(devices[0]->sample()));
  EXPECT_EQ(count("cuMemPoolTrimTo"), 0) << "the pool was not used";
  {
    auto stream = devices[0]->open_stream();
    ASSERT_TRUE(works(stream));
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(works((*stream)->allocate(4096)));
    EXPECT_EQ(count("cuMemPoolSetAttribute"), 2);
    EXPECT_TRUE(works((*stream)->wait(soon())));
    EXPECT_TRUE(works(devices[0]->sample()));
    EXPECT_EQ(count("cuMemPoolTrimTo"), 0) << "a small amount may stay";
    EXPECT_TRUE(works((*stream)->allocate(512 << 20)));
    EXPECT_TRUE(works((*stream)->wait(soon())));
  }
  EXPECT_TRUE(works(devices[0]->sample()));
  EXPECT_EQ(count("cuMemPoolTrimTo"), 1);
  devices.clear();
  EXPECT_EQ(count("cuMemPoolTrimTo"), 2);
  EXPECT_EQ(left_over(), nothing);
}

TEST(CudaCalls, ABinaryForAnotherGpuGivesWayToPtx) {
  ASSERT_NO_FATAL_FAILURE(start("gpu capability=9.0"));
  const auto devices = open_all(*device::make_cuda_backend({}));
  KernelSource source = kernel("empty");
  source.cubin = "cubin sm_75\n" + source.ptx;
  EXPECT_TRUE(works(devices[0]->load(source)));
  EXPECT_EQ(count("cuModuleLoadDataEx"), 2);
  source.ptx.clear();
  const auto refused = devices[0]->load(source);
  ASSERT_TRUE(fails_with(refused, ErrorCode::not_supported));
  EXPECT_EQ(refused.error().driver, (DriverError{209, "CUDA_ERROR_NO_BINARY_FOR_GPU"}));
  EXPECT_NE(refused.error().advice.find("9.0"), std::string::npos) << refused.error().advice;
  source.cubin = "cubin sm_90\n" + kernel("empty").ptx;
  EXPECT_TRUE(works(devices[0]->load(source)));
  // After running out of memory, another form is not tried.
  also("error cuModuleLoadDataEx code=2");
  source.ptx = kernel("empty").ptx;
  EXPECT_TRUE(fails_with(devices[0]->load(source), ErrorCode::out_of_memory));
}

TEST(CudaCalls, ADeviceThatVanishesBetweenListingAndOpeningIsNotFound) {
  ASSERT_NO_FATAL_FAILURE(start("gpus 2"));
  const auto backend = device::make_cuda_backend({});
  const auto listed = backend->list();
  ASSERT_TRUE(works(listed));
  for (const int code : {100, 101}) {
    also("error cuDevicePrimaryCtxRetain gpu=0 code=" + std::to_string(code));
    const auto gone = backend->open(listed->front().id);
    ASSERT_TRUE(fails_with(gone, ErrorCode::not_found));
    EXPECT_NE(gone.error().message.find("no longer finds it"), std::string::npos) << gone.error().message;
    EXPECT_FALSE(gone.error().advice.empty());
  }
  EXPECT_TRUE(works(backend->open(listed->back().id))) << "the other GPU is available";
  EXPECT_EQ(left_over(), nothing);
}

// Sets the variable for a test and puts back what was there.
class Visible {
 public:
  explicit Visible(const char* text) {
    if (const char* now = std::getenv(name)) before_ = now;
    setenv(name, text, /*overwrite=*/1);
  }
  ~Visible() {
    if (before_) {
      setenv(name, before_->c_str(), 1);
    } else {
      unsetenv(name);
    }
  }
  Visible(const Visible&) = delete;
  Visible& operator=(const Visible&) = delete;

 private:
  static constexpr const char* name = "CUDA_VISIBLE_DEVICES";
  std::optional<std::string> before_;
};

TEST(CudaCalls, AMalformedListOfVisibleDevicesIsNamedInsteadOfHidingGpus) {
  for (const auto& [text, item] : {std::array{"0,x,1", "'x'"}, std::array{"0,7", "'7'"}, std::array{"1,1", "'1' twice"},
                                   std::array{"GPU-00000000", "'GPU-00000000'"}}) {
    const Visible visible(text);
    ASSERT_NO_FATAL_FAILURE(start("gpus 2"));
    const auto refused = device::make_cuda_backend({})->list();
    ASSERT_TRUE(fails_with(refused, ErrorCode::invalid_argument)) << text;
    EXPECT_NE(refused.error().message.find(item), std::string::npos) << refused.error().message;
  }
  for (const auto& [text, devices] :
       {std::pair{"", 0U}, std::pair{"1", 1U}, std::pair{"1,0", 2U}, std::pair{"-1", 0U}}) {
    const Visible visible(text);
    ASSERT_NO_FATAL_FAILURE(start("gpus 2"));
    const auto listed = device::make_cuda_backend({})->list();
    ASSERT_TRUE(works(listed)) << text;
    EXPECT_EQ(listed->size(), devices) << text;
  }
}

}  // namespace
}  // namespace berth::test
