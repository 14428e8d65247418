// Specs, fleets and short forms of plans for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "berth/deployment.hpp"
#include "world/test_units.hpp"

namespace berth::deployment {

using world::gib;

// The beginning of every project.
inline const std::string head = "[cluster]\nname = \"lab\"\n";
inline std::string project_error(const std::string& text) {
  const auto project = read_project(text, "berth.toml");
  return project ? "no error" : project.error().message + " | " + project.error().advice;
}

// A node with `gpus` H200-like devices "<name>/gpu0", "<name>/gpu1", ... of `memory_gib` each.
inline NodeView gpu_node(const std::string& name, int gpus, std::uint64_t memory_gib = 80) {
  NodeView node;
  node.id = NodeId(name);
  node.memory_bytes = 256 * gib;
  for (int i = 0; i < gpus; ++i) {
    NodeDevice device;
    device.info.id = DeviceId(name + "/gpu" + std::to_string(i));
    device.info.backend = "cuda";
    device.info.memory_bytes_total = memory_gib * gib;
    device.info.capability = Capability{9, 0};
    device.info.memory_domain = device.info.id.text();
    node.devices.push_back(std::move(device));
  }
  return node;
}

inline NodeView egress_node(const std::string& name) {
  NodeView node = gpu_node(name, 0);
  node.egress = true;
  return node;
}

inline DeploymentSpec gpu_spec(const std::string& name, std::uint32_t replicas, std::uint32_t gpus = 1) {
  DeploymentSpec spec;
  spec.name = DeploymentId(name);
  spec.model = "llama-3.1-8b";
  spec.replicas = replicas;
  spec.gpus = gpus;
  return spec;
}

inline DeploymentSpec remote_spec(const std::string& name, std::uint32_t replicas) {
  DeploymentSpec spec;
  spec.name = DeploymentId(name);
  spec.model = "gpt-4o";
  spec.replicas = replicas;
  return spec;
}

inline DeploymentSpec cpu_spec(const std::string& name, std::uint32_t replicas, std::uint64_t memory_gib = 0) {
  DeploymentSpec spec;
  spec.name = DeploymentId(name);
  spec.model = "tokenizer";
  spec.replicas = replicas;
  spec.cpu = true;
  spec.memory_bytes = memory_gib * gib;
  return spec;
}

// "a/gpu0", "a/gpu0 a/gpu1" or "a" for each assignment, in order.
inline std::vector<std::string> places(const Plan& plan) {
  std::vector<std::string> out;
  for (const Assignment& assignment : plan.assignments) {
    std::string text;
    for (const DeviceId& id : assignment.devices) text += (text.empty() ? "" : " ") + id.text();
    out.push_back(text.empty() ? assignment.node.text() : text);
  }
  return out;
}

inline std::vector<std::string> nodes_of(const Plan& plan) {
  std::vector<std::string> out;
  for (const Assignment& assignment : plan.assignments) out.push_back(assignment.node.text());
  return out;
}

inline const Reason& only_reason(const Plan& plan) {
  EXPECT_EQ(plan.pending.size(), 1u);
  return plan.pending.at(0).reason;
}

inline std::vector<std::string> sorted(std::vector<std::string> words) {
  std::sort(words.begin(), words.end());
  return words;
}

inline Plan plan_one(const DeploymentSpec& spec, const Fleet& fleet, const std::vector<Assignment>& current = {}) {
  return plan(std::vector{spec}, fleet, current);
}

}  // namespace berth::deployment
