// NVIDIA GPUs through the driver API: which there are, and opening them. What is
// opened is a CudaDevice (cuda_device.hpp), which stands on a CudaContext.
#include "device/backends.hpp"
#include "device/cuda_attributes.hpp"
#include "device/cuda_device.hpp"

namespace berth {
namespace {

using cuda::Driver;

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(Clock& clock) : clock_(clock) {}
  std::string_view name() const noexcept override { return "cuda"; }

  Result<std::vector<DeviceInfo>> list() override {
    Result<const Driver*> loaded = Driver::load();
    if (!loaded) return std::move(loaded).error();
    const Driver& driver = **loaded;
    const cuda::Code started = driver.cuInit(0);
    if (started == cuda::code_no_device) return std::vector<DeviceInfo>{};
    if (started != cuda::code_success) return cuda::error_of(started, "starting", "");
    int count = 0;
    if (const cuda::Code code = driver.cuDeviceGetCount(&count); code != cuda::code_success) {
      return cuda::error_of(code, "counting the devices", "");
    }
    std::vector<DeviceInfo> found;
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      cuda::DeviceNumber number = 0;
      // A device that cannot even be named hides no other.
      if (driver.cuDeviceGet(&number, ordinal) != cuda::code_success) continue;
      found.push_back(cuda::describe(driver, number, ordinal));
    }
    return found;
  }

  Result<std::shared_ptr<Device>> open(const DeviceId& id) override {
    Result<std::vector<DeviceInfo>> found = list();
    if (!found) return std::move(found).error();
    for (DeviceInfo& info : *found) {
      if (info.id == id) return open(std::move(info));
    }
    return Error{ErrorCode::not_found,
                 "there is no CUDA device called '" + id.text() + "'",
                 "see `berth devices` for the ids; CUDA_VISIBLE_DEVICES may hide some",
                 id.text(),
                 {}};
  }

 private:
  Result<std::shared_ptr<Device>> open(DeviceInfo info) {
    Result<const Driver*> loaded = Driver::load();
    if (!loaded) return std::move(loaded).error();
    const Driver& driver = **loaded;
    cuda::DeviceNumber number = 0;
    if (const cuda::Code code = driver.cuDeviceGet(&number, info.ordinal); code != cuda::code_success) {
      return cuda::error_of(code, "opening the device", info.id.text());
    }
    Result<std::shared_ptr<CudaContext>> context = CudaContext::open(driver, number, std::move(info), clock_);
    if (!context) return std::move(context).error();
    return std::shared_ptr<Device>(std::make_shared<CudaDevice>(*std::move(context)));
  }

  Clock& clock_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options) {
  return std::make_unique<CudaBackend>(options.clock != nullptr ? *options.clock : real_clock());
}

}  // namespace berth
