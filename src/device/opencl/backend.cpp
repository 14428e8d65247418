// GPUs, accelerators and processors of every OpenCL platform that the loader finds.
#include "device/opencl/backend.hpp"

#include <map>
#include <mutex>
#include <utility>

#include "device/backends.hpp"
#include "device/opencl/device.hpp"
#include "device/opencl/event.hpp"

namespace berth {
namespace opencl {
namespace {

class OpenclBackend final : public Backend {
 public:
  OpenclBackend(const Api* api, const BackendOptions& options)
      : api_(api), requests_(options.partitions), clock_(options.clock ? *options.clock : real_clock()) {}

  std::string_view name() const noexcept override { return "opencl"; }

  Result<std::vector<DeviceInfo>> list() override {
    return api()
        .and_then([&](const Api* api) { return find_devices(*api, requests_); })
        .transform([](std::vector<Found> found) {
          std::vector<DeviceInfo> infos;
          for (Found& device : found) infos.push_back(std::move(device.info));
          return infos;
        });
  }

  Result<std::shared_ptr<Device>> open(const DeviceId& id) override {
    const Result<const Api*> api = this->api();
    if (!api) return api.error();
    Result<std::vector<Found>> found = find_devices(**api, requests_);
    if (!found) return std::move(found).error();
    for (Found& device : *found) {
      if (!device.info.is_called(id)) continue;
      const std::lock_guard guard(mutex_);
      Shared& shared = shared_[device.info.parent.value_or(device.info.id)];
      std::shared_ptr<Context> context = device.place ? shared.context.lock() : nullptr;
      if (!context || context->lost) {
        Result<std::shared_ptr<Context>> made = make_context(**api, device);
        if (!made) return std::move(made).error();
        context = *std::move(made);
        shared.context = context;
      }
      if (device.place) device.device = context->parts[*device.place];
      return std::shared_ptr<Device>(
          std::make_shared<OpenclDevice>(**api, std::move(device), std::move(context), shared.used, clock_));
    }
    return Error{ErrorCode::not_found, "there is no OpenCL device called '" + id.text() + "'",
                 "see `berth devices` for the ids", id.text()};
  }

 private:
  Result<const Api*> api() const {
    if (api_) return api_;
    return system_api();
  }
  // Shared by all openings of one device, or of its parts.
  struct Shared {
    std::shared_ptr<device::BytesUsed> used = std::make_shared<device::BytesUsed>(0);
    std::weak_ptr<Context> context;  // of the open parts
  };

  const Api* const api_;  // null: use the system's loader
  const std::vector<PartitionRequest> requests_;
  Clock& clock_;
  std::mutex mutex_;  // guards shared_
  std::map<DeviceId, Shared> shared_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(const Api& api, const BackendOptions& options) {
  return std::make_unique<OpenclBackend>(&api, options);
}

Result<Interval> interval_of(const Event& event) {
  const auto* ours = dynamic_cast<const OpenclEvent*>(&event);
  BERTH_ASSERT(ours != nullptr);
  return ours->interval();
}

}  // namespace opencl

std::unique_ptr<Backend> device::make_opencl_backend(const BackendOptions& options) {
  return std::make_unique<opencl::OpenclBackend>(nullptr, options);
}

}  // namespace berth
