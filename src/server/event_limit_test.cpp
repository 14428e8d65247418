#include "server/event_limit.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace berth::server {
namespace {

using namespace std::chrono_literals;
using fleet::Event;
using fleet::EventKind;

Event event(EventKind kind, const std::string& subject) { return {0, 1, kind, "controller", subject, "words"}; }

class EventLimitTest : public testing::Test {
 protected:
  // How many of `count` such events are kept, without the events of the limit itself.
  std::size_t kept(EventKind kind, const std::string& subject, std::size_t count) {
    const std::vector<Event> events =
        limit_.admit(std::vector<Event>(count, event(kind, subject)), {{"chat/0", NodeId("evil")}}, now_);
    for (const Event& event : events) {
      if (event.text != "words") shown_.push_back(event.subject + " " + event.text);
    }
    return static_cast<std::size_t>(
        std::count_if(events.begin(), events.end(), [](const Event& event) { return event.text == "words"; }));
  }
  EventLimit limit_;
  TimePoint now_{};
  std::vector<std::string> shown_;
};

TEST_F(EventLimitTest, ANodeThatCausesTooManyIsCutOffAndSaidOnce) {
  EXPECT_EQ(kept(EventKind::device, "node/evil", 100'000), EventLimit::at_once);
  EXPECT_EQ(kept(EventKind::device, "node/evil", 100'000), 0u);
  EXPECT_EQ(shown_, std::vector<std::string>{
                        "node/evil has caused more than 1000 events: further ones are left out for a while"});
  EXPECT_EQ(kept(EventKind::ready, "chat/0", 10), 0u) << "events of its replicas count as well";
}

TEST_F(EventLimitTest, WhatAGatewayReportsOfReplicasIsCausedByTheGateway) {
  std::vector<Event> events;
  for (int i = 0; i < 5'000; ++i) {
    Event failure = event(EventKind::failed, "chat/" + std::to_string(i));
    failure.actor = "gateway:evil";
    events.push_back(failure);
  }
  const std::vector<Event> admitted = limit_.admit(std::move(events), {{"chat/0", NodeId("good")}}, now_);
  EXPECT_EQ(admitted.size(), EventLimit::at_once + 1);
  EXPECT_EQ(admitted.back().subject, "gateway/evil");
  EXPECT_EQ(kept(EventKind::failed, "chat/1", 1), 1U);
}

TEST_F(EventLimitTest, OthersAreNotConcerned) {
  kept(EventKind::device, "node/evil", 100'000);
  EXPECT_EQ(kept(EventKind::device, "node/good", 100), 100u);
  EXPECT_EQ(kept(EventKind::ready, "chat/1", 100), 100u);
  EXPECT_EQ(kept(EventKind::node, "node/evil", 1), 1u) << "the loss of a node is always reported";
}

TEST_F(EventLimitTest, ItGoesOnWhenTheNodeHasBeenQuiet) {
  kept(EventKind::device, "node/evil", 5'000);
  now_ += 99 * EventLimit::one_more_every;
  EXPECT_EQ(kept(EventKind::device, "node/evil", 1), 0u);
  now_ += EventLimit::one_more_every;
  shown_.clear();
  EXPECT_EQ(kept(EventKind::device, "node/evil", 50), 50u);
  EXPECT_EQ(shown_, std::vector<std::string>{"node/evil 4001 events were left out because there were too many"});
}

TEST_F(EventLimitTest, ADayOfFlippingIsLessThanTheStoreKeeps) {
  std::size_t all = 0;
  for (int second = 0; second < 86'400; second += 60) {
    all += kept(EventKind::device, "node/evil", 1'000);
    all += kept(EventKind::pending, "chat", 1);
    now_ += 60s;
  }
  EXPECT_LT(all + shown_.size(), 10'000u + 2'500u);
}

}  // namespace
}  // namespace berth::server
