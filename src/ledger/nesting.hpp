// Which lease of a snapshot another one is nested in, for loops over all entries: LedgerSnapshot searches all entries
// in each call, and one user can have thousands. The snapshot must outlive it and not change meanwhile. Pure.
#pragma once

#include <cstddef>
#include <unordered_map>

#include "berth/ledger.hpp"

namespace berth::ledger {

struct LeaseHash {
  std::size_t operator()(const LeaseReference& lease) const noexcept;
};

class Nesting {
 public:
  explicit Nesting(const LedgerSnapshot& snapshot) : snapshot_(snapshot) {}
  const LedgerEntry* find(const LeaseReference& lease);
  // Same as the functions of LedgerSnapshot with these names.
  const LedgerEntry* outer_of(const LedgerEntry& entry);
  const LedgerEntry& outermost(const LedgerEntry& entry);

  // Deeper than commands are ever nested; bounds a cycle in damaged files.
  static constexpr int depth_max = 16;

 private:
  const LedgerSnapshot& snapshot_;
  std::unordered_map<LeaseReference, const LedgerEntry*, LeaseHash> entries_;  // filled by the first search
};

}  // namespace berth::ledger
