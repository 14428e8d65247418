#include "server/leader.hpp"

#include <gtest/gtest.h>

#include "berth/fake_clock.hpp"
#include "store/memory_engine.hpp"

namespace berth::server {
namespace {

using namespace std::chrono_literals;

class LeaderTest : public testing::Test {
 protected:
  LeaderTest() {
    fleet::Credential credential;
    credential.id = "t1";
    credential.role = fleet::Role::node;
    credential.node = node_;
    EXPECT_TRUE(leader_.add_node(node_, credential, "", "test"));
  }

  Result<void> report(const std::string& agent, std::uint64_t number, std::uint64_t memory_bytes) {
    Heard heard;
    heard.report.node.id = node_;
    heard.report.node.memory_bytes = memory_bytes;
    heard.report.agent = agent;
    heard.report.number = number;
    return leader_.take_report(std::move(heard));
  }
  std::optional<std::uint64_t> known_bytes() const { return leader_.heard(node_)->report.node.memory_bytes; }

  const NodeId node_{"gpu-1"};
  FakeClock clock_;
  std::shared_ptr<store::Engine> engine_ = store::make_memory_engine(clock_);
  Leader leader_ = Leader::begin(store::Store::open(engine_).value(), "server-1", clock_, {}, {}, {}).value();
};

TEST_F(LeaderTest, ALateReportDoesNotReplaceANewerOne) {
  EXPECT_TRUE(report("a-1", 5, 500));
  EXPECT_TRUE(report("a-1", 4, 400));
  EXPECT_EQ(known_bytes(), 500u);
  EXPECT_TRUE(report("a-1", 6, 600));
  EXPECT_EQ(known_bytes(), 600u);
}

TEST_F(LeaderTest, AnAgentThatWasStartedAgainCountsAnew) {
  EXPECT_TRUE(report("a-1", 5, 500));
  EXPECT_TRUE(report("a-2", 1, 100));
  EXPECT_EQ(known_bytes(), 100u);
}

TEST_F(LeaderTest, ReportsWithoutNumbersAreTakenAsTheyCome) {
  EXPECT_TRUE(report("a-1", 0, 100));
  EXPECT_TRUE(report("a-1", 0, 200));
  EXPECT_EQ(known_bytes(), 200u);
}

}  // namespace
}  // namespace berth::server
