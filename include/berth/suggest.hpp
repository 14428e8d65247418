// Suggestions: what would let a refused request fit. For each kind, the smallest change that is
// enough by itself, if there is one. Pure, like the decision: each suggestion has been tried on the
// same views, and no smaller one of its kind fits. Whether the change can be made is not checked
// (whether a process ends, or a device recovers).
#pragma once

#include "berth/version.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/placement.hpp"

namespace berth {

// In the order in which they are listed; one that addresses the cause comes first.
enum class SuggestionKind : std::uint8_t {
  uncordon,          // put the fewest devices back in service
  fresh_sample,      // wait until the fewest devices report their load again
  share,             // share with other holders, instead of exclusive or whole
  fewer_bytes,       // request the most that fits, instead of minimum and preferred bytes
  end_leases,        // end all leases on the fewest devices
  wait_in_line,      // wait until the requests ahead have their devices
  end_processes,     // end processes without a lease, on the fewest devices
  free_bytes,        // free the fewest bytes, in the fewest memory domains
  health,            // the fewest devices become healthy again
  fewer_devices,     // request as many as are available
  drop_avoid,        // drop the fewest entries of `avoid`
  drop_pin,          // allow any device, not just those in `only`
  lower_capability,  // require the highest capability that fits; absent: any
  drop_feature,      // one of the required features
  drop_label,        // one of the required labels
  other_backend,     // allow the first back end by name that fits
};
std::string_view to_string(SuggestionKind kind) noexcept;

struct Suggestion {
  SuggestionKind kind = SuggestionKind::uncordon;
  std::uint64_t amount = 0;              // bytes or devices to request, or the most bytes to free on one device
  std::vector<std::uint64_t> amounts;    // bytes to free on each of `devices`; otherwise empty
  std::optional<Capability> capability;  // the capability to request
  std::string name;                      // the feature, label or back end
  std::vector<DeviceId> devices;         // the devices to change
  std::string text;                      // a phrase for messages: "ask for 18.0 GiB instead of 22.0 GiB"
  std::string command;                   // the command to run or the option to pass; empty: there is none
};

// Whether a refused request can wait for devices.
enum class WaitOption : std::uint8_t {
  available,    // it did not wait, but can with --wait
  timed_out,    // it waited until its timeout
  unsupported,  // this kind of request cannot wait
};

// Returns an empty list if the request fits, or if no single change would let it fit.
std::vector<Suggestion> suggest(const Requirements& requirements, std::size_t count, std::span<const DeviceView> views,
                                WaitOption waiting = WaitOption::available);

}  // namespace berth
