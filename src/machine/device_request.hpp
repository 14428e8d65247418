// A request for devices of this machine before the machine has been queried: how much memory, how many devices, and
// which of them may serve. Plain data; devices may be named as a user names them, and are looked up once the drivers
// have been queried.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "berth/device.hpp"
#include "machine/reservation.hpp"

namespace berth::machine {

struct DeviceRequest {
  Requirements requirements;  // its devices come from the names below
  std::size_t count = 1;      // 0: no device, so nothing is held
  std::string policy = "least_loaded";
  std::optional<std::string> backend;            // only this one is queried
  std::vector<std::string> only, avoid, prefer;  // each one device, or a comma-separated list
  std::string near;                              // empty: anywhere
  BackendOptions backends;
  std::optional<Duration> load_lock;  // no other command loads on its devices for this long

  // All devices that the request names.
  std::vector<std::string> names() const;
};

// Converts the request to one for the ledger, with ids for the names. not_found suggests the nearest name;
// no_eligible_device: a command over several devices gets no MIG slices unless `only` names them, because CUDA shows
// only one slice to a process, and there are only slices.
Result<ReservationRequest> reservation_request(const DeviceRequest& request, const MachineSnapshot& observed);

// Finds a device by its id, the beginning of the id with or without "GPU-", "cuda:0", or "0" (a CUDA device, or else
// one of the only back end with that number).
Result<DeviceId> find_device(std::span<const ObservedDevice> devices, const std::string& name);

}  // namespace berth::machine
