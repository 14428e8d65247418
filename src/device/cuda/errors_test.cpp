#include "device/cuda/errors.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace berth::cuda {
namespace {

struct Expected {
  int code;
  const char* name;
};

TEST(CudaErrors, EveryListedCodeKeepsItsDriverName) {
  const Expected important[] = {
      {1, "CUDA_ERROR_INVALID_VALUE"},
      {2, "CUDA_ERROR_OUT_OF_MEMORY"},
      {3, "CUDA_ERROR_NOT_INITIALIZED"},
      {4, "CUDA_ERROR_DEINITIALIZED"},
      {34, "CUDA_ERROR_STUB_LIBRARY"},
      {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
      {100, "CUDA_ERROR_NO_DEVICE"},
      {101, "CUDA_ERROR_INVALID_DEVICE"},
      {200, "CUDA_ERROR_INVALID_IMAGE"},
      {201, "CUDA_ERROR_INVALID_CONTEXT"},
      {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
      {214, "CUDA_ERROR_ECC_UNCORRECTABLE"},
      {216, "CUDA_ERROR_CONTEXT_ALREADY_IN_USE"},
      {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
      {218, "CUDA_ERROR_INVALID_PTX"},
      {220, "CUDA_ERROR_NVLINK_UNCORRECTABLE"},
      {400, "CUDA_ERROR_INVALID_HANDLE"},
      {401, "CUDA_ERROR_ILLEGAL_STATE"},
      {500, "CUDA_ERROR_NOT_FOUND"},
      {600, "CUDA_ERROR_NOT_READY"},
      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
      {702, "CUDA_ERROR_LAUNCH_TIMEOUT"},
      {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"},
      {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED"},
      {708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE"},
      {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
      {710, "CUDA_ERROR_ASSERT"},
      {711, "CUDA_ERROR_TOO_MANY_PEERS"},
      {714, "CUDA_ERROR_HARDWARE_STACK_ERROR"},
      {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION"},
      {716, "CUDA_ERROR_MISALIGNED_ADDRESS"},
      {717, "CUDA_ERROR_INVALID_ADDRESS_SPACE"},
      {718, "CUDA_ERROR_INVALID_PC"},
      {719, "CUDA_ERROR_LAUNCH_FAILED"},
      {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"},
      {800, "CUDA_ERROR_NOT_PERMITTED"},
      {801, "CUDA_ERROR_NOT_SUPPORTED"},
      {802, "CUDA_ERROR_SYSTEM_NOT_READY"},
      {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
      {805, "CUDA_ERROR_MPS_CONNECTION_FAILED"},
      {806, "CUDA_ERROR_MPS_RPC_FAILURE"},
      {807, "CUDA_ERROR_MPS_SERVER_NOT_READY"},
      {808, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED"},
      {809, "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED"},
      {810, "CUDA_ERROR_MPS_CLIENT_TERMINATED"},
      {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
      {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
      {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE"},
      {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"},
      {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
      {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
      {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"},
      {907, "CUDA_ERROR_CAPTURED_EVENT"},
      {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"},
      {909, "CUDA_ERROR_TIMEOUT"},
  };
  for (const Expected& expected : important) EXPECT_EQ(name_of(expected.code), expected.name) << expected.code;
}

TEST(CudaErrors, FaultsThatEndTheProcessAreDeviceLostAndNothingElseIs) {
  // The codes the driver's documentation calls fatal to the process or context,
  // with the launch timeout and the lost MPS client.
  const std::set<int> fatal{4, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911};
  for (const DriverCode& row : driver_codes()) {
    EXPECT_EQ(is_fatal(row.code), fatal.contains(row.code)) << row.name;
    EXPECT_EQ(reaction_to(row.meaning) == Reaction::restart_process, fatal.contains(row.code)) << row.name;
  }
}

TEST(CudaErrors, UsageErrorsTellTheCallerToCorrectTheCall) {
  for (const int code : {1, 200, 201, 215, 218, 300, 400, 701, 720, 800, 801, 912}) {
    EXPECT_EQ(reaction_to(meaning_of(code)), Reaction::fix_the_call) << name_of(code);
  }
  EXPECT_EQ(meaning_of(100), ErrorCode::no_device);
  EXPECT_EQ(meaning_of(101), ErrorCode::no_device);
}

TEST(CudaErrors, TransientFaultsAreRetriedAndMissingMemoryIsWaitedFor) {
  for (const int code : {46, 216, 600, 802, 805, 806, 807, 808, 809, 909}) {
    EXPECT_EQ(reaction_to(meaning_of(code)), Reaction::retry) << name_of(code);
  }
  EXPECT_EQ(meaning_of(46), ErrorCode::unavailable);
  EXPECT_EQ(meaning_of(2), ErrorCode::out_of_memory);
  EXPECT_EQ(meaning_of(909), ErrorCode::timeout);
}

TEST(CudaErrors, DriverThatCannotStartIsNotInitialized) {
  for (const int code : {3, 34, 803}) EXPECT_EQ(meaning_of(code), ErrorCode::not_initialized) << name_of(code);
}

TEST(CudaErrors, CodesAreSortedAndUnique) {
  const auto codes = driver_codes();
  EXPECT_TRUE(std::is_sorted(codes.begin(), codes.end(), [](auto& a, auto& b) { return a.code <= b.code; }));
  for (const DriverCode& row : codes) EXPECT_EQ(name_of(row.code), row.name);
}

TEST(CudaErrors, CodeOfANewerDriverKeepsItsNumber) {
  EXPECT_EQ(name_of(12345), "CUDA_ERROR_12345");
  EXPECT_EQ(meaning_of(12345), ErrorCode::unavailable);
  EXPECT_FALSE(is_fatal(12345));
}

TEST(CudaErrors, AnErrorHasMessageDeviceAndAdvice) {
  const Error error = error_of(700, "work was running", "GPU-1");
  EXPECT_EQ(error.code, ErrorCode::device_lost);
  EXPECT_EQ(error.driver, (DriverError{700, "CUDA_ERROR_ILLEGAL_ADDRESS"}));
  EXPECT_EQ(error.where, "GPU-1");
  EXPECT_NE(error.message.find("work was running"), std::string::npos);
  EXPECT_NE(error.advice.find("restart the process"), std::string::npos);
}

}  // namespace
}  // namespace berth::cuda
