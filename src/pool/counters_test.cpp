#include "pool/counters.hpp"

#include <gtest/gtest.h>

namespace berth::pool {

struct CountersTest {
  // As if the device had been charged `count` times and all charges were settled.
  static void set_charged(Counters& counters, std::size_t slot, std::uint64_t count) {
    counters.charges_[slot] = count << Columns::charged_shift;
  }
};

namespace {

TEST(Counters, TheCountOfChargesGoesOnBeyondTheBitsOfTheChargeWord) {
  Counters counters(1);
  counters.use_up_to(0);
  std::uint64_t charged = (std::uint64_t{1} << 47) - 2;
  CountersTest::set_charged(counters, 0, charged);
  for (int i = 0; i < 4; ++i, ++charged) {
    counters.carry();
    ASSERT_TRUE(counters.charge(0, counters.charge_word(0), 0));
    counters.settle(0, 0, Verdict::failed);
  }
  const Counters::Totals totals = counters.cut(1)->at(0);
  EXPECT_EQ(totals.settled(), charged);
  EXPECT_EQ(totals.failed, 4U);
  EXPECT_EQ((totals.charge >> Columns::charged_shift) + Columns::load(counters.columns().charged_offset[0]), charged)
      << "the devices' shares count these charges too";
}

}  // namespace
}  // namespace berth::pool
