// The contract every back end keeps, run on every device of every back end in
// backend_list(). A back end that is not on this machine is skipped loudly.
#include <gtest/gtest.h>

#include "berth/device.hpp"

namespace berth {
namespace {

class BackendContract : public testing::TestWithParam<std::string> {};

TEST_P(BackendContract, ListsTheSameDevicesTwiceOrSaysWhyNot) {
  Result<std::unique_ptr<Backend>> backend = make_backend(GetParam());
  ASSERT_TRUE(backend.has_value());
  const auto first = (*backend)->list();
  const auto second = (*backend)->list();
  ASSERT_EQ(first.has_value(), second.has_value());
  if (!first) GTEST_SKIP() << "no " << GetParam() << " here: " << first.error().to_text();
  EXPECT_EQ(*first, *second);
}

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const BackendEntry& entry : backend_list()) names.emplace_back(entry.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Every, BackendContract, testing::ValuesIn(backend_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace berth
