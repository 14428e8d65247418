// Candidates whose values come from DeviceViews: for plans, records, simulations,
// explanations and tests.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "berth/policy.hpp"

namespace berth::placement {

class ViewCandidates {
 public:
  // The views at these positions, at least one.
  ViewCandidates(std::span<const DeviceView> views, std::span<const std::uint32_t> positions,
                 const Requirements& requirements, Ticket ticket);
  // All views.
  ViewCandidates(std::span<const DeviceView> views, const Requirements& requirements, Ticket ticket);

  operator const Candidates&() const { return candidates_; }

 private:
  const std::unique_ptr<detail::Columns::Word[]> words_;
  const std::unique_ptr<detail::Columns::Info[]> infos_;
  std::vector<std::uint32_t> columns_used_, slots_;
  std::vector<std::uint64_t> charges_;
  const detail::Columns columns_;
  const Candidates candidates_;
};

}  // namespace berth::placement
