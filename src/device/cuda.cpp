#include "device/backends.hpp"

namespace berth {
namespace {

// Answers not_initialized to everything.
class CudaBackend final : public Backend {
 public:
  std::string_view name() const noexcept override { return "cuda"; }
  Result<std::vector<DeviceInfo>> list() override { return missing(); }
  Result<std::shared_ptr<Device>> open(const DeviceId&) override { return missing(); }

 private:
  static Error missing() {
    return {ErrorCode::not_initialized, "the CUDA library is not available", "use the host back end", {}, {}};
  }
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions&) { return std::make_unique<CudaBackend>(); }

}  // namespace berth
