#include "berth/xid.hpp"

#include <gtest/gtest.h>

#include <set>

namespace berth {
namespace {

TEST(Xid, TheTableIsSortedUniqueAndComplete) {
  std::uint32_t last = 0;
  for (const XidMeaning& row : xid_meanings()) {
    EXPECT_GT(row.number, last);
    last = row.number;
    EXPECT_FALSE(row.words.empty() || row.advice.empty() || row.source.empty()) << row.number;
    EXPECT_EQ(find_xid(row.number), &row);
  }
  EXPECT_EQ(find_xid(0), nullptr);
  EXPECT_EQ(find_xid(9), nullptr) << "unused";
  EXPECT_EQ(find_xid(100000), nullptr);
}

TEST(Xid, TheApplicationsFaultsBlameTheTask) {
  for (const std::uint32_t number : {13U, 31U, 43U, 45U, 68U, 109U})
    EXPECT_EQ(find_xid(number)->blame, Blame::task) << number;
}

TEST(Xid, FaultsOfTheHardwareBlameTheDevice) {
  for (const std::uint32_t number : {48U, 62U, 64U, 74U, 79U, 95U, 110U, 119U, 120U, 140U, 143U})
    EXPECT_EQ(find_xid(number)->blame, Blame::device) << number;
}

TEST(Xid, SuccessfulRepairsBlameNothing) {
  for (const std::uint32_t number : {63U, 92U}) EXPECT_EQ(find_xid(number)->blame, Blame::none) << number;
}

TEST(Xid, AnUnknownNumberIsUnclear) { EXPECT_EQ(blame_of({DeviceEvent::Kind::xid, 9999, {}}), Blame::unclear); }

TEST(Xid, RecoveryActionsBlameTheDeviceUnlessItCanWorkAlone) {
  const auto blame = [](RecoveryAction action) {
    return blame_of({DeviceEvent::Kind::recovery_action, static_cast<std::uint32_t>(action), {}});
  };
  EXPECT_EQ(blame(RecoveryAction::none), Blame::none);
  EXPECT_EQ(blame(RecoveryAction::reset), Blame::device);
  EXPECT_EQ(blame(RecoveryAction::reboot), Blame::device);
  EXPECT_EQ(blame(RecoveryAction::drain_and_reset), Blame::device);
  EXPECT_EQ(blame(RecoveryAction::drain_peers), Blame::unclear);
}

TEST(Xid, AnEventBecomesAnErrorWithAdvice) {
  const Error ecc = error_of({DeviceEvent::Kind::xid, 48, {}}, "GPU-1234/sm64.0");
  EXPECT_EQ(ecc.code, ErrorCode::unavailable);
  EXPECT_EQ(
      ecc.to_text(),
      "the driver reported Xid 48: an uncorrectable memory error (Xid, code 48) on GPU-1234/sm64.0; stop what uses the "
      "GPU, then `nvidia-smi --gpu-reset -i GPU-1234`, or reboot");
  EXPECT_EQ(error_of({DeviceEvent::Kind::xid, 79, {}}, "GPU-1").code, ErrorCode::device_lost);
  EXPECT_NE(error_of({DeviceEvent::Kind::xid, 9999, {}}, "GPU-1").message.find("not known"), std::string::npos);
  EXPECT_EQ(reset_advice("MIG-5").find("MIG-5"), std::string::npos) << "a slice alone cannot be reset";
}

TEST(Xid, EveryKindOfEventHasADistinctMessage) {
  std::set<std::string> words;
  for (std::uint32_t action = 0; action < 4; ++action)
    words.insert(error_of({DeviceEvent::Kind::recovery_action, action, {}}, "GPU-1").message);
  for (const auto kind : {DeviceEvent::Kind::xid, DeviceEvent::Kind::ecc_error, DeviceEvent::Kind::unavailable})
    words.insert(error_of({kind, 13, {}}, "GPU-1").message);
  EXPECT_EQ(words.size(), 7U);
}

}  // namespace
}  // namespace berth
