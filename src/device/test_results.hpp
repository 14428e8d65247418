// What tests of devices expect of a Result.
#pragma once

#include <gtest/gtest.h>

#include <optional>

#include "berth/clock.hpp"
#include "berth/result.hpp"

namespace berth::test {

// Long enough for a busy machine under a sanitizer; only a hang reaches it.
inline Deadline soon() { return Deadline::after(real_clock(), std::chrono::seconds(20)); }

template <class T>
std::optional<ErrorCode> code_of(const Result<T>& result) {
  return result ? std::nullopt : std::optional(result.error().code);
}

template <class T>
testing::AssertionResult works(const Result<T>& result) {
  if (result) return testing::AssertionSuccess();
  return testing::AssertionFailure() << to_string(result.error().code) << ": " << result.error().to_text();
}

// Whether the call failed with this code and a message.
template <class T>
testing::AssertionResult fails_with(const Result<T>& result, ErrorCode code) {
  if (result) return testing::AssertionFailure() << "the call succeeded";
  if (result.error().code == code && !result.error().message.empty()) return testing::AssertionSuccess();
  return works(result);
}

}  // namespace berth::test
