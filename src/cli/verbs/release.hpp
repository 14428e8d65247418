// `berth release`: ends a lease whose processes live on but no longer need it, such
// as one that a terminal multiplexer started by the command keeps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "berth/ledger.hpp"

namespace berth::cli {

// "17", or "alice/17" and "1000/17" of one user.
struct LeaseName {
  std::optional<std::string> user;
  std::uint64_t id = 0;
};
Result<LeaseName> parse_lease_name(const std::string& text);

// The entry that `caller` may release. not_found: there is none of that name;
// invalid_argument: several; unavailable: it is another user's, a pool or a
// request that waits.
Result<LedgerEntry> releasable(const LedgerSnapshot& snapshot, const LeaseName& name, std::uint32_t caller);

}  // namespace berth::cli
