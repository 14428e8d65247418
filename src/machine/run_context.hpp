// What a command in the foreground, a job and `berth pick` share: the input of a decision, its record and its
// messages.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/record.hpp"
#include "machine/command_environment.hpp"
#include "machine/device_request.hpp"
#include "machine/machine_observer.hpp"

namespace berth::machine {

struct RunContext {
  ReservationRequest wanted;
  MachineObserver observer;
  std::shared_ptr<Ledger> ledger;
};
// Errors are checked in this order: the devices, the ledger. Other problems of back ends are passed to `report`.
Result<RunContext> open_run_context(const DeviceRequest& request, const std::function<void(const Error&)>& report);

// Stores the record of a decision for `berth why`. The decision does not fail if its record cannot be written.
format::DecisionRecord record_decision(std::string_view verb, const std::string& program, const Reservation& decided);

// Why nothing fits and what to do: a line and, indented, the funnel.
std::string refusal_text(const Reservation& decided, std::span<const DeviceInfo> all, std::string advice);

std::vector<Granted> granted_by(const ReservationRequest& wanted, const Reservation& decided);
std::vector<DeviceId> ids_of(std::span<const DeviceInfo> devices);

}  // namespace berth::machine
