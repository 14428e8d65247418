// Constructors of findings for the checks of `berth doctor`, and the checks of
// ledger_checks.cpp.
#pragma once

#include <utility>

#include "cli/doctor/doctor.hpp"

namespace berth::cli {

using Findings = std::vector<Finding>;

inline Finding ok(std::string message) { return {Severity::ok, {}, std::move(message), {}, {}}; }
inline Finding note(std::string message, std::string why, std::string fix = {}) {
  return {Severity::note, {}, std::move(message), std::move(why), std::move(fix)};
}
inline Finding warning(std::string message, std::string why, std::string fix) {
  return {Severity::warning, {}, std::move(message), std::move(why), std::move(fix)};
}
inline Finding error(std::string message, std::string why, std::string fix) {
  return {Severity::error, {}, std::move(message), std::move(why), std::move(fix)};
}

// ledger_checks.cpp: the ledger in use, its visibility to other processes, its problems, and limits per user.
Findings ledger(const Facts& facts);
Findings ledger_seen(const Facts& facts);
Findings ledger_files(const Facts& facts);
Findings ledger_scope(const Facts& facts);
Findings user_limits(const Facts& facts);

}  // namespace berth::cli
