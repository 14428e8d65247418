#include "cli/text/screen.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <thread>

namespace berth::cli {
namespace {

TEST(Interruptions, ReachTheThreadThatWaitsAlsoPastOneThatWasThereBefore) {
  std::atomic<bool> started{false}, over{false};
  std::thread earlier([&] {  // blocks no signal
    started = true;
    started.notify_all();
    over.wait(false);
  });
  started.wait(false);
  {
    Interruptions interruptions;
    const TimePoint until = real_clock().now() + std::chrono::seconds(60);
    kill(getpid(), SIGINT);
    EXPECT_EQ(interruptions.wait_until(until), Interruption::end);
    kill(getpid(), SIGWINCH);
    EXPECT_EQ(interruptions.wait_until(until), Interruption::redraw);
    EXPECT_EQ(interruptions.wait_until(real_clock().now()), Interruption::none);
  }
  over = true;
  over.notify_all();
  earlier.join();
}

}  // namespace
}  // namespace berth::cli
