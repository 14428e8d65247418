// What the copies of a SharedExplanation share. The explanation itself is known in src/placement/ only.
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
