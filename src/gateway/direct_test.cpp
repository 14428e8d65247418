// Replicas that the gateway connects to itself (serving.reach = "direct"). The relay of the fleet does not know them.
#include <gtest/gtest.h>

#include <future>

#include "gateway/test_fleet.hpp"

namespace berth::gateway {
namespace {

Deployment& add_direct(Fleet& fleet, const std::string& name, const std::vector<std::string>& urls,
                       std::uint32_t concurrent_max = 4) {
  Deployment& deployment = fleet.add(name, {});
  deployment.serving.path = "/" + name;
  for (const std::string& url : urls) {
    const std::string number = std::to_string(deployment.endpoints.size());
    Endpoint endpoint{name + "/" + number + "#1" + number, NodeId("n2"), concurrent_max, fleet::EndpointState::ready};
    endpoint.address = url.substr(url.find("//") + 2);
    deployment.endpoints.push_back(std::move(endpoint));
  }
  return deployment;
}

// Reads a request and closes the connection.
class Dying {
 public:
  Dying()
      : on_({.serves_page = false}, http::Server::Proxy([this](http::Link&, http::Head&, const http::Peer&) {
              ++requests;
              return close();
            })) {}
  const std::string& url() const { return on_.url; }
  std::atomic<int> requests = 0;

 private:
  static http::Async<bool> close() { co_return false; }
  OnThread on_;
};

TEST(Direct, RequestsReachAReplicaThatNoRelayKnowsAndItsConnectionIsKept) {
  std::atomic<int> connections = 0;
  std::set<const http::Link*> seen;
  OnThread replica({.serves_page = false},
                   http::Server::Proxy([&](http::Link& link, http::Head&, const http::Peer&) -> http::Async<bool> {
                     if (seen.insert(&link).second) ++connections;
                     co_await link.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
                     co_return true;
                   }));
  Fleet fleet;
  add_direct(fleet, "a", {replica.url});
  fleet.apply();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(fleet.ask("/a").body, "ok");
  EXPECT_EQ(connections, 1);
}

TEST(Direct, WhatIsBerthsReachesNeitherTheReplicaNorTheClient) {
  std::atomic<int> requests = 0;
  http::Headers got;
  OnThread replica(
      {}, http::Server::Handler([&](const http::Request& request, const http::Responder& to) {
        ++requests;
        got = request.headers;
        to.send({200, {{"x-berth-refused", "full"}, {"x-berth-failed", "x"}, {"x-berth-load", "4/4"}}, request.body});
      }));
  Fleet fleet;
  add_direct(fleet, "a", {replica.url}).idempotent = true;
  const std::string key = fleet.add_caller("app", "a");
  fleet.view().callers[http::sha256(key)].may_explain = true;
  fleet.apply();
  const http::Response answer =
      fleet.ask("/a", "body", {{"authorization", "Bearer " + key}, {"x-berth-explain", "1"}, {"x-berth-to", "b/0#1"}});
  EXPECT_EQ(answer.status, 200) << "a replica cannot refuse a request in the name of a relay";
  EXPECT_EQ(answer.body, "body");
  EXPECT_EQ(answer.headers.get("x-berth-replica"), "a/0#10");
  EXPECT_FALSE(answer.headers.get("x-berth-refused"));
  EXPECT_EQ(requests, 1);
  for (const auto& [name, value] : got) {
    EXPECT_FALSE(name.starts_with("x-berth-")) << name;
    EXPECT_NE(name, "authorization");
    EXPECT_NE(name, "expect");
  }
}

TEST(Direct, AReplicaThatCannotBeReachedHasNotBegunAndAnotherOneAnswers) {
  Replica live("live");
  Fleet fleet;
  const http::ClosedPort gone;
  add_direct(fleet, "a", {gone.url(), live.url()});
  add_direct(fleet, "b", {gone.url()});
  const std::string stranger = fleet.add_caller("app", "b");
  fleet.apply();
  for (int i = 0; i < 12; ++i) EXPECT_EQ(fleet.ask("/a", "body").headers.get("x-name"), "live");
  const http::Response none = fleet.ask("/b");
  EXPECT_EQ(none.status, 502);
  EXPECT_NE(none.body.find("can be reached"), std::string::npos) << none.body;
  const http::Response hidden = fleet.ask("/b", "", {{"authorization", "Bearer " + stranger}});
  EXPECT_EQ(hidden.status, 502);
  EXPECT_EQ(hidden.body.find("can be reached"), std::string::npos) << hidden.body;
}

TEST(Direct, ARequestWhoseReplicaDiesIsRepeatedOnlyIfItMayRunTwice) {
  Dying dying;
  Replica live("live");
  Fleet fleet;
  Deployment& deployment = add_direct(fleet, "a", {dying.url()});
  fleet.apply();
  EXPECT_EQ(fleet.ask("/a").status, 502);
  EXPECT_EQ(dying.requests, 1);
  deployment.idempotent = true;
  add_direct(fleet, "a", {live.url()});
  fleet.apply();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(fleet.ask("/a").headers.get("x-name"), "live");
  EXPECT_GT(dying.requests, 1);
}

TEST(Direct, NoReplicaGetsMoreRequestsOfAGatewayThanItMayHave) {
  Replica replica("a", true);
  Fleet fleet;
  add_direct(fleet, "a", {replica.url()}, 1);
  fleet.apply();
  auto first = std::async(std::launch::async, [&] { return fleet.ask("/a"); });
  EXPECT_TRUE(eventually([&] { return replica.held() == 1; }));
  auto second = std::async(std::launch::async, [&] { return fleet.ask("/a"); });
  EXPECT_TRUE(eventually([&] { return fleet.waiting() == 1; }));
  EXPECT_EQ(replica.held(), 1u);
  replica.release(1);
  EXPECT_EQ(first.get().status, 200);
  EXPECT_TRUE(eventually([&] { return replica.held() == 1; }));
  replica.release(1);
  EXPECT_EQ(second.get().status, 200);
}

TEST(Direct, ADrainingReplicaGetsNoNewRequests) {
  Replica old("old"), next("next");
  Fleet fleet;
  Deployment& deployment = add_direct(fleet, "a", {old.url(), next.url()});
  deployment.endpoints[0].state = fleet::EndpointState::draining;
  fleet.apply();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(fleet.ask("/a").headers.get("x-name"), "next");
}

TEST(Direct, AServerThatHasNotHeardTheNodeYetDoesNotMakeAnAddressForgotten) {
  Replica replica("a");
  Fleet fleet;
  Deployment& a = add_direct(fleet, "a", {replica.url()});
  Deployment& b = add_direct(fleet, "b", {replica.url()});
  b.endpoints[0].address = "";
  b.serving.on_capacity_exhausted = OnCapacityExhausted::reject;
  fleet.apply();
  EXPECT_EQ(fleet.ask("/a").status, 200);
  a.endpoints[0].address = "";
  fleet.apply();
  EXPECT_EQ(fleet.ask("/a").status, 200);
  const http::Response unknown = fleet.ask("/b");
  EXPECT_EQ(unknown.status, 503);
  EXPECT_NE(unknown.body.find("has no address for the replicas"), std::string::npos) << unknown.body;
}

}  // namespace
}  // namespace berth::gateway
