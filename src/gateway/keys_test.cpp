// Requests with keys: which replica they reach, and what happens if that replica is full or gone.
#include <gtest/gtest.h>

#include "berth/shard_table.hpp"
#include "gateway/test_fleet.hpp"

namespace berth::gateway {
namespace {

ShardTable table_of(const std::string& deployment, std::size_t replicas) {
  std::vector<ShardOwner> owners;
  for (std::size_t i = 0; i < replicas; ++i) owners.push_back({DeviceId(deployment + "/" + std::to_string(i))});
  return *allocate(ShardSpace(64), owners);
}

// Replicas "a/0", "a/1", ... that requests with keys reach.
class Keyed {
 public:
  Keyed(std::size_t count, const std::string& key, bool holds, std::uint32_t concurrent_max = 4)
      : table(table_of("a", count)) {
    std::vector<std::string> urls;
    for (std::size_t i = 0; i < count; ++i) {
      replicas.push_back(std::make_unique<Replica>("a/" + std::to_string(i), holds));
      urls.push_back(replicas.back()->url());
    }
    Deployment& deployment = fleet.add("a", urls, concurrent_max);
    deployment.serving.path = "/a";
    deployment.serving.key = key;
    deployment.shards = table.to_text();
    fleet.apply();
  }
  Deployment& deployment() { return fleet.view().deployments.at(DeploymentId("a")); }
  Replica& of(const DeviceId& name) { return *replicas[std::stoul(name.text().substr(2))]; }
  std::string at(const http::Response& answer) {
    EXPECT_EQ(answer.status, 200) << answer.body;
    return std::string(answer.headers.get("x-name").value_or("none"));
  }

