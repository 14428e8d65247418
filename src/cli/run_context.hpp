// What `run` and `pick` share: what a decision needs, and how its outcome is
// printed and recorded.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/request.hpp"
#include "machine/command_environment.hpp"

namespace berth::cli {

struct RunContext {
  ReservationRequest wanted;
  MachineObserver observer;
  std::shared_ptr<Ledger> ledger;
};
// Errors come in this order: the request, the devices, the ledger.
Result<RunContext> open_run_context(const RequestArguments& arguments);

// For `berth why`; gives the id of the record. A record that cannot be written is no error of the decision.
std::string record_decision(std::string_view verb, const std::string& program, const Reservation& decided);

// Prints why nothing fits and what to do; returns the exit status.
int print_refusal(const Reservation& decided, std::span<const DeviceInfo> all, std::string advice);

std::vector<Granted> granted_by(const ReservationRequest& wanted, const Reservation& decided);
std::vector<DeviceId> ids_of(std::span<const DeviceInfo> devices);

}  // namespace berth::cli
