#include "device/backends.hpp"

namespace berth {
namespace {

// Answers not_initialized to everything.
class OpenclBackend final : public Backend {
 public:
  std::string_view name() const noexcept override { return "opencl"; }
  Result<std::vector<DeviceInfo>> list() override { return missing(); }
  Result<std::shared_ptr<Device>> open(const DeviceId&) override { return missing(); }

 private:
  static Error missing() {
    return {ErrorCode::not_initialized, "the OpenCL library is not available", "use the host back end", {}, {}};
  }
};

}  // namespace

std::unique_ptr<Backend> make_opencl_backend(const BackendOptions&) { return std::make_unique<OpenclBackend>(); }

}  // namespace berth
