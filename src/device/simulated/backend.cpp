#include "device/simulated/backend.hpp"

#include <map>
#include <utility>

#include "device/backends.hpp"
#include "device/simulated/device.hpp"
#include "device/simulated/stream.hpp"

namespace berth {
namespace simulated {
namespace {

// Adds a device to the fault domain, which lives as long as any of its devices is in use.
std::shared_ptr<Hardware> add(const std::shared_ptr<FaultDomain>& domain, SimulatedSpec spec,
                              std::shared_ptr<device::BytesUsed> used) {
  domain->members.push_back(std::make_unique<Hardware>(std::move(spec), *domain, std::move(used)));
  return {domain, domain->members.back().get()};
}

class SimulatedBackend final : public Backend {
 public:
  SimulatedBackend(Result<std::vector<SimulatedSpec>> specs, Clock& clock) {
    if (!specs) {
      error_ = std::move(specs).error();
      return;
    }
    std::map<std::string, std::shared_ptr<FaultDomain>> domains;
    std::map<std::string, std::shared_ptr<device::BytesUsed>> memories;
    for (SimulatedSpec& spec : *specs) {
      const DeviceInfo info = info_of(spec, 0);
      auto& domain = domains[info.fault_domain];
      if (!domain) domain = std::make_shared<FaultDomain>(clock);
      auto& memory = memories[info.memory_domain];
      if (!memory) memory = std::make_shared<device::BytesUsed>(0);
      hardware_.push_back(add(domain, std::move(spec), memory));
    }
  }

  std::string_view name() const noexcept override { return "simulated"; }

  Result<std::vector<DeviceInfo>> list() override {
    if (error_) return *error_;
    std::vector<DeviceInfo> infos;
    for (const auto& hardware : hardware_) infos.push_back(info_of(hardware->spec, static_cast<int>(infos.size())));
    return infos;
  }

  Result<std::shared_ptr<Device>> open(const DeviceId& id) override {
    const Result<std::size_t> at = find(id);
    if (!at) return at.error();
    const Hardware& hardware = *hardware_[*at];
    if (hardware.domain.gone(hardware.clock.now())) return device::device_lost_error(id);
    return std::shared_ptr<Device>(
        std::make_shared<SimulatedDevice>(hardware_[*at], info_of(hardware.spec, static_cast<int>(*at))));
  }

  Result<Telemetry> observe(const DeviceId& id) override {
    const Result<std::size_t> at = find(id);
    if (!at) return at.error();
    return hardware_[*at]->observe();
  }

 private:
  Result<std::size_t> find(const DeviceId& id) const {
    if (error_) return *error_;
    for (std::size_t i = 0; i < hardware_.size(); ++i) {
      if (hardware_[i]->account->id == id) return i;
    }
    return Error{ErrorCode::not_found, "there is no simulated device called '" + id.text() + "'",
                 "see `berth devices` for the ids", id.text()};
  }

  std::optional<Error> error_;
  std::vector<std::shared_ptr<Hardware>> hardware_;
};

Error not_simulated(const DeviceId& id) {
  return {ErrorCode::not_supported, "the device is not simulated", {}, id.text()};
}

}  // namespace

std::shared_ptr<Device> make_simulated_device(SimulatedSpec spec, Clock& clock) {
  BERTH_ASSERT(!problem_with(spec));
  DeviceInfo info = info_of(spec, 0);
  return std::make_shared<SimulatedDevice>(
      add(std::make_shared<FaultDomain>(clock), std::move(spec), std::make_shared<device::BytesUsed>(0)),
      std::move(info));
}

std::unique_ptr<Backend> make_simulated_backend(std::vector<SimulatedSpec> specs, Clock& clock) {
  for (const SimulatedSpec& spec : specs) BERTH_ASSERT(!problem_with(spec));
  return std::make_unique<SimulatedBackend>(std::move(specs), clock);
}

Result<void> simulated_work(Stream& stream, double cost) {
  auto* simulated = dynamic_cast<SimulatedStream*>(&stream);
  return simulated != nullptr ? simulated->work(cost) : not_simulated(stream.device().id());
}

Result<void> set_simulated_foreign_bytes(Device& device, std::uint64_t bytes) {
  auto* simulated = dynamic_cast<SimulatedDevice*>(&device);
  if (simulated == nullptr) return not_simulated(device.id());
  simulated->set_foreign(bytes);
  return {};
}

Result<void> lose_simulated_device(Device& device) {
  auto* simulated = dynamic_cast<SimulatedDevice*>(&device);
  if (simulated == nullptr) return not_simulated(device.id());
  simulated->lose();
  return {};
}

}  // namespace simulated

std::unique_ptr<Backend> device::make_simulated_backend(const BackendOptions& options) {
  Clock& clock = options.clock != nullptr ? *options.clock : real_clock();
  for (const PartitionRequest& request : options.partitions) {
    if (!request.device.starts_with("simulated:")) continue;
    const Error error{ErrorCode::invalid_argument, "simulated devices cannot be cut into parts by a request",
                      "describe the parts as devices with a `parent` in the file of simulated devices", request.device};
    return std::make_unique<simulated::SimulatedBackend>(error, clock);
  }
  return std::make_unique<simulated::SimulatedBackend>(options.simulated_file.empty()
                                                           ? std::vector<simulated::SimulatedSpec>()
                                                           : simulated::read_simulated_file(options.simulated_file),
                                                       clock);
}

}  // namespace berth
