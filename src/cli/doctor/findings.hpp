// How the checks of `berth doctor` write what they found, and the checks that
// have a file of their own.
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

// doctor_ledger.cpp: which ledger is in use, whether others see it, and what is
// wrong with it.
Findings ledger(const Facts& facts);
Findings ledger_seen(const Facts& facts);
Findings ledger_files(const Facts& facts);
Findings ledger_scope(const Facts& facts);

}  // namespace berth::cli
