// `berth release`: ends a lease that is kept alive by processes which no longer need it, such as a
// terminal multiplexer that the command started.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "berth/ledger.hpp"

namespace berth::cli {

// "17", or "alice/17" or "1000/17" for one user's lease.
struct LeaseName {
  std::optional<std::string> user;
  std::uint64_t id = 0;
};
Result<LeaseName> parse_lease_name(const std::string& text);

// The entry that `caller` may release. not_found: there is none;
// invalid_argument: there are several; unavailable: it is another user's, a pool's or a
// waiting request.
Result<LedgerEntry> releasable(const LedgerSnapshot& snapshot, const LeaseName& name, std::uint32_t caller);

}  // namespace berth::cli
