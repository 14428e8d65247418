// Counts of the requests that a gateway has passed on or rejected, by deployment, replica and caller, and the records
// of the last ones until they are reported. Bounded by what the gateway knows of the fleet. On the gateway's thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fleet/requests.hpp"

namespace berth::gateway {

class Traffic {
 public:
  explicit Traffic(std::uint64_t started_ms) : started_ms_(started_ms) {}

  // One try of a replica. `status`: of its answer.
  struct Try {
    std::string replica;
    fleet::RequestOutcome outcome = fleet::RequestOutcome::answered;
    std::uint32_t status = 0;
    Duration first_byte{}, took{};
  };
  void count(const Try& attempt);
  // A request that has ended.
  void count(fleet::RequestRecord record);

  // Those of others are forgotten.
  void keep_only(const std::set<std::string>& deployments, const std::set<std::string>& replicas,
                 const std::set<std::string>& callers);

  // What was counted. What is now, such as requests in flight, is not known here.
  using Rows = std::map<std::string, fleet::RequestCounts>;
  const Rows& deployments() const { return deployments_; }
  const Rows& replicas() const { return replicas_; }
  const Rows& callers() const { return callers_; }
  // For a report: those that failed first, and a few of strangers last.
  std::vector<fleet::RequestRecord> take_records();
  std::uint64_t started_ms() const { return started_ms_; }
  // The name of the row of a caller: its own, or that of all others where there are too many.
  const std::string& row_of_caller(const std::string& caller) const;

 private:
  std::uint64_t started_ms_;
  Rows deployments_, replicas_, callers_;
  // Not reported yet. What is more than a report takes is not kept: that would cost more than the counts.
  std::vector<fleet::RequestRecord> failed_, others_, strangers_;
};

}  // namespace berth::gateway
