#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <set>

#include "cli/completion.hpp"
#include "cli/job_access.hpp"
#include "cli/server_access.hpp"
#include "cli/text/answer_fields.hpp"
#include "cli/text/devices_text.hpp"
#include "machine/find_machine.hpp"
#include "world/user_name.hpp"

namespace berth::cli {

using namespace machine;
using namespace world;
namespace {

std::vector<Candidate> job_names(Names names) {
  std::vector<Candidate> found;
  const Result<std::string> folder = jobs_folder(IfMissing::accept);
  if (!folder) return found;
  std::vector<Job> all = list_jobs(*folder);
  std::reverse(all.begin(), all.end());  // newest first, because a name refers to the newest job with that name
  std::set<std::string> seen;
  for (const Job& job : all) {
    if (names != Names::jobs && job.has_ended() != (names == Names::ended_jobs)) continue;
    const std::string state(to_string(job.progress.state));
    if (!job.request.name.empty() && seen.insert(job.request.name).second)
      found.push_back({job.request.name, job.id + ", " + state});
    found.push_back({job.id, job.request.name.empty() ? state : job.request.name + ", " + state});
  }
  return found;
}

std::vector<Candidate> device_names(const NameSources& sources) {
  MachineRequest request;
  request.links = false;
  request.options.listing_starts_driver = false;
  request.options.simulated_file = sources.simulated_file;
  const Result<Machine> machine = find_machine(request);
  std::vector<Candidate> found;
  if (!machine) return found;
  for (const DeviceInfo& info : machine->devices) {
    const std::string label = device_label(info);
    found.push_back({label, info.id.text() + ", " + info.name});
    if (info.id.text() != label) found.push_back({info.id.text(), label + ", " + info.name});
  }
  return found;
}

std::vector<Candidate> lease_names() {
  std::vector<Candidate> found;
  const Result<std::shared_ptr<Ledger>> ledger = Ledger::open();
  if (!ledger) return found;
  const Result<LedgerSnapshot> snapshot = (*ledger)->snapshot();
  if (!snapshot) return found;
  for (const LedgerEntry& entry : snapshot->entries) {
    const bool is_own = entry.user == geteuid();
    if (entry.kind != EntryKind::command || (!is_own && geteuid() != 0)) continue;
    found.push_back({(is_own ? "" : user_name(entry.user) + "/") + std::to_string(entry.id()), entry.name});
  }
  return found;
}

std::vector<Candidate> fleet_names(Names names, const NameSources& sources) {
  std::vector<Candidate> found;
  Result<ServerAccess> server = ServerAccess::open({sources.server, sources.ca_file});
  if (!server) return found;
  const bool is_node = names == Names::nodes || names == Names::node_paths;
  const bool is_token = names == Names::tokens;
  const std::string list = is_node                       ? "nodes"
                           : is_token                    ? "tokens"
                           : names == Names::deployments ? "deployments"
                                                         : "replicas";
  Call call{"/api/v1/" + list};
  call.timeout = std::chrono::seconds(2);
  const Result<Answer> answer = server->call(call);
  if (!answer) return found;
  const Fields fields(answer->json);
  for (const boost::json::value& row : fields.list(list)) {
    const Fields each(row);
    found.push_back({(names == Names::node_paths ? "node/" : "") + each.text(is_token ? "id" : "name"),
                     each.word(is_node    ? "health"
                               : is_token ? "role"
                                          : "state")});
  }
  return found;
}

}  // namespace

std::vector<Candidate> find_names(Names names, const NameSources& sources) {
  switch (names) {
    case Names::jobs:
    case Names::unfinished_jobs:
    case Names::ended_jobs: return job_names(names);
    case Names::devices: return device_names(sources);
    case Names::leases: return lease_names();
    default: return fleet_names(names, sources);
  }
}

}  // namespace berth::cli
