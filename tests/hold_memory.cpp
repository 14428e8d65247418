// Holds memory of the first GPU until it is ended, or for a number of seconds,
// through Berth or past it:
//   hold_memory berth|driver BYTES [SECONDS]
// Prints "holding" when it does, or what went wrong.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "berth/device.hpp"
#include "device/cuda/driver.hpp"

namespace {

using namespace berth;

Result<Buffer> allocate(std::uint64_t bytes, std::shared_ptr<Device>& device) {
  Result<std::unique_ptr<Backend>> backend = make_backend("cuda");
  if (!backend) return std::move(backend).error();
  Result<std::vector<DeviceInfo>> found = (*backend)->list();
  if (!found) return std::move(found).error();
  if (found->empty()) return Error{ErrorCode::no_device, "there is no GPU"};
  Result<std::shared_ptr<Device>> opened = (*backend)->open(found->front().id);
  if (!opened) return std::move(opened).error();
  device = *std::move(opened);
  return device->allocate(bytes);
}

cuda::Code allocate_past_berth(std::uint64_t bytes) {
  const Result<const cuda::Driver*> loaded = cuda::Driver::load();
  if (!loaded) return cuda::code_not_initialized;
  const cuda::Driver& driver = **loaded;
  cuda::DeviceNumber number = 0;
  cuda::Context context = nullptr;
  cuda::DevicePointer pointer = 0;
  cuda::Code code = driver.cuInit(0);
  if (code == cuda::code_success) code = driver.cuDeviceGet(&number, 0);
  if (code == cuda::code_success) code = driver.cuDevicePrimaryCtxRetain(&context, number);
  if (code == cuda::code_success) code = driver.cuCtxSetCurrent(context);
  if (code == cuda::code_success) code = driver.cuMemAlloc_v2(&pointer, bytes);
  return code;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3 && count != 4) return 2;
  const std::uint64_t bytes = std::strtoull(arguments[2], nullptr, 10);
  std::shared_ptr<Device> device;
  Result<Buffer> buffer = Buffer();
  if (std::string_view(arguments[1]) == "berth") {
    buffer = allocate(bytes, device);
    if (!buffer) std::printf("%s\n", buffer.error().to_text().c_str());
    if (!buffer) return 1;
  } else if (const cuda::Code code = allocate_past_berth(bytes); code != cuda::code_success) {
    std::printf("CUDA answers %d\n", code);
    return 1;
  }
  std::printf("holding\n");
  std::fflush(stdout);
  if (count == 4) {
    usleep(static_cast<useconds_t>(1e6 * std::strtod(arguments[3], nullptr)));
    return 0;
  }
  for (;;) pause();
}
