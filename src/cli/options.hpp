// Options that several verbs share.
#pragma once

#include <string>
#include <utility>

#include "berth/device.hpp"
#include "cli/command_line.hpp"

namespace berth::cli {

// What a verb returns for an argument that cannot be meant.
inline Error wrong(std::string message, std::string advice) {
  return {ErrorCode::invalid_argument, std::move(message), std::move(advice)};
}

// Of every verb that lists or opens devices.
void add_backend_options(Verb& verb, BackendOptions& options);

// --policy; `help` goes before the names. The reference_* policies can be chosen and are
// not listed: docs/parity.md says what they are for.
void add_policy_option(Verb& verb, std::string& policy, const std::string& help);

}  // namespace berth::cli
