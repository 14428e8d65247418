#include "berth/split.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "berth/random.hpp"
#include "placement/saturating.hpp"
#include "world/test_random_cases.hpp"

namespace berth::placement {
namespace {

using policy::u128;

constexpr std::uint64_t most = std::uint64_t{1} << 63;

std::vector<std::uint64_t> sizes(const std::vector<Part>& parts) {
  std::vector<std::uint64_t> sizes;
  for (const Part& part : parts) sizes.push_back(part.range.size());
  return sizes;
}
using Sizes = std::vector<std::uint64_t>;
using Weights = std::vector<double>;

testing::AssertionResult covers(const std::vector<Part>& parts, std::uint64_t count) {
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto [begin, next] = parts[i].range;
    if (begin != end || next <= begin) return testing::AssertionFailure() << "part " << i << " begins at " << begin;
    if (i > 0 && parts[i].index <= parts[i - 1].index) return testing::AssertionFailure() << "order at part " << i;
    end = next;
  }
  return end == count ? testing::AssertionSuccess() : testing::AssertionFailure() << "ends at " << end;
}

// Small and large numbers alike.
std::uint64_t some_number(Random& random, std::uint64_t max) {
  return 1 + random.below(std::max<std::uint64_t>(max >> random.below(64), 1));
}

TEST(Split, PartsCoverTheRangeInOrderWhateverTheInput) {
  for (std::uint64_t seed = 0; seed < world::random_cases(5000); ++seed) {
    SeededRandom random(splitmix64(seed));
    const std::uint64_t count = some_number(random, most);
    const SplitOptions options{some_number(random, 1024) - 1, some_number(random, most) - 1};
    Weights weights(1 + random.below(40));
    for (double& weight : weights) {
      constexpr double odd[] = {0,
                                -1,
                                std::numeric_limits<double>::infinity(),
                                std::numeric_limits<double>::quiet_NaN(),
                                std::numeric_limits<double>::max(),
                                std::numeric_limits<double>::denorm_min()};
      weight = random.below(4) == 0 ? odd[random.below(std::size(odd))] : static_cast<double>(random.next());
    }
    const std::vector<Part> parts = split(count, weights, options);
    ASSERT_TRUE(covers(parts, count)) << "seed " << seed;
    for (const Part& part : parts) {
      ASSERT_LT(part.index, weights.size());
      if (parts.size() > 1) {
        ASSERT_GE(part.range.size(), options.minimum) << "seed " << seed;
      }
      if (&part != &parts.back() && options.unit > 0) {
        ASSERT_EQ(part.range.size() % options.unit, 0U) << "seed " << seed;
      }
    }
  }
}

TEST(Split, APartDiffersFromItsExactShareByLessThanOneUnit) {
  int checked = 0;
  for (std::uint64_t seed = 0; seed < world::random_cases(5000); ++seed) {
    SeededRandom random(splitmix64(seed));
    const std::uint64_t unit = some_number(random, 1024);
    std::vector<std::uint64_t> whole(1 + random.below(40));
    std::uint64_t total = 0;
    for (std::uint64_t& weight : whole) total += weight = some_number(random, 1 << 20);
    const Weights weights(whole.begin(), whole.end());
    const std::uint64_t count = some_number(random, most);
    const std::vector<Part> parts = split(count, weights, {.unit = unit});
    if (parts.size() < weights.size()) continue;  // the minimum has left some out
    ++checked;
    for (const Part& part : parts) {
      const u128 is = u128{part.range.size()} * total, ideal = u128{count} * whole[part.index];
      ASSERT_LT(is > ideal ? is - ideal : ideal - is, u128{unit} * total) << "seed " << seed << " part " << part.index;
    }
  }
  EXPECT_GT(checked, static_cast<int>(world::random_cases(1000)));
}

TEST(Split, TheScaleOfTheWeightsDoesNotMatter) {
  const Weights weights{3, 1, 2};
  for (const double scale : {0x1p-1060, 1e-9, 1.0, 0x1p40, 0x1p1000}) {
    Weights scaled;
    for (const double weight : weights) scaled.push_back(weight * scale);
    EXPECT_EQ(sizes(split(600, scaled)), (Sizes{300, 100, 200})) << scale;
  }
}

TEST(Split, D14_EqualPartsAreNoLongerThanTheCeiling) {
  for (std::uint64_t rows = 1; rows < 200; ++rows) {
    for (std::size_t devices = 1; devices < 12; ++devices) {
      const Sizes parts = sizes(split(rows, Weights(devices, 1)));
      ASSERT_EQ(*std::max_element(parts.begin(), parts.end()), (rows + devices - 1) / devices);
      ASSERT_EQ(parts.size(), std::min<std::size_t>(rows, devices));
    }
  }
  EXPECT_EQ(sizes(split(4096, Weights(4, 1))), (Sizes{1024, 1024, 1024, 1024}));
}

TEST(Split, D14_PartsAreProportionalToTheWeights) {
  EXPECT_EQ(sizes(split(1000, Weights{60, 30, 10})), (Sizes{600, 300, 100}));
  EXPECT_EQ(split(10, Weights{1, 0, 4}), (std::vector<Part>{{0, {0, 2}}, {2, {2, 10}}}));
}

TEST(Split, D14_AnotherDeviceIsUsedOnlyFromTheMinimumOn) {
  const SplitOptions rows{.minimum = 128};
  EXPECT_EQ(sizes(split(255, Weights(8, 1), rows)), (Sizes{255}));
  EXPECT_EQ(sizes(split(256, Weights(8, 1), rows)), (Sizes{128, 128}));
  EXPECT_EQ(sizes(split(512, Weights(8, 1), rows)), (Sizes{128, 128, 128, 128}));
  EXPECT_EQ(sizes(split(5, Weights(8, 1), rows)), (Sizes{5})) << "too short for any, and still covered";
  EXPECT_EQ(split(1000, Weights{5, 1, 5}, rows), (std::vector<Part>{{0, {0, 500}}, {2, {500, 1000}}}))
      << "the share of the slow device goes to the others";
}

TEST(Split, D14_NoRowsAndNoDevicesGiveNoParts) {
  EXPECT_TRUE(split(0, Weights{}).empty());
  EXPECT_TRUE(split(0, Weights{1, 2}).empty());
  EXPECT_TRUE(split(10, Weights{}).empty());
}

TEST(Split, AWeightThatIsNoPositiveNumberGetsNoPartUnlessThereIsNoOther) {
  constexpr double none = std::numeric_limits<double>::quiet_NaN(), endless = std::numeric_limits<double>::infinity();
  EXPECT_EQ(split(10, Weights{none, 1, endless, 1, -3, 0}), (std::vector<Part>{{1, {0, 5}}, {3, {5, 10}}}));
  EXPECT_EQ(sizes(split(9, Weights{none, 0, -1})), (Sizes{3, 3, 3}));
}

TEST(Split, OnlyTheLastPartIsNotAMultipleOfTheUnit) {
  EXPECT_EQ(sizes(split(1000, Weights(3, 1), {.unit = 64})), (Sizes{320, 320, 360}));
  EXPECT_EQ(sizes(split(40, Weights(3, 1), {.unit = 64})), (Sizes{40}));
}

TEST(Split, TheLargestCountDoesNotOverflow) {
  EXPECT_EQ(sizes(split(most, Weights(4, 1e300))), Sizes(4, most / 4));
  EXPECT_TRUE(covers(split(std::numeric_limits<std::uint64_t>::max(), Weights(4096, 0.1)),
                     std::numeric_limits<std::uint64_t>::max()));
}

}  // namespace
}  // namespace berth::placement
