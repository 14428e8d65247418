// Load, processes, temperatures and events of GPUs and their slices from the NVIDIA
// management library, without a CUDA context. A partition ("GPU-.../sm64.0") has the
// values of its GPU. Devices are identified by UUID.
//
// A driver call may hang. Nothing here holds a lock that another GPU needs during a
// call: a hang blocks its caller and other readers of the same GPU only.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "berth/clock.hpp"
#include "berth/device_info.hpp"
#include "berth/telemetry.hpp"
#include "device/cuda/nvml_api.hpp"

namespace berth::nvml {

struct Source;

// A reader of one device. It gets every event once, independent of other readers of the
// device, beginning with the first call. Thread-safe.
//
// not_initialized: the library is missing or does not start. not_found: it does not
// know the device. device_lost: the GPU is gone or must be reset.
class Watch {
 public:
  Watch(const DeviceId& id, Clock& clock);
  // What a placement decision needs; takes some ten microseconds.
  Result<LoadSample> sample();
  // Everything; takes milliseconds, because it inspects other processes. Finds a lost device again.
  Result<Telemetry> observe();

 private:
  // Calls read(source) -> Code; a handle that is no longer valid is replaced once.
  template <class Read>
  Result<void> with_source(Read&& read);
  Code read_load(const Source& source, LoadSample& load, std::optional<RecoveryAction>& action);

  const std::string uuid_;
  Clock& clock_;
  std::mutex mutex_;  // guards everything below; held during calls, which all concern this device
  std::shared_ptr<const Source> source_;
  bool was_there_ = false;
  std::optional<std::uint64_t> next_event_;
  TimePoint start_again_at_{};
  RecoveryAction reported_action_ = RecoveryAction::none;
};

// Names of the reasons for a reduced clock; an idle GPU is not such a reason.
std::vector<std::string> throttle_words(unsigned long long reasons);

}  // namespace berth::nvml
