#include "agent/replica_job.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "agent/secrets.hpp"
#include "deployment/command.hpp"
#include "machine/job_processes.hpp"
#include "machine/job_supervisor.hpp"
#include "machine/mps.hpp"
#include "machine/run_steps.hpp"
#include "world/descriptor.hpp"
#include "world/files.hpp"
#include "world/user_name.hpp"
#include "world/wall_time.hpp"

namespace berth::agent {
namespace {

// Labels of a job.
constexpr const char *label_deployment = "deployment", *label_replica = "replica", *label_generation = "generation",
                     *label_port = "port", *label_socket = "socket", *label_direct = "direct",
                     *label_stop_after = "stop_after_ms";

std::optional<std::uint64_t> number(const std::map<std::string, std::string>& labels, const char* name) {
  const auto found = labels.find(name);
  std::uint64_t value = 0;
  if (found == labels.end()) return std::nullopt;
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// "/" for a user without a home, or whose home cannot be entered: in a user namespace, root has the home of the real
// root.
std::string home_of(const std::string& user) {
  const Result<world::UserAccount> account = world::find_user(user);
  std::error_code failed;
  const bool is_home =
      account && std::filesystem::is_directory(account->home, failed) && ::access(account->home.c_str(), X_OK) == 0;
  return is_home ? account->home : "/";
}

deployment::Placeholders placeholders(const fleet::Assigned& assigned, const ReplicaAddress& address,
                                      const NodeView& node) {
  const Assignment& place = assigned.place;
  deployment::Placeholders values;
  values.port = address.port.value_or(0);
  values.socket = address.socket;
  if (!address.direct.empty()) values.address = address.direct;
  values.gpus = static_cast<std::uint32_t>(place.devices.size());
  values.memory_bytes = place.memory_bytes;
  values.name = place.deployment.text();
  values.replica = place.replica;
  std::uint64_t smallest = place.devices.empty() ? node.memory_bytes.value_or(0) : 0;  // 0: not known
  for (const NodeDevice& device : node.devices) {
    if (std::find(place.devices.begin(), place.devices.end(), device.info.id) == place.devices.end()) continue;
    if (const std::uint64_t bytes = device.info.memory_bytes_total.value_or(0))
      smallest = smallest == 0 ? bytes : std::min(smallest, bytes);
  }
  if (place.memory_bytes == 0) values.memory_bytes = smallest;
  if (smallest > 0 && place.memory_bytes > 0)
    values.memory_fraction = std::min(1.0, static_cast<double>(place.memory_bytes) / static_cast<double>(smallest));
  return values;
}

// The variables of the spec, the secrets, and the identity of the replica.
Result<std::map<std::string, std::string>> environment_of(const DeploymentSpec& spec, const fleet::Assigned& assigned,
                                                          const ReplicaAddress& address,
                                                          const deployment::Placeholders& values,
                                                          const AgentFile& file) {
  std::map<std::string, std::string> environment;
  for (const auto& [name, value] : spec.environment)
    environment[name] = deployment::expand(std::vector{value}, values).front();
  for (const auto& [name, secret] : spec.secrets) environment[name] = BERTH_TRY(read_secret(secret, file));
  environment["BERTH_REPLICA"] = assigned.place.deployment.text() + "/" + std::to_string(assigned.place.replica);
  if (address.port) environment["BERTH_PORT"] = std::to_string(*address.port);
  if (!address.socket.empty()) environment["BERTH_SOCKET"] = address.socket;
  return environment;
}

ReplicaAddress address_of(const machine::Job& job) {
  ReplicaAddress address;
  if (const auto port = number(job.request.labels, label_port)) address.port = static_cast<std::uint16_t>(*port);
  const auto socket = job.request.labels.find(label_socket);
  if (socket != job.request.labels.end()) address.socket = socket->second;
  const auto direct = job.request.labels.find(label_direct);
  if (direct != job.request.labels.end()) address.direct = direct->second;
  return address;
}

std::string folder_of(const DeploymentSpec& spec) {
  return spec.folder ? *spec.folder : home_of(spec.user.value_or(world::user_name(geteuid())));
}

}  // namespace

// Returns a wildcard address, because behind NAT no interface of the node has the node's address.
std::string direct_address(const DeploymentSpec& spec, const std::string& node) {
  if (spec.serving.reach != Reach::direct) return {};
  if (node.starts_with("127.") || node == "::1") return node;
  return node.find(':') == std::string::npos ? "0.0.0.0" : "::";
}

Result<machine::JobOrder> job_order(const Start& start, const ReplicaAddress& address, const NodeView& node,
                                    const AgentFile& file, const BackendOptions& backends) {
  const DeploymentSpec& spec = start.order.spec;
  const fleet::Assigned& assigned = start.order.assigned;
  const Assignment& place = assigned.place;
  const deployment::Placeholders values = placeholders(assigned, address, node);
  machine::JobOrder order;
  order.name =
      place.deployment.text() + "." + std::to_string(place.replica) + "." + std::to_string(assigned.generation);
  order.command = deployment::expand(spec.command, values);
  order.environment = BERTH_TRY(environment_of(spec, assigned, address, values, file));
  order.removed = withheld_variables(file);
  order.folder = folder_of(spec);
  order.user = spec.user.value_or("");
  order.labels = {{label_deployment, place.deployment.text()},
                  {label_replica, std::to_string(place.replica)},
                  {label_generation, std::to_string(assigned.generation)}};
  if (address.port) order.labels[label_port] = std::to_string(*address.port);
  if (!address.socket.empty()) order.labels[label_socket] = address.socket;
  if (!address.direct.empty()) order.labels[label_direct] = address.direct;
  order.devices.count = place.devices.size();
  for (const DeviceId& id : place.devices) order.devices.only.push_back(id.text());
  order.devices.requirements.memory_bytes_min = place.devices.empty() ? 0 : place.memory_bytes;
  order.devices.requirements.exclusive = place.exclusive;
  order.devices.requirements.whole = place.exclusive && place.memory_bytes == 0;
  order.devices.requirements.priority = spec.priority;
  order.devices.backends = backends;
  order.wait = Duration::zero();
  order.host = {spec.host_memory_bytes, spec.cpus, true};
  order.stop_grace = spec.stop_grace;
  if (start.single) {
    order.stop_unless_renewed = start.single->stop_after;
    order.labels[label_stop_after] =
        std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(start.single->stop_after).count());
  }
  return order;
}

std::optional<FoundJob> found_job(const machine::Job& job, TimePoint now) {
  const auto& labels = job.request.labels;
  const auto deployment = labels.find(label_deployment);
  const auto replica = number(labels, label_replica), generation = number(labels, label_generation);
  if (deployment == labels.end() || !replica || !generation || job.is_elsewhere) return std::nullopt;
  const machine::JobProgress& progress = job.progress;
  FoundJob found;
  found.key = {DeploymentId(deployment->second), static_cast<std::uint32_t>(*replica), *generation};
  found.id = job.id;
  found.reason = progress.reason;
  switch (progress.state) {
    case machine::JobState::waiting: found.state = FoundState::waiting; break;
    case machine::JobState::running: found.state = FoundState::running; break;
    case machine::JobState::refused: found.state = FoundState::refused; break;
    default: found.state = FoundState::ended; break;
  }
  // Files that the job's user can write do not decide this: a job has ended when its supervisor has ended.
  if (job.is_supervised && !found.is_live()) found.state = FoundState::running;
  // The supervisor may have been killed while the command keeps running.
  found.is_leftover = found.state == FoundState::running && !job.is_supervised &&
                      !(progress.command && machine::is_process_of(job, *progress.command));
  if (found.state == FoundState::ended && found.reason.empty())
    found.reason = progress.status == 0 ? "it ended by itself" : "it is " + std::string(to_string(progress.state));
  const ReplicaAddress address = address_of(job);
  found.port = address.port;
  found.socket = address.socket;
  found.direct = address.direct;
  if (progress.started_us) found.started_ms = *progress.started_us / 1000;
  found.memory_bytes_peak = progress.memory_bytes_peak;
  const std::uint64_t since_us = progress.ended_us && found.state == FoundState::ended ? *progress.ended_us
                                 : progress.started_us                                 ? *progress.started_us
                                                                                       : job.request.created_us;
  const std::uint64_t wall_us = world::wall_time_us();
  found.since = now - std::chrono::microseconds(wall_us - std::min(wall_us, since_us));
  if (const auto stop_after = number(labels, label_stop_after)) {
    found.single = FoundJob::Single{std::chrono::milliseconds(*stop_after), {}};
    // Written by renew_job: nanoseconds since the machine started.
    std::uint64_t renewed = 0;
    if (const auto text = world::read_plain_text(job.renewed()))
      std::from_chars(text->data(), text->data() + text->size(), renewed);
    found.single->renewed = now - (machine::time_since_boot() - std::chrono::nanoseconds(renewed));
  }
  return found;
}

Probing probing_of(const fleet::ReplicaOrder& order, const machine::Job& job, const NodeView& node,
                   const AgentFile& file, const BackendOptions& backends) {
  const DeploymentSpec& spec = order.spec;
  Probing probing;
  probing.readiness = spec.readiness;
  probing.liveness = spec.liveness;
  const ReplicaAddress address = address_of(job);
  probing.port = address.port;
  probing.socket = address.socket;
  // The relay makes the same check. A directly reached address is not checked, because it may belong to a container
  // that the job did not start itself.
  if (address.direct.empty()) {
    probing.job = job.folder;
    probing.name = to_string(order.assigned.key());
  }
  if (address.direct == "::")
    probing.host = "::1";
  else if (!address.direct.empty() && address.direct != "0.0.0.0")
    probing.host = address.direct;
  std::vector<std::string>*const readiness = spec.readiness ? &probing.readiness->command : nullptr,
                                 *const liveness = spec.liveness ? &probing.liveness->command : nullptr;
  if ((!readiness || readiness->empty()) && (!liveness || liveness->empty())) return probing;
  const deployment::Placeholders values = placeholders(order.assigned, address, node);
  for (std::vector<std::string>* const command : {readiness, liveness}) {
    if (command) *command = deployment::expand(*command, values);
  }
  probing.user = spec.user.value_or("");
  probing.folder = folder_of(spec);
  std::vector<machine::Granted> granted;
  std::vector<DeviceInfo> all;
  for (const NodeDevice& device : node.devices) all.push_back(device.info);
  for (const std::string& id : job.progress.devices) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const DeviceInfo& device) { return device.is_called(DeviceId(id)); });
    if (found != all.end()) granted.push_back({*found, job.progress.memory_bytes});
  }
  probing.launch = machine::make_launch({}, granted, all, machine::Limit::automatic,
                                        machine::mps_control_socket().has_value(), backends);
  Result<std::map<std::string, std::string>> environment = environment_of(spec, order.assigned, address, values, file);
  if (!environment) {
    probing.problem = environment.error().to_text();
    return probing;
  }
  for (auto& [name, value] : *environment) probing.launch.environment.insert_or_assign(name, std::move(value));
  probing.launch.removed.merge(withheld_variables(file));
  return probing;
}

Result<std::string> make_socket_folder(const std::string& job_folder, const std::string& user) {
  std::optional<world::UserAccount> account;
  if (!user.empty()) account = BERTH_TRY(world::find_user(user));
  std::string folder = job_folder + "/run";
  const std::string name = "/socket";
  if (folder.size() + name.size() >= sizeof(sockaddr_un::sun_path)) {
    folder = "/tmp/berth-XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) folder.clear();
  } else if (::mkdir(folder.c_str(), 0700) != 0) {
    folder.clear();
  }
  // Only root can give it to another user.
  if (folder.empty() || (account && ::chown(folder.c_str(), account->user, account->group) != 0))
    return Error{ErrorCode::io, std::string("cannot make a folder for the replica's socket: ") + std::strerror(errno),
                 "check the disk space and the permissions of the folder"};
  return folder + name;
}

void remove_socket(const std::string& path) {
  if (path.empty()) return;
  // The folder belongs to the user of the job, who may have put a link in its place.
  const std::string folder = std::filesystem::path(path).parent_path();
  const world::Descriptor opened(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!opened) return;
  ::unlinkat(opened.get(), std::filesystem::path(path).filename().c_str(), 0);
  ::rmdir(folder.c_str());
}

}  // namespace berth::agent
