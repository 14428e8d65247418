// Counts of the requests that a gateway has forwarded or rejected, by deployment, replica and caller, and the records
// of the last ones until they are reported. Its size is bounded by the gateway's view of the fleet. For the gateway's
// thread only.
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

  // One attempt at a replica. `status` is that of its answer.
  struct Try {
    std::string replica;
    fleet::RequestOutcome outcome = fleet::RequestOutcome::answered;
    std::uint32_t status = 0;
    Duration first_byte{}, took{};
  };
  void count(const Try& attempt);
  // Counts a request that has ended.
  void count(fleet::RequestRecord record);

  // Forgets the counts of all others.
  void keep_only(const std::set<std::string>& deployments, const std::set<std::string>& replicas,
                 const std::set<std::string>& callers);

  // The counts. Current values, such as requests in flight, are not known here.
  using Rows = std::map<std::string, fleet::RequestCounts>;
  const Rows& deployments() const { return deployments_; }
  const Rows& replicas() const { return replicas_; }
  const Rows& callers() const { return callers_; }
  // Records for a report: failed ones first, and a few of strangers last.
  std::vector<fleet::RequestRecord> take_records();
  std::uint64_t started_ms() const { return started_ms_; }
  // The name of the row of a caller: its own, or the shared one if there are too many.
  const std::string& row_of_caller(const std::string& caller) const;

 private:
  std::uint64_t started_ms_;
  Rows deployments_, replicas_, callers_;
  // Records that have not been reported. Records beyond the size of a report are dropped, because keeping them would
  // cost more than the counts.
  std::vector<fleet::RequestRecord> failed_, others_, strangers_;
};

}  // namespace berth::gateway
