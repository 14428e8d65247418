#include "cli/text/ps_rows.hpp"

#include <algorithm>
#include <functional>
#include <set>

namespace berth::cli {

using namespace machine;
namespace {

constexpr std::string_view ended_state = "ended";

Standing standing_of(const Job& job) {
  if (job.has_ended()) return Standing::ended;
  return job.progress.state == JobState::waiting ? Standing::waits : Standing::holds;
}

// Requests without a place come last.
std::size_t place_of(const PsRow& row) { return row.lease && row.lease->place ? *row.lease->place : ~std::size_t{0}; }

bool has_ended_before(const Job& job, std::uint64_t time_us) {
  return job.has_ended() && job.progress.ended_us.value_or(job.request.created_us) < time_us;
}

}  // namespace

std::string PsRow::state() const {
  if (job) return std::string(to_string(job->progress.state));
  return lease->command_ended ? std::string(ended_state) : lease->state;
}

std::string PsRow::id() const { return job ? job->id : std::to_string(lease->id); }

std::vector<PsRow> ps_rows(const PsPage& page) {
  std::map<std::string_view, const LeaseRow*> lease_of;  // by job id
  std::set<std::string_view> listed;
  for (const Job& job : page.jobs) listed.insert(job.id);
  std::vector<PsRow> rows;
  for (const LeaseRow& lease : page.leases) {
    if (listed.contains(lease.job))
      lease_of[lease.job] = &lease;
    else
      rows.push_back({&lease, nullptr, lease.waits_for ? Standing::waits : Standing::holds});
  }
  for (const Job& job : page.jobs) {
    const auto lease = lease_of.find(job.id);
    rows.push_back({lease == lease_of.end() ? nullptr : lease->second, &job, standing_of(job)});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const PsRow& a, const PsRow& b) {
    if (a.standing != b.standing) return a.standing < b.standing;
    if (a.standing == Standing::waits) return place_of(a) < place_of(b);
    return a.standing == Standing::ended && a.job > b.job;
  });
  return rows;
}

std::vector<PsRow> selected_rows(std::vector<PsRow> rows, const PsSelection& selection) {
  if (selection.is_default()) std::erase_if(rows, [](const PsRow& row) { return row.standing == Standing::ended; });
  if (!selection.states.empty()) {
    std::erase_if(rows, [&](const PsRow& row) {
      return std::find(selection.states.begin(), selection.states.end(), row.state()) == selection.states.end();
    });
  }
  if (selection.since_us)
    std::erase_if(rows, [&](const PsRow& row) { return row.job && has_ended_before(*row.job, *selection.since_us); });
  if (selection.last > 0) {
    std::erase_if(rows, [](const PsRow& row) { return !row.job; });
    std::vector<const Job*> jobs;
    for (const PsRow& row : rows) jobs.push_back(row.job);
    std::sort(jobs.begin(), jobs.end(), std::greater());
    jobs.resize(std::min(jobs.size(), selection.last));
    std::erase_if(rows, [&](const PsRow& row) { return jobs.empty() || row.job < jobs.back(); });
  }
  return rows;
}

std::vector<std::string_view> row_states() {
  std::vector<std::string_view> states{to_string(EntryKind::pool), ended_state};
  for (int state = 0; state <= static_cast<int>(JobState::unreadable); ++state)
    states.push_back(to_string(static_cast<JobState>(state)));
  return states;
}

}  // namespace berth::cli
