#include "deployment/faults.hpp"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include "deployment/command.hpp"
#include "deployment/identifiers.hpp"
#include "placement/nearest_name.hpp"
#include "world/duration.hpp"
#include "world/printable.hpp"

namespace berth::deployment {
namespace {

using std::chrono::seconds;

// Margin between the end of a `single` replica on a node that is cut off and the start of the next one, for SIGKILL and
// for clocks of unequal speed.
constexpr Duration single_margin = seconds(2);
// An agent reports every 2 s: with less, one late report would stop a `single` replica that can reach its server.
constexpr Duration stop_after_min = seconds(5);
// A node counts as silent only after three missing reports.
constexpr Duration replace_after_min = seconds(6);
constexpr double cpus_max = 1e6;

Fault fault(std::string key, std::string message, std::string advice) {
  return {std::move(key), {ErrorCode::invalid_argument, std::move(message), std::move(advice)}, 0};
}

std::string shown(std::string_view text) { return "\"" + world::printable(text.substr(0, 60)) + "\""; }

// Arguments, variables and paths end at a NUL byte.
bool has_zero(std::string_view text) { return text.find('\0') != std::string_view::npos; }

bool is_variable(std::string_view name) {
  return !name.empty() && !std::isdigit(static_cast<unsigned char>(name.front())) &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; });
}

std::optional<Fault> fault_in_placeholders(std::span<const std::string> texts, const std::string& key,
                                           const std::string& where) {
  const auto unknown = unknown_placeholder(texts);
  if (!unknown) return std::nullopt;
  const auto nearest = placement::nearest_name(*unknown, placeholder_words());
  std::string known;
  for (const std::string_view word : placeholder_words())
    known += (known.empty() ? "{" : ", {") + std::string(word) + "}";
  return fault(key, "the placeholder {" + unknown->substr(0, 60) + "} in " + where + " is not known",
               nearest ? "did you mean {" + std::string(*nearest) + "}? Write {{ for a literal brace"
                       : "use one of " + known + "; write {{ for a literal brace");
}

std::optional<Fault> fault_in_command(std::span<const std::string> command, const std::string& key,
                                      const std::string& of) {
  if (!command.empty() && command.front().empty())
    return fault(key, "the " + key + of + " begins with an empty word", "name a program first");
  for (const std::string& argument : command) {
    if (has_zero(argument)) return fault(key, "an argument in the " + key + of + " contains a NUL byte", "remove it");
  }
  return fault_in_placeholders(command, key, "the " + key + of);
}

std::optional<Fault> fault_in_probe(const DeploymentSpec& spec, const Probe& probe, const std::string& key,
                                    const std::string& of) {
  const std::string subject = "the " + key + " probe" + of;
  const int ways = (probe.http ? 1 : 0) + (probe.tcp ? 1 : 0) + (probe.command.empty() ? 0 : 1);
  if (ways == 0)
    return fault(key, subject + " has none of http, tcp and command",
                 "add one of http = \"/health\", tcp = true, command = [...]");
  if (ways > 1)
    return fault(key, subject + " has more than one of http, tcp and command", "keep one of http, tcp and command");
  if (probe.http && (!probe.http->starts_with('/') ||
                     std::any_of(probe.http->begin(), probe.http->end(), [](char c) { return c <= ' ' || c > '~'; })))
    return fault(key + ".http", subject + " has the path " + shown(*probe.http),
                 "begin it with / and use no blanks, control characters or characters beyond ASCII");
  if (auto found = fault_in_command(probe.command, key + ".command", of)) return found;
  if (probe.port && !probe.command.empty())
    return fault(key + ".port", subject + " runs a command and has a port", "remove port; {port} can be an argument");
  if (probe.port == 0) return fault(key + ".port", subject + " has port 0", "give a port from 1 to 65535");
  if (probe.command.empty() && !probe.port && !uses_placeholder(spec, "port") && !uses_placeholder(spec, "socket"))
    return fault(key, subject + " uses {port} or {socket}, but neither is in the command or the environment",
                 "give one of them to the command, or give the probe its own port");
  if (probe.every <= Duration::zero())
    return fault(key + ".every", subject + " has an interval (every) below 1 ms",
                 "use a longer one, such as every = \"2s\"");
  if (probe.timeout <= Duration::zero())
    return fault(key + ".timeout", subject + " has a timeout below 1 ms", "use a longer one, such as timeout = \"2s\"");
  if (probe.failures == 0) return fault(key + ".failures", subject + " has failures = 0", "set failures to at least 1");
  return std::nullopt;
}

