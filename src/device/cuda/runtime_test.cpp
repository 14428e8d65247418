// With the CUDA runtime in the same process.
#include "device/cuda/test_gpu.hpp"

#include <dlfcn.h>

#include <array>

namespace berth::cuda {
namespace {

// Last, because the runtime keeps the primary context until the process ends.
TEST(CudaRuntime, S4_F3_RuntimeApiOfTheSameProcessUsesTheSameContext) {
  BERTH_NEEDS_GPU(gpu);
  if (gpu->is_double()) GTEST_SKIP() << "the CUDA runtime needs a real driver";
  void* runtime = nullptr;
  for (const char* name :
       {"libcudart.so.13", "libcudart.so.12", "libcudart.so", "/usr/local/cuda/lib64/libcudart.so"}) {
    if ((runtime = dlopen(name, RTLD_NOW)) != nullptr) break;
  }
  if (runtime == nullptr) GTEST_SKIP() << "this test needs the CUDA runtime library";
  const auto set_device = reinterpret_cast<int (*)(int)>(dlsym(runtime, "cudaSetDevice"));
  const auto free_memory = reinterpret_cast<int (*)(void*)>(dlsym(runtime, "cudaFree"));
  const auto synchronize = reinterpret_cast<int (*)()>(dlsym(runtime, "cudaDeviceSynchronize"));
  ASSERT_TRUE(set_device && free_memory && synchronize);
  {
    const auto device = gpu->open();
    ASSERT_EQ(set_device(gpu->info.ordinal), 0);
    ASSERT_EQ(free_memory(nullptr), 0);
    EXPECT_EQ(gpu->current(), device->native().context);
    // The runtime can use a buffer of ours.
    Result<Buffer> buffer = device->allocate(4096);
    ASSERT_TRUE(buffer.has_value());
    const auto copy = reinterpret_cast<int (*)(void*, const void*, std::size_t, int)>(dlsym(runtime, "cudaMemcpy"));
    std::array<char, 16> text{"from runtime"};
    EXPECT_EQ(copy(buffer->native(), text.data(), text.size(), /*host to device*/ 1), 0);
    // A small copy from pageable memory may return early, and our streams do not wait for the runtime's.
    EXPECT_EQ(synchronize(), 0);
    const auto stream = open_stream(*device);
    std::array<char, 16> back{};
    expect_ok(stream->copy_out(*buffer, 0, std::as_writable_bytes(std::span(back))));
    expect_ok(stream->wait(soon()));
    EXPECT_EQ(back, text);
  }
  EXPECT_EQ(gpu->driver->cuCtxSetCurrent(nullptr), 0);
}

}  // namespace
}  // namespace berth::cuda
