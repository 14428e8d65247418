#include "server/gateway_view.hpp"

#include <algorithm>

#include "server/test_leader.hpp"

namespace berth::server {
namespace {

class GatewayViewTest : public LeaderTest {
 protected:
  static Project project(Reach reach, const std::string& program) {
    DeploymentSpec spec;
    spec.name = DeploymentId("chat");
    spec.cpu = true;
    spec.command = {program, "{address}", "{port}"};
    spec.serving.reach = reach;
    Project made;
    made.cluster.name = "lab";
    made.deployments.push_back(std::move(spec));
    return made;
  }
  // The node reports from this address that its replicas are in this state.
  void report_from(const std::string& address, fleet::ReplicaState state = fleet::ReplicaState::ready) {
    LastReport last;
    last.address = address;
    last.report.node.id = node_;
    last.report.node.memory_bytes = 100;
    last.report.agent = "a-1";
    last.report.number = ++number_;
    last.report.epoch = 1;
    for (const fleet::ReplicaOrder& order : leader_.orders(node_).orders) {
      fleet::ReplicaReport replica;
      replica.key = order.assigned.key();
      replica.state = state;
      replica.port = 41001;
      last.report.replicas.push_back(std::move(replica));
    }
    EXPECT_TRUE(leader_.take_report(std::move(last)));
  }
  void apply(const Project& wanted) {
    report_from("10.0.0.5");
    EXPECT_TRUE(leader_.apply(wanted, std::nullopt, "user:ann"));
    EXPECT_TRUE(leader_.step());
    report_from("10.0.0.5");
  }
  std::vector<std::optional<std::string>> addresses() const {
    std::vector<std::optional<std::string>> all;
    for (const fleet::ServedDeployment& deployment : served_deployments(leader_, false))
      for (const fleet::Endpoint& endpoint : deployment.endpoints) all.push_back(endpoint.address);
    return all;
  }
  using Addresses = std::vector<std::optional<std::string>>;

 private:
  std::uint64_t number_ = 0;
};

TEST_F(GatewayViewTest, AnAddressIsThatOfTheConnectionOrNamedByTheOperator) {
  apply(project(Reach::direct, "serve"));
  EXPECT_EQ(addresses(), Addresses{"10.0.0.5:41001"});
  report_from("2001:db8::5");
  EXPECT_EQ(addresses(), Addresses{"[2001:db8::5]:41001"});
  report_from("");
  EXPECT_EQ(addresses(), Addresses{""}) << "it is direct, but its address is not known";
  leader_.set_node_addresses({{node_, "192.0.2.7"}, {NodeId("other"), "192.0.2.8"}});
  EXPECT_EQ(addresses(), Addresses{"192.0.2.7:41001"});
  report_from("10.0.0.5");
  EXPECT_EQ(addresses(), Addresses{"192.0.2.7:41001"});
}

TEST_F(GatewayViewTest, AReplicaIsReachedAsTheRevisionThatItRunsSays) {
  apply(project(Reach::relay, "serve"));
  EXPECT_EQ(addresses(), Addresses{std::nullopt});
  apply(project(Reach::direct, "serve"));
  const Addresses both = addresses();
  EXPECT_EQ(std::count(both.begin(), both.end(), std::nullopt), 1) << "the running replica still has no open port";
  EXPECT_EQ(std::count(both.begin(), both.end(), "10.0.0.5:41001"), 1);
}

TEST_F(GatewayViewTest, AReplicaThatIsNotReadyDrainsForGatewaysAlone) {
  apply(project(Reach::relay, "serve"));
  report_from("10.0.0.5", fleet::ReplicaState::unready);
  const auto state_in = [](const std::vector<fleet::ServedDeployment>& served) {
    return served.at(0).endpoints.at(0).state;
  };
  EXPECT_EQ(state_in(served_deployments(leader_, false)), fleet::EndpointState::unready);
  EXPECT_EQ(state_in(gateway_view(leader_, {}, 1).deployments), fleet::EndpointState::draining)
      << "gateways of earlier versions refuse unknown states";
}

TEST_F(GatewayViewTest, GatewaysShareTheLimitsOfACallerRoundedUp) {
  fleet::Credential key;
  key.id = "t7";
  key.role = fleet::Role::call;
  key.deployment = DeploymentId("chat");
  key.per_second = 10;
  key.concurrent_max = 1;
  ASSERT_TRUE(leader_.add_credential(key, "user:ann"));
  key.id = "t8";
  key.per_second = key.concurrent_max = std::nullopt;
  ASSERT_TRUE(leader_.add_credential(key, "user:ann"));
  const auto limits = [&](std::size_t gateways, std::size_t caller) {
    const fleet::Caller found = gateway_view(leader_, {}, gateways).callers.at(caller);
    return std::pair(found.per_second, found.concurrent_max);
  };
  EXPECT_EQ(limits(1, 0), std::pair(std::optional(10u), std::optional(1u)));
  EXPECT_EQ(limits(3, 0), std::pair(std::optional(4u), std::optional(1u)));
  EXPECT_EQ(limits(3, 1), std::pair(std::optional<std::uint32_t>(), std::optional<std::uint32_t>()));
}

TEST_F(GatewayViewTest, ALoopbackAddressIsForGatewaysOnTheServersMachine) {
  fleet::GatewayView view;
  fleet::ServedDeployment& deployment = view.deployments.emplace_back();
  for (const char* const address : {"127.0.0.1:1", "[::1]:1", "10.0.0.5:1"})
    deployment.endpoints.emplace_back().address = address;
  deployment.endpoints.emplace_back();
  EXPECT_EQ(as_seen_from(view, true), view);
  const fleet::GatewayView far = as_seen_from(view, false);
  const std::vector<fleet::Endpoint>& endpoints = far.deployments.at(0).endpoints;
  EXPECT_EQ(endpoints.at(0).address, "");
  EXPECT_EQ(endpoints.at(1).address, "");
  EXPECT_EQ(endpoints.at(2).address, "10.0.0.5:1");
  EXPECT_EQ(endpoints.at(3).address, std::nullopt);
}

}  // namespace
}  // namespace berth::server
