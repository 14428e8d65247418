// An agent's step and what surrounds it, as plain data.
#pragma once

#include <gtest/gtest.h>

#include "agent/step.hpp"

namespace berth::agent {

using fleet::NodeOrders;
using fleet::ReplicaKey;
using fleet::ReplicaOrder;
using fleet::ReplicaReport;
using fleet::ReplicaState;
using Words = std::vector<std::string>;

inline TimePoint at(Duration since_start) { return TimePoint{} + since_start; }

inline ReplicaOrder order(const std::string& name, std::uint32_t replica, std::uint64_t generation,
                          bool stopping = false) {
  ReplicaOrder order;
  order.spec.name = DeploymentId(name);
  order.spec.model = "llama-3.1-8b";
  order.spec.gpus = 1;
  order.spec.command = {"serve", "--port", "{port}"};
  order.assigned.place = {order.spec.name, replica, NodeId("n"), {DeviceId("g0")}, 0, true};
  order.assigned.generation = generation;
  order.assigned.stopping = stopping;
  return order;
}

inline FoundJob job_of(const ReplicaOrder& order, const std::string& id, FoundState state,
                       Duration since = Duration::zero()) {
  FoundJob job;
  job.key = order.assigned.key();
  job.id = id;
  job.state = state;
  job.since = at(since);
  if (order.spec.single) job.single = {order.spec.stop_after, at(since)};
  return job;
}

struct AgentStepTest : testing::Test {
  std::optional<NodeOrders> orders = NodeOrders{1, 1, {}};
  std::optional<TimePoint> report_sent_at = at(Duration::zero());
  std::vector<FoundJob> jobs;
  std::map<std::string, Probed> probed;
  Rules rules;
  Memory memory;
  std::pair<std::uint64_t, std::uint64_t> newest{};

  Step step_at(Duration now) {
    Step out = agent::step({orders ? &*orders : nullptr, report_sent_at, jobs, probed, &rules, memory, at(now), newest,
                            static_cast<std::uint64_t>(now / std::chrono::milliseconds(1))});
    memory = out.memory;
    return out;
  }
  ReplicaOrder& add(ReplicaOrder order) {
    orders->orders.push_back(std::move(order));
    return orders->orders.back();
  }
};

inline Words starts(const Step& step) {
  Words out;
  for (const Start& start : step.start) out.push_back(to_string(start.order.assigned.key()));
  return out;
}
inline Words stops(const Step& step) {
  Words out;
  for (const Stop& stop : step.stop) out.push_back(stop.job);
  return out;
}
inline ReplicaState state_of(const Step& step) {
  EXPECT_EQ(step.reports.size(), 1u);
  return step.reports.at(0).state;
}

}  // namespace berth::agent
