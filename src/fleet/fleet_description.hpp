// The fields of the fleet's nouns, in messages between servers and agents and in the store (world/description.hpp).
#pragma once

#include <array>
#include <tuple>

#include "deployment/spec_description.hpp"
#include "fleet/fleet.hpp"
#include "inventory/device_description.hpp"
#include "world/description.hpp"

namespace berth::world {

template <>
inline constexpr std::array words<fleet::ReplicaState>{fleet::ReplicaState::waiting,     fleet::ReplicaState::starting,
                                                       fleet::ReplicaState::ready,       fleet::ReplicaState::unready,
                                                       fleet::ReplicaState::backing_off, fleet::ReplicaState::refused,
                                                       fleet::ReplicaState::stopping,    fleet::ReplicaState::gone};
template <>
inline constexpr std::array words<fleet::EventKind>{
    fleet::EventKind::applied, fleet::EventKind::assigned,  fleet::EventKind::ready,  fleet::EventKind::failed,
    fleet::EventKind::refused, fleet::EventKind::stopped,   fleet::EventKind::moved,  fleet::EventKind::pending,
    fleet::EventKind::rollout, fleet::EventKind::node,      fleet::EventKind::intent, fleet::EventKind::device,
    fleet::EventKind::server,  fleet::EventKind::credential};
template <>
inline constexpr std::array words<fleet::Role>{fleet::Role::read, fleet::Role::operate, fleet::Role::deploy,
                                               fleet::Role::node, fleet::Role::join,    fleet::Role::gateway,
                                               fleet::Role::call};

template <>
inline constexpr auto fields<Assignment> = std::tuple{Field{"deployment", &Assignment::deployment}.required(),
                                                      Field{"replica", &Assignment::replica}.required(),
                                                      Field{"node", &Assignment::node}.required(),
                                                      Field{"devices", &Assignment::devices}.required(),
                                                      Field{"memory_bytes", &Assignment::memory_bytes}.required(),
                                                      Field{"exclusive", &Assignment::exclusive}.required()};

template <>
inline constexpr auto fields<fleet::DesiredDeployment> =
    std::tuple{Field{"spec", &fleet::DesiredDeployment::spec}.required(),
               Field{"revision", &fleet::DesiredDeployment::revision}.required(),
               Field{"earlier", &fleet::DesiredDeployment::earlier},
               Field{"paused", &fleet::DesiredDeployment::paused},
               Field{"shards", &fleet::DesiredDeployment::shards},
               Field{"shards_moved", &fleet::DesiredDeployment::shards_moved},
               Field{"restart_revision", &fleet::DesiredDeployment::restart_revision}};

template <>
inline constexpr auto fields<fleet::Assigned> = std::tuple{Inline{&fleet::Assigned::place},
                                                           Field{"generation", &fleet::Assigned::generation}.required(),
                                                           Field{"revision", &fleet::Assigned::revision}.required(),
                                                           Field{"stopping", &fleet::Assigned::stopping},
                                                           Field{"since_at_ms", &fleet::Assigned::since_ms},
                                                           Field{"replace_s", &fleet::Assigned::replace_s}};

template <>
inline constexpr auto fields<fleet::ReplicaKey> =
    std::tuple{Field{"deployment", &fleet::ReplicaKey::deployment}.required(),
               Field{"replica", &fleet::ReplicaKey::replica}.required(),
               Field{"generation", &fleet::ReplicaKey::generation}.required()};

template <>
inline constexpr bool is_sparse<fleet::ReplicaReport> = true;
template <>
inline constexpr auto fields<fleet::ReplicaReport> =
    std::tuple{Inline{&fleet::ReplicaReport::key},
               Field{"state", &fleet::ReplicaReport::state}.required(),
               Field{"reason", &fleet::ReplicaReport::reason}.as(Text::sentence),
               Field{"failures", &fleet::ReplicaReport::failures},
               Field{"port", &fleet::ReplicaReport::port},
               Field{"job", &fleet::ReplicaReport::job}.as(Text::sentence),
               Field{"started_at_ms", &fleet::ReplicaReport::started_ms},
               Field{"memory_bytes_peak", &fleet::ReplicaReport::memory_bytes_peak},
               Field{"next_start_at_ms", &fleet::ReplicaReport::next_start_ms}};

template <>
inline constexpr auto fields<fleet::ReplicaOrder> = std::tuple{
    Field{"assigned", &fleet::ReplicaOrder::assigned}.required(), Field{"spec", &fleet::ReplicaOrder::spec}.required()};

template <>
inline constexpr auto fields<fleet::GatewayOrder> = std::tuple{
    Field{"name", &fleet::GatewayOrder::name}.required(), Field{"address", &fleet::GatewayOrder::address}.required(),
    Field{"key", &fleet::GatewayOrder::key}.required()};

template <>
inline constexpr bool is_sparse<fleet::NodeOrders> = true;
template <>
inline constexpr auto fields<fleet::NodeOrders> = std::tuple{
    Field{"epoch", &fleet::NodeOrders::epoch}.required(), Field{"revision", &fleet::NodeOrders::number}.required(),
    Field{"orders", &fleet::NodeOrders::orders}.required(), Field{"gateways", &fleet::NodeOrders::gateways}};

template <>
inline constexpr auto fields<fleet::Event> =
    std::tuple{Field{"id", &fleet::Event::id}.required(),           Field{"at_ms", &fleet::Event::at_ms}.required(),
               Field{"kind", &fleet::Event::kind}.required(),       Field{"actor", &fleet::Event::actor}.required(),
               Field{"subject", &fleet::Event::subject}.required(), Field{"text", &fleet::Event::text}.required()};

template <>
inline constexpr bool is_sparse<fleet::Credential> = true;
template <>
inline constexpr auto fields<fleet::Credential> =
    std::tuple{Field{"id", &fleet::Credential::id}.required(),
               Field{"role", &fleet::Credential::role}.required(),
               Field{"sha256", &fleet::Credential::sha256}.required(),
               Field{"node", &fleet::Credential::node},
               Field{"expires_at_ms", &fleet::Credential::expires_ms},
               Field{"made_by", &fleet::Credential::made_by}.always(),
               Field{"made_at_ms", &fleet::Credential::made_ms}.always(),
               Field{"for_gateway", &fleet::Credential::for_gateway},
               Field{"name", &fleet::Credential::name},
               Field{"address", &fleet::Credential::address},
               Field{"deployment", &fleet::Credential::deployment},
               Field{"weight", &fleet::Credential::weight},
               Field{"per_second", &fleet::Credential::per_second},
               Field{"concurrent_max", &fleet::Credential::concurrent_max},
               Field{"explain", &fleet::Credential::may_explain}};

template <>
inline constexpr auto fields<fleet::DeviceIntent> =
    std::tuple{Field{"intent", &fleet::DeviceIntent::intent}.required(), Field{"intent_by", &fleet::DeviceIntent::by},
               Field{"reason", &fleet::DeviceIntent::reason}};

template <>
inline constexpr bool is_sparse<fleet::NodeRecord> = true;
template <>
inline constexpr auto fields<fleet::NodeRecord> = std::tuple{
    Field{"name", &fleet::NodeRecord::id}.required(),  Field{"intent", &fleet::NodeRecord::intent}.required(),
    Field{"intent_by", &fleet::NodeRecord::intent_by}, Field{"intent_reason", &fleet::NodeRecord::intent_reason},
    Field{"inventory", &fleet::NodeRecord::inventory}, Field{"joined_at_ms", &fleet::NodeRecord::joined_ms},
    Field{"devices", &fleet::NodeRecord::devices}};

}  // namespace berth::world
