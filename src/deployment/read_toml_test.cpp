#include <gtest/gtest.h>

#include "deployment/test_nodes.hpp"

namespace berth::deployment {
namespace {

// The message and the advice for an invalid fleet file.
std::string fleet_error(const std::string& text) {
  const auto fleet = read_fleet(text, "fleet.toml");
  return fleet ? "no error" : fleet.error().message + " | " + fleet.error().advice;
}

const std::string minimal = head + "[[deployment]]\nname = \"d\"\nmodel = \"qwen\"\n";

TEST(ProjectFile, NeedsOnlyAClusterWithAName) {
  const auto project = read_project(head, "berth.toml");
  ASSERT_TRUE(project);
  EXPECT_EQ(project->cluster.name, "lab");
  EXPECT_TRUE(project->deployments.empty());
  EXPECT_EQ(project_error(""),
            "berth.toml:1:1: the project file has no table [cluster] | begin it with [cluster] and name = \"...\"");
  EXPECT_EQ(project_error("[cluster]\n"), "berth.toml:1:1: [cluster] has no name | add name = \"...\"");
  EXPECT_EQ(project_error(head + "bind = \"0.0.0.0:1\"\n"),
            "berth.toml:3:1: [cluster] no longer has the key bind | remove it: berth serve --listen sets the address");
}

TEST(ProjectFile, DefaultsAreThoseOfTheSpec) {
  const auto project = read_project(minimal, "berth.toml");
  ASSERT_TRUE(project);
  const DeploymentSpec& spec = project->deployments.at(0);
  EXPECT_EQ(spec.replicas, 1u);
  EXPECT_EQ(spec.gpus, std::nullopt);
  EXPECT_EQ(spec.gpus_per_replica(), 1u);
  EXPECT_TRUE(spec.exclusive);
  EXPECT_EQ(spec.on_shortage, OnShortage::all);
  EXPECT_FALSE(spec.idempotent);
  EXPECT_EQ(spec.serving, ServingOptions{});
}

TEST(ProjectFile, EveryKeyArrives) {
  const auto project = read_project(head + R"([[deployment]]
name = "d"
model = "m"
runtime = "python:diffusers"
gpus = 2
replicas = 3
memory = "1KiB"
capability = "8.9"
node_selector = { zone = "a" }
device_labels = { nvlink = "yes" }
tolerates = ["spot"]
exclusive = false
spread = "one_per_node"
policy = "least_loaded"
priority = "high"
on_shortage = "best_effort"
idempotent = true
key = "file:/run/key"
[deployment.serving]
max_concurrent = 5
on_capacity_exhausted = "fallback"
fallback = "e"
[[deployment]]
name = "e"
model = "m"
cpu = true
[[egress_preference]]
provider = "http"
key = "env:K"
nodes = ["x", "y"]
)",
                                    "berth.toml");
  ASSERT_TRUE(project) << project.error().to_text();
  const DeploymentSpec& spec = project->deployments.at(0);
  EXPECT_EQ(spec.runtime, (Runtime{RuntimeKind::python, "diffusers"}));
  EXPECT_EQ(spec.gpus, 2u);
  EXPECT_EQ(spec.replicas, 3u);
  EXPECT_EQ(spec.memory_bytes, 1024u);
  EXPECT_EQ(spec.capability_min, (Capability{8, 9}));
  EXPECT_EQ(spec.node_selector.at("zone"), "a");
  EXPECT_EQ(spec.device_labels.at("nvlink"), "yes");
  EXPECT_TRUE(spec.tolerates.contains("spot"));
  EXPECT_FALSE(spec.exclusive);
  EXPECT_EQ(spec.spread, Spread::one_per_node);
  EXPECT_EQ(spec.policy, "least_loaded");
  EXPECT_EQ(spec.priority, Priority::high);
  EXPECT_EQ(spec.on_shortage, OnShortage::best_effort);
  EXPECT_TRUE(spec.idempotent);
  EXPECT_EQ(spec.key->text(), "file:/run/key");
  EXPECT_EQ(spec.serving, (ServingOptions{5, OnCapacityExhausted::fallback, DeploymentId("e")}));
  EXPECT_TRUE(project->deployments.at(1).cpu);
  EXPECT_EQ(project->egress_preference.at({Provider::http, *KeyRef::parse("env:K")}),
            (std::vector{NodeId("x"), NodeId("y")}));
}

// As `berth run --mem` does.
TEST(ProjectFile, WhatStatesItsMemorySharesGpusUnlessItSaysOtherwise) {
  const auto exclusive = [](const std::string& more) {
    const auto project = read_project(minimal + more, "berth.toml");
    EXPECT_TRUE(project) << project.error().to_text();
    return project->deployments.at(0).exclusive;
  };
  EXPECT_FALSE(exclusive("memory = \"20GiB\"\n"));
  EXPECT_TRUE(exclusive("memory = \"20GiB\"\nexclusive = true\n"));
  EXPECT_TRUE(exclusive("")) << "whole GPUs";
  EXPECT_TRUE(exclusive("cpu = true\nmemory = \"20GiB\"\n")) << "as before: it has no GPU";
  EXPECT_NE(
      project_error(minimal + "exclusive = false\n").find("shares GPUs without specifying how much memory it needs"),
      std::string::npos);
  EXPECT_NE(project_error(minimal + "sharing = \"memory\"\n").find("no longer has the key sharing | remove it"),
            std::string::npos)
      << project_error(minimal + "sharing = \"memory\"\n");
}

TEST(ProjectFile, AnUnknownKeyIsAnErrorAtItsPlaceWithTheNearestKnownOne) {
  EXPECT_EQ(project_error(minimal + "replica = 2\n"),
            "berth.toml:6:1: unknown key \"replica\" in [[deployment]] | did you mean \"replicas\"?");
  EXPECT_EQ(project_error("[clutser]\nname = \"x\"\n"),
            "berth.toml:1:2: unknown key \"clutser\" in the project file | did you mean \"cluster\"?");
  EXPECT_EQ(project_error(minimal + "[deployment.rollout]\n  qqq = 1\n"),
            "berth.toml:7:3: unknown key \"qqq\" in [deployment.rollout] | use one of surge, unavailable");
}

TEST(ProjectFile, AWrongTypeIsAnErrorAtItsPlace) {
  EXPECT_EQ(project_error(minimal + "replicas = \"two\"\n"),
            "berth.toml:6:12: replicas in [[deployment]] is text | it takes a whole number");
  EXPECT_EQ(project_error(minimal + "replicas = 2.5\n"),
            "berth.toml:6:12: replicas in [[deployment]] is a floating-point number | it takes a whole number");
  EXPECT_EQ(project_error(minimal + "replicas = -1\n"),
            "berth.toml:6:1: replicas is -1 | give a number from 0 to 10000");
  EXPECT_EQ(project_error(minimal + "idempotent = 1\n"),
            "berth.toml:6:14: idempotent in [[deployment]] is a whole number | it takes true or false");
  EXPECT_EQ(
      project_error(minimal + "memory = \"20 lots\"\n"),
      "berth.toml:6:1: memory: \"20 lots\" is not an amount of memory | write it with its unit, as in 20G or 500M");
  EXPECT_EQ(project_error(minimal + "capability = 9.0\n"),
            "berth.toml:6:1: capability is not a version in quotes | write it as major and minor, such as \"9.0\"");
  EXPECT_EQ(project_error(minimal + "spread = \"sprad\"\n"),
            "berth.toml:6:1: spread = \"sprad\" is not known | did you mean \"spread\"?");
  EXPECT_EQ(project_error(minimal + "tolerates = [\"a\", 1]\n"),
            "berth.toml:6:19: tolerates in [[deployment]] is a whole number | it takes text in quotes for every entry");
  EXPECT_EQ(project_error(head + "[deployment]\nname = \"d\"\n"),
            "berth.toml:3:1: deployment in the project file is a table | it takes a list of tables: write "
            "[[deployment]] before each");
}

TEST(ProjectFile, ContradictionsAndDuplicatesAreErrorsAtTheirDeployment) {
  EXPECT_EQ(project_error(minimal + "gpus = 0\n"),
            "berth.toml:3:1: deployment \"d\" runs on GPUs but requests none | set cpu = true if it needs no GPU, or "
            "gpus to at least 1");
  EXPECT_EQ(project_error(minimal + "[[deployment]]\nname = \"d\"\nmodel = \"qwen\"\n"),
            "berth.toml:7:1: two deployments are named \"d\" | rename one of them");
  const std::string second = "[[deployment]]\nname = \"e\"\ncpu = true\ncommand = [\"x\"]\n[deployment.serving]\n";
  EXPECT_EQ(project_error(minimal + "[deployment.serving]\npath = \"/a\"\n" + second + "path = \"/a/\"\n"),
            "berth.toml:8:1: deployments \"d\" and \"e\" have the same host and path | change serving.host or "
            "serving.path of one of them");
  EXPECT_EQ(project_error(minimal + "[deployment.serving]\npath = \"/a\"\n" + second + "path = \"/a\"\nhost = \"h\"\n"),
            "no error");
  EXPECT_EQ(project_error(minimal + "[deployment.serving]\non_capacity_exhausted = \"fallback\"\nfallback = \"x\"\n"),
            "berth.toml:3:1: deployment \"d\" falls back to \"x\", which is not in this project | name a deployment "
            "of this project");
  EXPECT_NE(project_error(minimal + "policy = \"best_fitt\"\n").find("best_fit"), std::string::npos);
}

TEST(ProjectFile, AnUnknownRuntimeIsKeptForThePlanToName) {
  const auto project = read_project(minimal + "runtime = \"quantum_link\"\n", "berth.toml");
  ASSERT_TRUE(project);
  EXPECT_EQ(project->deployments[0].runtime, (Runtime{RuntimeKind::unknown, "quantum_link"}));
}

TEST(ProjectFile, AMisspeltRuntimeIsAnErrorWithTheNearestKnownOne) {
  EXPECT_EQ(project_error(minimal + "runtime = \"vlm\"\n"),
            "berth.toml:3:1: runtime \"vlm\" of deployment \"d\" is not known | did you mean \"vllm\"?");
  EXPECT_EQ(project_error(minimal + "runtime = \"pyton:diffusers\"\n"),
            "berth.toml:3:1: runtime \"pyton:diffusers\" of deployment \"d\" is not known | did you mean \"python\"?");
}

TEST(ProjectFile, AModelWithoutARuntimeTakesNoGpuSilently) {
  const std::string plain = head + "[[deployment]]\nname = \"d\"\nmodel = \"mymodel-7\"\n";
  EXPECT_EQ(project_error(plain),
            "berth.toml:3:1: the runtime of deployment \"d\" cannot be inferred from the model \"mymodel-7\" | add "
            "runtime = \"...\" (vllm, open_ai, process, ...), or gpus or cpu for a program of your own");
  EXPECT_EQ(project_error(plain + "runtime = \"process\"\n"), "no error");
  EXPECT_EQ(project_error(plain + "gpus = 1\n"), "no error") << "gpus = 1 asks for a GPU";
  EXPECT_EQ(project_error(plain + "cpu = true\n"), "no error");
}

TEST(ProjectFile, AnAmountWithoutAUnitAndAnEmptyValueAreErrors) {
  EXPECT_EQ(project_error(minimal + "memory = 38\n"),
            "berth.toml:6:1: memory: \"38\" is an amount of memory without a unit | did you mean 38G?");
  EXPECT_EQ(project_error(minimal + "memory = \"38\"\n"),
            "berth.toml:6:1: memory: \"38\" is an amount of memory without a unit | did you mean 38G?");
  EXPECT_EQ(
      project_error(minimal + "memory = 40802189312\n"),
      "berth.toml:6:1: memory: \"40802189312\" is an amount of memory without a unit | did you mean 40802189312B?");
  EXPECT_NE(project_error(minimal + "memory = \"\"\n").find("memory: an amount of memory is empty"), std::string::npos);
  for (const char* key : {"runtime", "policy", "spread", "key"}) {
    EXPECT_EQ(
        project_error(minimal + key + " = \"\"\n"),
        "berth.toml:6:1: " + std::string(key) + " in [[deployment]] is empty | give a value, or leave the key out");
  }
}

TEST(ProjectFile, ASecretIsRefusedAndNotRepeated) {
  const std::string error = project_error(minimal + "key = \"sk-abcdef123456\"\n");
  EXPECT_NE(error.find("berth.toml:6:1: this looks like the key itself"), std::string::npos) << error;
  EXPECT_EQ(error.find("abcdef"), std::string::npos);
  EXPECT_EQ(project_error(minimal + "api_key = \"sk-abcdef123456\"\n").find("abcdef"), std::string::npos);
  EXPECT_EQ(project_error(minimal + "key = \"sk-abcdef123456\n").find("abcdef"), std::string::npos)
      << "the same for invalid TOML";
}

TEST(ProjectFile, BadTomlIsAnErrorWithLineAndColumn) {
  EXPECT_NE(project_error("[cluster\nname = 1\n").find("berth.toml:1:9: the text is not valid TOML: "),
            std::string::npos)
      << project_error("[cluster\nname = 1\n");
  EXPECT_NE(project_error(std::string("\xff\xfe\x00 nonsense", 12)), "no error");
  EXPECT_NE(project_error("a = " + std::string(100'000, '[')), "no error") << "deep nesting does not exhaust the stack";
  std::string deep = "a";
  for (int i = 0; i < 200'000; ++i) deep += ".a";
  for (const std::string& text : {deep + " = 1", "[" + deep + "]", "x = {" + deep + " = 1}", "[[" + deep + "]]",
                                  "k = \"a # b\" # it's\nl = '''\n'' \" '''\n" + deep + " = 1"})
    EXPECT_NE(project_error(text).find("a key has too many parts | correct the syntax"), std::string::npos)
        << text.substr(0, 40);
  EXPECT_NE(project_error("\n  " + deep + " = 1").find("berth.toml:2:"), std::string::npos);
  EXPECT_EQ(project_error(minimal + "policy = \"" + deep + "\" # " + deep + "\n").find("too many parts"),
            std::string::npos)
      << "dots in strings and comments do not separate parts of a key";
  for (const char* text : {"[[[", "[ =", "[,", "[.a]", "=", "a = ", "a = {,}", "[a]\n[a]\n", "\"", "a = 1 = 2"})
    EXPECT_NE(project_error(text).find("the text is not valid TOML"), std::string::npos) << text;
}

// toml++ 3.3 has undefined behavior for such characters.
TEST(ProjectFile, ACharacterThatIsNotAsciiIsRefusedOutsideQuotes) {
  for (const char* text : {"[cluster]\nname\xC3\xA9 = 1\n", "[cluster]\nmem\xEF\xBB\xA1\xBF\n", "\xC2\xA0[cluster]\n"})
    EXPECT_NE(project_error(text).find("a non-ASCII character is outside quotes"), std::string::npos)
        << project_error(text);
  for (const char* text : {"\xEF\xBB\xBF[cluster]\nname = \"c\"\n", "[cluster]\nname = \"c\" # \xC3\xA9\n"})
    EXPECT_EQ(project_error(text).find("not ASCII"), std::string::npos) << project_error(text);
}

TEST(FleetFile, NodesCountTheirGpusOrNameEachDevice) {
  const auto fleet = read_fleet(R"(
[[node]]
name = "a"
cpus = 8
memory = "16GiB"
egress = true
labels = { zone = "x" }
taints = ["spot"]
intent = "draining"
health = "suspect"
gpus = { count = 2, model = "H200", memory = "80GiB", capability = "9.0", labels = { nvlink = "yes" } }
[[node.device]]
id = "GPU-1"
backend = "opencl"
memory = "8GiB"
memory_used = "1GiB"
intent = "cordoned"
health = "lost"
)",
                                "fleet.toml");
  ASSERT_TRUE(fleet) << fleet.error().to_text();
  const NodeView& node = fleet->nodes.at(0);
  EXPECT_EQ(node.id, NodeId("a"));
  EXPECT_EQ(node.cpus, 8u);
  EXPECT_EQ(node.memory_bytes, 16 * gib);
  EXPECT_TRUE(node.egress);
  EXPECT_EQ(node.labels.at("zone"), "x");
  EXPECT_TRUE(node.taints.contains("spot"));
  EXPECT_EQ(node.intent, Intent::draining);
  EXPECT_EQ(node.health, Health::suspect);
  ASSERT_EQ(node.devices.size(), 3u);
  EXPECT_EQ(node.devices[1].info.id, DeviceId("a/gpu1"));
  EXPECT_EQ(node.devices[1].info.name, "H200");
  EXPECT_EQ(node.devices[1].info.memory_bytes_total, 80 * gib);
  EXPECT_EQ(node.devices[1].info.capability, (Capability{9, 0}));
  EXPECT_EQ(node.devices[1].info.labels.at("nvlink"), "yes");
  EXPECT_EQ(node.devices[1].info.backend, "cuda");
  EXPECT_EQ(node.devices[2].info.backend, "opencl");
  EXPECT_EQ(node.devices[2].info.capability, std::nullopt) << "unknown is absent";
  EXPECT_EQ(node.devices[2].memory_bytes_used, gib);
  EXPECT_EQ(node.devices[2].intent, Intent::cordoned);
  EXPECT_EQ(node.devices[2].health, Health::lost);
}

TEST(FleetFile, WrongInputIsAnErrorWithItsPlace) {
  EXPECT_EQ(fleet_error("[[node]]\nname = \"a\"\n[[node]]\nname = \"a\"\n"),
            "fleet.toml:3:1: two nodes are named \"a\" | give every node, and every device of a node, a unique name");
  EXPECT_EQ(
      fleet_error("[[node]]\nname = \"a\"\n[[node.device]]\nid = \"G\"\n[[node.device]]\nid = \"G\"\n"),
      "fleet.toml:1:1: two devices of node \"a\" have the id \"G\" | give every node, and every device of a node, "
      "a unique name");
  EXPECT_EQ(fleet_error("[[node]]\nname = \"a\"\ngpu = 8\n"),
            "fleet.toml:3:1: unknown key \"gpu\" in [[node]] | did you mean \"gpus\"?");
  EXPECT_EQ(fleet_error("[[node]]\nname = \"a\"\ngpus = 8\n"),
            "fleet.toml:3:8: gpus in [[node]] is a whole number | it takes a table");
  EXPECT_EQ(fleet_error("[[node]]\nname = \"a\"\n[[node.device]]\nid = \"G\"\nforeign = \"1GiB\"\n"),
            "fleet.toml:5:1: [[node.device]] no longer has the key foreign | write memory_used: the memory that any "
            "process uses");
  EXPECT_EQ(fleet_error("[[node]]\nname = \"a b\"\n").find("fleet.toml:2:1: \"a b\" is not a valid name"), 0u);
  EXPECT_EQ(fleet_error(""), "no error") << "an empty fleet is valid";
}

}  // namespace
}  // namespace berth::deployment
