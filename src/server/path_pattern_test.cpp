#include "server/path_pattern.hpp"

#include <gtest/gtest.h>

namespace berth::server {
namespace {

using Path = std::vector<std::string>;

TEST(PathPatternTest, MatchesAPathOfAsManySegmentsThatAreTheSameOrInBraces) {
  const PathPattern pattern("/api/v1/nodes/{NAME}/devices/{DEVICE}/intent");
  EXPECT_TRUE(pattern.matches({"api", "v1", "nodes", "gpu-1", "devices", "GPU-a/b", "intent"}));
  EXPECT_FALSE(pattern.matches({"api", "v1", "nodes", "gpu-1", "devices", "GPU-a"}));
  EXPECT_FALSE(pattern.matches({"api", "v1", "nodes", "gpu-1", "devices", "GPU-a", "intent", ""}));
  EXPECT_FALSE(pattern.matches({"api", "v1", "nodes", "gpu-1", "links", "GPU-a", "intent"}));
}

TEST(PathPatternTest, APartIsTheSegmentInThePlaceOfItsName) {
  const PathPattern pattern("/api/v1/replicas/{NAME}/{N}");
  const Path path{"api", "v1", "replicas", "N", "3"};
  ASSERT_TRUE(pattern.matches(path));
  EXPECT_EQ(pattern.part(path, "NAME"), "N");
  EXPECT_EQ(pattern.part(path, "N"), "3");
}

}  // namespace
}  // namespace berth::server
