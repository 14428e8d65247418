// What would have let a refused request fit: for each knob of a closed list the
// smallest change of that knob alone, where there is one. Pure, like the decision:
// every change given here was tried on the same views, and no smaller one of its
// knob fits. Whether a change can be made (whether a process ends, a device heals)
// is not known here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/placement.hpp"

namespace berth {

// In the order they are offered, unless one concerns the cause: that comes first.
enum class Knob : std::uint8_t {
  uncordon,          // the fewest devices, put back in service
  fresh_sample,      // the fewest devices, heard of again
  share,             // with other holders, instead of exclusive or whole
  fewer_bytes,       // the most that fits, in place of both needs
  end_leases,        // of all holders, on the fewest devices
  wait_in_line,      // until the requests ahead have their devices
  end_processes,     // of others, on the fewest devices
  free_bytes,        // on the fewest memories, and there the least
  health,            // the fewest devices, healthy again
  fewer_devices,     // the most that can be had
  drop_avoid,        // the fewest entries
  drop_pin,          // any device instead of those of `only`
  lower_capability,  // the highest that fits; absent: any
  drop_feature,      // one of them
  drop_label,        // one of them
  other_backend,     // the first by name
};
std::string_view to_string(Knob knob) noexcept;

struct Change {
  Knob knob = Knob::uncordon;
  std::uint64_t amount = 0;              // bytes or devices to ask for, or the most bytes to free on one device
  std::vector<std::uint64_t> amounts;    // bytes to free on each of `devices`; otherwise empty
  std::optional<Capability> capability;  // to ask for
  std::string name;                      // the feature, label or back end
  std::vector<DeviceId> devices;         // whom it concerns
  std::string text;                      // for people: "ask for 18.0 GiB instead of 22.0 GiB"
  std::string command;                   // to run, or the option to give; empty: there is none
};

// Whether a request that was refused can be told to wait.
enum class Waiting : std::uint8_t {
  possible,  // it did not wait; --wait would
  ran_out,   // it waited as long as it was told to
  never,     // its kind of request does not wait
};

// For a request that fits, and for one that no single knob lets fit: none.
std::vector<Change> suggest(const Hints& hints, std::size_t count, std::span<const DeviceView> views,
                            Waiting waiting = Waiting::possible);

}  // namespace berth
