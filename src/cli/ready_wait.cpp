#include "cli/ready_wait.hpp"

#include <algorithm>
#include <boost/json.hpp>

#include "cli/text/answer_fields.hpp"
#include "deployment/replica_ranges.hpp"

namespace berth::cli {
namespace {

namespace json = boost::json;
using namespace std::chrono_literals;

// The controller needs a moment for a new project, so a state that looks final must stay the same for this many
// polls. A replica that the plan has placed is pending while its predecessor ends or while a node reports late, and
// an unready replica may recover.
constexpr int polls_until_final = 5;
constexpr int polls_until_unplaced = 60;
// The same limits as in the controller.
constexpr double failures_max = 3;
constexpr double lost_after_s = 30;
// Added to the longest time in which a replica of the project must become ready or be replaced.
constexpr Duration stall_slack = 60s;

const DeploymentSpec* spec_of(const Project& project, const Fields& row) {
  const auto found =
      std::find_if(project.deployments.begin(), project.deployments.end(),
                   [&](const DeploymentSpec& spec) { return spec.name.text() == row.raw("deployment"); });
  return found == project.deployments.end() ? nullptr : &*found;
}

// Calls use(replica, spec) for each replica of the project that has a place and is not ready.
template <class Use>
void for_each_unready(const Project& project, const json::object& replicas, Use&& use) {
  const Fields all(replicas);
  for (const json::value& value : all.list("replicas")) {
    const Fields replica(value);
    const DeploymentSpec* const spec = spec_of(project, replica);
    if (!spec || !replica.is("current")) continue;
    const bool is_lost = replica.number("report_age_s").value_or(0) >= lost_after_s;
    if (replica.raw("state") != "ready" || is_lost) use(replica, *spec, is_lost);
  }
}

}  // namespace

std::vector<std::string> unready_lines(const Project& project, const json::object& replicas) {
  std::vector<std::string> lines;
  for_each_unready(project, replicas, [&](const Fields& replica, const DeploymentSpec&, bool) {
    lines.push_back(replica.text("name") + " on " + replica.text("node") + " " + replica.word("state") +
                    (replica.has("reason") ? ": " + replica.text("reason") : ""));
  });
  const Fields all(replicas);
  for (const json::value& value : all.list("pending")) {
    const Fields pending(value);
    if (!spec_of(project, pending)) continue;
    std::vector<std::uint32_t> indices;
    for (const json::value& replica : pending.list("replicas")) {
      if (replica.is_int64()) indices.push_back(static_cast<std::uint32_t>(replica.get_int64()));
    }
    const std::string ranges = deployment::replica_ranges(indices);
    lines.push_back(pending.text("deployment") + (ranges.empty() ? "" : "/" + ranges) +
                    " pending: " + pending.in("reason").text("text"));
  }
  return lines;
}

ReadyWait::ReadyWait(const Project& project, bool fits) : project_(project), fits_(fits) {
  for (const DeploymentSpec& spec : project.deployments) {
    stalled_after_ = std::max({stalled_after_, spec.ready_within, spec.unready_within.value_or(Duration{}),
                               spec.replace_after, spec.stop_grace});
  }
  stalled_after_ += stall_slack;
}

// Whether a replica that is not ready can still become ready: `some` if one of them can, `little` if one would
// have to recover by itself, `none` if all of them keep failing or have no place.
ReadyWait::Hope ReadyWait::hope(const json::object& replicas) const {
  bool is_any = false;
  Hope most = Hope::none;
  for_each_unready(project_, replicas, [&](const Fields& replica, const DeploymentSpec& spec, bool is_lost) {
    is_any = true;
    Hope own = Hope::some;
    if (replica.number("failures").value_or(0) >= failures_max)
      own = Hope::none;
    else if (is_lost || (replica.raw("state") == "unready" && !spec.unready_within && !spec.liveness))
      own = Hope::little;
    most = std::min(most, own);
  });
  return is_any ? most : Hope::some;
}

int ReadyWait::polls_needed(const ReadyProgress& progress, Hope hope) const {
  switch (progress.state) {
    case ReadyProgress::State::ready: return 1;
    case ReadyProgress::State::does_not_fit: return fits_ ? polls_until_unplaced : polls_until_final;
    case ReadyProgress::State::stuck: return hope == Hope::none ? polls_until_final : polls_until_unplaced;
    default: return polls_until_final;
  }
}

ReadyWait::Look ReadyWait::look(const json::object& status, const json::object& replicas, TimePoint now) {
  ReadyProgress progress = progress_of(project_, status);
  const Hope now_hope = hope(replicas);
  std::string seen = progress.text;
  for (const std::string& line : unready_lines(project_, replicas)) seen += "\n" + line;
  if (seen != seen_) {
    seen_ = std::move(seen);
    seen_since_ = now;
  }
  const bool is_stalled = now - seen_since_ >= stalled_after_;
  if (progress.state == ReadyProgress::State::goes_on && (now_hope != Hope::some || is_stalled))
    progress.state = ReadyProgress::State::stuck;
  polls_ = progress.state == state_ ? polls_ + 1 : 1;
  state_ = progress.state;
  const bool is_final =
      progress.state != ReadyProgress::State::goes_on && (is_stalled || polls_ >= polls_needed(progress, now_hope));
  if (is_final && progress.state == ReadyProgress::State::stuck)
    progress.text += ", and no other replica can become ready";
  return {std::move(progress), is_final};
}

}  // namespace berth::cli
