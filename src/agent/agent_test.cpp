// The whole agent with its threads and real jobs, against a test server; it also runs under ThreadSanitizer.
#include "agent/agent.hpp"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "agent/one_node_server.hpp"
#include "agent/output_sender.hpp"
#include "agent/relay_program.hpp"
#include "agent/test_process.hpp"
#include "ledger/test_folder.hpp"
#include "machine/inherited.hpp"
#include "machine/job_store.hpp"
#include "machine/job_supervisor.hpp"
#include "world/files.hpp"
#include "world/wall_time.hpp"

namespace berth::agent {
namespace {

namespace json = boost::json;
using fleet::ReplicaState;

TEST(Agent, RunsProbesSendsAndEndsRealReplicas) {
  const ledger::TestFolder folder;
  setenv("OCL_ICD_VENDORS", folder.path.c_str(), 1);  // no devices but the host
  unsetenv("OCL_ICD_FILENAMES");
  OneNodeServer server(folder.path.string());
  AgentOptions options;
  options.node = NodeId("n");
  options.server.url = server.url;
  options.folder = (folder.path / "agent").string();
  options.version = "test";
  std::jthread agent([&](const std::stop_token& stop) {
    const Result<void> ran = run_agent(options, stop);
    EXPECT_TRUE(ran) << ran.error().to_text();
  });

  fleet::ReplicaOrder probed = shell_order("probed", "echo hello; exec sleep 600");
  for (std::optional<Probe>* const probe : {&probed.spec.readiness, &probed.spec.liveness}) {
    probe->emplace().command = {"/bin/sh", "-c", "exit 0"};
    (*probe)->every = std::chrono::milliseconds(20);
    (*probe)->timeout = std::chrono::minutes(1);
  }
  fleet::ReplicaOrder single = shell_order("single", "exec sleep 600");
  single.spec.single = true;
  single.spec.stop_after = std::chrono::minutes(5);
  const fleet::ReplicaOrder failing = shell_order("failing", "exit 3");
  server.order({probed, single, failing});
  EXPECT_TRUE(server.until([](const auto& states, const auto&) {
    const auto is = [&](const char* name, ReplicaState state) {
      return states.contains(name) && states.at(name) == state;
    };
    return is("probed", ReplicaState::ready) && is("single", ReplicaState::ready) &&
           is("failing", ReplicaState::backing_off);
  }));

  server.order(
      {probed, single},
      {json::object{
          {"id", "o1"}, {"deployment", "probed"}, {"replica", 0}, {"generation", 1}, {"tail", 0}, {"follow", true}}});
  EXPECT_TRUE(
      server.until([](const auto&, const std::string& output) { return output.find("hello") != std::string::npos; }));

  probed.assigned.stopping = true;
  server.order({probed, single});
  EXPECT_TRUE(server.until([](const auto& states, const auto&) {
    return states.contains("probed") && states.at("probed") == ReplicaState::gone;
  }));
  server.order({});
  EXPECT_TRUE(server.until([](const auto& states, const auto&) { return states.empty(); }));
  EXPECT_TRUE(machine::list_jobs(options.folder + "/jobs").empty());
}

TEST(OutputSender, WaitsForTheOutputOfAJobThatIsListedAndHasNoneYet) {
  const ledger::TestFolder folder;
  OneNodeServer server(folder.path.string());
  const std::string jobs = (folder.path / "jobs").string();
  std::filesystem::create_directory(jobs);
  machine::JobRequest request;
  request.labels = {{"deployment", "w"}, {"replica", "0"}, {"generation", "1"}};
  request.created_us = world::wall_time_us();
  request.machine = machine::machine_name();
  request.boot = machine::boot_id();
  const machine::Job job = machine::create_job(jobs, request).value();
  OutputSender sender({.url = server.url}, {NodeId("n"), jobs, [](const auto&) { return true; }});
  sender.start({"o1", {DeploymentId("w"), 0, 1}, 0, true});
  EXPECT_TRUE(server.until_posts(1));  // while it waits, it posts to check whether anyone reads
  ASSERT_TRUE(world::write_private_text(job.output(), "hello\n"));
  EXPECT_TRUE(server.until([](const auto&, const std::string& output) { return output == "hello\n"; }));
}

}  // namespace
}  // namespace berth::agent

int main(int argc, char** argv) {
  berth::machine::supervisor_entry(argc, argv);
  // Like the command, this exits without destructors: a probe may still use the data.
  if (argc == 3 && std::string_view(argv[1]) == berth::agent::test_process_verb)
    std::_Exit(berth::agent::run_test_process(argv[2]));
  // The agent starts the relay like this: relay --folder FOLDER --node NAME [--replace].
  if (argc >= 6 && std::string_view(argv[1]) == berth::agent::relay_verb) {
    berth::machine::close_inherited_descriptors();
    const char* const version = std::getenv(berth::agent::relay_version_variable);
    return berth::agent::run_relay_program({argv[3], argv[5], version ? version : "test", argc > 6, nullptr}) ? 0 : 1;
  }
  if (argc == 2 && std::string_view(argv[1]) == berth::agent::test_replica_verb) berth::agent::run_test_replica();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
