#include "format/spec_json.hpp"

#include <boost/json.hpp>
#include <chrono>
#include <cmath>
#include <limits>

#include "berth/bytes.hpp"
#include "deployment/identifiers.hpp"
#include "format/json_reading.hpp"

namespace berth::format {
namespace {

namespace json = boost::json;

constexpr double duration_s_max = 366.0 * 86400;  // as in TOML

json::value seconds(Duration duration) {
  const auto milliseconds = duration / std::chrono::milliseconds(1);
  if (milliseconds % 1000 == 0) return milliseconds / 1000;
  return static_cast<double>(milliseconds) / 1000;
}

Duration duration_of(const json::value& value, const std::string& where) {
  const double given = real_of(value, where);
  if (given > duration_s_max) throw JsonError{where + " is more than 366 days"};
  return std::chrono::milliseconds(std::llround(given * 1000));
}

// In thousandths: Boost.JSON may read a fraction with another last bit than it has written.
double cpus_of(const json::value& value, const std::string& where) {
  const double given = real_of(value, where);
  if (given > 1e6) throw JsonError{where + " is too large"};
  return std::round(given * 1000) / 1000;
}

json::array texts_to_json(const auto& texts) { return json::array(texts.begin(), texts.end()); }

KeyRef key_of(const json::value& value, const std::string& where) {
  auto key = KeyRef::parse(text_of(value, where));
  if (!key) throw JsonError{where + ": " + key.error().message + "; " + key.error().advice};
  return *std::move(key);
}

DeploymentId deployment_id_of(const json::value& value, const std::string& where) {
  return DeploymentId(text_of(value, where));
}

Provider provider_of(const json::value& value, const std::string& where) {
  return word_of(value, {Provider::open_ai, Provider::anthropic, Provider::gemini, Provider::lite_llm, Provider::http},
                 where);
}

template <class T, class Read>
void take(T& target, const json::object& object, std::string_view key, const std::string& where, Read&& read) {
  if (auto value = optional_member(object, key, where, read)) target = *std::move(value);
}

template <class Word>
void take_word(Word& target, const json::object& object, std::string_view key, const std::string& where,
               std::initializer_list<Word> words) {
  take(target, object, key, where,
       [&](const json::value& value, const std::string& at) { return word_of(value, words, at); });
}

json::object serving_to_json(const Serving& serving) {
  const Serving usual;
  json::object out;
  if (serving.max_concurrent != usual.max_concurrent) out["max_concurrent"] = serving.max_concurrent;
  if (serving.on_capacity_exhausted != usual.on_capacity_exhausted)
    out["on_capacity_exhausted"] = to_string(serving.on_capacity_exhausted);
  if (serving.fallback) out["fallback"] = serving.fallback->text();
  return out;
}

Serving serving_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  check_members(object, {"max_concurrent", "on_capacity_exhausted", "fallback"}, where);
  Serving serving;
  take(serving.max_concurrent, object, "max_concurrent", where, small_of);
  take_word(serving.on_capacity_exhausted, object, "on_capacity_exhausted", where,
            {OnCapacityExhausted::queue, OnCapacityExhausted::reject, OnCapacityExhausted::fallback});
  take(serving.fallback, object, "fallback", where, deployment_id_of);
  return serving;
}

json::object probe_to_json(const Probe& probe) {
  const Probe usual;
  json::object out;
  if (probe.http) out["http"] = *probe.http;
  if (probe.tcp) out["tcp"] = true;
  if (!probe.command.empty()) out["command"] = texts_to_json(probe.command);
  if (probe.port) out["port"] = *probe.port;
  if (probe.every != usual.every) out["every_s"] = seconds(probe.every);
  if (probe.timeout != usual.timeout) out["timeout_s"] = seconds(probe.timeout);
  if (probe.failures != usual.failures) out["failures"] = probe.failures;
  return out;
}

Probe probe_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  check_members(object, {"http", "tcp", "command", "port", "every_s", "timeout_s", "failures"}, where);
  Probe probe;
  take(probe.http, object, "http", where, text_of);
  take(probe.tcp, object, "tcp", where, bool_of);
  take(probe.command, object, "command", where, texts_of);
  take(probe.port, object, "port", where, port_of);
  take(probe.every, object, "every_s", where, duration_of);
  take(probe.timeout, object, "timeout_s", where, duration_of);
  take(probe.failures, object, "failures", where, small_of);
  return probe;
}

json::object rollout_to_json(const Rollout& rollout) {
  return {{"surge", rollout.surge}, {"unavailable", rollout.unavailable}};
}

Rollout rollout_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  check_members(object, {"surge", "unavailable"}, where);
  Rollout rollout;
  take(rollout.surge, object, "surge", where, small_of);
  take(rollout.unavailable, object, "unavailable", where, small_of);
  return rollout;
}