  ShardTable table;
  std::vector<std::unique_ptr<Replica>> replicas;
  Fleet fleet;
};

TEST(Keys, OfAHeaderACookieOrTheBodyDecideWhichReplicaARequestReaches) {
  Keyed header(4, "header:X-Session", false), cookie(4, "cookie:sid", false), body(4, "json:user", false);
  std::set<std::string> reached;
  for (int i = 0; i < 20; ++i) {
    const std::string key = "user-" + std::to_string(i);
    const std::string owner = header.table.route(key)->text();
    EXPECT_EQ(header.at(header.fleet.ask("/a", "", {{"x-session", key}})), owner);
    EXPECT_EQ(cookie.at(cookie.fleet.ask("/a", "", {{"cookie", "a=b; sid=" + key + "; xsid=c"}})), owner);
    EXPECT_EQ(body.at(body.fleet.ask("/a", R"({"messages":[{"user":"x"}],"user":")" + key + "\"}")), owner);
    reached.insert(owner);
  }
  EXPECT_EQ(reached.size(), 4U);
  EXPECT_EQ(body.at(body.fleet.ask("/a", R"({"user":42})")), body.table.route("42")->text()) << "a number";
}

TEST(Keys, ARequestWithoutOneGoesWhereThereIsRoomUnlessItNeedsOne) {
  Keyed keyed(2, "json:user", false);
  for (const char* body : {"{}", R"({"user":null})", R"({"user":""})", "not JSON"}) {
    std::set<std::string> reached;
    for (int i = 0; i < 4; ++i) reached.insert(keyed.at(keyed.fleet.ask("/a", body)));
    EXPECT_EQ(reached.size(), 2U) << body;
  }
  keyed.deployment().serving.affinity = Affinity::strict;
  keyed.fleet.apply();
  for (const char* body : {"", "{}", R"({"user":null})", R"({"user":""})", "not JSON"}) {
    const http::Response answer = keyed.fleet.ask("/a", body);
    EXPECT_EQ(answer.status, 400) << body << answer.body;
  }
}

TEST(Keys, ThatAreTooLongOrGivenTwiceAreRefused) {
  Keyed body(2, "json:user", false), header(2, "header:x-session", false);
  EXPECT_EQ(body.fleet.ask("/a", R"({"user":"a","user":"b"})").status, 400);
  EXPECT_EQ(body.fleet.ask("/a", "{\"user\":\"" + std::string(1025, 'x') + "\"}").status, 400);
  EXPECT_EQ(body.fleet.ask("/a", "{\"user\":\"" + std::string(1024, 'x') + "\"}").status, 200);
  EXPECT_EQ(body.fleet.ask("/a", "{\"user\":\"" + std::string(1'000'000, 'x') + "\"}").status, 413);
  EXPECT_EQ(body.at(body.fleet.ask("/a", R"({"user":"a\u0000b"})")),
            body.table.route(std::string_view("a\0b", 3))->text());
  EXPECT_EQ(header.fleet.ask("/a", "", {{"x-session", std::string(1025, 'x')}}).status, 400);
  EXPECT_EQ(header.fleet.ask("/a", "", {{"x-session", "a"}, {"X-Session", "b"}}).status, 400)
      << "the replica may use the other value";
}

TEST(Keys, WhereTheirReplicaIsFullTheNextInTheirOrderTakesThem) {
  Keyed keyed(3, "header:x-session", true, 1);
  const std::vector<DeviceId> order = keyed.table.in_order(keyed.table.space().shard_of(std::string_view("k")));
  ASSERT_EQ(order.size(), 3U);
  std::vector<std::jthread> callers;
  const auto ask = [&] {
    callers.emplace_back([&] { EXPECT_EQ(keyed.fleet.ask("/a", "", {{"x-session", "k"}}).status, 200); });
  };
  for (int round = 0; round < 2; ++round) {
    for (const DeviceId& next : order) {
      ask();
      EXPECT_TRUE(eventually([&] { return keyed.of(next).held() == 1; })) << next.text();
    }
    for (const DeviceId& device : order) keyed.of(device).release(1);
    callers.clear();
  }
}

TEST(Keys, ThatAreStrictWaitForTheirReplicaAndHoldUpNobodyElse) {
  Keyed keyed(2, "header:x-session", true, 1);
  keyed.deployment().serving.affinity = Affinity::strict;
  keyed.fleet.apply();
  std::string mine = "k", other = "l";
  while (keyed.table.route(other)->text() == keyed.table.route(mine)->text()) other += "l";
  std::vector<std::jthread> callers;
  std::atomic<int> answered = 0;
  const auto ask = [&](const std::string& key) {
    callers.emplace_back([&, key] { answered += keyed.fleet.ask("/a", "", {{"x-session", key}}).status == 200; });
  };
  Replica& owner = keyed.of(*keyed.table.route(mine));
  Replica& second = keyed.of(*keyed.table.route(other));
  ask(mine);
  EXPECT_TRUE(eventually([&] { return owner.held() == 1; }));
  ask(mine);
  ask(mine);
  EXPECT_TRUE(eventually([&] { return keyed.fleet.waiting() == 2; }));
  ask(other);
  EXPECT_TRUE(eventually([&] { return second.held() == 1; }))
      << "it does not queue behind requests for another replica";
  EXPECT_EQ(keyed.fleet.waiting(), 2U);
  second.release(1);
  EXPECT_TRUE(eventually([&] { return answered == 1; }));
  EXPECT_EQ(second.held(), 0U) << "the waiting requests are for another replica";
  EXPECT_TRUE(eventually([&] {
    EXPECT_LE(owner.held(), 1U);
    owner.release(1);
    return answered == 4;
  }));
}

TEST(Keys, ThatAreStrictWaitWithinTheBoundOfTheirDeployment) {
  Keyed keyed(2, "header:x-session", true, 1);
  keyed.deployment().serving.affinity = Affinity::strict;
  keyed.deployment().serving.queue_max = 2;
  keyed.fleet.apply();
  const std::string mine = "k";
  std::string other = "l";
  while (keyed.table.route(other)->text() == keyed.table.route(mine)->text()) other += "l";
  std::atomic<int> answered = 0;
  std::vector<std::jthread> callers;
  const auto ask = [&](const std::string& key) {
    callers.emplace_back([&, key] { answered += keyed.fleet.ask("/a", "", {{"x-session", key}}).status == 200; });
  };
  for (const std::string& key : {mine, other}) {
    ask(key);
    EXPECT_TRUE(eventually([&] { return keyed.of(*keyed.table.route(key)).held() == 1; }));
  }
  for (std::size_t i = 0; i < 2; ++i) {  // one request waits for each replica
    ask(i == 0 ? mine : other);
    EXPECT_TRUE(eventually([&] { return keyed.fleet.waiting() == i + 1; }));
  }
  for (const std::string& key : {mine, other}) EXPECT_EQ(keyed.fleet.ask("/a", "", {{"x-session", key}}).status, 429);
  EXPECT_TRUE(eventually([&] {
    for (const auto& replica : keyed.replicas) replica->release(1);
    return answered == 4;
  }));
}

TEST(Keys, ThatAreStrictAreRefusedWhereTheirReplicaDoesNotBecomeFree) {
  Keyed keyed(2, "header:x-session", true, 1);
  keyed.deployment().serving.affinity = Affinity::strict;
  keyed.deployment().serving.queue_timeout = 100ms;
  const http::Headers stranger{{"x-session", "k"}, {"authorization", "Bearer " + keyed.fleet.add_caller("c", "a")}};
  keyed.fleet.apply();
  const std::string owner = keyed.table.route("k")->text();
  std::jthread first([&] { keyed.fleet.ask("/a", "", {{"x-session", "k"}}); });
  EXPECT_TRUE(eventually([&] { return keyed.of(DeviceId(owner)).held() == 1; }));
  const http::Response refused = keyed.fleet.ask("/a", "", {{"x-session", "k"}});
  EXPECT_EQ(refused.status, 429);
  EXPECT_NE(refused.body.find("the replica of this key, " + owner + ", is busy"), std::string::npos) << refused.body;
  const http::Response hidden = keyed.fleet.ask("/a", "", stranger);
  EXPECT_EQ(hidden.status, 429);
  EXPECT_EQ(hidden.body.find(owner), std::string::npos) << hidden.body;
  keyed.of(DeviceId(owner)).release(1);
  for (Endpoint& endpoint : keyed.deployment().endpoints)
    if (replica_of(endpoint) == owner) endpoint.state = fleet::EndpointState::draining;
  keyed.fleet.apply();
  const http::Response gone = keyed.fleet.ask("/a", "", {{"x-session", "k"}});
  EXPECT_EQ(gone.status, 503);
  EXPECT_NE(gone.body.find("the replica of this key, " + owner + ", is not ready"), std::string::npos) << gone.body;
  const http::Response hidden_too = keyed.fleet.ask("/a", "", stranger);
  EXPECT_EQ(hidden_too.status, 503);
  EXPECT_EQ(hidden_too.body.find(owner), std::string::npos) << hidden_too.body;
}

TEST(Keys, StayWithAReplicaThatIsRestartedAndMoveOnlyWhileItIsGone) {
  Keyed keyed(3, "header:x-session", false);
  const std::vector<DeviceId> order = keyed.table.in_order(keyed.table.space().shard_of(std::string_view("k")));
  const auto ask = [&] { return keyed.at(keyed.fleet.ask("/a", "", {{"x-session", "k"}})); };
  EXPECT_EQ(ask(), order[0].text());
  auto& endpoints = keyed.deployment().endpoints;
  const auto at = std::find_if(endpoints.begin(), endpoints.end(), [&](const Endpoint& endpoint) {
    return endpoint.name.starts_with(order[0].text() + "#");
  });
  const Endpoint before = *at;
  at->state = fleet::EndpointState::draining;
  keyed.fleet.apply();
  EXPECT_EQ(ask(), order[1].text());
  EXPECT_EQ(ask(), order[1].text());
  *at = before;
  keyed.fleet.apply();
  EXPECT_EQ(ask(), order[0].text());
}

}  // namespace
}  // namespace berth::gateway
