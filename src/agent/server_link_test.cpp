// The agent's side of the connection to its server, with a server that answers as a test wants.
#include "agent/server_link.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "agent/last_epoch.hpp"
#include "http/server.hpp"
#include "world/files.hpp"
#include "world/test_folder.hpp"

namespace berth::agent {
namespace {

using namespace std::chrono_literals;

class ServerLinkTest : public testing::Test {
 protected:
  ServerLinkTest() {
    options_.node = NodeId("a");
    options_.folder = folder_;
    options_.server.url = "http://" + *server_.listen("127.0.0.1:0");
    thread_ = std::thread([this] { server_.run(); });
    watch_ = *NodeWatch::open(options_.node, options_.file, options_.backends);
  }
  ~ServerLinkTest() override {
    link_.reset();
    server_.shutdown(1s);
    thread_.join();
  }

  void begin() {
    link_.emplace(options_, *watch_, folder_ + "/jobs", [] {});
  }
  bool eventually(const std::function<bool()>& condition) {
    for (const TimePoint end = real_clock().now() + 60s; real_clock().now() < end; std::this_thread::yield())
      if (condition()) return true;
    return false;
  }

  std::atomic<std::uint64_t> epoch_ = 1;
  std::atomic<TimePoint> asked_ = TimePoint{};  // when the first report came
  std::chrono::milliseconds answer_after_ = 0ms;

  const world::TestFolder test_folder_;
  const std::string folder_ = test_folder_.path;
  AgentOptions options_;
  std::unique_ptr<NodeWatch> watch_;
  http::Server server_{
      {}, [this](http::Request request, http::Responder responder) {
        // A long poll for orders that never come.
        if (request.path == "/api/v1/agent/assignments") return polls_.push_back(std::move(responder));
        if (asked_.load() == TimePoint{}) asked_ = real_clock().now();
        const std::string epoch = std::to_string(epoch_.load());
        server_.after(answer_after_, [responder = std::move(responder), epoch] {
          responder.send(http::json_response(200, R"({"schema":1,"revision":1,"epoch":)" + epoch + "}"));
        });
      }};
  std::vector<http::Responder> polls_;
  std::thread thread_;
  std::optional<ServerLink> link_;
};

TEST_F(ServerLinkTest, TheServerIsHeardWhenTheReportWasSentNotWhenItsAnswerCame) {
  answer_after_ = 300ms;
  begin();
  ASSERT_TRUE(eventually([&] { return link_->received().report_sent_at.has_value(); }));
  // The server counts from the arrival of the report. A single replica that was renewed for longer could
  // run beside its successor.
  EXPECT_LE(*link_->received().report_sent_at, asked_.load());
}

TEST_F(ServerLinkTest, AServerOfAnEarlierEpochIsNotObeyedWhichIsWrittenDown) {
  ASSERT_TRUE(keep_epoch(folder_, 7));
  epoch_ = 5;
  begin();
  ASSERT_TRUE(eventually([&] { return world::read_text(problem_file(folder_)).has_value(); }));
  EXPECT_NE(world::read_text(problem_file(folder_))->find("the server's epoch (5) is lower"), std::string::npos);
  EXPECT_FALSE(link_->received().report_sent_at);
  EXPECT_EQ(last_epoch(folder_), 7u);
  epoch_ = 8;
  ASSERT_TRUE(eventually([&] { return link_->received().report_sent_at.has_value(); }));
  ASSERT_TRUE(eventually([&] { return !world::read_text(problem_file(folder_)).has_value(); }));
  EXPECT_EQ(last_epoch(folder_), 8u);
}

}  // namespace
}  // namespace berth::agent
