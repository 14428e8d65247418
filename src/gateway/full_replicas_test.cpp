// Requests that find all replicas busy: they wait, are refused, or go to another deployment.
#include <future>

#include "gateway/test_fleet.hpp"

namespace berth::gateway {
namespace {

TEST(Gateway, RequestsAreSpreadAndWaitWhereAllReplicasAreBusy) {
  Replica first("first", true), second("second", true);
  Fleet fleet;
  fleet.add("a", {first.url(), second.url()}, 2).serving.path = "/a";
  fleet.apply();
  std::atomic<int> answered = 0;
  std::vector<std::jthread> callers;
  for (int i = 0; i < 10; ++i) callers.emplace_back([&] { answered += fleet.ask("/a").status == 200; });
  EXPECT_TRUE(eventually([&] { return fleet.waiting() == 6 && first.held() == 2 && second.held() == 2; }));
  EXPECT_TRUE(eventually([&] {
    EXPECT_LE(first.held(), 2U);
    EXPECT_LE(second.held(), 2U);
    first.release(1);
    second.release(1);
    return answered == 10;
  }));
}

TEST(Gateway, WhatDoesNotBecomeFreeInTimeOrMayNotWaitIsRefused) {
  Replica replica("a", true);
  Fleet fleet;
  Deployment& a = fleet.add("a", {replica.url()}, 1);
  a.serving.path = "/a";
  a.serving.queue_timeout = 200ms;
  a.serving.queue_max = 1;
  fleet.apply();
  std::future<http::Response> first = std::async(std::launch::async, [&] { return fleet.ask("/a"); });
  EXPECT_TRUE(eventually([&] { return replica.held() == 1; }));
  std::future<http::Response> second = std::async(std::launch::async, [&] { return fleet.ask("/a"); });
  EXPECT_TRUE(eventually([&] { return fleet.waiting() == 1; }));
  const http::Response third = fleet.ask("/a");
  EXPECT_EQ(third.status, 429) << third.body;
  EXPECT_EQ(third.headers.get("retry-after"), "1");
  EXPECT_EQ(second.get().status, 429);
  replica.release(1);
  EXPECT_EQ(first.get().status, 200);
}

TEST(Gateway, AClientThatGivesUpWhileItWaitsTakesNoPlace) {
  Replica replica("a", true);
  Fleet fleet;
  fleet.add("a", {replica.url()}, 1).serving.path = "/a";
  fleet.apply();
  std::future<http::Response> first = std::async(std::launch::async, [&] { return fleet.ask("/a"); });
  EXPECT_TRUE(eventually([&] { return replica.held() == 1; }));
  const auto gone = http::Client::create({.url = fleet.url()})->request("GET", "/a", "", {.timeout = 100ms});
  EXPECT_EQ(gone.error().code, ErrorCode::timeout);
  EXPECT_TRUE(eventually([&] { return fleet.waiting() == 0; }));
  replica.release(1);
  EXPECT_EQ(first.get().status, 200);
}

TEST(Gateway, AnotherDeploymentTakesOverWhereTheFirstIsFull) {
  Replica busy("busy", true), spare("spare");
  Fleet fleet;
  fleet.add("spare", {spare.url()});
  Deployment& a = fleet.add("a", {busy.url()}, 1);
  a.serving.path = "/a";
  a.serving.on_capacity_exhausted = OnCapacityExhausted::fallback;
  a.serving.fallback = DeploymentId("spare");
  fleet.apply();
  std::future<http::Response> first = std::async(std::launch::async, [&] { return fleet.ask("/a"); });
  EXPECT_TRUE(eventually([&] { return busy.held() == 1; }));
  EXPECT_EQ(fleet.ask("/a").headers.get("x-name"), "spare");
  busy.release(1);
  EXPECT_EQ(first.get().headers.get("x-name"), "busy");
}

TEST(Gateway, CallersShareWhatThereIsFairly) {
  Replica replica("a", true);
  Fleet fleet;
  fleet.add("a", {replica.url()}, 2).serving.path = "/a";
  const std::string greedy = fleet.add_caller("greedy", "a"), modest = fleet.add_caller("modest", "a");
  fleet.apply();
  std::atomic<int> of_greedy = 0, of_modest = 0;
  std::atomic<bool> ends = false;
  std::vector<std::thread> clients;
  const auto ask_on = [&](const std::string& key, std::atomic<int>& count) {
    clients.emplace_back([&, key] {
      while (!ends)
        if (fleet.ask("/a", "", {{"authorization", "Bearer " + key}}).status == 200) ++count;
    });
  };
  for (int i = 0; i < 20; ++i) ask_on(greedy, of_greedy);
  for (int i = 0; i < 3; ++i) ask_on(modest, of_modest);
  EXPECT_TRUE(eventually(
      [&] {
        if (replica.held() == 2 && fleet.waiting() == 21) replica.release(2);  // all clients have sent their requests
        return of_greedy + of_modest >= 200;
      },
      60s));
  ends = true;
  std::jthread releasing([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      replica.release(100);
      std::this_thread::yield();
    }
  });
  for (std::thread& client : clients) client.join();
  EXPECT_GT(of_modest, 90) << "of 200 answers; both callers send more than that";
}

TEST(Gateway, RoomForManyIsUsedAtOnceByThoseThatWait) {
  constexpr std::size_t all = 120;  // one every 100 ms would take longer than the test waits
  Replica replica("a", true);
  Fleet fleet;
  fleet.add("a", {replica.url()}, 1).serving.path = "/a";
  fleet.apply();
  std::vector<int> clients;
  for (std::size_t i = 0; i < all; ++i)
    clients.push_back(sent(fleet.url(), "GET /a HTTP/1.1\r\nhost: localhost\r\n\r\n"));
  EXPECT_TRUE(eventually([&] { return replica.held() == 1 && fleet.waiting() == all - 1; }));
  fleet.set_concurrent_max(all);
  fleet.apply();
  EXPECT_TRUE(eventually([&] { return replica.held() == all; })) << replica.held();
  for (const int client : clients) ::close(client);
}

TEST(Gateway, TheKeysOfTheDeploymentThatTakesOverCount) {
  Replica busy("busy", true), spare("spare");
  Fleet fleet;
  Deployment& other = fleet.add("spare", {spare.url()});
  other.serving.key = "header:x-session";
  other.serving.affinity = Affinity::strict;
  Deployment& a = fleet.add("a", {busy.url()}, 1);
  a.serving.path = "/a";
  a.serving.on_capacity_exhausted = OnCapacityExhausted::fallback;
  a.serving.fallback = DeploymentId("spare");
  fleet.apply();
  std::future<http::Response> first = std::async(std::launch::async, [&] { return fleet.ask("/a"); });
  EXPECT_TRUE(eventually([&] { return busy.held() == 1; }));
  EXPECT_EQ(fleet.ask("/a").status, 400) << "the request needs a key";
  EXPECT_EQ(fleet.ask("/a", "", {{"x-session", "s"}}).headers.get("x-name"), "spare");
  busy.release(1);
  EXPECT_EQ(first.get().status, 200);
}

TEST(Gateway, ARequestThatManyReplicasRefuseWaits) {
  Replica replica("a");
  Fleet fleet;
  fleet.add("a", std::vector<std::string>(25, replica.url())).serving.path = "/a";
  fleet.set_concurrent_max(0);
  fleet.apply_to_relay();  // other gateways have filled them
  fleet.set_concurrent_max(4);
  fleet.apply_to_gateway();
  std::future<http::Response> answer = std::async(std::launch::async, [&] { return fleet.ask("/a"); });
  EXPECT_TRUE(eventually([&] { return fleet.waiting() == 1 || answer.wait_for(0s) == std::future_status::ready; }));
  fleet.apply_to_relay();
  EXPECT_EQ(answer.get().status, 200);
}

TEST(Gateway, WhereAllConnectionsOfANodeAreBusyARequestWaitsAndNoReplicaHasFailed) {
  Replica replica("a", true);
  GatewayOptions options;
  options.relay_time = 50ms;
  Fleet fleet(std::move(options), {.node = "n1", .spare = 1, .connections_max = 1});
  fleet.add("a", {replica.url()}).serving.path = "/a";
  fleet.apply();
  std::future<http::Response> first = std::async(std::launch::async, [&] { return fleet.ask("/a"); });
  ASSERT_TRUE(eventually([&] { return replica.held() == 1; }));
  std::future<http::Response> second = std::async(std::launch::async, [&] { return fleet.ask("/a"); });
  ASSERT_TRUE(eventually([&] { return fleet.waiting() == 1 || second.wait_for(0s) == std::future_status::ready; }));
  EXPECT_TRUE(eventually([&] { return replica.release(1), second.wait_for(0s) == std::future_status::ready; }));
  EXPECT_EQ(first.get().status, 200);
  EXPECT_EQ(second.get().status, 200);
  for (const fleet::RequestRecord& record : fleet.records(2))
    for (const fleet::RequestAttempt& attempt : record.attempts)
      EXPECT_NE(attempt.outcome, fleet::RequestOutcome::failed) << attempt.reason;
}
}  // namespace
}  // namespace berth::gateway
