// Logs a line for each request that has ended: who called what, which replica answered, how long it took, and what
// went wrong. Never its contents, its query, its headers or its key.
#pragma once

#include <cstdint>
#include <string_view>

#include "berth/clock.hpp"
#include "berth/result.hpp"
#include "fleet/requests.hpp"
#include "format/log_line.hpp"

namespace berth::gateway {

enum class AccessLines : std::uint8_t {
  none,
  failed,  // only failures of a replica or of the fleet, at most lines_per_s
  all,
};
Result<AccessLines> access_lines_named(std::string_view name);

class AccessLog {
 public:
  AccessLog(AccessLines lines, format::Log log) : lines_(lines), log_(std::move(log)) {}
  void ended(const fleet::RequestRecord& record, TimePoint now);

  // Limit of AccessLines::failed: a fleet that is down must not fill the disk of its gateway.
  static constexpr std::uint32_t lines_per_s = 20;

 private:
  AccessLines lines_;
  format::Log log_;
  TimePoint second_{};  // when the lines of `written_` began
  std::uint32_t written_ = 0;
  std::uint64_t left_out_ = 0;
};

}  // namespace berth::gateway
