// What the NVIDIA management library says about GPUs and slices of them, without
// a context on them: load, processes, temperatures, events, links. A partition
// ("GPU-.../sm64.0") has the values of its GPU. Devices are asked for by UUID.
//
// A driver call may hang. Nothing here holds a lock that another GPU needs
// during a call: one that hangs holds up its caller, and others who watch the
// same GPU.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "berth/clock.hpp"
#include "berth/device_info.hpp"
#include "berth/telemetry.hpp"
#include "berth/topology.hpp"
#include "device/cuda/nvml_api.hpp"

namespace berth::nvml {

struct Source;

// One who watches a device: it is told every event once, whoever else watches
// the same one. Events count from the first question on. Thread-safe.
//
// not_initialized: no library, or one that does not start. not_found: it does
// not know the device. device_lost: the GPU is gone, or must be reset.
class Watch {
 public:
  Watch(const DeviceId& id, Clock& clock);
  // What a decision needs; some ten microseconds.
  Result<LoadSample> sample();
  // All that is known; milliseconds, since it looks at other processes.
  Result<Telemetry> observe();

 private:
  // Calls read(source) -> Code; a handle that has become void is made anew once.
  template <class Read>
  Result<void> ask(Read&& read);
  Code read_load(const Source& source, LoadSample& load, std::optional<RecoveryAction>& action);

  const std::string uuid_;
  Clock& clock_;
  std::mutex mutex_;  // guards everything below; held during calls, which are all about this device
  std::shared_ptr<const Source> source_;
  bool was_there_ = false;
  std::optional<std::uint64_t> next_event_;
  RecoveryAction told_ = RecoveryAction::none;
};

// How these devices are joined: by NVLink, by NVSwitch, or what lies between
// them on PCIe. Those the library does not know have no links. Peer access of
// slices is not known here.
Result<std::vector<Link>> links(std::span<const DeviceId> devices);

// Why a clock is lower than it could be, in words; idling is no such reason.
std::vector<std::string> throttle_words(unsigned long long reasons);

}  // namespace berth::nvml
