#include "device/query.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "device/deadline_call.hpp"
#include "device/simulated/backend.hpp"
#include "device/test_hanging_backend.hpp"

namespace berth::device {
namespace {

using test::HangingBackend;

// A healthy back end answers long before this, even on a busy machine.
constexpr Duration deadline = std::chrono::milliseconds(500);

std::unique_ptr<Backend> simulated(std::vector<std::string> ids) {
  std::vector<simulated::SimulatedSpec> specs;
  for (std::string& id : ids) specs.emplace_back().id = std::move(id);
  return simulated::make_simulated_backend(std::move(specs), real_clock());
}

std::shared_ptr<HangingBackend> hanging(HangingBackend::Hang hang, std::string device = {}) {
  return std::make_shared<HangingBackend>("stuck", simulated({"x", "y"}), hang, std::move(device));
}

// Waits for the released calls, which end after the test has dropped its back end.
void expect_calls_end() {
  while (detached_threads() > 0) std::this_thread::yield();
}

TEST(Query, ABackEndThatHangsInListDoesNotDelayOthers) {
  auto stuck = hanging(HangingBackend::Hang::list);
  const std::vector<std::shared_ptr<Backend>> backends{stuck, simulated({"a"})};
  const auto answers = query_devices(backends, deadline);
  ASSERT_EQ(answers.size(), 2U);
  ASSERT_FALSE(answers[0].devices);
  EXPECT_EQ(answers[0].devices.error().code, ErrorCode::timeout);
  EXPECT_EQ(answers[0].devices.error().message, "the stuck back end has not answered for 1 s");
  ASSERT_TRUE(answers[1].devices);
  EXPECT_EQ(answers[1].devices->front().id.text(), "a");
  stuck->release();
}

TEST(Query, ABackEndThatHangsInLinksReportsNone) {
  auto stuck = hanging(HangingBackend::Hang::links);
  EXPECT_TRUE(query_links(std::vector<std::shared_ptr<Backend>>{stuck}, deadline).empty());
  stuck->release();
}

TEST(Query, ADeviceThatHangsInOpenDoesNotDelayOthers) {
  auto stuck = hanging(HangingBackend::Hang::open, "x");
  const auto listed = stuck->list();
  auto opened = open_devices(std::vector<std::shared_ptr<Backend>>{stuck}, *listed, deadline);
  ASSERT_EQ(opened.size(), 2U);
  ASSERT_FALSE(opened[0]);
  EXPECT_EQ(opened[0].error().code, ErrorCode::timeout);
  EXPECT_EQ(opened[0].error().where, "x");
  ASSERT_TRUE(opened[1]);
  EXPECT_EQ((*opened[1])->id().text(), "y");
  stuck->release();
}

TEST(Query, ALateAnswerIsDroppedAfterTheCallerIsGone) {
  std::weak_ptr<HangingBackend> left;
  {
    auto stuck = hanging(HangingBackend::Hang::open, "x");
    left = stuck;
    EXPECT_FALSE(open_devices(std::vector<std::shared_ptr<Backend>>{stuck}, *stuck->list(), deadline)[0]);
  }
  ASSERT_FALSE(left.expired()) << "the thread that hangs keeps the back end";
  left.lock()->release();
  expect_calls_end();
  EXPECT_TRUE(left.expired());
}

}  // namespace
}  // namespace berth::device
