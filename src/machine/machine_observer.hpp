// Snapshots of the devices of this machine, as decisions use them: the devices that the drivers
// list, their telemetry and the processes that use their memory. The processor is included only if
// there is no accelerator, or if it is requested by name.
#pragma once

#include <memory>
#include <optional>

#include "machine/find_machine.hpp"
#include "machine/reservation.hpp"

namespace berth::machine {

// A request in the queue for devices of this machine.
struct WaitingLease {
  std::uint64_t lease = 0;
  std::string user;     // by name
  std::string command;  // of the program, without its arguments
  std::uint32_t pid = 0;
  Duration age{};
  std::optional<std::size_t> place;  // 1: the next; absent: its process gives no sign of life
  std::size_t count = 1;             // devices that it needs
  std::uint64_t memory_bytes = 0;    // on each; 0: whole devices
  bool exclusive = false;
  std::uint32_t user_id = 0;

  inventory::LeaseKey key() const { return {user_id, lease}; }
};

// Adds the ledger's state of the devices; processes of its entries count as Berth's. Creates no ledger, and
// changes nothing if the ledger cannot be read. `waiting` is set to the waiting requests, in the order of service.
// `last`: the previous state of the ledger, used while another process holds its lock, because nothing is promised
// then. timeout: the lock is held.
Result<void> add_ledger(std::vector<inventory::DeviceRow>& rows, std::vector<WaitingLease>* waiting = nullptr,
                        std::optional<LedgerSnapshot>* last = nullptr);

class MachineObserver {
 public:
  // An error if the requested back end cannot be used; no_device: there is no device.
  static Result<MachineObserver> open(const MachineRequest& request);
  static Result<MachineObserver> open(const std::optional<std::string>& backend, const BackendOptions& options);
  // Polls every device, for at most poll_deadline.
  MachineSnapshot snapshot();
  // The devices of snapshot(), without their telemetry.
  MachineSnapshot listed() const;
  // `named`: the processor is included although there are accelerators.
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
