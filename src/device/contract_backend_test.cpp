// The contract of every back end. A back end that is not on this machine is skipped, with
// a message, in IsOnThisMachine; its devices have no tests then.
#include "device/contract_fixture.hpp"

#include <numeric>
#include <set>

namespace berth::contract {

std::unique_ptr<Backend> contract_backend(std::string_view name, Clock* clock, Partitions partitions) {
  BackendOptions options;
  options.simulated_file = BERTH_SOURCE_DIR "/examples/devices.toml";
  options.clock = clock;
  options.partitions = std::move(partitions);
  Result<std::unique_ptr<Backend>> backend = make_backend(name, options);
  EXPECT_TRUE(backend.has_value());
  return std::move(backend).value();
}

namespace {

// A cut of the back end's first device that can be cut; empty if none can.
Partitions contract_cut(const std::string& name) {
  const auto listed = contract_backend(name, nullptr)->list();
  for (std::size_t i = 0; listed && i < listed->size(); ++i) {
    const std::uint32_t units = (*listed)[i].compute_units.value_or(0);
    // GPUs are cut in groups of several units, processors by single cores.
    for (const std::vector<std::uint32_t>& cut :
         {std::vector<std::uint32_t>{64, 32, 16, 16}, std::vector<std::uint32_t>{16, 8},
          std::vector<std::uint32_t>{1, 1}}) {
      if (std::accumulate(cut.begin(), cut.end(), 0U) > units) continue;
      const Partitions request{{name + ":" + std::to_string(i), cut}};
      if (contract_backend(name, nullptr, request)->list()) return request;
    }
  }
  return {};
}

class BackendContract : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> backend_ = contract_backend(GetParam(), nullptr);
};

TEST_P(BackendContract, IsOnThisMachine) {
  const auto listed = backend_->list();
  if (!listed) GTEST_SKIP() << "NO " << GetParam() << " DEVICES TESTED: " << listed.error().to_text();
  const bool needs_driver = GetParam() == "cuda" || GetParam() == "opencl";
  if (needs_driver && listed->empty()) GTEST_SKIP() << "NO " << GetParam() << " DEVICES TESTED: it finds none";
  EXPECT_FALSE(listed->empty()) << GetParam() << " works here but finds no device";
}

TEST_P(BackendContract, ListingTwiceGivesTheSameDevicesOrTheSameError) {
  const auto first = backend_->list();
  const auto second = contract_backend(GetParam(), nullptr)->list();
  ASSERT_EQ(first.has_value(), second.has_value());
  if (first) {
    EXPECT_EQ(*first, *second);
  } else {
    EXPECT_TRUE(fails_with(first, ErrorCode::not_initialized));
    EXPECT_EQ(first.error().code, second.error().code);
    EXPECT_FALSE(first.error().advice.empty());
  }
}

TEST_P(BackendContract, IdsAreUniqueAndNameTheirBackend) {
  const auto listed = backend_->list();
  std::set<DeviceId> ids;
  for (const DeviceInfo& info : listed ? *listed : std::vector<DeviceInfo>()) {
    EXPECT_TRUE(ids.insert(info.id).second) << info.id << " is there twice";
    EXPECT_EQ(info.backend, backend_->name());
  }
  EXPECT_EQ(backend_->name(), GetParam());
}

TEST_P(BackendContract, AnUnknownIdIsNotFoundAndAMissingLibraryIsNotInitialized) {
  const bool present = backend_->list().has_value();
  for (const char* id : {"no-such-device", "", "0"}) {
    EXPECT_TRUE(fails_with(backend_->open(DeviceId(id)), present ? ErrorCode::not_found : ErrorCode::not_initialized));
  }
}

TEST_P(BackendContract, ObservingAnUnknownDeviceIsNotFound) {
  const bool present = backend_->list().has_value();
  EXPECT_TRUE(fails_with(backend_->observe(DeviceId("no-such-device")),
                         present ? ErrorCode::not_found : ErrorCode::not_initialized));
}

TEST_P(BackendContract, APartitionThatDoesNotFitIsRefusedAndOtherBackendsAreUnchanged) {
  const auto whole = backend_->list();
  if (whole) {
    std::vector<PartitionRequest> wrong{
        {GetParam() + ":0", {1'000'000'000, 1}}, {GetParam() + ":100000", {1}}, {GetParam() + ":no-such-device", {1}}};
    if (!whole->empty()) wrong.push_back({GetParam() + ":" + whole->front().id.text(), {4'000'000'000}});
    for (const PartitionRequest& request : wrong) {
      SCOPED_TRACE(request.device);
      const auto backend = contract_backend(GetParam(), nullptr, {request});
      ASSERT_TRUE(fails_with(backend->list(), ErrorCode::invalid_argument));
      EXPECT_FALSE(backend->list().error().advice.empty());
      EXPECT_TRUE(fails_with(backend->open(whole->front().id), ErrorCode::invalid_argument));
    }
  }
  for (const BackendEntry& other : backend_list()) {
    if (other.name == GetParam()) continue;
    const auto without = contract_backend(other.name, nullptr)->list();
    const auto with = contract_backend(other.name, nullptr, {{GetParam() + ":0", {1'000'000'000}}})->list();
    ASSERT_EQ(with.has_value(), without.has_value()) << other.name;
    if (with) {
      EXPECT_EQ(*with, *without);
    }
  }
}

TEST_P(BackendContract, PartsHaveTheirOwnUnitsAndShareMemoryAndFaults) {
  const Partitions cut = contract_cut(GetParam());
  const auto whole = backend_->list();
  if (GetParam() == "host") {
    ASSERT_EQ(cut.empty(), *whole->front().compute_units < 2) << "every machine with two cores can be cut";
  }
  if (cut.empty()) GTEST_SKIP() << "no " << GetParam() << " device here can be cut";
  const auto listed = contract_backend(GetParam(), nullptr, cut)->list();
  ASSERT_TRUE(works(listed));
  std::set<DeviceId> ids;
  std::vector<DeviceInfo> parts;
  for (const DeviceInfo& info : *listed) {
    EXPECT_TRUE(ids.insert(info.id).second) << info.id << " is there twice";
    if (info.features.contains("partition")) parts.push_back(info);
  }
  ASSERT_EQ(parts.size(), cut.front().units.size());
  EXPECT_EQ(listed->size(), whole->size() - 1 + parts.size()) << "the parts take the place of the whole";
  std::uint32_t units = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    ASSERT_TRUE(parts[i].parent);
    const auto parent =
        std::find_if(whole->begin(), whole->end(), [&](const DeviceInfo& info) { return info.id == *parts[i].parent; });
    ASSERT_NE(parent, whole->end());
    EXPECT_FALSE(ids.contains(parent->id));
    EXPECT_EQ(parts[i].memory_domain, parent->memory_domain);
    EXPECT_EQ(parts[i].fault_domain, parent->fault_domain);
    EXPECT_EQ(parts[i].memory_bytes_total, parent->memory_bytes_total);
    EXPECT_EQ(parts[i].compute_units, std::optional(cut.front().units[i]));
    EXPECT_TRUE(parts[i].id.text().starts_with(parent->id.text() + "/")) << parts[i].id;
    units += *parts[i].compute_units;
    EXPECT_LE(units, *parent->compute_units);
  }
}

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const BackendEntry& entry : backend_list()) names.emplace_back(entry.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Every, BackendContract, testing::ValuesIn(backend_names()),
                         [](const auto& info) { return info.param; });

std::vector<Listed> every_device() {
  std::vector<Listed> devices;
  for (const std::string& name : backend_names()) {
    const auto add = [&](const Partitions& cut) {
      const auto infos = contract_backend(name, nullptr, cut)->list();
      for (std::size_t i = 0; infos && i < infos->size(); ++i) {
        // Devices that are not cut are listed without the cut as well.
        if (cut.empty() || (*infos)[i].features.contains("partition")) devices.push_back({name, i, (*infos)[i], cut});
      }
    };
    add({});
    if (const Partitions cut = contract_cut(name); !cut.empty()) add(cut);
  }
  return devices;
}

INSTANTIATE_TEST_SUITE_P(Every, DeviceContract, testing::ValuesIn(every_device()), [](const auto& info) {
  return info.param.backend + (info.param.cut.empty() ? "_" : "_part_") + std::to_string(info.param.position);
});

}  // namespace
}  // namespace berth::contract
