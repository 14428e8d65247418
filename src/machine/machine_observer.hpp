// The devices of this machine as a decision sees them: what the drivers list,
// what they say now, and whose memory is in use. The processor stands in for an
// accelerator only where there is none, or where it is asked for by name.
#pragma once

#include <memory>
#include <optional>

#include "machine/find_machine.hpp"
#include "machine/reservation.hpp"

namespace berth::machine {

// The rows with what the ledger says about them; processes of its entries count
// as Berth's. Makes no ledger where there is none, and with one that
// cannot be read changes nothing.
Result<void> add_ledger(std::vector<inventory::DeviceRow>& rows);

class MachineObserver {
 public:
  // An error where the back end asked for cannot be had; no_device where there is none.
  static Result<MachineObserver> open(const MachineRequest& request);
  static Result<MachineObserver> open(const std::optional<std::string>& backend, const BackendOptions& options);
  // Asks every device, at most for poll_deadline.
  MachineSnapshot snapshot();
  // The devices that look() asks, without asking them.
  MachineSnapshot listed() const;
  // `named`: the processor counts, although there are accelerators.
  void include_fallback(bool named) { fallback_ = named; }
  const std::vector<DeviceInfo>& devices() const { return machine_.devices; }
  // Back ends that could not list their devices.
  const std::vector<Machine::Problem>& problems() const { return machine_.problems; }
  // See Machine.
  const std::optional<Error>& accelerator_error() const { return machine_.accelerator_error; }

 private:
  MachineObserver(Machine machine, bool links);
  bool is_left_out(const DeviceInfo& info) const;
  Machine machine_;
  std::unique_ptr<TelemetryPoller> poller_;
  Topology topology_;
  bool fallback_ = false;
};

}  // namespace berth::machine
