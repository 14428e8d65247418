// The fields of what agents report (world/description.hpp). Agents may be damaged or hostile: every text, number and
// list has a bound.
#pragma once

#include <array>
#include <limits>
#include <tuple>

#include "fleet/bounds.hpp"
#include "fleet/fleet_description.hpp"
#include "inventory/device_description.hpp"

namespace berth::world {

template <>
inline constexpr std::array words<fleet::HolderKind>{fleet::HolderKind::replica, fleet::HolderKind::job,
                                                     fleet::HolderKind::lease, fleet::HolderKind::foreign};
template <>
inline constexpr std::array words<fleet::LeaseKind>{fleet::LeaseKind::lease, fleet::LeaseKind::job};
template <>
inline constexpr std::array words<fleet::LeaseState>{fleet::LeaseState::running, fleet::LeaseState::waiting};

// A field with the bound that all amounts of a report have.
template <class Noun, class Value>
constexpr Field<Noun, Value> amount(std::string_view name, Value Noun::* member) {
  return Field{name, member}.between(0, fleet::memory_bytes_max);
}
template <class Noun, class Value>
constexpr Field<Noun, Value> sentence(std::string_view name, Value Noun::* member) {
  return Field{name, member}.as(Text::sentence);
}

template <>
inline constexpr bool is_sparse<fleet::ReportedHolder> = true;
template <>
inline constexpr auto fields<fleet::ReportedHolder> = std::tuple{
    Field{"kind", &fleet::ReportedHolder::kind}.required(), sentence("name", &fleet::ReportedHolder::name).required(),
    sentence("user", &fleet::ReportedHolder::user), amount("memory_bytes", &fleet::ReportedHolder::memory_bytes)};

inline constexpr std::uint64_t process_number_max = std::numeric_limits<std::uint32_t>::max();
template <>
inline constexpr bool is_sparse<fleet::ReportedProcess> = true;
template <>
inline constexpr auto fields<fleet::ReportedProcess> =
    std::tuple{Field{"pid", &fleet::ReportedProcess::pid}.between(0, process_number_max).required(),
               Field{"kind", &fleet::ReportedProcess::kind}.required(),
               sentence("name", &fleet::ReportedProcess::name),
               amount("memory_bytes", &fleet::ReportedProcess::memory_bytes),
               Field{"uid", &fleet::ReportedProcess::uid}.between(0, process_number_max),
               Field{"graphics", &fleet::ReportedProcess::graphics}};

template <>
inline constexpr bool is_sparse<fleet::ReportedDeviceEvent> = true;
template <>
inline constexpr auto fields<fleet::ReportedDeviceEvent> = std::tuple{
    Field{"kind", &fleet::ReportedDeviceEvent::kind}.required(), amount("code", &fleet::ReportedDeviceEvent::code),
    sentence("action", &fleet::ReportedDeviceEvent::action),
    amount("age_ms", &fleet::ReportedDeviceEvent::age_ms).required()};

// Without its `info`: see fleet_format/report_json.cpp.
template <>
inline constexpr bool is_sparse<fleet::ReportedDevice> = true;
template <>
inline constexpr auto fields<fleet::ReportedDevice> =
    std::tuple{Field{"health", &fleet::ReportedDevice::health}.always(),
               Field{"intent", &fleet::ReportedDevice::intent}.always(),
               sentence("intent_by", &fleet::ReportedDevice::intent_by),
               Field{"held_exclusively", &fleet::ReportedDevice::held_exclusively},
               Field{"holders", &fleet::ReportedDevice::holders}.up_to(fleet::device_holders_max).always(),
               amount("intent_age_ms", &fleet::ReportedDevice::intent_age_ms),
               amount("sample_age_ms", &fleet::ReportedDevice::sample_age_ms),
               amount("memory_bytes_free", &fleet::ReportedDevice::memory_bytes_free),
               amount("memory_bytes_own", &fleet::ReportedDevice::memory_bytes_own),
               amount("memory_bytes_berth", &fleet::ReportedDevice::memory_bytes_berth),
               amount("memory_bytes_foreign", &fleet::ReportedDevice::memory_bytes_foreign),
               amount("memory_bytes_unattributed", &fleet::ReportedDevice::memory_bytes_unattributed),
               amount("memory_bytes_promised", &fleet::ReportedDevice::memory_bytes_promised),
               amount("active_streams", &fleet::ReportedDevice::active_streams),
               amount("queue_depth", &fleet::ReportedDevice::queue_depth),
               Field{"utilization", &fleet::ReportedDevice::utilization}.formerly("utilisation").either_sign(),
               Field{"memory_utilization", &fleet::ReportedDevice::memory_utilization}
                   .formerly("memory_utilisation")
                   .either_sign(),
               Field{"power_watts", &fleet::ReportedDevice::power_watts}.either_sign(),
               Field{"power_limit_watts", &fleet::ReportedDevice::power_limit_watts}.either_sign(),
               Field{"temperature_celsius", &fleet::ReportedDevice::temperature_celsius}.either_sign(),
               Field{"memory_temperature_celsius", &fleet::ReportedDevice::memory_temperature_celsius}.either_sign(),
               Field{"clock_mhz", &fleet::ReportedDevice::clock_mhz}.either_sign(),
               Field{"memory_clock_mhz", &fleet::ReportedDevice::memory_clock_mhz}.either_sign(),
               amount("ecc_corrected", &fleet::ReportedDevice::ecc_corrected),
               amount("ecc_uncorrected", &fleet::ReportedDevice::ecc_uncorrected),
               amount("remapped_rows", &fleet::ReportedDevice::remapped_rows),
               sentence("recovery_action", &fleet::ReportedDevice::recovery_action),
               sentence("throttle_reasons", &fleet::ReportedDevice::throttle_reasons).up_to(fleet::device_words_max),
               Field{"processes", &fleet::ReportedDevice::processes}.up_to(fleet::device_holders_max),
               Field{"events", &fleet::ReportedDevice::events}.up_to(fleet::device_words_max),
               sentence("error", &fleet::ReportedDevice::error)};

template <>
inline constexpr bool is_sparse<fleet::ReportedLease> = true;
template <>
inline constexpr auto fields<fleet::ReportedLease> = std::tuple{
    Field{"kind", &fleet::ReportedLease::kind}.required(),
    sentence("name", &fleet::ReportedLease::name).required(),
    sentence("id", &fleet::ReportedLease::id),
    sentence("user", &fleet::ReportedLease::user).always(),
    sentence("command", &fleet::ReportedLease::command).always(),
    Field{"state", &fleet::ReportedLease::state}.required(),
    Field{"devices", &fleet::ReportedLease::devices}.as(Text::id).up_to(fleet::device_holders_max).required(),
    amount("place", &fleet::ReportedLease::place),
    amount("devices_wanted", &fleet::ReportedLease::devices_wanted),
    amount("memory_bytes", &fleet::ReportedLease::memory_bytes),
    Field{"exclusive", &fleet::ReportedLease::exclusive}.always(),
    Field{"age_s", &fleet::ReportedLease::age_s}.always()};

template <>
inline constexpr auto fields<fleet::NodeReport> =
    std::tuple{sentence("agent", &fleet::NodeReport::agent).required(),
               sentence("version", &fleet::NodeReport::version),
               sentence("boot", &fleet::NodeReport::boot),
               Field{"agent_start_monotonic_ms", &fleet::NodeReport::agent_start_monotonic_ms},
               Field{"now_at_ms", &fleet::NodeReport::now_ms}.required(),
               Field{"number", &fleet::NodeReport::number},
               Field{"epoch", &fleet::NodeReport::epoch}.required(),
               Field{"revision", &fleet::NodeReport::orders_number}.required(),
               Field{"epoch_seen", &fleet::NodeReport::epoch_seen},
               sentence("problem", &fleet::NodeReport::problem),
               Field{"inventory", &fleet::NodeReport::node}.required(),
               Field{"replicas", &fleet::NodeReport::replicas}.required(),
               Field{"devices", &fleet::NodeReport::devices}.up_to(fleet::node_devices_max).skip_invalid(),
               Field{"leases", &fleet::NodeReport::leases}.up_to(fleet::node_leases_max).skip_invalid()};

}  // namespace berth::world
