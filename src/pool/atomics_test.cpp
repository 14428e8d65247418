#include "pool/atomics.hpp"

#include <cstdint>
#include <thread>

#include <gtest/gtest.h>

namespace berth {
namespace {

// With the processor's instructions, and as on one that has none.
class Exchange : public testing::TestWithParam<bool> {
  void SetUp() override {
    if (GetParam() && !has_atomics) GTEST_SKIP() << "this processor has no atomic instructions";
  }
};

TEST_P(Exchange, ReplacesWhatWasSeenAndTellsWhatIsThere) {
  std::uint64_t word = 7, seen = 7;
  EXPECT_TRUE(exchange(word, seen, 9, GetParam()));
  EXPECT_EQ(word, 9U);
  EXPECT_EQ(seen, 7U);
  EXPECT_FALSE(exchange(word, seen, 11, GetParam()));
  EXPECT_EQ(word, 9U);
  EXPECT_EQ(seen, 9U);
}

TEST_P(Exchange, LosesNoStepOfTwoThreads) {
  constexpr std::uint64_t steps = 100000;
  std::uint64_t word = 0;
  const auto count = [&] {
    std::uint64_t seen = 0;
    for (std::uint64_t i = 0; i < steps; ++i) {
      while (!exchange(word, seen, seen + 1, GetParam())) {
      }
      ++seen;
    }
  };
  std::thread other(count);
  count();
  other.join();
  EXPECT_EQ(word, 2 * steps);
}

INSTANTIATE_TEST_SUITE_P(All, Exchange, testing::Values(true, false),
                         [](const auto& info) { return info.param ? "instructions" : "none"; });

}  // namespace
}  // namespace berth
