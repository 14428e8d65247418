// The fields of a server's messages to gateways (world/description.hpp).
#pragma once

#include <array>
#include <tuple>

#include "deployment/spec_description.hpp"
#include "fleet/endpoints.hpp"
#include "world/description.hpp"

namespace berth::world {

template <>
inline constexpr std::array words<fleet::EndpointState>{fleet::EndpointState::ready, fleet::EndpointState::unready,
                                                        fleet::EndpointState::draining, fleet::EndpointState::gone};

template <>
inline constexpr auto fields<fleet::Traffic> = std::tuple{Field{"requests_per_s", &fleet::Traffic::requests_per_s},
                                                          Field{"rejected_per_s", &fleet::Traffic::rejected_per_s},
                                                          Field{"failed_per_s", &fleet::Traffic::failed_per_s},
                                                          Field{"retried_per_s", &fleet::Traffic::retried_per_s},
                                                          Field{"first_byte_s_p50", &fleet::Traffic::first_byte_s_p50},
                                                          Field{"first_byte_s_p99", &fleet::Traffic::first_byte_s_p99},
                                                          Field{"total_s_p50", &fleet::Traffic::total_s_p50},
                                                          Field{"total_s_p99", &fleet::Traffic::total_s_p99},
                                                          Field{"waiting", &fleet::Traffic::waiting}.required(),
                                                          Field{"in_flight", &fleet::Traffic::in_flight}.required(),
                                                          Field{"ejected_by", &fleet::Traffic::ejected_by}.required()};

template <>
inline constexpr auto fields<fleet::Endpoint> =
    std::tuple{Field{"name", &fleet::Endpoint::name}.required(),
               Field{"node", &fleet::Endpoint::node}.required(),
               Field{"max_concurrent", &fleet::Endpoint::concurrent_max}.required(),
               Field{"state", &fleet::Endpoint::state}.required(),
               Field{"devices", &fleet::Endpoint::devices},
               Field{"traffic", &fleet::Endpoint::traffic},
               Field{"address", &fleet::Endpoint::address}};

template <>
inline constexpr auto fields<fleet::ServedDeployment> = std::tuple{
    Field{"name", &fleet::ServedDeployment::name}.required(), Field{"model", &fleet::ServedDeployment::model},
    Field{"serving", &fleet::ServedDeployment::serving},      Field{"idempotent", &fleet::ServedDeployment::idempotent},
    Field{"endpoints", &fleet::ServedDeployment::endpoints},  Field{"shards", &fleet::ServedDeployment::shards},
    Field{"traffic", &fleet::ServedDeployment::traffic}};

template <>
inline constexpr auto fields<fleet::Caller> = std::tuple{Field{"id", &fleet::Caller::id}.required(),
                                                         Field{"name", &fleet::Caller::name},
                                                         Field{"sha256", &fleet::Caller::sha256}.required(),
                                                         Field{"deployment", &fleet::Caller::deployment}.required(),
                                                         Field{"weight", &fleet::Caller::weight},
                                                         Field{"per_second", &fleet::Caller::per_second},
                                                         Field{"concurrent_max", &fleet::Caller::concurrent_max},
                                                         Field{"expires_at_ms", &fleet::Caller::expires_ms},
                                                         Field{"explain", &fleet::Caller::may_explain}};

template <>
inline constexpr auto fields<fleet::CallerTraffic> =
    std::tuple{Field{"id", &fleet::CallerTraffic::id}.required(), Field{"name", &fleet::CallerTraffic::name},
               Field{"deployment", &fleet::CallerTraffic::deployment},
               Field{"traffic", &fleet::CallerTraffic::traffic}.required()};

template <>
inline constexpr auto fields<fleet::RelayKey> =
    std::tuple{Field{"node", &fleet::RelayKey::node}.required(), Field{"key", &fleet::RelayKey::key}.required()};

template <>
inline constexpr auto fields<fleet::GatewayView> = std::tuple{
    Field{"epoch", &fleet::GatewayView::epoch}.required(), Field{"revision", &fleet::GatewayView::number}.required(),
    Field{"deployments", &fleet::GatewayView::deployments}.required(),
    Field{"callers", &fleet::GatewayView::callers}.required(), Field{"relays", &fleet::GatewayView::relays}.required()};

}  // namespace berth::world
