// A request for devices of this machine before the machine was looked at: how much memory, how many devices, and which
// of them may serve. Plain data; devices may be named as a user names them, and are found when the drivers have been
// asked.
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
  std::optional<std::string> backend;            // only this one is asked
  std::vector<std::string> only, avoid, prefer;  // each one device, or several with commas between them
  std::string near;                              // empty: anywhere
  BackendOptions backends;
  std::optional<Duration> load_lock;  // no other command loads on its devices for this long

  // The devices that are named.
  std::vector<std::string> names() const;
};

// As a request to the ledger, with ids for the names. not_found suggests the nearest name; no_eligible_device: a
// command over several devices gets no MIG slices unless `only` names them, because CUDA shows a process one of them,
// and there are only slices.
Result<ReservationRequest> reservation_request(const DeviceRequest& request, const MachineSnapshot& observed);

// By id, the beginning of one with or without "GPU-", "cuda:0", or "0" (a CUDA device,
// or else of the only back end that has the number).
Result<DeviceId> find_device(std::span<const ObservedDevice> devices, const std::string& name);

}  // namespace berth::machine
