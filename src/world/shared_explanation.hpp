// The state shared by copies of a SharedExplanation. Only src/placement/ uses the explanation itself.
#pragma once

#include <atomic>
#include <cstdint>

#include "berth/result.hpp"

struct berth::SharedExplanation::Shared {
  Shared() = default;
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  virtual ~Shared() = default;
  virtual const Explanation& explanation() const noexcept = 0;

  std::atomic<std::uint32_t> references{1};
};
