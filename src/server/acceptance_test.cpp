#include "server/acceptance.hpp"

#include <gtest/gtest.h>

#include "fleet/bounds.hpp"
#include "fleet_format/fleet_json.hpp"
#include "store/engine.hpp"

namespace berth::server {
namespace {

fleet::DesiredDeployment wanted_with(const std::string& name, std::size_t bytes, std::uint32_t replicas = 1) {
  fleet::DesiredDeployment wanted;
  wanted.spec.name = DeploymentId(name);
  wanted.spec.command = {"serve", std::string(bytes, 'x')};
  wanted.spec.replicas = replicas;
  wanted.revision = 1;
  return wanted;
}
fleet::Desired desired_of(std::vector<fleet::DesiredDeployment> all) {
  fleet::Desired desired;
  for (fleet::DesiredDeployment& deployment : all) {
    const DeploymentId name = deployment.spec.name;
    desired.deployments.emplace(name, std::move(deployment));
  }
  return desired;
}
std::string refusal(const fleet::Desired& desired) {
  const Result<void> checked = check_acceptable(desired);
  if (checked) return "accepted";
  EXPECT_EQ(checked.error().code, ErrorCode::invalid_argument);
  EXPECT_FALSE(checked.error().advice.empty());
  return checked.error().message;
}

TEST(Acceptance, ASpecHasABound) {
  EXPECT_EQ(refusal(desired_of({wanted_with("a", 110'000)})), "accepted");
  EXPECT_EQ(refusal(desired_of({wanted_with("a", 10), wanted_with("big", fleet::spec_bytes_max)})),
            "deployment \"big\" has 257 KiB of settings; a server keeps at most 256 KiB");
}

TEST(Acceptance, AllReplicasOfAProjectHaveABound) {
  std::vector<fleet::DesiredDeployment> many;
  for (int i = 0; i < 5; ++i) many.push_back(wanted_with("d" + std::to_string(i), 10, replicas_max));
  EXPECT_EQ(refusal(desired_of(many)), "accepted");
  many.push_back(wanted_with("more", 10));
  EXPECT_EQ(refusal(desired_of(many)), "the project has 50001 replicas; the maximum is 50000");
}

TEST(Acceptance, WhatANodeThatRunsAllOfItIsSentHasABound) {
  EXPECT_EQ(refusal(desired_of({wanted_with("a", 100'000, 200)})), "accepted");
  EXPECT_NE(refusal(desired_of({wanted_with("a", 100'000, 1000)})).find("sends at most 24576 KiB to a node"),
            std::string::npos);
}

TEST(Acceptance, TheListOfDeploymentsHasABound) {
  std::vector<fleet::DesiredDeployment> many;
  for (int i = 0; i < 3000; ++i) many.push_back(wanted_with("d" + std::to_string(i) + std::string(200, 'n'), 1));
  EXPECT_NE(refusal(desired_of(many)).find("use fewer deployments"), 0u);
  EXPECT_NE(refusal(desired_of(many)), "accepted");
}

// The tenth update of a spec of 110 KB was refused, because the earlier specs did not fit next to it.
TEST(Acceptance, EarlierSpecsAreKeptAsFarAsTheyFit) {
  fleet::DesiredDeployment small = wanted_with("a", 10);
  small.earlier.resize(30, wanted_with("a", 20).spec);
  EXPECT_EQ(fitted(small).earlier.size(), fleet::earlier_max);
  for (const std::size_t bytes : {std::size_t{110'000}, fleet::spec_bytes_max - 400}) {
    fleet::DesiredDeployment large = wanted_with("a", bytes);
    ASSERT_EQ(refusal(desired_of({large})), "accepted");
    for (int i = 0; i < 10; ++i) large.earlier.push_back(wanted_with("a", bytes - static_cast<std::size_t>(i)).spec);
    const fleet::DesiredDeployment kept = fitted(large);
    EXPECT_GE(kept.earlier.size(), 2u) << "one for a rollout and one for an undo";
    EXPECT_TRUE(std::equal(kept.earlier.begin(), kept.earlier.end(), large.earlier.begin()))
        << "the newest specs are kept";
    fleet::DesiredDeployment paused = kept;
    paused.paused = bounded_reason(std::string(100'000, '\x01'));
    EXPECT_LE(format::document(format::to_json(paused)).size(), store::value_bytes_max) << "it can be paused";
  }
}

}  // namespace
}  // namespace berth::server