void put_what_runs(json::object& out, const DeploymentSpec& spec, const DeploymentSpec& usual) {
  if (!spec.command.empty()) out["command"] = texts_to_json(spec.command);
  if (!spec.environment.empty()) out["environment"] = labels_to_json(spec.environment);
  if (!spec.secrets.empty()) {
    json::object secrets;
    for (const auto& [name, key] : spec.secrets) secrets[name] = key.text();
    out["secrets"] = std::move(secrets);
  }
  if (spec.user) out["user"] = *spec.user;
  if (spec.folder) out["folder"] = *spec.folder;
  if (spec.readiness) out["readiness"] = probe_to_json(*spec.readiness);
  if (spec.liveness) out["liveness"] = probe_to_json(*spec.liveness);
  if (spec.ready_within != usual.ready_within) out["ready_within_s"] = seconds(spec.ready_within);
  if (spec.stop_grace != usual.stop_grace) out["stop_grace_s"] = seconds(spec.stop_grace);
  if (spec.host_memory_bytes) out["host_memory_bytes"] = *spec.host_memory_bytes;
  if (spec.cpus) out["cpus"] = *spec.cpus;
  if (spec.rollout != usual.rollout) out["rollout"] = rollout_to_json(spec.rollout);
  if (spec.single) out["single"] = true;
  if (spec.stop_after != usual.stop_after) out["stop_after_s"] = seconds(spec.stop_after);
  if (spec.replace_after != usual.replace_after) out["replace_after_s"] = seconds(spec.replace_after);
}

void take_what_runs(DeploymentSpec& spec, const json::object& object, const std::string& where) {
  take(spec.command, object, "command", where, texts_of);
  take(spec.environment, object, "environment", where, labels_of);
  if (const json::value* secrets = object.if_contains("secrets")) {
    const std::string at = where + ".secrets";
    for (const auto& entry : object_of(*secrets, at))
      spec.secrets.emplace(entry.key(), key_of(entry.value(), at + "." + std::string(entry.key())));
  }
  take(spec.user, object, "user", where, text_of);
  take(spec.folder, object, "folder", where, text_of);
  take(spec.readiness, object, "readiness", where, probe_of);
  take(spec.liveness, object, "liveness", where, probe_of);
  take(spec.ready_within, object, "ready_within_s", where, duration_of);
  take(spec.stop_grace, object, "stop_grace_s", where, duration_of);
  take(spec.host_memory_bytes, object, "host_memory_bytes", where, whole_of);
  take(spec.cpus, object, "cpus", where, cpus_of);
  take(spec.rollout, object, "rollout", where, rollout_of);
  take(spec.single, object, "single", where, bool_of);
  take(spec.stop_after, object, "stop_after_s", where, duration_of);
  take(spec.replace_after, object, "replace_after_s", where, duration_of);
}

}  // namespace

json::object spec_to_json(const DeploymentSpec& spec) {
  const DeploymentSpec usual;
  json::object out{{"name", spec.name.text()}};
  if (!spec.model.empty()) out["model"] = spec.model;
  if (spec.runtime) out["runtime"] = to_string(*spec.runtime);
  if (spec.gpus) out["gpus"] = *spec.gpus;
  out["replicas"] = spec.replicas;
  if (spec.cpu) out["cpu"] = true;
  if (spec.memory_bytes) out["memory_bytes"] = spec.memory_bytes;
  if (spec.capability_min) out["capability"] = to_string(*spec.capability_min);
  if (!spec.node_selector.empty()) out["node_selector"] = labels_to_json(spec.node_selector);
  if (!spec.device_labels.empty()) out["device_labels"] = labels_to_json(spec.device_labels);
  if (!spec.tolerates.empty()) out["tolerates"] = texts_to_json(spec.tolerates);
  if (spec.sharing != usual.sharing) out["sharing"] = to_string(spec.sharing);
  if (spec.spread != usual.spread) out["spread"] = to_string(spec.spread);
  if (spec.policy) out["policy"] = *spec.policy;
  if (spec.priority != usual.priority) out["priority"] = to_string(spec.priority);
  if (spec.on_shortage != usual.on_shortage) out["on_shortage"] = to_string(spec.on_shortage);
  if (spec.idempotent) out["idempotent"] = true;
  if (spec.key) out["key"] = spec.key->text();
  if (spec.serving != usual.serving) out["serving"] = serving_to_json(spec.serving);
  put_what_runs(out, spec, usual);
  return out;
}

