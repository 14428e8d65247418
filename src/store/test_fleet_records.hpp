// Records for tests of the store.
#pragma once

#include <string>

#include "store/state.hpp"

namespace berth::store {

inline std::string numbered(const std::string& name, std::size_t number) { return name + std::to_string(number); }

inline fleet::DesiredDeployment wanted(const std::string& name, std::uint32_t replicas = 1,
                                       std::uint64_t revision = 1) {
  fleet::DesiredDeployment wanted;
  wanted.spec.name = DeploymentId(name);
  wanted.spec.model = "m";
  wanted.spec.runtime = Runtime{RuntimeKind::process, ""};
  wanted.spec.command = {"serve", "--port", "{port}"};
  wanted.spec.replicas = replicas;
  wanted.revision = revision;
  return wanted;
}

inline fleet::Assigned assigned(const std::string& node, const std::string& deployment, std::uint32_t replica,
                                std::uint64_t generation, bool stopping = false) {
  fleet::Assigned assigned;
  assigned.place.deployment = DeploymentId(deployment);
  assigned.place.replica = replica;
  assigned.place.node = NodeId(node);
  assigned.place.devices = {DeviceId("GPU-" + node + "-0")};
  assigned.place.memory_bytes = std::uint64_t{20} << 30;
  assigned.generation = generation;
  assigned.revision = 1;
  assigned.stopping = stopping;
  return assigned;
}

inline fleet::NodeRecord node_record(const std::string& name, Intent intent = Intent::in_service) {
  fleet::NodeRecord record;
  record.id = NodeId(name);
  record.intent = intent;
  record.intent_by = "user:ann";
  record.inventory = R"({"node":")" + name + R"("})";
  record.joined_ms = 1'763'300'000'000;
  record.devices[DeviceId("GPU-" + name + "-0")] = {Intent::draining, "user:ann", "its fan is loud"};
  return record;
}

inline fleet::Credential credential(const std::string& id, fleet::Role role = fleet::Role::deploy) {
  fleet::Credential credential;
  credential.id = id;
  credential.role = role;
  credential.sha256 = std::string(64, 'a');
  credential.made_by = "user:ann";
  credential.made_ms = 1'763'300'000'000;
  return credential;
}

inline fleet::Event event(const std::string& text, const std::string& actor = "controller") {
  fleet::Event event;
  event.at_ms = 1'763'300'000'000;
  event.kind = fleet::EventKind::applied;
  event.actor = actor;
  event.subject = "chat";
  event.text = text;
  return event;
}

}  // namespace berth::store
