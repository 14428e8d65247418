#include "gateway/traffic.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace berth::gateway {

using fleet::RequestCounts;
using fleet::RequestOutcome;
using fleet::RequestRecord;

namespace {

std::string class_of(std::uint32_t status) { return std::to_string(status / 100) + "xx"; }

void count_in(RequestCounts& row, const RequestRecord& record) {
  switch (record.outcome) {
    case RequestOutcome::answered:
      ++row.answered[class_of(record.status)];
      if (record.first_byte_us) row.first_byte.add(std::chrono::microseconds(*record.first_byte_us));
      row.total.add(std::chrono::microseconds(record.total_us));
      break;
    case RequestOutcome::rejected: ++row.rejected[record.reason]; break;
    case RequestOutcome::failed: ++row.failed; break;
    case RequestOutcome::abandoned: ++row.abandoned; break;
  }
  if (record.tries > 1) row.retried += record.tries - 1;
}

}  // namespace

void Traffic::count(const Try& attempt) {
  RequestCounts& row = replicas_[attempt.replica];
  switch (attempt.outcome) {
    case RequestOutcome::answered:
      ++row.answered[class_of(attempt.status)];
      row.first_byte.add(attempt.first_byte);
      row.total.add(attempt.took);
      break;
    case RequestOutcome::rejected: ++row.rejected["refused"]; break;
    case RequestOutcome::failed: ++row.failed; break;
    case RequestOutcome::abandoned: ++row.abandoned; break;
  }
}

void Traffic::count(RequestRecord record) {
  count_in(deployments_[record.deployment.text()], record);
  count_in(callers_[row_of_caller(record.caller)], record);
  const bool is_stranger = fleet::is_from_stranger(record);
  auto& records = is_stranger ? strangers_ : record.outcome == RequestOutcome::failed ? failed_ : others_;
  const std::size_t most = is_stranger ? fleet::report_strangers_max : fleet::report_records_max;
  if (records.size() < most) records.push_back(std::move(record));
}

const std::string& Traffic::row_of_caller(const std::string& caller) const {
  static const std::string other(fleet::other_callers);
  const bool has_row = callers_.size() + 1 < fleet::report_callers_max || callers_.contains(caller);
  return has_row ? caller : other;
}

void Traffic::keep_only(const std::set<std::string>& deployments, const std::set<std::string>& replicas,
                        const std::set<std::string>& callers) {
  std::erase_if(deployments_, [&](const auto& row) { return !row.first.empty() && !deployments.contains(row.first); });
  std::erase_if(replicas_, [&](const auto& row) { return !replicas.contains(row.first); });
  std::erase_if(callers_, [&](const auto& row) {
    return !row.first.empty() && row.first != "local" && row.first != fleet::other_callers &&
           !callers.contains(row.first);
  });
}

std::vector<RequestRecord> Traffic::take_records() {
  std::vector<RequestRecord> taken = std::exchange(failed_, {});
  for (auto* more : {&others_, &strangers_}) {
    std::move(more->begin(), more->end(), std::back_inserter(taken));
    more->clear();
  }
  if (taken.size() > fleet::report_records_max) taken.resize(fleet::report_records_max);
  return taken;
}

}  // namespace berth::gateway