std::optional<Fault> fault_in_variable(const std::string& table, const std::string& name, const std::string& of) {
  const std::string key = table + "." + name;
  if (!is_variable(name))
    return fault(key, shown(name) + " in " + table + of + " is not a variable name",
                 "use letters, digits and '_', starting with a letter or '_'");
  if (name.starts_with("BERTH_") || name == "CUDA_VISIBLE_DEVICES")
    return fault(key, name + " in " + table + of + " is set by berth itself", "remove it");
  return std::nullopt;
}

std::optional<Fault> fault_in_environment(const DeploymentSpec& spec, const std::string& of) {
  for (const auto& [name, value] : spec.environment) {
    if (auto found = fault_in_variable("environment", name, of)) return found;
    if (has_zero(value))
      return fault("environment." + name, "the value of " + name + of + " contains a NUL byte", "remove it");
    if (auto found =
            fault_in_placeholders(std::vector{value}, "environment." + name, name + " in the environment" + of))
      return found;
  }
  for (const auto& [name, key] : spec.secrets) {
    if (auto found = fault_in_variable("secrets", name, of)) return found;
    if (spec.environment.contains(name))
      return fault("secrets." + name, name + of + " is in environment and in secrets", "keep one of them");
    if (has_zero(key.text()))
      return fault("secrets." + name, "the location of " + name + of + " contains a NUL byte", "remove it");
    if (key.text().starts_with("file:") && !key.text().starts_with("file:/"))
      return fault("secrets." + name, "the file of " + name + of + " is not an absolute path", "begin it with /");
  }
  return std::nullopt;
}

// Fields that have no effect without a command.
std::optional<Fault> fault_without_command(const DeploymentSpec& spec, const std::string& of) {
  for (const auto& [key, given] :
       {std::pair("environment", !spec.environment.empty()), std::pair("secrets", !spec.secrets.empty()),
        std::pair("user", spec.user.has_value()), std::pair("folder", spec.folder.has_value()),
        std::pair("readiness", spec.readiness.has_value()), std::pair("liveness", spec.liveness.has_value())}) {
    if (given)
      return fault(key, std::string(key) + of + " is for a command, but there is none",
                   "add command = [\"...\"], or remove " + std::string(key));
  }
  return std::nullopt;
}

std::optional<Fault> fault_in_what_runs(const DeploymentSpec& spec, const std::string& of) {
  if (spec.command.empty()) {
    if (auto found = fault_without_command(spec, of)) return found;
  }
  if (auto found = fault_in_command(spec.command, "command", of)) return found;
  if (auto found = fault_in_environment(spec, of)) return found;
  if (spec.user && !is_name(*spec.user))
    return fault("user", "the user " + shown(*spec.user) + of + " is not a user name", "give the name of a user");
  if (spec.folder && (!spec.folder->starts_with('/') || has_zero(*spec.folder)))
    return fault("folder", "the folder " + shown(*spec.folder) + of + " is not an absolute path", "begin it with /");
  if (spec.readiness) {
    if (auto found = fault_in_probe(spec, *spec.readiness, "readiness", of)) return found;
  }
  if (spec.liveness) {
    if (auto found = fault_in_probe(spec, *spec.liveness, "liveness", of)) return found;
  }
  return std::nullopt;
}

// A program without {address} and {port} might listen where gateways do not connect, or on every address.
std::optional<Fault> fault_in_reach(const DeploymentSpec& spec, const std::string& of) {
  if (spec.serving.reach != Reach::direct) return std::nullopt;
  if (uses_placeholder(spec, "port") && uses_placeholder(spec, "address")) return std::nullopt;
  return fault("serving.reach",
               "reach = \"direct\"" + of + " needs {address} and {port} in its command or its environment",
               "let the command listen on {address}, such as --host {address} --port {port}, or remove reach");
}

