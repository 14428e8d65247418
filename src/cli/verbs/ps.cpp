// `berth ps`: the leases and waiting requests of this machine, once or watched.

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <optional>
#include <set>

#include "cli/options.hpp"
#include "cli/text/devices_text.hpp"
#include "cli/text/jobs_text.hpp"
#include "cli/text/ps_text.hpp"
#include "cli/text/screen.hpp"
#include "ledger/process.hpp"
#include "machine/machine_observer.hpp"
#include "machine/wait_queue.hpp"
#include "world/user_name.hpp"

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

// Computed once for all rows: one user can have thousands of entries.
struct LeaseFacts {
  LeaseFacts(const MachineSnapshot& seen, const LedgerSnapshot& snapshot, TimePoint time)
      : observed(seen), line(wait_queue(snapshot, time)), now(time) {
    for (const ObservedDevice& device : observed.devices) owners.emplace_back(snapshot, device.processes);
  }
  const MachineSnapshot& observed;
  const std::vector<WaitingRequest> line;
  const TimePoint now;
  std::vector<ledger::ProcessOwners> owners;  // of each device
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
  row.command = entry.name;
  row.state = std::string(to_string(entry.kind));
  row.priority = std::string(to_string(entry.priority));
  row.exclusive = entry.is_exclusive();
  row.loading = entry.loads_until && *entry.loads_until > now;
  row.age = now - entry.since;
  bool is_whole = true;
  for (const Claim& claim : entry.claims) {
    LeasedDevice device{claim.device, {}, claim.memory_bytes, {}};
    if (const ObservedDevice* const seen = find_seen(observed, claim.device)) {
      device.label = device_label(seen->info);
      if (claim.exclusive && claim.memory_bytes == seen->info.memory_bytes_total.value_or(0))
        device.memory_bytes_promised = 0;
      // Absent where the driver does not report memory by process.
      if (entry.kind != EntryKind::waiting && seen->telemetry && seen->telemetry->processes)
        device.memory_bytes_used =
            facts.owners[static_cast<std::size_t>(seen - observed.devices.data())].bytes_in_use(entry);
    }
    is_whole = is_whole && device.memory_bytes_promised == 0;
    row.devices.push_back(std::move(device));
  }
  // In the order of `berth devices`.
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
    row.waits_for = WaitedFor{entry.count, is_whole || entry.claims.empty() ? 0 : entry.claims.front().memory_bytes,
                              entry.claims.size()};
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

// The state of the ledger and the devices at one moment.
class LeaseLook {
 public:
  // `ended`: jobs that have ended, too.
  LeaseLook(const BackendOptions& backends, bool ended) : backends_(backends), ended_(ended) {}

  Result<void> refresh() {
    Result<std::shared_ptr<Ledger>> ledger = Ledger::open();
    if (!ledger) return std::move(ledger).error();
    Result<LedgerSnapshot> snapshot = (*ledger)->snapshot();
    if (!snapshot) return std::move(snapshot).error();
    const TimePoint now = (*ledger)->clock().now();
    // The drivers are read only where the ledger has entries.
    MachineSnapshot observed;
    if (!snapshot->entries.empty() || !snapshot->ended.empty() || !snapshot->intents.empty()) observed = look();
    const std::vector<LedgerEntry> over = keep_alive(*snapshot, observed, now);
    if (!over.empty()) {
      if (Result<Ledger::Lock> lock = (*ledger)->lock()) lock->forget(over);
    }
    leases_.clear();
    LeaseFacts facts(observed, *snapshot, now);
    for (const LedgerEntry& entry : snapshot->entries) leases_.push_back(lease_row(facts, entry));
    problems_.clear();
    for (const LedgerProblem& problem : snapshot->problems) {
      if (problems_.size() == problems_max) {
        problems_.push_back("berth: and " + std::to_string(snapshot->problems.size() - problems_max) +
                            " more such files; see berth doctor\n");
        break;
      }
      problems_.push_back("berth: " + printable(problem.path) + " of user " + user_name(problem.user) +
                          " is ignored, or part of it is: " + printable(problem.text) + "\n");
    }
    intents_.clear();
    for (const DeviceIntent& intent : snapshot->intents) intents_.push_back(intent_row(observed, intent, now));
    jobs_.clear();
    if (const Result<std::string> folder = jobs_folder(IfMissing::accept)) {
      jobs_ = list_jobs(*folder);
      if (!ended_) std::erase_if(jobs_, [](const Job& job) { return job.has_ended(); });
    }
    return {};
  }
  std::string text(const Style& style) const {
    Style whole = style;
    if (!stdout_is_terminal()) whole.columns = std::numeric_limits<unsigned>::max();  // a script reads the commands
    return ps_text(leases_, intents_, style) + (jobs_.empty() ? "" : "\n" + jobs_text(jobs_, whole));
  }
  // Ignored files of users, a sentence for each.
  const std::vector<std::string>& problems() const { return problems_; }
  std::string json() const { return ps_json(leases_, intents_, jobs_); }

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
  const bool ended_;
  std::optional<MachineObserver> observer_;
  std::vector<LeaseRow> leases_;
  std::vector<IntentRow> intents_;
  std::vector<std::string> problems_;
  std::vector<Job> jobs_;  // of this user
};

struct PsArguments {
  bool all = false;
  bool json = false;
  bool watch = false;
  BackendOptions backends;
};

int run_ps(const PsArguments& arguments) {
  LeaseLook leases(arguments.backends, arguments.all);
  const auto text = [&](const Style& style) { return arguments.json ? leases.json() : leases.text(style); };
  if (arguments.watch)
    return watch({[&] { return leases.refresh(); }, text, [] { return std::string(); }}, arguments.json);
  if (const Result<void> fresh = leases.refresh(); !fresh) return print_error(fresh.error());
  for (const std::string& problem : leases.problems()) std::fputs(problem.c_str(), stderr);
  return print(text(stdout_style()));
}

}  // namespace

void add_ps(const Verb& command) {
  const auto arguments = std::make_shared<PsArguments>();
  Verb verb = command.add("ps", "list the leases and waiting requests of all users of this machine, and your jobs");
  verb.flag("-a,--all", arguments->all, "include your finished jobs");
  verb.flag("--json", arguments->json, "print one JSON object");
  verb.flag("--watch", arguments->watch, "refresh every second until Ctrl-C (exit status 0)");
  add_backend_options(verb, arguments->backends);
  verb.run([arguments] { return run_ps(*arguments); });
}

}  // namespace berth::cli
