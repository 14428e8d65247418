// Events about gateways' reports: failing or skipped replicas, rejected requests, and silent gateways. One event for
// each change, however many requests are affected. In memory only: a server that becomes leader treats its first
// observations as known. The time is passed in.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "berth/clock.hpp"
#include "fleet/fleet.hpp"
#include "fleet/requests.hpp"

namespace berth::server {

class GatewayEvents {
 public:
  // The subjects that a gateway may report on; the rest of its report causes no event.
  struct KnownSubjects {
    std::set<std::string> deployments, incarnations;  // "chat", "chat/0#17"
  };
  // False: nothing in the report can cause an event, so no subjects need to be collected.
  bool is_needed(const std::string& gateway, const fleet::GatewayReport& report) const;
  std::vector<fleet::Event> take(const std::string& gateway, const fleet::GatewayReport& report,
                                 const KnownSubjects& known, TimePoint now);
  // `expected`: gateways that have joined; `reporting`: those that are current. Others are forgotten.
  std::vector<fleet::Event> look(const std::set<std::string>& expected, const std::set<std::string>& reporting,
                                 TimePoint now);
  // How many gateways have joined and are not lost. A server that has just become leader counts all until they could
  // report.
  std::size_t present() const;
  // Conflicts between the routes of this version of the project.
  std::vector<fleet::Event> compare_routes(std::uint64_t version, const std::string& project,
                                           const std::vector<std::string>& conflicts);
  // Whether compare_routes() would find something new.
  bool has_compared(std::uint64_t version) const { return version_ == version; }

  // A gateway that has been silent for this long is lost.
  static constexpr Duration lost_after = std::chrono::seconds(10);
  // Failures or rejections that resume after a pause of this length are a new change.
  static constexpr Duration failures_apart = std::chrono::minutes(1), rejections_apart = std::chrono::minutes(10);

 private:
  struct Replica {
    std::optional<TimePoint> failed_at, last_event_at;  // the last failure, and the last one with an event
    std::string reason;                                 // in that event
    std::optional<TimePoint> left_out;                  // since then
  };
  struct Gateway {
    TimePoint seen{};
    bool is_lost = false;
    std::map<std::string, Replica> replicas;                            // by incarnation, that failed
    std::map<std::pair<std::string, std::string>, TimePoint> rejected;  // by deployment and code: the last time
  };
  void take_row(const std::string& name, Gateway& gateway, const fleet::RequestCounts& row, TimePoint now);
  void take_failure(Gateway& gateway, const std::string& name, const fleet::RequestAttempt& attempt, TimePoint now);
  void take_rejection(Gateway& gateway, const std::string& name, const fleet::RequestRecord& record, TimePoint now);
  void add_event(fleet::EventKind kind, const std::string& gateway, std::string subject, std::string text);

  std::map<std::string, Gateway> gateways_;  // by name
  std::optional<std::uint64_t> version_;
  std::set<std::string> conflicts_;
  std::vector<fleet::Event> events_;  // of the call in progress
};

}  // namespace berth::server
