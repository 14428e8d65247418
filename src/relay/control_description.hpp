// The fields of messages between an agent and its relay (world/description.hpp).
#pragma once

#include <tuple>

#include "relay/control.hpp"
#include "world/description.hpp"

namespace berth::world {

template <>
inline constexpr auto fields<relay::Target> =
    std::tuple{Field{"name", &relay::Target::name}.required(),
               Field{"address", &relay::Target::address}.required(),
               Field{"concurrent_max", &relay::Target::concurrent_max}.required(),
               Field{"is_draining", &relay::Target::is_draining},
               Field{"job", &relay::Target::job},
               Field{"in_flight_elsewhere", &relay::Target::in_flight_elsewhere}};

template <>
inline constexpr auto fields<relay::GatewayAddress> = std::tuple{Field{"name", &relay::GatewayAddress::name}.required(),
                                                                 Field{"url", &relay::GatewayAddress::url}.required(),
                                                                 Field{"key", &relay::GatewayAddress::key}.required()};

template <>
inline constexpr auto fields<relay::Control> = std::tuple{Field{"targets", &relay::Control::targets}.required(),
                                                          Field{"gateways", &relay::Control::gateways}.required()};

template <>
inline constexpr auto fields<relay::ControlAnswer> = std::tuple{
    Field{"in_flight", &relay::ControlAnswer::in_flight}.required(),
    Field{"version", &relay::ControlAnswer::version}.required(), Field{"problem", &relay::ControlAnswer::problem}};

}  // namespace berth::world