std::optional<Fault> fault_in_limits(const DeploymentSpec& spec, const std::string& of) {
  if (spec.stop_grace < Duration::zero())
    return fault("stop_grace", "stop_grace" + of + " is negative", "give a length of time, such as \"10s\"");
  if (spec.host_memory_bytes == 0u)
    return fault("host_memory", "host_memory" + of + " is 0", "leave it out for no limit");
  if (spec.cpus && !(*spec.cpus >= 0.001 && *spec.cpus <= cpus_max))
    return fault("cpus", "cpus" + of + " must be between 0.001 and 1000000", "leave it out for no limit");
  if (spec.rollout.surge == 0 && spec.rollout.unavailable == 0)
    return fault("rollout", "a rollout" + of + " could never begin: surge and unavailable are both 0",
                 "set one of them to at least 1");
  if (spec.ready_within <= Duration::zero())
    return fault("ready_within", "ready_within" + of + " is not positive", "give a length of time, such as \"10m\"");
  if (spec.unready_within && !spec.readiness)
    return fault("unready_within", "unready_within" + of + " is for a readiness probe, but there is none",
                 "add [deployment.readiness], or remove unready_within");
  if (spec.unready_within && *spec.unready_within <= Duration::zero())
    return fault("unready_within", "unready_within" + of + " is not positive",
                 "give a length of time, such as \"5m\", or \"never\"");
  const auto is_short = [&](const char* key, Duration given, Duration least) -> std::optional<Fault> {
    if (given >= least) return std::nullopt;
    return fault(
        key,
        key + of + " is " + world::duration_text(given) + ", which is too short, because nodes report only every 2 s",
        "make it at least " + world::duration_text(least));
  };
  if (auto found = is_short("replace_after", spec.replace_after, replace_after_min)) return found;
  if (spec.single) {
    if (auto found = is_short("stop_after", spec.stop_after, stop_after_min)) return found;
  }
  if (spec.single && spec.stop_after + single_margin > spec.replace_after)
    return fault("stop_after",
                 "a single replica" + of + " could run twice: it is replaced after " +
                     world::duration_text(spec.replace_after) + " and stops itself after " +
                     world::duration_text(spec.stop_after),
                 "make stop_after at least 2 s shorter than replace_after");
  return std::nullopt;
}

}  // namespace

std::optional<Fault> find_fault(const DeploymentSpec& spec) {
  if (auto checked = check_needs(spec); !checked) return Fault{{}, std::move(checked).error(), 0};
  const std::string of = " of deployment \"" + spec.name.text() + "\"";
  if (auto found = fault_in_what_runs(spec, of)) return found;
  if (auto found = fault_in_reach(spec, of)) return found;
  return fault_in_limits(spec, of);
}

std::optional<Fault> find_fault(std::span<const DeploymentSpec> specs) {
  std::set<DeploymentId> names;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    auto found = find_fault(specs[i]);
    if (!found && !names.insert(specs[i].name).second)
      found = fault("name", "two deployments are named \"" + specs[i].name.text() + "\"", "rename one of them");
    if (!found) continue;
    found->deployment = i;
    return found;
  }
  std::map<std::pair<std::string, std::string>, const DeploymentSpec*> addresses;  // host and path
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const ServingOptions& serving = specs[i].serving;
    if (!serving.host && !serving.path) continue;
    std::string path = serving.path.value_or("");
    while (path.ends_with('/')) path.pop_back();
    const auto [at, is_new] = addresses.try_emplace({serving.host.value_or(""), path}, &specs[i]);
    if (is_new) continue;
    Fault found = fault({},
                        "deployments \"" + at->second->name.text() + "\" and \"" + specs[i].name.text() +
                            "\" have the same host and path",
                        "change serving.host or serving.path of one of them");
    found.deployment = i;
    return found;
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const auto& fallback = specs[i].serving.fallback;
    if (!fallback || names.contains(*fallback)) continue;
    Fault found = fault({},
                        "deployment \"" + specs[i].name.text() + "\" falls back to " + shown(fallback->text()) +
                            ", which is not in this project",
                        "name a deployment of this project");
    found.deployment = i;
    return found;
  }
  return std::nullopt;
}

Result<void> validate(const DeploymentSpec& spec) {
  if (auto fault = find_fault(spec)) return std::move(fault->error);
  return {};
}

Result<void> validate(const Project& project) {
  if (auto fault = find_fault(project.deployments)) return std::move(fault->error);
  return {};
}

}  // namespace berth::deployment
