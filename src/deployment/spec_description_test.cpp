#include "deployment/spec_description.hpp"

#include <gtest/gtest.h>

#include <set>

namespace berth::deployment {
namespace {

using world::Effect;

TEST(SpecDescription, NamesAreUsedOnce) {
  std::set<std::string_view> names, keys;
  std::size_t count = 0;
  world::for_each_field<DeploymentSpec>([&](const auto& field) {
    names.insert(field.name);
    keys.insert(field.key);
    ++count;
  });
  EXPECT_EQ(names.size(), count);
  EXPECT_EQ(keys.size(), count);
}

TEST(SpecDescription, OnlyWhatAReplicaRunsWithRestartsIt) {
  const auto effect = [](auto&& change) {
    DeploymentSpec before, after;
    change(after);
    EXPECT_NE(before, after);
    EXPECT_EQ(effect_of_change(before, after), effect_of_change(after, before));
    return effect_of_change(before, after);
  };
  EXPECT_EQ(effect_of_change({}, {}), Effect::nothing);
  EXPECT_EQ(effect([](DeploymentSpec& spec) { spec.replicas = 7; }), Effect::nothing);
  EXPECT_EQ(effect([](DeploymentSpec& spec) { spec.serving.max_concurrent = 7; }), Effect::nothing);
  EXPECT_EQ(effect([](DeploymentSpec& spec) { spec.serving.idle_timeout *= 2; }), Effect::nothing);
  EXPECT_EQ(effect([](DeploymentSpec& spec) { spec.serving.reach = Reach::direct; }), Effect::restart)
      << "the replica listens on another address";
  EXPECT_EQ(effect([](DeploymentSpec& spec) { spec.idempotent = true; }), Effect::nothing);
  EXPECT_EQ(effect([](DeploymentSpec& spec) { spec.rollout.surge = 7; }), Effect::nothing);
  EXPECT_EQ(effect([](DeploymentSpec& spec) { spec.unknown["later"] = "1"; }), Effect::nothing);
  EXPECT_EQ(effect([](DeploymentSpec& spec) { spec.tolerates = {"spot"}; }), Effect::place);
  EXPECT_EQ(effect([](DeploymentSpec& spec) { spec.command = {"serve"}; }), Effect::restart);
  EXPECT_EQ(effect([](DeploymentSpec& spec) { spec.readiness = Probe{}; }), Effect::restart);
  EXPECT_EQ(effect([](DeploymentSpec& spec) {
              spec.tolerates = {"spot"};
              spec.command = {"serve"};
            }),
            Effect::restart)
      << "the strongest effect counts";
}

TEST(SpecDescription, ChangedFieldsAreNamedAsTheApiNamesThem) {
  DeploymentSpec before, after;
  after.stop_grace = std::chrono::seconds(60);
  after.serving.max_concurrent = 7;
  after.command = {"serve"};
  EXPECT_EQ(changed_fields(before, after), (std::vector<std::string_view>{"command", "serving", "stop_grace_s"}));
  EXPECT_TRUE(changed_fields(after, after).empty());
}

TEST(SpecDescription, AFieldOfTheApiHasItsNameInTheFile) {
  for (const auto& [name, in_file] :
       {std::pair{"stop_grace_s", "stop_grace"}, std::pair{"host_memory_bytes", "host_memory"},
        std::pair{"replicas", "replicas"}, std::pair{"of_a_newer_version_s", "of_a_newer_version_s"}})
    EXPECT_EQ(name_in_file(name), in_file);
}

}  // namespace
}  // namespace berth::deployment
