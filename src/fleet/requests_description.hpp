// The fields of what gateways report about requests (world/description.hpp).
#pragma once

#include <array>
#include <tuple>

#include "fleet/requests.hpp"
#include "world/description.hpp"

namespace berth::world {

template <>
inline constexpr std::array words<fleet::RequestOutcome>{fleet::RequestOutcome::answered,
                                                         fleet::RequestOutcome::rejected, fleet::RequestOutcome::failed,
                                                         fleet::RequestOutcome::abandoned};

template <>
inline constexpr std::array words<fleet::CandidateVerdict>{
    fleet::CandidateVerdict::winner,  fleet::CandidateVerdict::runner_up, fleet::CandidateVerdict::eligible,
    fleet::CandidateVerdict::full,    fleet::CandidateVerdict::unready,   fleet::CandidateVerdict::draining,
    fleet::CandidateVerdict::ejected, fleet::CandidateVerdict::tried,     fleet::CandidateVerdict::not_connected};

template <>
inline constexpr auto fields<fleet::TimeHistogram> =
    std::tuple{Field{"counts", &fleet::TimeHistogram::counts}.required(),
               Field{"sum_us", &fleet::TimeHistogram::sum_us}.required()};

template <>
inline constexpr bool is_sparse<fleet::RequestCounts> = true;
template <>
inline constexpr auto fields<fleet::RequestCounts> =
    std::tuple{Field{"name", &fleet::RequestCounts::name}.required(),
               Field{"answered", &fleet::RequestCounts::answered},
               Field{"rejected", &fleet::RequestCounts::rejected},
               Field{"failed", &fleet::RequestCounts::failed},
               Field{"abandoned", &fleet::RequestCounts::abandoned},
               Field{"retried", &fleet::RequestCounts::retried},
               Field{"waiting", &fleet::RequestCounts::waiting},
               Field{"in_flight", &fleet::RequestCounts::in_flight},
               Field{"ejected", &fleet::RequestCounts::is_ejected},
               Field{"first_byte", &fleet::RequestCounts::first_byte},
               Field{"total", &fleet::RequestCounts::total},
               Field{"problem", &fleet::RequestCounts::problem}.as(Text::sentence)};

template <>
inline constexpr auto fields<fleet::RequestCandidate> =
    std::tuple{Field{"replica", &fleet::RequestCandidate::replica}.required(),
               Field{"verdict", &fleet::RequestCandidate::verdict}.required(),
               Field{"in_flight", &fleet::RequestCandidate::in_flight}.required(),
               Field{"max_concurrent", &fleet::RequestCandidate::concurrent_max}.required()};

template <>
inline constexpr bool is_sparse<fleet::RequestAttempt> = true;
template <>
inline constexpr auto fields<fleet::RequestAttempt> =
    std::tuple{Field{"replica", &fleet::RequestAttempt::replica}.required(),
               Field{"node", &fleet::RequestAttempt::node}.required(),
               Field{"outcome", &fleet::RequestAttempt::outcome}.required(),
               Field{"reason", &fleet::RequestAttempt::reason}.as(Text::sentence),
               Field{"took_us", &fleet::RequestAttempt::took_us}.required()};

template <>
inline constexpr bool is_sparse<fleet::RequestRecord> = true;
template <>
inline constexpr auto fields<fleet::RequestRecord> =
    std::tuple{Field{"id", &fleet::RequestRecord::id}.required(),
               Field{"at_ms", &fleet::RequestRecord::at_ms}.required(),
               Field{"gateway", &fleet::RequestRecord::gateway},
               Field{"caller", &fleet::RequestRecord::caller},
               Field{"deployment", &fleet::RequestRecord::deployment},
               Field{"outcome", &fleet::RequestRecord::outcome}.required(),
               Field{"status", &fleet::RequestRecord::status},
               Field{"reason", &fleet::RequestRecord::reason}.as(Text::sentence),
               Field{"waited_us", &fleet::RequestRecord::waited_us}.required(),
               Field{"total_us", &fleet::RequestRecord::total_us}.required(),
               Field{"first_byte_us", &fleet::RequestRecord::first_byte_us},
               Field{"policy", &fleet::RequestRecord::policy},
               Field{"candidates", &fleet::RequestRecord::candidates},
               Field{"tries", &fleet::RequestRecord::tries}.required(),
               Field{"attempts", &fleet::RequestRecord::attempts}};

template <>
inline constexpr auto fields<fleet::GatewayReport> =
    std::tuple{Field{"started_at_ms", &fleet::GatewayReport::started_ms}.required(),
               Field{"deployments", &fleet::GatewayReport::deployments}.required(),
               Field{"replicas", &fleet::GatewayReport::replicas}.required(),
               Field{"callers", &fleet::GatewayReport::callers}.required(),
               Field{"requests", &fleet::GatewayReport::requests}.required(),
               Field{"leaving", &fleet::GatewayReport::is_leaving},
               Field{"silent_s", &fleet::GatewayReport::silent_s},
               Field{"connections", &fleet::GatewayReport::connections},
               Field{"relay_connections", &fleet::GatewayReport::relay_connections},
               Field{"unconnected_nodes", &fleet::GatewayReport::unconnected}};

template <>
inline constexpr auto fields<fleet::RouteAnswer> =
    std::tuple{Field{"text", &fleet::RouteAnswer::text}.required(),
               Field{"deployment", &fleet::RouteAnswer::deployment},
               Field{"matched_by", &fleet::RouteAnswer::matched_by},
               Field{"policy", &fleet::RouteAnswer::policy},
               Field{"replica", &fleet::RouteAnswer::replica},
               Field{"candidates", &fleet::RouteAnswer::candidates}.required(),
               Field{"gateways", &fleet::RouteAnswer::gateways}.required()};

}  // namespace berth::world
