// The fields of a project: in its TOML file, in the API and in the store (world/description.hpp).
#pragma once

#include <array>
#include <string_view>
#include <tuple>

#include "deployment/names.hpp"
#include "world/description.hpp"

namespace berth::world {

template <>
inline constexpr std::array words<Spread>{Spread::spread, Spread::pack, Spread::one_per_node};
template <>
inline constexpr std::array words<Priority>{Priority::low, Priority::normal, Priority::high};
template <>
inline constexpr std::array words<OnShortage>{OnShortage::all, OnShortage::best_effort};
template <>
inline constexpr std::array words<OnCapacityExhausted>{OnCapacityExhausted::queue, OnCapacityExhausted::reject,
                                                       OnCapacityExhausted::fallback};
template <>
inline constexpr std::array words<Affinity>{Affinity::bounded_load, Affinity::strict};
template <>
inline constexpr std::array words<Reach>{Reach::relay, Reach::direct};
template <>
inline constexpr std::array words<Provider>{Provider::open_ai, Provider::anthropic, Provider::gemini,
                                            Provider::lite_llm, Provider::http};

template <>
inline constexpr bool is_sparse<ServingOptions> = true;
template <>
inline constexpr auto fields<ServingOptions> = std::tuple{
    Field{"max_concurrent", &ServingOptions::max_concurrent}.between(1, 1'000'000).on_change(Effect::nothing),
    Field{"on_capacity_exhausted", &ServingOptions::on_capacity_exhausted}.on_change(Effect::nothing),
    Field{"fallback", &ServingOptions::fallback}.on_change(Effect::nothing),
    Field{"policy", &ServingOptions::policy}.on_change(Effect::nothing),
    Field{"host", &ServingOptions::host}.on_change(Effect::nothing),
    Field{"path", &ServingOptions::path}.on_change(Effect::nothing),
    Field{"open", &ServingOptions::open}.on_change(Effect::nothing),
    Field{"queue_timeout_s", &ServingOptions::queue_timeout}.in_files("queue_timeout").on_change(Effect::nothing),
    Field{"queue_max", &ServingOptions::queue_max}.between(0, 1'000'000).on_change(Effect::nothing),
    Field{"first_byte_timeout_s", &ServingOptions::first_byte_timeout}
        .in_files("first_byte_timeout")
        .on_change(Effect::nothing),
    Field{"idle_timeout_s", &ServingOptions::idle_timeout}.in_files("idle_timeout").on_change(Effect::nothing),
    Field{"key", &ServingOptions::key}.on_change(Effect::nothing),
    Field{"affinity", &ServingOptions::affinity}.on_change(Effect::nothing),
    Field{"reach", &ServingOptions::reach}};

template <>
inline constexpr bool is_sparse<Probe> = true;
template <>
inline constexpr auto fields<Probe> = std::tuple{Field{"http", &Probe::http},
                                                 Field{"tcp", &Probe::tcp},
                                                 Field{"command", &Probe::command},
                                                 Field{"port", &Probe::port}.between(1, 65'535),
                                                 Field{"every_s", &Probe::every}.in_files("every"),
                                                 Field{"timeout_s", &Probe::timeout}.in_files("timeout"),
                                                 Field{"failures", &Probe::failures}.between(1, 1'000'000)};

template <>
inline constexpr auto fields<Rollout> =
    std::tuple{Field{"surge", &Rollout::surge}.between(0, replicas_max).on_change(Effect::nothing),
               Field{"unavailable", &Rollout::unavailable}.between(0, replicas_max).on_change(Effect::nothing)};

template <>
inline constexpr bool is_sparse<DeploymentSpec> = true;
template <>
inline constexpr auto fields<DeploymentSpec> = std::tuple{
    Field{"name", &DeploymentSpec::name}.required().as(Text::name),
    Field{"model", &DeploymentSpec::model},
    Field{"runtime", &DeploymentSpec::runtime},
    Field{"gpus", &DeploymentSpec::gpus}.between(0, 1024),
    Field{"replicas", &DeploymentSpec::replicas}.between(0, replicas_max).on_change(Effect::nothing).always(),
    Field{"cpu", &DeploymentSpec::cpu},
    Field{"memory_bytes", &DeploymentSpec::memory_bytes}.in_files("memory"),
    Field{"capability", &DeploymentSpec::capability_min},
    Field{"node_selector", &DeploymentSpec::node_selector}.on_change(Effect::place),
    Field{"device_labels", &DeploymentSpec::device_labels},
    Field{"tolerates", &DeploymentSpec::tolerates}.on_change(Effect::place),
    Field{"exclusive", &DeploymentSpec::exclusive}.formerly("sharing", "exclusive"),
    Retired{"sharing", "remove it: with memory, replicas share GPUs; exclusive = true gives each its own"},
    Field{"spread", &DeploymentSpec::spread}.on_change(Effect::nothing),
    Field{"policy", &DeploymentSpec::policy}.on_change(Effect::nothing),
    Field{"priority", &DeploymentSpec::priority}.on_change(Effect::nothing),
    Field{"on_shortage", &DeploymentSpec::on_shortage}.on_change(Effect::nothing),
    Field{"idempotent", &DeploymentSpec::idempotent}.on_change(Effect::nothing),
    Field{"key", &DeploymentSpec::key},
    Field{"serving", &DeploymentSpec::serving},
    Field{"command", &DeploymentSpec::command},
    Field{"environment", &DeploymentSpec::environment}.each("variable"),
    Field{"secrets", &DeploymentSpec::secrets}.each("secret"),
    Field{"user", &DeploymentSpec::user},
    Field{"folder", &DeploymentSpec::folder},
    Field{"readiness", &DeploymentSpec::readiness},
    Field{"liveness", &DeploymentSpec::liveness},
    Field{"ready_within_s", &DeploymentSpec::ready_within}.in_files("ready_within"),
    Field{"unready_within_s", &DeploymentSpec::unready_within}.in_files("unready_within").or_never(),
    Field{"stop_grace_s", &DeploymentSpec::stop_grace}.in_files("stop_grace"),
    Field{"host_memory_bytes", &DeploymentSpec::host_memory_bytes}.in_files("host_memory"),
    Field{"cpus", &DeploymentSpec::cpus}.between(0, 1'000'000),
    Field{"rollout", &DeploymentSpec::rollout},
    Field{"single", &DeploymentSpec::single},
    Field{"stop_after_s", &DeploymentSpec::stop_after}.in_files("stop_after"),
    Field{"replace_after_s", &DeploymentSpec::replace_after}.in_files("replace_after").on_change(Effect::nothing)};

template <>
inline constexpr auto fields<Cluster> =
    std::tuple{Field{"name", &Cluster::name}.required().as(Text::name),
               Retired{"bind", "remove it: berth serve --listen sets the address"},
               Retired{"endpoint", "remove it: berth serve --listen sets the address"}};

template <>
inline constexpr bool is_sparse<Project> = true;
template <>
inline constexpr auto fields<Project> =
    std::tuple{Field{"cluster", &Project::cluster}.required(), Field{"deployments", &Project::deployments}.always(),
               Field{"egress_preference", &Project::egress_preference}};

}  // namespace berth::world

namespace berth::deployment {

// The strongest effect of all changed fields. Fields that this version does not know have no effect.
world::Effect effect_of_change(const DeploymentSpec& before, const DeploymentSpec& after);
// The names of the fields that differ, as the API has them.
std::vector<std::string_view> changed_fields(const DeploymentSpec& before, const DeploymentSpec& after);
// "stop_grace" for "stop_grace_s": the name of a field in the file of a project. An unknown name stays as it is.
std::string_view name_in_file(std::string_view name);

}  // namespace berth::deployment
