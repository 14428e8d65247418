#include "fleet/requests.hpp"

#include <algorithm>

namespace berth::fleet {
namespace {

void add_counts(std::map<std::string, std::uint64_t>& to, const std::map<std::string, std::uint64_t>& counts) {
  for (const auto& [name, count] : counts) to[name] += count;
}

// Never below 0, whatever a gateway reports.
std::uint64_t less(std::uint64_t count, std::uint64_t before) { return count - std::min(count, before); }

std::map<std::string, std::uint64_t> less(std::map<std::string, std::uint64_t> counts,
                                          const std::map<std::string, std::uint64_t>& before) {
  for (auto& [name, count] : counts) {
    if (const auto found = before.find(name); found != before.end()) count = less(count, found->second);
  }
  return counts;
}

TimeHistogram less(TimeHistogram times, const TimeHistogram& before) {
  const std::size_t both = std::min(times.counts.size(), before.counts.size());
  for (std::size_t i = 0; i < both; ++i) times.counts[i] = less(times.counts[i], before.counts[i]);
  times.sum_us = less(times.sum_us, before.sum_us);
  return times;
}

void add_times(TimeHistogram& to, const TimeHistogram& times) {
  to.counts.resize(std::max(to.counts.size(), times.counts.size()));
  for (std::size_t i = 0; i < times.counts.size(); ++i) to.counts[i] += times.counts[i];
  to.sum_us += times.sum_us;
}

double seconds(std::uint64_t us) { return static_cast<double>(us) / 1e6; }

}  // namespace

void TimeHistogram::add(Duration time) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  const auto given = static_cast<std::uint64_t>(std::max<std::int64_t>(us, 0));
  std::size_t bucket = 0;
  while (bucket < time_buckets && given > bucket_end_us(bucket)) ++bucket;
  if (counts.size() <= bucket) counts.resize(bucket + 1);
  ++counts[bucket];
  sum_us += given;
}

std::uint64_t TimeHistogram::count() const {
  std::uint64_t all = 0;
  for (const std::uint64_t each : counts) all += each;
  return all;
}

std::optional<double> TimeHistogram::quantile_s(double share) const {
  const auto all = static_cast<double>(count());
  if (all == 0) return std::nullopt;
  const double rank = share * all;
  double before = 0;
  for (std::size_t i = 0; i < std::min(counts.size(), time_buckets); ++i) {
    const auto here = static_cast<double>(counts[i]);
    if (here > 0 && before + here >= rank) {
      const double from = i == 0 ? 0 : seconds(bucket_end_us(i - 1)), to = seconds(bucket_end_us(i));
      return from + (to - from) * (rank - before) / here;
    }
    before += here;
  }
  return seconds(bucket_end_us(time_buckets - 1));  // longer times are not distinguished
}

std::uint64_t sum_of(const std::map<std::string, std::uint64_t>& counts) {
  std::uint64_t all = 0;
  for (const auto& [name, count] : counts) all += count;
  return all;
}

std::uint64_t ended(const RequestCounts& counts) {
  return sum_of(counts.answered) + sum_of(counts.rejected) + counts.failed + counts.abandoned;
}

void add(RequestCounts& to, const RequestCounts& counts) {
  add_counts(to.answered, counts.answered);
  add_counts(to.rejected, counts.rejected);
  to.failed += counts.failed;
  to.abandoned += counts.abandoned;
  to.retried += counts.retried;
  to.waiting += counts.waiting;
  to.in_flight += counts.in_flight;
  to.is_ejected = to.is_ejected || counts.is_ejected;
  add_times(to.first_byte, counts.first_byte);
  add_times(to.total, counts.total);
}

RequestCounts since(const RequestCounts& counts, const RequestCounts& before) {
  RequestCounts recent = counts;
  recent.answered = less(counts.answered, before.answered);
  recent.rejected = less(counts.rejected, before.rejected);
  recent.failed = less(counts.failed, before.failed);
  recent.abandoned = less(counts.abandoned, before.abandoned);
  recent.retried = less(counts.retried, before.retried);
  recent.first_byte = less(counts.first_byte, before.first_byte);
  recent.total = less(counts.total, before.total);
  return recent;
}

std::string_view to_string(RequestOutcome outcome) noexcept {
  switch (outcome) {
    case RequestOutcome::answered: return "answered";
    case RequestOutcome::rejected: return "rejected";
    case RequestOutcome::failed: return "failed";
    case RequestOutcome::abandoned: return "abandoned";
  }
  return "failed";
}

std::string_view to_string(CandidateVerdict verdict) noexcept {
  switch (verdict) {
    case CandidateVerdict::winner: return "winner";
    case CandidateVerdict::runner_up: return "runner_up";
    case CandidateVerdict::eligible: return "eligible";
    case CandidateVerdict::full: return "full";
    case CandidateVerdict::unready: return "unready";
    case CandidateVerdict::draining: return "draining";
    case CandidateVerdict::ejected: return "ejected";
    case CandidateVerdict::tried: return "tried";
    case CandidateVerdict::not_connected: return "not_connected";
  }
  return "eligible";
}

bool is_from_stranger(const RequestRecord& record) {
  return record.outcome == RequestOutcome::rejected && (record.status == 401 || record.caller.empty());
}

void limit_records(std::vector<RequestRecord>& records, std::size_t most) {
  if (records.size() <= most) return;
  std::stable_sort(records.begin(), records.end(), [](const RequestRecord& a, const RequestRecord& b) {
    const auto rank = [](const RequestRecord& of) {
      return of.outcome == RequestOutcome::failed ? 0 : is_from_stranger(of) ? 2 : 1;
    };
    return rank(a) != rank(b) ? rank(a) < rank(b) : a.at_ms > b.at_ms;
  });
  records.resize(most);
}

}  // namespace berth::fleet
