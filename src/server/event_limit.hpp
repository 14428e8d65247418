// Limits how many events one node, one gateway or one deployment may cause: a burst, and then a few per minute. Further
// events are counted and dropped, so that a node with unstable devices does not displace the history of others. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "berth/clock.hpp"
#include "fleet/fleet.hpp"

namespace berth::server {

class EventLimit {
 public:
  static constexpr std::uint32_t at_once = 1000, resumes_at = 100;
  static constexpr Duration one_more_every = std::chrono::seconds(10);

  // Returns the events to keep, plus one for each subject whose events are left out from now on, or were until now.
  // `places` has the node of each replica ("chat/0"); a gateway's report about a replica counts as caused by the
  // gateway. Events about a silent or returned node are always kept, because time limits them; those that a node causes
  // itself are not.
  std::vector<fleet::Event> admit(std::vector<fleet::Event> events, const std::map<std::string, NodeId>& places,
                                  TimePoint now);

 private:
  struct Allowance {
    std::uint32_t left = at_once;
    TimePoint counted{};
    std::uint64_t left_out = 0;  // above 0: none is kept until `left` has grown to `resumes_at`
  };
  std::map<std::string, Allowance> allowances_;  // by "node/NAME", "gateway/NAME" or deployment
};

}  // namespace berth::server
