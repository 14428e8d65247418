#include <gtest/gtest.h>

#include "berth/device.hpp"

namespace berth {
namespace {

// Lists the devices that it is given.
class FixedBackend final : public Backend {
 public:
  FixedBackend(std::string name, Result<std::vector<DeviceInfo>> listed)
      : name_(std::move(name)), listed_(std::move(listed)) {}
  std::string_view name() const noexcept override { return name_; }
  Result<std::vector<DeviceInfo>> list() override { return listed_; }
  Result<std::shared_ptr<Device>> open(const DeviceId& id) override {
    return Error{ErrorCode::not_found, "nothing to open", {}, id.text()};
  }

 private:
  std::string name_;
  Result<std::vector<DeviceInfo>> listed_;
};

DeviceInfo device(std::string backend, std::string id, std::optional<std::string> pci_address = {}) {
  DeviceInfo info;
  info.id = DeviceId(std::move(id));
  info.backend = std::move(backend);
  info.pci_address = std::move(pci_address);
  return info;
}

Listing listing_of(std::vector<std::vector<DeviceInfo>> lists) {
  std::vector<std::shared_ptr<Backend>> backends;
  for (auto& list : lists) {
    const std::string name = list.front().backend;
    backends.push_back(std::make_shared<FixedBackend>(name, std::move(list)));
  }
  return list_devices(backends);
}

std::vector<std::string> ids(const Listing& listing) {
  std::vector<std::string> found;
  for (const DeviceInfo& info : listing.devices) found.push_back(info.id.text());
  return found;
}

using Ids = std::vector<std::string>;

TEST(Backends, AreListedInOrderOfPreference) {
  Ids names;
  for (const BackendEntry& entry : backend_list()) names.emplace_back(entry.name);
  EXPECT_EQ(names, (Ids{"cuda", "opencl", "host", "simulated"}));
}

TEST(Backends, EveryEntryMakesTheBackendOfItsName) {
  for (const BackendEntry& entry : backend_list()) {
    const auto backend = make_backend(entry.name);
    ASSERT_TRUE(backend.has_value());
    EXPECT_EQ((*backend)->name(), entry.name);
  }
}

TEST(Backends, AnUnknownNameIsAnErrorThatListsTheKnownOnes) {
  for (const char* name : {"vulkan", "", "CUDA"}) {
    const auto backend = make_backend(name);
    ASSERT_FALSE(backend.has_value());
    EXPECT_EQ(backend.error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(backend.error().to_text(),
              "there is no back end called '" + std::string(name) + "'; use one of cuda, opencl, host, simulated");
  }
}

TEST(ListDevices, TheSameGpuThroughTwoBackendsIsOneDevice) {
  EXPECT_EQ(ids(listing_of({{device("cuda", "GPU-1", "0000:17:00.0"), device("cuda", "GPU-2", "0000:65:00.0")},
                            {device("opencl", "cl-2", "0000:65:00.0"), device("opencl", "cl-cpu")}})),
            (Ids{"GPU-1", "GPU-2", "cl-cpu"}));
}

TEST(ListDevices, CudaIsPreferredInAnyOrderOfBackends) {
  EXPECT_EQ(ids(listing_of({{device("opencl", "cl-1", "0000:17:00.0"), device("opencl", "cl-cpu")},
                            {device("cuda", "GPU-1", "0000:17:00.0")}})),
            (Ids{"GPU-1", "cl-cpu"}));
}

TEST(ListDevices, PartitionsOfOneGpuStaySeveralDevices) {
  const std::vector<DeviceInfo> partitions{device("cuda", "GPU-1/sm64.0", "0000:17:00.0"),
                                           device("cuda", "GPU-1/sm64.1", "0000:17:00.0")};
  const std::vector<DeviceInfo> whole{device("opencl", "cl-1", "0000:17:00.0")};
  EXPECT_EQ(ids(listing_of({partitions, whole})), (Ids{"GPU-1/sm64.0", "GPU-1/sm64.1"}));
  EXPECT_EQ(ids(listing_of({whole, partitions})), (Ids{"GPU-1/sm64.0", "GPU-1/sm64.1"}));
}

TEST(ListDevices, DevicesWithoutAnAddressAreNeverTheSame) {
  EXPECT_EQ(ids(listing_of({{device("cuda", "GPU-1")}, {device("opencl", "cl-1")}})), (Ids{"GPU-1", "cl-1"}));
}

TEST(ListDevices, ASimulatedDeviceDoesNotHideTheRealOne) {
  EXPECT_EQ(ids(listing_of({{device("cuda", "GPU-1", "0000:17:00.0")}, {device("simulated", "sim", "0000:17:00.0")}})),
            (Ids{"GPU-1", "sim"}));
  EXPECT_EQ(ids(listing_of({{device("simulated", "sim", "0000:17:00.0")}, {device("cuda", "GPU-1", "0000:17:00.0")}})),
            (Ids{"sim", "GPU-1"}));
}

TEST(ListDevices, ABackendThatFailsIsReportedAndTheOthersAreListed) {
  const Error missing{ErrorCode::not_initialized, "no library", "install it"};
  std::vector<std::shared_ptr<Backend>> backends;
  backends.push_back(std::make_shared<FixedBackend>("cuda", missing));
  backends.push_back(std::make_shared<FixedBackend>("host", std::vector<DeviceInfo>{device("host", "host")}));
  const Listing listing = list_devices(backends);
  EXPECT_EQ(ids(listing), (Ids{"host"}));
  ASSERT_EQ(listing.failed.size(), 1U);
  EXPECT_EQ(listing.failed.front().backend, "cuda");
  EXPECT_EQ(listing.failed.front().error, missing);
}

TEST(ListDevices, NamesOfVisibleDevicesThatNoDeviceHasAreListed) {
  setenv("BERTH_VISIBLE_DEVICES", "GPU-2,zzz,,zzz,old-1", 1);
  DeviceInfo renamed = device("opencl", "cl-1");
  renamed.former_id = DeviceId("old-1");
  const Listing listing = listing_of({{device("cuda", "GPU-1"), device("cuda", "GPU-2")}, {renamed}});
  unsetenv("BERTH_VISIBLE_DEVICES");
  EXPECT_EQ(ids(listing), (Ids{"GPU-2", "cl-1"}));
  EXPECT_EQ(listing.unknown, (Ids{"zzz"}));
}

TEST(ListDevices, NoBackendsGiveAnEmptyListing) {
  const Listing listing = list_devices({});
  EXPECT_TRUE(listing.devices.empty());
  EXPECT_TRUE(listing.failed.empty());
}

}  // namespace
}  // namespace berth
