// The whole agent with its threads and real jobs, against a server of the test: under ThreadSanitizer, too.
#include "agent/agent.hpp"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <thread>

#include "agent/output_sender.hpp"
#include "agent/test_process.hpp"
#include "fleet/fleet.hpp"
#include "format/fleet_json.hpp"
#include "http/server.hpp"
#include "ledger/test_folder.hpp"
#include "machine/job_store.hpp"
#include "machine/job_supervisor.hpp"
#include "world/files.hpp"
#include "world/wall_time.hpp"

namespace berth::agent {
namespace {

namespace json = boost::json;
using fleet::ReplicaState;

// Takes reports and output, and gives the orders that the test sets.
class OneNodeServer {
 public:
  explicit OneNodeServer(const std::string& folder)
      : server_({}, [this](const http::Request& request, const http::Responder& to) { answer(request, to); }),
        url(server_.listen("unix:" + folder + "/socket").value()),
        thread_([this] { server_.run(); }) {}
  ~OneNodeServer() {
    server_.shutdown(std::chrono::milliseconds(0));
    thread_.join();
  }

  void order(std::vector<fleet::ReplicaOrder> orders, json::array logs = {}) {
    const std::lock_guard lock(mutex_);
    orders_ = {1, orders_.number + 1, std::move(orders)};
    logs_ = std::move(logs);
    for (const http::Responder& one : waiting_) send_orders(one);
    waiting_.clear();
  }
  // Until the last report is as wanted.
  template <class Condition>
  testing::AssertionResult until(const Condition& condition) {
    std::unique_lock lock(mutex_);
    const Deadline deadline = Deadline::after(real_clock(), std::chrono::minutes(2));
    while (!condition(states_, output_)) {
      if (deadline.passed(real_clock().now())) {
        testing::AssertionResult late = testing::AssertionFailure() << "not within two minutes:";
        for (const auto& [name, state] : states_) late << " " << name << " is " << to_string(state);
        return late;
      }
      real_clock().wait_until(changed_, lock, deadline.at);
    }
    return testing::AssertionSuccess();
  }

  // Until output, or the question whether it is read, was sent so often.
  testing::AssertionResult until_posts(int count) {
    return until([&](const auto&, const auto&) { return posts_ >= count; });
  }

 private:
  void answer(const http::Request& request, const http::Responder& to) {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
    if (request.path == "/api/v1/agent/report") {
      states_.clear();
      const auto report = format::read_document(request.body, "the report", format::node_report_of);
      for (const fleet::ReplicaReport& one : report.value().replicas) states_[one.key.deployment.text()] = one.state;
      return to.send({200, {}, format::document({{"epoch", orders_.epoch}, {"revision", orders_.number}})});
    }
    if (request.path == "/api/v1/agent/assignments") {
      if (request.query.at("revision") == std::to_string(orders_.number)) return waiting_.push_back(to);
      return send_orders(to);
    }
    output_ += request.body;
    ++posts_;
    to.send({200, {}, format::document({{"open", true}, {"room", true}})});
  }
  void send_orders(const http::Responder& to) {
    json::object orders = format::to_json(orders_);
    orders["logs"] = std::exchange(logs_, {});
    to.send({200, {}, format::document(std::move(orders))});
  }

  std::mutex mutex_;  // guards what follows, up to the server
  std::condition_variable changed_;
  fleet::NodeOrders orders_{1, 1, {}};
  json::array logs_;
  std::vector<http::Responder> waiting_;
  std::map<std::string, ReplicaState> states_;
  std::string output_;
  int posts_ = 0;
  http::Server server_;

 public:
  const std::string url;

 private:
  std::thread thread_;
};

fleet::ReplicaOrder shell_order(const std::string& name, const std::string& script) {
  fleet::ReplicaOrder order;
  order.spec.name = DeploymentId(name);
  order.spec.cpu = true;
  order.spec.command = {"/bin/sh", "-c", script};
  order.spec.folder = "/";
  order.spec.stop_grace = std::chrono::seconds(5);
  order.assigned.place.deployment = order.spec.name;
  order.assigned.place.node = NodeId("n");
  order.assigned.generation = 1;
  return order;
}

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
  EXPECT_TRUE(server.until_posts(1));  // it asks whether it is read while it waits
  ASSERT_TRUE(world::write_private_text(job.output(), "hello\n"));
  EXPECT_TRUE(server.until([](const auto&, const std::string& output) { return output == "hello\n"; }));
}

}  // namespace
}  // namespace berth::agent

int main(int argc, char** argv) {
  berth::machine::supervisor_entry(argc, argv);
  // As the command does: a probe that still runs must not see its data destroyed.
  if (argc == 3 && std::string_view(argv[1]) == berth::agent::test_process_verb)
    std::_Exit(berth::agent::run_test_process(argv[2]));
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
