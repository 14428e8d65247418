// `berth ps`: lists the jobs, leases and waiting requests of this machine, once or repeatedly.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <sstream>

#include "cli/options.hpp"
#include "cli/text/devices_text.hpp"
#include "cli/text/ps_text.hpp"
#include "cli/text/screen.hpp"
#include "ledger/process.hpp"
#include "machine/job_processes.hpp"
#include "machine/machine_observer.hpp"
#include "machine/wait_queue.hpp"
#include "placement/nearest_name.hpp"
#include "world/files.hpp"
#include "world/time_to_come.hpp"
#include "world/user_name.hpp"
#include "world/wall_time.hpp"

namespace berth::cli {

using namespace inventory;
using namespace machine;
using namespace world;
namespace {

const ObservedDevice* find_seen(const MachineSnapshot& observed, const DeviceId& id) {
  const auto at = std::find_if(observed.devices.begin(), observed.devices.end(),
                               [&](const ObservedDevice& device) { return device.info.id == id; });
  return at == observed.devices.end() ? nullptr : &*at;
}

std::string name_of_process(std::uint32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

// The command line of this user's entry from its name on, because a waiting request is held by `berth run ... --
// COMMAND`. Empty if it is not known.
std::vector<std::string> arguments_of(const LedgerEntry& entry) {
  if (find_process(entry.holder.pid) != entry.holder) return {};
  std::istringstream text(read_text("/proc/" + std::to_string(entry.holder.pid) + "/cmdline").value_or(""));
  std::vector<std::string> words;
  for (std::string word; std::getline(text, word, '\0');) {
    const bool is_name = word.substr(word.rfind('/') + 1) == entry.name;
    if (is_name || !words.empty()) words.push_back(std::move(word));
  }
  return words;
}

// The job of this user that an entry belongs to.
class JobOfEntry {
 public:
  explicit JobOfEntry(std::span<const Job> jobs) {
    for (const Job& job : jobs) {
      if (job.has_ended() || job.is_elsewhere) continue;
      if (const auto lease = parse_lease(job.progress.lease)) by_lease_[{lease->file, lease->id}] = &job;
      if (job.progress.state == JobState::waiting) by_supervisor_[job.progress.supervisor.pid] = &job;
    }
  }
  const Job* find(const LedgerEntry& entry) const {
    if (entry.user != geteuid()) return nullptr;
    if (entry.kind == EntryKind::waiting) {
      const auto job = by_supervisor_.find(entry.holder.pid);
      return job != by_supervisor_.end() && job->second->progress.supervisor == entry.holder ? job->second : nullptr;
    }
    const auto job = by_lease_.find({entry.reference.file, entry.reference.id});
    return job == by_lease_.end() ? nullptr : job->second;
  }

 private:
  std::map<std::pair<std::uint64_t, std::uint64_t>, const Job*> by_lease_;
  std::map<std::uint32_t, const Job*> by_supervisor_;
};

// Computed once for all rows: one user can have thousands of entries.
struct LeaseFacts {
  LeaseFacts(const MachineSnapshot& seen, const LedgerSnapshot& snapshot, std::span<const Job> jobs, TimePoint time)
      : observed(seen), line(wait_queue(snapshot, time)), now(time), job_of(jobs) {
    for (const ObservedDevice& device : observed.devices) owners.emplace_back(snapshot, device.processes);
  }
  const MachineSnapshot& observed;
  const std::vector<WaitingRequest> line;
  const TimePoint now;
  const JobOfEntry job_of;
  std::vector<ledger::ProcessOwners> owners;  // for each device
  std::optional<ledger::LeaseProcesses> processes;
};

LeaseRow lease_row(LeaseFacts& facts, const LedgerEntry& entry) {
  const MachineSnapshot& observed = facts.observed;
  const std::vector<WaitingRequest>& line = facts.line;
  const TimePoint now = facts.now;
  LeaseRow row;
  row.id = entry.id();
  row.user = user_name(entry.user);
  row.pid = entry.holder.pid;
  if (entry.kind == EntryKind::command) row.command_pid = command_supervised_by(entry.holder.pid);
  row.command = entry.name;
  row.state = std::string(to_string(entry.kind));
  row.priority = std::string(to_string(entry.priority));
  row.exclusive = entry.is_exclusive();
  row.loading = entry.loads_until && *entry.loads_until > now;
  row.age = now - entry.since;
  if (const Job* const job = facts.job_of.find(entry))
    row.job = job->id;
  else if (entry.user == geteuid())
    row.arguments = arguments_of(entry);
  bool is_whole = true;
  for (const Claim& claim : entry.claims) {
    LeasedDevice device{claim.device, {}, claim.memory_bytes, {}};
    if (const ObservedDevice* const seen = find_seen(observed, claim.device)) {
      device.label = device_label(seen->info);
      if (claim.exclusive && claim.memory_bytes == seen->info.memory_bytes_total.value_or(0))
        device.memory_bytes_promised = 0;
      const std::uint64_t used =
          facts.owners[static_cast<std::size_t>(seen - observed.devices.data())].bytes_in_use(entry);
      // Absent if the driver lists no memory of its processes: it may not report it.
      if (entry.kind != EntryKind::waiting && used > 0) device.memory_bytes_used = used;
    }
    is_whole = is_whole && device.memory_bytes_promised == 0;
    row.devices.push_back(std::move(device));
  }
  // Sorts devices in the order of `berth devices`.
  const auto position = [&](const LeasedDevice& device) {
    return find_seen(observed, device.id) - observed.devices.data();
  };
  std::stable_sort(row.devices.begin(), row.devices.end(), [&](const LeasedDevice& a, const LeasedDevice& b) {
    if (a.label.empty() || b.label.empty()) return !a.label.empty() && b.label.empty();
    return position(a) < position(b);
  });
  if (entry.kind == EntryKind::waiting) {
    const auto me = std::find_if(line.begin(), line.end(),
                                 [&](const WaitingRequest& other) { return other.reference == entry.reference; });
    if (me != line.end()) row.place = static_cast<std::size_t>(me - line.begin()) + 1;
    row.waits_for = WaitedFor{entry.count, {}, entry.claims.size()};
    if (!entry.claims.empty()) row.waits_for->memory_bytes = is_whole ? 0 : entry.claims.front().memory_bytes;
  }
  const bool ended = entry.kind == EntryKind::command && entry.alive_by != Liveness::holder &&
                     ledger::process_state(entry.holder, entry.user) == ledger::ProcessState::gone;
  if (ended) {
    row.command_ended = true;
    std::set<std::uint32_t> kept_by(entry.kept_by.begin(), entry.kept_by.end());
    if (!facts.processes) facts.processes.emplace();
    for (const std::uint32_t pid : facts.processes->of(entry)) kept_by.insert(pid);
    for (std::size_t d = 0; d < observed.devices.size(); ++d) {
      const std::vector<ledger::ObservedProcess>& processes = observed.devices[d].processes;
      for (std::size_t p = 0; p < processes.size(); ++p) {
        if (facts.owners[d].owner(p) == &entry) kept_by.insert(processes[p].pid);
      }
    }
    for (const std::uint32_t pid : kept_by) row.kept_by.push_back({pid, name_of_process(pid)});
  }
  return row;
}

IntentRow intent_row(const MachineSnapshot& observed, const DeviceIntent& intent, TimePoint now) {
  std::vector<DeviceId> ids;
  for (const ObservedDevice& seen : observed.devices) ids.push_back(seen.info.id);
  const ObservedDevice* const seen = find_seen(observed, intent.device);
  const std::string name = printable(short_id(intent.device, ids));
  return {intent.device,
          seen ? device_label(seen->info) + " " + name : name,
          seen ? name : printable(intent.device.text()),
          intent.intent,
          user_name(intent.user),
          std::max(Duration::zero(), now - intent.since)};
}

// A snapshot of the ledger, the devices and the jobs.
class PsLook {
 public:
  PsLook(const BackendOptions& backends, PsSelection selection)
      : backends_(backends), selection_(std::move(selection)) {}

  Result<void> refresh() {
    Result<std::shared_ptr<Ledger>> ledger = Ledger::open();
    if (!ledger) return std::move(ledger).error();
    PsPage page;
    page.user = user_name(geteuid());
    page.is_root = geteuid() == 0;
    // Read before the ledger, so that the lease of a job that has just started is included.
    if (const Result<std::string> folder = jobs_folder(IfMissing::accept)) page.jobs = list_jobs(*folder);
    Result<LedgerSnapshot> snapshot = (*ledger)->snapshot();
    if (!snapshot) return std::move(snapshot).error();
    const TimePoint now = (*ledger)->clock().now();
    // The drivers are queried only if there are devices to name.
    const bool names_devices =
        !selection_.is_default() &&
        std::any_of(page.jobs.begin(), page.jobs.end(), [](const Job& job) { return !job.progress.devices.empty(); });
    MachineSnapshot observed;
    if (!snapshot->entries.empty() || !snapshot->ended.empty() || !snapshot->intents.empty() || names_devices)
      observed = look();
    const std::vector<LedgerEntry> over = keep_alive(*snapshot, observed, now);
    if (!over.empty()) {
      if (Result<Ledger::Lock> lock = (*ledger)->lock()) lock->forget(over);
    }
    LeaseFacts facts(observed, *snapshot, page.jobs, now);
    for (const LedgerEntry& entry : snapshot->entries) page.leases.push_back(lease_row(facts, entry));
    for (const ObservedDevice& device : observed.devices)
      page.labels.emplace(device.info.id, device_label(device.info));
    for (const DeviceIntent& intent : snapshot->intents) page.intents.push_back(intent_row(observed, intent, now));
    problems_.clear();
    for (const LedgerProblem& problem : snapshot->problems) {
      if (problems_.size() == problems_max) {
        problems_.push_back("berth: " + std::to_string(snapshot->problems.size() - problems_max) +
                            " more files are ignored, in whole or in part; see berth doctor\n");
        break;
      }
      problems_.push_back("berth: " + printable(problem.path) + " of user " + user_name(problem.user) +
                          " is ignored, in whole or in part: " + printable(problem.text) + "\n");
    }
    page_ = std::move(page);
    rows_ = selected_rows(ps_rows(page_), selection_);
    return {};
  }
  std::string text(Style style) const {
    // A script gets untruncated commands and all rows.
    const bool is_terminal = stdout_is_terminal();
    if (!is_terminal) style.columns = std::numeric_limits<unsigned>::max();
    return ps_text(page_, rows_, style, is_terminal && selection_.is_default() ? Extent::screen : Extent::whole);
  }
  // One sentence for each user's file that is ignored.
  const std::vector<std::string>& problems() const { return problems_; }
  std::string json() const { return ps_json(page_, rows_); }

 private:
  MachineSnapshot look() {
    if (!observer_) {
      Result<MachineObserver> opened = MachineObserver::open(std::nullopt, backends_);
      if (!opened) return {};
      for (const Machine::Problem& problem : opened->problems()) print_error(problem.error);
      opened->include_fallback(true);
      observer_.emplace(*std::move(opened));
    }
    return observer_->snapshot();
  }

  static constexpr std::size_t problems_max = 8;
  const BackendOptions& backends_;
  const PsSelection selection_;
  std::optional<MachineObserver> observer_;
  PsPage page_;
  std::vector<PsRow> rows_;  // selected from the page
  std::vector<std::string> problems_;
};

struct PsArguments {
  PsSelection selection;
  bool json = false;
  bool watch = false;
  BackendOptions backends;
};

// "running,failed": one or several.
Result<void> add_states(std::vector<std::string>& states, const std::string& text) {
  const std::vector<std::string_view> known = row_states();
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    if (std::find(known.begin(), known.end(), word) == known.end()) {
      std::string all;
      for (const std::string_view state : known) all += (all.empty() ? "" : ", ") + std::string(state);
      const auto nearest = placement::nearest_name(word, known);
      return Error{ErrorCode::invalid_argument, "'" + word + "' is not a state",
                   nearest ? "did you mean " + std::string(*nearest) + "?" : "the states are " + all};
    }
    states.push_back(std::move(word));
  }
  return {};
}

int run_ps(const PsArguments& arguments) {
  PsLook shown(arguments.backends, arguments.selection);
  const auto text = [&](const Style& style) { return arguments.json ? shown.json() : shown.text(style); };
  if (arguments.watch)
    return watch({[&] { return shown.refresh(); }, text, [] { return std::string(); }}, arguments.json);
  if (const Result<void> fresh = shown.refresh(); !fresh) return print_error(fresh.error());
  for (const std::string& problem : shown.problems()) std::fputs(problem.c_str(), stderr);
  return print(text(stdout_style()));
}

}  // namespace

void add_ps(const Verb& command) {
  const auto arguments = std::make_shared<PsArguments>();
  Verb verb = command.add("ps", "list jobs, leases and waiting requests on this machine");
  verb.flag("-a,--all", arguments->selection.all, "list everything, including your jobs that have ended");
  verb.option(
      "--state", "STATE,...",
      [arguments](const std::string& text) { return add_states(arguments->selection.states, text); },
      "list only entries in one of these states, such as waiting or failed");
  verb.offer_words("--state", row_states());
  OptionRules rules;
  rules.range = {1, jobs_max};
  verb.option("--last", "N", &arguments->selection.last, "list your newest N jobs, including those that have ended",
              rules);
  verb.option(
      "--since", "TIME",
      [arguments](const std::string& text) -> Result<void> {
        arguments->selection.since_us = BERTH_TRY(parse_time_passed(text, wall_time_us()));
        return {};
      },
      "include your jobs that ended after this time: 2h (two hours ago), 20:00 or 2026-11-20T08:00");
  verb.flag("--json", arguments->json, "print one JSON object");
  verb.flag("--watch", arguments->watch, "refresh every second until q or Ctrl-C (exit status 0)");
  add_backend_options(verb, arguments->backends);
  verb.run([arguments] { return run_ps(*arguments); });
}

}  // namespace berth::cli
