// What a server accepts and keeps. Each bound is far above what fleets use, and low enough that every consequence of
// accepted input can be written to a store (store/engine.hpp: 1 MiB per value) and sent to a node (64 MiB per
// answer).
#pragma once

#include <cstddef>
#include <cstdint>

namespace berth::fleet {

// The limit of one deployment's spec as JSON.
inline constexpr std::size_t spec_bytes_max = 256 << 10;
// The limit of its record in the store: the spec, earlier specs, and room for the reason of a pause. Earlier specs
// that do not fit are left out, but there is room for at least one.
inline constexpr std::size_t wanted_bytes_max = 768 << 10;
// The limit of the list of all deployments.
inline constexpr std::size_t project_bytes_max = 512 << 10;
// Replicas of all deployments.
inline constexpr std::uint64_t project_replicas_max = 50'000;
// The limit of the specs of all replicas together: a node that runs all of them receives this much, and twice as much
// during a rollout.
inline constexpr std::size_t orders_bytes_max = 24 << 20;
// The limit of one sentence from a person, an agent or a program.
inline constexpr std::size_t sentence_bytes_max = 500;

// These apply to a report.
inline constexpr std::size_t node_name_bytes_max = 200;
inline constexpr std::size_t node_devices_max = 1024, device_id_bytes_max = 200;
inline constexpr std::size_t node_leases_max = 4096;
inline constexpr std::size_t device_holders_max = 256, device_words_max = 64;
inline constexpr std::uint64_t memory_bytes_max = 1ULL << 50;  // 1 PiB: sums over a fleet stay below 2^64

}  // namespace berth::fleet
