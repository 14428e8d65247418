#include "device/backends.hpp"

namespace berth {
namespace {

// Answers not_initialized to everything.
class SimulatedBackend final : public Backend {
 public:
  std::string_view name() const noexcept override { return "simulated"; }
  Result<std::vector<DeviceInfo>> list() override { return missing(); }
  Result<std::shared_ptr<Device>> open(const DeviceId&) override { return missing(); }

 private:
  static Error missing() {
    return {ErrorCode::not_initialized, "the simulated back end is not available", "wait for it", {}, {}};
  }
};

}  // namespace

std::unique_ptr<Backend> make_simulated_backend(const BackendOptions&) { return std::make_unique<SimulatedBackend>(); }

}  // namespace berth
