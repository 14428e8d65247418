#include "gateway/access_log.hpp"

#include <chrono>

namespace berth::gateway {

using fleet::RequestOutcome;
using fleet::RequestRecord;
using format::LogLevel;

namespace {

bool is_failure(const RequestRecord& record) {
  return record.outcome == RequestOutcome::failed || (record.status >= 500 && record.status != 505) ||
         record.reason == "full";
}

std::string message_of(RequestOutcome outcome) {
  switch (outcome) {
    case RequestOutcome::answered: return "the request was answered";
    case RequestOutcome::rejected: return "the request was rejected";
    case RequestOutcome::failed: return "the request failed";
    case RequestOutcome::abandoned: return "the client closed its connection before the answer ended";
  }
  return "the request ended";
}

// Milliseconds with three digits after the decimal point.
std::string milliseconds(std::uint64_t us) {
  const std::string rest = std::to_string(us % 1000);
  return std::to_string(us / 1000) + "." + std::string(3 - rest.size(), '0') + rest;
}

}  // namespace

Result<AccessLines> access_lines_named(std::string_view name) {
  if (name == "none") return AccessLines::none;
  if (name == "failed") return AccessLines::failed;
  if (name == "all") return AccessLines::all;
  return Error{ErrorCode::invalid_argument, "\"" + std::string(name) + "\" is not a valid access log setting",
               "use none, failed or all"};
}

void AccessLog::ended(const RequestRecord& record, TimePoint now) {
  if (lines_ == AccessLines::none || (lines_ == AccessLines::failed && !is_failure(record))) return;
  if (lines_ == AccessLines::failed) {
    if (now - second_ >= std::chrono::seconds(1)) {
      if (left_out_ > 0)
        log_({LogLevel::warning,
              "too many requests failed; the rest were not logged",
              {{"left_out", std::to_string(left_out_)}}});
      second_ = now;
      written_ = 0;
      left_out_ = 0;
    }
    if (written_ == lines_per_s) {
      ++left_out_;
      return;
    }
    ++written_;
  }
  format::LogFields fields{{"request", record.id}};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) fields.emplace_back(name, value);
  };
  add("caller", record.caller);
  add("deployment", record.deployment.text());
  add("replica", record.attempts.empty() ? "" : record.attempts.back().replica);
  add("status", record.status == 0 ? "" : std::to_string(record.status));
  add("wait_ms", milliseconds(record.waited_us));
  add("first_byte_ms", record.first_byte_us ? milliseconds(*record.first_byte_us) : "");
  add("total_ms", milliseconds(record.total_us));
  add("retries", std::to_string(record.tries > 1 ? record.tries - 1 : 0));
  add("reason", record.reason);
  log_({is_failure(record) ? LogLevel::warning : LogLevel::info, message_of(record.outcome), std::move(fields)});
}

}  // namespace berth::gateway
