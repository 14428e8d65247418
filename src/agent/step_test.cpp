#include "agent/step.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "agent/test_step.hpp"

namespace berth::agent {
namespace {

using namespace std::chrono_literals;

TEST_F(AgentStepTest, APortIsChosenWhereAPlaceholderOrAProbeAsksForIt) {
  const auto needs_port = [&](Words command, std::map<std::string, std::string> environment,
                              std::optional<Probe> probe) {
    orders->orders.clear();
    memory.clear();
    DeploymentSpec& spec = add(order("chat", 0, 7)).spec;
    spec.command = std::move(command);
    spec.environment = std::move(environment);
    spec.readiness = std::move(probe);
    return step_at(1s).start.at(0).needs_port;
  };
  Probe tcp, asks;
  tcp.tcp = true;
  asks.command = {"ask", "{port}"};
  EXPECT_FALSE(needs_port({"serve"}, {}, {}));
  EXPECT_TRUE(needs_port({"serve", "--port={port}"}, {}, {}));
  EXPECT_TRUE(needs_port({"serve"}, {{"PORT", "{port}"}}, {}));
  EXPECT_TRUE(needs_port({"serve"}, {}, tcp));
  EXPECT_TRUE(needs_port({"serve"}, {}, asks));
  EXPECT_FALSE(needs_port({"serve", "{{port}"}, {{"PORT", "{{port}"}}, {})) << "{{ is a brace itself";
}

TEST_F(AgentStepTest, AProbeAsksAtTheSocketWhereTheReplicaHasNoPort) {
  DeploymentSpec& spec = add(order("chat", 0, 7)).spec;
  spec.command = {"serve", "{socket}"};
  spec.readiness.emplace().http = "/health";
  Start start = step_at(1s).start.at(0);
  EXPECT_TRUE(start.needs_socket);
  EXPECT_FALSE(start.needs_port);
  memory.clear();
  spec.environment = {{"PORT", "{port}"}};
  start = step_at(1s).start.at(0);
  EXPECT_TRUE(start.needs_socket && start.needs_port);
}

TEST_F(AgentStepTest, OnlyAReplicaThatIsNoLongerWantedEndsItsRequestsFirst) {
  auto& chat = add(order("chat", 0, 7));
  jobs = {job_of(chat, "j1", FoundState::running)};
  const auto stop_at = [&](Duration now) {
    const Step step = step_at(now);
    EXPECT_EQ(stops(step), Words{"j1"});
    return step.stop.at(0);
  };
  chat.assigned.stopping = true;
  EXPECT_TRUE(stop_at(3s).drains);
  chat.assigned.stopping = false;
  Probe probe;
  probe.tcp = true;
  chat.spec.liveness = probe;
  probed["j1"].liveness = {true, 3, "it does not answer"};
  EXPECT_FALSE(stop_at(4s).drains) << "a replica that is not alive is not drained";
  chat.spec.liveness.reset();
  chat.spec.readiness = probe;
  EXPECT_TRUE(step_at(5s).stop.empty());
  EXPECT_FALSE(stop_at(15min).drains) << "a replica that was never ready is not drained";
  orders->orders.clear();
  EXPECT_TRUE(stop_at(6s).drains);
  jobs[0].is_stopping = jobs[0].is_draining = true;
  EXPECT_TRUE(step_at(7s).stop.empty()) << "the job is already stopping";
  EXPECT_EQ(state_of(step_at(7s)), ReplicaState::stopping);
}

TEST_F(AgentStepTest, WhatIsOrderedIsStartedOnceAndReportedUntilItIsReady) {
  const auto& chat = add(order("chat", 0, 7));
  Step step = step_at(1s);
  EXPECT_EQ(starts(step), Words{"chat/0#7"});
  EXPECT_TRUE(step.start[0].needs_port);
  EXPECT_FALSE(step.start[0].single);
  EXPECT_EQ(state_of(step), ReplicaState::waiting);

  jobs = {job_of(chat, "j1", FoundState::waiting, 1s)};
  step = step_at(2s);
  EXPECT_TRUE(step.start.empty());
  EXPECT_EQ(state_of(step), ReplicaState::waiting);

  jobs[0] = job_of(chat, "j1", FoundState::running, 3s);
  jobs[0].port = 8001;
  step = step_at(4s);
  EXPECT_EQ(state_of(step), ReplicaState::starting) << "without a probe it is ready when it has run for 2 s";
  EXPECT_EQ(step.look_again, at(5s));
  step = step_at(5s);
  EXPECT_EQ(state_of(step), ReplicaState::ready);
  EXPECT_EQ(step.reports[0].port, 8001);
  EXPECT_EQ(step.reports[0].job, "j1");
  EXPECT_TRUE(step.start.empty() && step.stop.empty() && step.remove.empty());
}

TEST_F(AgentStepTest, NothingStartsBeforeTheServerHasTakenAReport) {
  add(order("chat", 0, 7));
  report_sent_at.reset();
  const Step step = step_at(1s);
  EXPECT_TRUE(step.start.empty());
  EXPECT_EQ(state_of(step), ReplicaState::waiting);
  report_sent_at = at(2s);
  EXPECT_EQ(starts(step_at(2s)), Words{"chat/0#7"});
}

// A node was cut off and reconnects: its old orders name a replica that runs elsewhere by now.
TEST_F(AgentStepTest, OrdersThatAreOlderThanTheServersStartNothing) {
  add(order("chat", 0, 7));
  newest = {1, 2};
  EXPECT_TRUE(step_at(1s).start.empty());
  newest = {2, 1};
  EXPECT_TRUE(step_at(2s).start.empty());
  orders->epoch = 2;
  EXPECT_EQ(starts(step_at(3s)), Words{"chat/0#7"});
}

TEST_F(AgentStepTest, WithoutOrdersNothingStartsAndNothingStops) {
  orders.reset();
  jobs = {job_of(order("chat", 0, 7), "j1", FoundState::running), job_of(order("chat", 1, 8), "j2", FoundState::ended)};
  const Step step = step_at(1h);
  EXPECT_TRUE(step.start.empty() && step.stop.empty() && step.remove.empty());
  ASSERT_EQ(step.reports.size(), 2u);
  EXPECT_EQ(step.reports[0].state, ReplicaState::starting);
  EXPECT_EQ(step.reports[1].state, ReplicaState::backing_off) << "it ended while the agent was away";
}

TEST_F(AgentStepTest, AnIncarnationThatIsNotInTheOrdersIsStoppedThenRemoved) {
  jobs = {job_of(order("chat", 0, 7), "j1", FoundState::running)};
  Step step = step_at(1s);
  EXPECT_EQ(stops(step), Words{"j1"});
  EXPECT_EQ(state_of(step), ReplicaState::stopping);
  jobs[0].is_stopping = true;
  step = step_at(2s);
  EXPECT_TRUE(step.stop.empty()) << "the job was already told to stop";
  EXPECT_EQ(state_of(step), ReplicaState::stopping);
  jobs[0].state = FoundState::ended;
  step = step_at(3s);
  EXPECT_EQ(step.remove, Words{"j1"});
  EXPECT_EQ(state_of(step), ReplicaState::gone);
}

TEST_F(AgentStepTest, AStoppingIncarnationIsStoppedAndGoneOnlyWhenNoProcessIsLeft) {
  const auto& chat = add(order("chat", 0, 7, true));
  jobs = {job_of(chat, "j1", FoundState::running)};
  Step step = step_at(1s);
  EXPECT_EQ(stops(step), Words{"j1"});
  EXPECT_EQ(state_of(step), ReplicaState::stopping);
  jobs[0].state = FoundState::ended;
  step = step_at(2s);
  EXPECT_EQ(state_of(step), ReplicaState::gone);
  EXPECT_TRUE(step.remove.empty()) << "its output is kept until the server has forgotten it";
  EXPECT_TRUE(step.start.empty());
  jobs.clear();
  EXPECT_EQ(state_of(step_at(3s)), ReplicaState::gone);
}

TEST_F(AgentStepTest, OrdersOfALowerEpochOrRevisionAreIgnored) {
  std::optional<NodeOrders> held;
  EXPECT_TRUE(accept(held, {2, 5, {}}));
  EXPECT_FALSE(accept(held, {2, 5, {order("chat", 0, 1)}})) << "the same orders again";
  EXPECT_FALSE(accept(held, {2, 4, {}}));
  EXPECT_FALSE(accept(held, {1, 9, {}})) << "orders of an earlier leader";
  EXPECT_TRUE(accept(held, {3, 1, {}}));
  EXPECT_EQ(held->epoch, 3u);
  std::optional<NodeOrders> restarted;
  EXPECT_FALSE(accept(restarted, {2, 9, {}}, 3));
  EXPECT_TRUE(accept(restarted, {3, 1, {}}, 3));
}

TEST_F(AgentStepTest, WhatEndsIsRestartedWithABackOffThatDoubles) {
  const auto& chat = add(order("chat", 0, 7));
  Duration now = 0s;
  for (int attempt = 1; attempt <= 12; ++attempt) {
    SCOPED_TRACE(attempt);
    const std::string id = "j" + std::to_string(attempt);
    jobs = {job_of(chat, id, FoundState::ended, now)};
    jobs[0].reason = "exit status 1";
    Step step = step_at(now);
    const Duration pause = std::min<Duration>(1s * (1 << (attempt - 1)), 5min);
    EXPECT_TRUE(step.start.empty());
    EXPECT_EQ(state_of(step), ReplicaState::backing_off);
    EXPECT_EQ(step.reports[0].failures, static_cast<std::uint32_t>(attempt));
    EXPECT_EQ(step.reports[0].reason, "exit status 1");
    EXPECT_EQ(step.reports[0].next_start_ms, static_cast<std::uint64_t>((now + pause) / 1ms)) << "as wall time";
    ASSERT_EQ(step.look_again, at(now + pause));
    EXPECT_TRUE(step_at(now + pause - 1ns).start.empty());
    step = step_at(now + pause);
    EXPECT_EQ(starts(step), Words{"chat/0#7"});
    now += pause + 1s;
  }
}

TEST_F(AgentStepTest, TheRunBeforeTheNewestKeepsItsOutput) {
  const auto& chat = add(order("chat", 0, 7));
  jobs = {job_of(chat, "j1", FoundState::ended, 1s), job_of(chat, "j2", FoundState::ended, 2s),
          job_of(chat, "j3", FoundState::ended, 3s)};
  EXPECT_EQ(step_at(4s).remove, Words{"j1"});
  jobs = {job_of(chat, "j2", FoundState::ended, 2s), job_of(chat, "j3", FoundState::ended, 3s),
          job_of(chat, "j4", FoundState::running, 5s)};
  const Step step = step_at(6s);
  EXPECT_EQ(step.remove, Words{"j2"});
  EXPECT_TRUE(step.stop.empty());
}

TEST_F(AgentStepTest, TenMinutesOfRunningWellEndARowOfFailures) {
  const auto& chat = add(order("chat", 0, 7));
  memory[chat.assigned.key()].failures = 6;
  jobs = {job_of(chat, "j9", FoundState::running, 0s)};
  EXPECT_EQ(step_at(10min - 1ns).reports[0].failures, 6u);
  static_cast<void>(step_at(10min));
  EXPECT_EQ(step_at(10min).reports[0].failures, 0u);
  jobs[0] = job_of(chat, "j9", FoundState::ended, 11min);
  EXPECT_EQ(step_at(11min).reports[0].failures, 1u);
}

TEST_F(AgentStepTest, AStartThatFailsCountsAsAFailure) {
  const auto& chat = add(order("chat", 0, 7));
  EXPECT_EQ(step_at(0s).start.size(), 1u);
  start_failed(memory, chat.assigned.key(), "no port is free", at(0s), 0);
  Step step = step_at(0s);
  EXPECT_TRUE(step.start.empty());
  EXPECT_EQ(state_of(step), ReplicaState::backing_off);
  EXPECT_EQ(step.reports[0].reason, "no port is free");
  EXPECT_EQ(step_at(1s).start.size(), 1u);
}

TEST_F(AgentStepTest, ReadinessIsStartingUntilTheFirstGoodAnswerAndUnreadyAfterSeveralBadOnes) {
  auto& chat = add(order("chat", 0, 7));
  chat.spec.readiness = Probe{};
  chat.spec.readiness->tcp = true;
  jobs = {job_of(chat, "j1", FoundState::running)};
  EXPECT_EQ(state_of(step_at(1s)), ReplicaState::starting);
  probed["j1"].readiness = {false, 50, "connection refused"};
  Step step = step_at(2s);
  EXPECT_EQ(state_of(step), ReplicaState::starting) << "loading may take any time";
  EXPECT_EQ(step.reports[0].reason, "connection refused");
  probed["j1"].readiness = {true, 0, ""};
  EXPECT_EQ(state_of(step_at(3s)), ReplicaState::ready);
  probed["j1"].readiness = {true, 2, "time-out"};
  EXPECT_EQ(state_of(step_at(4s)), ReplicaState::ready);
  probed["j1"].readiness = {true, 3, "time-out"};
  step = step_at(5s);
  EXPECT_EQ(state_of(step), ReplicaState::unready);
  EXPECT_TRUE(step.stop.empty()) << "a failing readiness probe stops nothing";
}

TEST_F(AgentStepTest, ALivenessFailureStopsAndRestarts) {
  auto& chat = add(order("chat", 0, 7));
  chat.spec.liveness = Probe{};
  chat.spec.liveness->http = "/healthz";
  jobs = {job_of(chat, "j1", FoundState::running)};
  probed["j1"].liveness = {false, 9, "connection refused"};
  EXPECT_TRUE(step_at(1s).stop.empty()) << "the replica has not come up yet";
  probed["j1"].liveness = {true, 3, "status 500"};
  Step step = step_at(2s);
  EXPECT_EQ(stops(step), Words{"j1"});
  EXPECT_EQ(state_of(step), ReplicaState::unready);
  jobs[0].is_stopping = true;
  EXPECT_EQ(state_of(step_at(3s)), ReplicaState::unready);
  jobs[0].state = FoundState::ended;
  jobs[0].reason = "signal 15";
  step = step_at(4s);
  EXPECT_EQ(state_of(step), ReplicaState::backing_off);
  EXPECT_EQ(step.reports[0].failures, 1u);
  EXPECT_NE(step.reports[0].reason.find("status 500"), std::string::npos) << step.reports[0].reason;
  EXPECT_EQ(starts(step_at(5s)), Words{"chat/0#7"});
}

TEST_F(AgentStepTest, WhatACommandHasLeftBehindIsStoppedBeforeItIsRestarted) {
  const ReplicaOrder& wanted = add(order("chat", 0, 1));
  jobs = {job_of(wanted, "j1", FoundState::running)};
  EXPECT_TRUE(step_at(30s).stop.empty());
  jobs[0].is_leftover = true;
  Step out = step_at(31s);
  EXPECT_EQ(stops(out), Words{"j1"});
  EXPECT_TRUE(out.start.empty());
  EXPECT_EQ(out.reports.front().state, ReplicaState::unready);
  jobs[0].is_stopping = true;
  out = step_at(32s);
  EXPECT_TRUE(out.start.empty());
  EXPECT_NE(out.reports.front().reason.find("left processes running"), std::string::npos);
  jobs[0].state = FoundState::ended;
  out = step_at(33s);
  EXPECT_EQ(out.reports.front().failures, 1U);
  EXPECT_EQ(starts(step_at(40s)).size(), 1U);
}

TEST_F(AgentStepTest, WhatIsNotReadyInTimeHasFailed) {
  auto& chat = add(order("chat", 0, 7));
  chat.spec.readiness = Probe{};
  chat.spec.readiness->http = "/health";
  chat.spec.ready_within = 5min;
  jobs = {job_of(chat, "j1", FoundState::running, 1s)};
  probed["j1"].readiness = {false, 9, "connection refused"};
  Step step = step_at(1s);
  EXPECT_EQ(state_of(step), ReplicaState::starting);
  EXPECT_EQ(step.look_again, at(301s));
  EXPECT_TRUE(step_at(300s).stop.empty());
  step = step_at(301s);
  EXPECT_EQ(stops(step), Words{"j1"});
  EXPECT_EQ(state_of(step), ReplicaState::unready);
  jobs[0].is_stopping = true;
  EXPECT_EQ(state_of(step_at(302s)), ReplicaState::unready);
  jobs[0].state = FoundState::ended;
  jobs[0].reason = "signal 15";
  step = step_at(303s);
  EXPECT_EQ(state_of(step), ReplicaState::backing_off);
  EXPECT_EQ(step.reports[0].failures, 1u);
  EXPECT_EQ(step.reports[0].reason, "it was not ready within 5 min: connection refused");
  // The next job gets the full time, and so does a job whose earlier answers a new agent does not know.
  EXPECT_EQ(starts(step_at(304s)), Words{"chat/0#7"});
  jobs = {job_of(chat, "j2", FoundState::running, 304s)};
  EXPECT_TRUE(step_at(305s).stop.empty());
  memory.clear();
  EXPECT_TRUE(step_at(2h).stop.empty());
  // Once it was ready, ready_within no longer counts.
  probed["j2"].readiness = {true, 99, "status 503", at(2h)};
  EXPECT_TRUE(step_at(4h).stop.empty());
}

TEST_F(AgentStepTest, WhatWasReadyAndStaysUnreadyHasFailed) {
  auto& chat = add(order("chat", 0, 7));
  chat.spec.readiness = Probe{};
  chat.spec.readiness->http = "/health";
  chat.spec.unready_within = 5min;
  jobs = {job_of(chat, "j1", FoundState::running, 1s)};
  probed["j1"].readiness = {true, 1, "status 500", at(100s)};
  EXPECT_EQ(state_of(step_at(101s)), ReplicaState::ready) << "one failure does not count yet";
  probed["j1"].readiness.failures = 3;
  Step step = step_at(399s);
  EXPECT_EQ(state_of(step), ReplicaState::unready);
  EXPECT_EQ(step.look_again, at(400s));
  EXPECT_TRUE(step.stop.empty());
  // One good answer restarts the time.
  probed["j1"].readiness = {true, 3, "status 500", at(390s)};
  EXPECT_TRUE(step_at(400s).stop.empty());
  EXPECT_TRUE(step_at(689s).stop.empty());
  EXPECT_EQ(stops(step_at(690s)), Words{"j1"});
  jobs[0].state = FoundState::ended;
  jobs[0].is_stopping = true;
  jobs[0].reason = "signal 15";
  step = step_at(691s);
  EXPECT_EQ(state_of(step), ReplicaState::backing_off);
  EXPECT_EQ(step.reports[0].failures, 1u);
  EXPECT_EQ(step.reports[0].reason, "it was ready, and then its readiness probe failed for 5 min: status 500");
  EXPECT_EQ(starts(step_at(692s)), Words{"chat/0#7"});
  // Without it a replica may stay unready forever.
  orders->orders[0].spec.unready_within.reset();
  jobs = {job_of(orders->orders[0], "j2", FoundState::running, 692s)};
  probed["j2"].readiness = {true, 99, "status 500", at(700s)};
  EXPECT_TRUE(step_at(100h).stop.empty());
}

TEST_F(AgentStepTest, WhatTheMachineRefusesIsReportedAndNotTriedAgain) {
  const auto& chat = add(order("chat", 0, 7));
  jobs = {job_of(chat, "j1", FoundState::refused)};
  jobs[0].reason = "GPU g0 has 2 GiB free";
  for (const Duration now : {1s, 600s}) {
    const Step step = step_at(now);
    EXPECT_TRUE(step.start.empty());
    EXPECT_EQ(state_of(step), ReplicaState::refused);
    EXPECT_EQ(step.reports[0].reason, "GPU g0 has 2 GiB free");
  }
}

TEST_F(AgentStepTest, AJobThatWaitsTooLongForItsDevicesIsRefusedOnceItIsGone) {
  const auto& chat = add(order("chat", 0, 7));
  jobs = {job_of(chat, "j1", FoundState::waiting, 5s)};
  EXPECT_EQ(step_at(14s).look_again, at(15s));
  Step step = step_at(15s);
  EXPECT_EQ(stops(step), Words{"j1"});
  EXPECT_EQ(state_of(step), ReplicaState::stopping) << "the job may be getting its lease right now";
  jobs[0].state = FoundState::ended;
  step = step_at(16s);
  EXPECT_EQ(state_of(step), ReplicaState::refused);
  EXPECT_TRUE(step.start.empty());
}

TEST_F(AgentStepTest, TheRulesOfTheMachineForbidDevicesUsersAndCommands) {
  auto& chat = add(order("chat", 0, 7));
  rules.user = "berth";
  rules.users = {"ann"};
  const auto text = [&] { return forbidden(chat, rules).value_or("allowed"); };
  chat.spec.unknown["later"] = "1";
  EXPECT_EQ(text(), "this node's berth does not know the field \"later\"; upgrade berth on the node");
  chat.spec.unknown.clear();
  chat.spec.serving.unknown["later"] = "1";
  EXPECT_EQ(text(), "allowed") << "serving concerns only the gateway";
  EXPECT_EQ(text(), "allowed");
  rules.devices = {DeviceId("g1")};
  EXPECT_EQ(text(), "the agent's file does not permit device g0");
  rules.devices->insert(DeviceId("g0"));
  chat.spec.user = "bob";
  EXPECT_EQ(text(), "the agent's file does not permit user bob");
  chat.spec.user = "ann";
  EXPECT_EQ(text(), "allowed");
  rules.commands = {"/opt/models/", "/usr/bin/python3"};
  EXPECT_EQ(text(), "the agent's file does not permit command serve");
  chat.spec.command[0] = "/opt/models/serve";
  EXPECT_EQ(text(), "allowed");
  chat.spec.command[0] = "/opt/models/../../bin/sh";
  EXPECT_EQ(text(), "the agent's file does not permit command /opt/models/../../bin/sh");
  chat.spec.command[0] = "/opt/models/..";
  EXPECT_EQ(text(), "the agent's file does not permit command /opt/models/..");
  chat.spec.command[0] = "/opt/models/{name}/bin/sh";
  EXPECT_EQ(text(), "the agent's file does not permit command /opt/models/{name}/bin/sh")
      << "the placeholder is not expanded here";
  chat.spec.command[0] = "/opt/models/serve";
  chat.spec.liveness = Probe{};
  chat.spec.liveness->command = {"sh", "-c", "true"};
  EXPECT_EQ(text(), "the agent's file does not permit command sh") << "a probe is a command too";
  chat.spec.liveness.reset();
  rules.variables = {"MODEL_*", "TOKEN"};
  chat.spec.environment = {{"MODEL_NAME", "tiny"}};
  chat.spec.secrets.emplace("TOKEN", KeyRef::parse("env:A").value());
  EXPECT_EQ(text(), "allowed");
  chat.spec.environment["BASH_ENV"] = "$(id)";
  EXPECT_EQ(text(), "the agent's file does not permit variable BASH_ENV");
  chat.spec.environment.clear();
  chat.spec.secrets.clear();
  chat.spec.secrets.emplace("PATH", KeyRef::parse("env:A").value());
  EXPECT_EQ(text(), "the agent's file does not permit variable PATH");
  const Step step = step_at(1s);
  EXPECT_TRUE(step.start.empty());
  EXPECT_EQ(state_of(step), ReplicaState::refused);
}

TEST_F(AgentStepTest, AnOrderThatChangesMustStillBeAllowed) {
  auto& chat = add(order("chat", 0, 7));
  chat.spec.command = {"/opt/models/serve"};
  rules.commands = {"/opt/models/"};
  jobs = {job_of(chat, "j1", FoundState::running, 1s)};
  EXPECT_TRUE(step_at(2s).stop.empty());
  chat.spec.readiness = Probe{};
  chat.spec.readiness->command = {"/bin/sh", "-c", "true"};
  Step step = step_at(3s);
  EXPECT_EQ(stops(step), Words{"j1"});
  EXPECT_EQ(state_of(step), ReplicaState::stopping);
  jobs[0].state = FoundState::ended;
  chat.spec.readiness.reset();
  chat.spec.command = {"/bin/sh"};
  step = step_at(60s);
  EXPECT_TRUE(step.start.empty());
  EXPECT_EQ(state_of(step), ReplicaState::refused);
}

TEST_F(AgentStepTest, ARemoteRuntimeWithoutCommandIsReadyAndHasNoJob) {
  auto& far = add(order("far", 0, 7));
  far.spec.command.clear();
  far.spec.gpus.reset();
  far.spec.model = "gpt-4o";
  far.assigned.place.devices.clear();
  const Step step = step_at(1s);
  EXPECT_TRUE(step.start.empty());
  EXPECT_EQ(state_of(step), ReplicaState::ready);
  far.assigned.stopping = true;
  EXPECT_EQ(state_of(step_at(2s)), ReplicaState::gone);
}

TEST_F(AgentStepTest, ALocalRuntimeWithoutCommandIsRefused) {
  add(order("chat", 0, 7)).spec.command.clear();
  EXPECT_EQ(state_of(step_at(1s)), ReplicaState::refused);
}

TEST_F(AgentStepTest, WhatRunsGoesOnWhenTheServerNoLongerHasItsSpec) {
  auto& chat = add(order("chat", 0, 7));
  jobs = {job_of(chat, "j1", FoundState::running, 1s)};
  chat.spec = DeploymentSpec();
  chat.spec.name = DeploymentId("chat");
  const Step step = step_at(60s);
  EXPECT_TRUE(step.stop.empty());
  EXPECT_EQ(state_of(step), ReplicaState::ready);
  jobs[0].state = FoundState::ended;
  EXPECT_TRUE(step_at(61s).start.empty()) << "without a spec it cannot be started";
  EXPECT_EQ(state_of(step_at(61s)), ReplicaState::refused);
}

TEST_F(AgentStepTest, OfTwoJobsOfOneIncarnationTheOlderStays) {
  const auto& chat = add(order("chat", 0, 7));
  jobs = {job_of(chat, "j1", FoundState::running, 4s), job_of(chat, "j2", FoundState::running, 3s)};
  const Step step = step_at(9s);
  EXPECT_EQ(stops(step), Words{"j1"}) << "jobs are ordered by time, not by id";
  EXPECT_EQ(state_of(step), ReplicaState::ready);
  EXPECT_EQ(step.reports[0].job, "j2");
}

}  // namespace
}  // namespace berth::agent