DeploymentSpec spec_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  check_schema(object, where);
  check_members(object,
                {"name",
                 "model",
                 "runtime",
                 "gpus",
                 "replicas",
                 "cpu",
                 "memory_bytes",
                 "capability",
                 "node_selector",
                 "device_labels",
                 "tolerates",
                 "sharing",
                 "spread",
                 "policy",
                 "priority",
                 "on_shortage",
                 "idempotent",
                 "key",
                 "serving",
                 "command",
                 "environment",
                 "secrets",
                 "user",
                 "folder",
                 "readiness",
                 "liveness",
                 "ready_within_s",
                 "stop_grace_s",
                 "host_memory_bytes",
                 "cpus",
                 "rollout",
                 "single",
                 "stop_after_s",
                 "replace_after_s"},
                where);
  DeploymentSpec spec;
  spec.name = deployment_id_of(member(object, "name", where), where + ".name");
  take(spec.model, object, "model", where, text_of);
  if (const auto runtime = optional_member(object, "runtime", where, text_of)) spec.runtime = runtime_from(*runtime);
  spec.gpus = optional_member(object, "gpus", where, small_of);
  take(spec.replicas, object, "replicas", where, small_of);
  take(spec.cpu, object, "cpu", where, bool_of);
  take(spec.memory_bytes, object, "memory_bytes", where, whole_of);
  take(spec.capability_min, object, "capability", where, capability_of);
  take(spec.node_selector, object, "node_selector", where, labels_of);
  take(spec.device_labels, object, "device_labels", where, labels_of);
  for (std::string& taint : optional_member(object, "tolerates", where, texts_of).value_or(std::vector<std::string>{}))
    spec.tolerates.insert(std::move(taint));
  take_word(spec.sharing, object, "sharing", where, {Sharing::exclusive, Sharing::memory});
  take_word(spec.spread, object, "spread", where, {Spread::spread, Spread::pack, Spread::one_per_node});
  take(spec.policy, object, "policy", where, text_of);
  take_word(spec.priority, object, "priority", where, {Priority::low, Priority::normal, Priority::high});
  take_word(spec.on_shortage, object, "on_shortage", where, {OnShortage::all, OnShortage::best_effort});
  take(spec.idempotent, object, "idempotent", where, bool_of);
  take(spec.key, object, "key", where, key_of);
  take(spec.serving, object, "serving", where, serving_of);
  take_what_runs(spec, object, where);
  return spec;
}

json::array egress_preference_to_json(const EgressPreference& preference) {
  json::array out;
  for (const auto& [route, nodes] : preference) {
    json::array names;
    for (const NodeId& node : nodes) names.emplace_back(node.text());
    out.push_back(
        json::object{{"provider", to_string(route.provider)}, {"key", route.key.text()}, {"nodes", std::move(names)}});
  }
  return out;
}

EgressPreference egress_preference_of(const json::value& value, const std::string& where) {
  EgressPreference out;
  std::size_t index = 0;
  for (const json::value& entry : array_of(value, where)) {
    const std::string at = where + "[" + std::to_string(index++) + "]";
    const json::object& object = object_of(entry, at);
    check_members(object, {"provider", "key", "nodes"}, at);
    EgressRoute route{provider_of(member(object, "provider", at), at + ".provider"),
                      key_of(member(object, "key", at), at + ".key")};
    std::vector<NodeId> nodes;
    for (std::string& name : texts_of(member(object, "nodes", at), at + ".nodes")) nodes.emplace_back(std::move(name));
    if (!out.emplace(std::move(route), std::move(nodes)).second)
      throw JsonError{at + ": this provider and key have a preference already"};
  }
  return out;
}

json::object project_to_json(const Project& project) {
  json::object cluster{{"name", project.cluster.name}, {"bind", project.cluster.bind}};
  if (project.cluster.endpoint) cluster["endpoint"] = *project.cluster.endpoint;
  json::array deployments;
  for (const DeploymentSpec& spec : project.deployments) deployments.push_back(spec_to_json(spec));
  json::object out{{"cluster", std::move(cluster)}, {"deployments", std::move(deployments)}};
  if (!project.egress_preference.empty())
    out["egress_preference"] = egress_preference_to_json(project.egress_preference);
  return out;
}

Project project_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  check_schema(object, where);
  check_members(object, {"cluster", "deployments", "egress_preference"}, where);
  Project project;
  const std::string at = where + ".cluster";
  const json::object& cluster = object_of(member(object, "cluster", where), at);
  check_members(cluster, {"name", "bind", "endpoint"}, at);
  project.cluster.name = text_of(member(cluster, "name", at), at + ".name");
  if (!deployment::is_name(project.cluster.name))
    throw JsonError{at + ".name is " + in_quotes(project.cluster.name) +
                    "; a name is of letters, digits, '.', '_' and '-', a letter or digit first"};
  take(project.cluster.bind, cluster, "bind", at, text_of);
  take(project.cluster.endpoint, cluster, "endpoint", at, text_of);
  if (const json::value* deployments = object.if_contains("deployments"))
    project.deployments = entries_of(*deployments, where + ".deployments", spec_of);
  take(project.egress_preference, object, "egress_preference", where, egress_preference_of);
  return project;
}

Result<Project> read_project_json(std::string_view text, std::string_view filename) {
  Project project = BERTH_TRY(read_document(text, std::string(filename), project_of));
  if (auto valid = validate(project); !valid) return std::move(valid).error();
  return project;
}

}  // namespace berth::format
