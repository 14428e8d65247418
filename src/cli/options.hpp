// Options that several verbs share.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "berth/device.hpp"
#include "cli/command_line.hpp"

namespace berth::cli {

// The error of a verb for an argument that makes no sense.
inline Error wrong(std::string message, std::string advice) {
  return {ErrorCode::invalid_argument, std::move(message), std::move(advice)};
}

// The options of every verb that lists or opens devices.
void add_backend_options(Verb& verb, BackendOptions& options);

// --backend; `help` precedes the names.
void add_backend_option(Verb& verb, std::optional<std::string>& backend, const std::string& help);

// --policy; `help` precedes the names. The reference_* policies can be chosen but are not listed;
// docs/parity.md explains them.
void add_policy_option(Verb& verb, std::string& policy, const std::string& help);

}  // namespace berth::cli
