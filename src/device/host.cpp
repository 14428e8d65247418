#include "device/backends.hpp"

namespace berth {
namespace {

// Answers not_initialized to everything.
class HostBackend final : public Backend {
 public:
  std::string_view name() const noexcept override { return "host"; }
  Result<std::vector<DeviceInfo>> list() override { return missing(); }
  Result<std::shared_ptr<Device>> open(const DeviceId&) override { return missing(); }

 private:
  static Error missing() {
    return {ErrorCode::not_initialized, "the host back end is not available", "wait for it", {}, {}};
  }
};

}  // namespace

std::unique_ptr<Backend> make_host_backend(const BackendOptions&) { return std::make_unique<HostBackend>(); }

}  // namespace berth
