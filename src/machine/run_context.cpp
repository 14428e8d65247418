#include "machine/run_context.hpp"

#include "inventory/short_id.hpp"
#include "machine/record_store.hpp"
#include "world/printable.hpp"

namespace berth::machine {

using inventory::with_short_ids;
using world::printable;

Result<RunContext> open_run_context(const DeviceRequest& request, const std::function<void(const Error&)>& report) {
  Result<MachineObserver> observer = MachineObserver::open(
      {request.backend, request.backends, false, request.names(), request.count > 1 || !request.near.empty()});
  if (!observer) return std::move(observer).error();
  const bool named = request.backend || !request.only.empty();
  if (!named && observer->accelerator_error()) return *observer->accelerator_error();
  for (const Machine::Problem& problem : observer->problems()) {
    if (problem.named) return problem.error;
    report(problem.error);
  }
  if (const auto limits = ledger::own_limits(); !limits) report(limits.error());
  observer->include_fallback(named);
  Result<ReservationRequest> wanted = reservation_request(request, observer->listed());
  if (!wanted) return std::move(wanted).error();
  Result<std::shared_ptr<Ledger>> ledger = Ledger::open();
  if (!ledger) return std::move(ledger).error();
  return RunContext{*std::move(wanted), *std::move(observer), *std::move(ledger)};
}

format::DecisionRecord record_decision(std::string_view verb, const std::string& program, const Reservation& decided) {
  format::DecisionRecord record =
      make_record(verb, program, decided.explanation, decided.views, decided.observed.topology);
  if (decided.limit) record.reason = record.limit = decided.limit->text;
  if (const Result<std::string> folder = decisions_folder()) static_cast<void>(store_record(*folder, record));
  return record;
}

std::vector<DeviceId> ids_of(std::span<const DeviceInfo> devices) {
  std::vector<DeviceId> ids;
  for (const DeviceInfo& device : devices) ids.push_back(device.id);
  return ids;
}

std::string refusal_text(const Reservation& decided, std::span<const DeviceInfo> all, std::string advice) {
  const std::vector<DeviceId> ids = ids_of(all);
  if (decided.never)
    advice = decided.limit ? decided.limit->error().advice : "this machine cannot serve it even when idle";
  if (decided.within) {
    advice = "this command runs inside lease " + std::to_string(decided.within->id) + ", which " +
             (decided.never ? "is smaller than that" : "has too little left") +
             "; to request devices from the machine instead, run env -u BERTH_LEASE berth ...";
  }
  return "berth: " + printable(with_short_ids(decided.reason(), ids)) + "; " + advice + "\n  " +
         printable(with_short_ids(decided.explanation.funnel_text(), ids)) + "\n";
}

std::vector<Granted> granted_by(const ReservationRequest& wanted, const Reservation& decided) {
  std::vector<Granted> granted;
  for (const std::size_t winner : decided.winners) {
    const DeviceInfo& device = decided.observed.devices[winner].info;
    granted.push_back({device, wanted.requirements.memory_bytes_needed(device).value_or(0)});
  }
  return granted;
}

}  // namespace berth::machine
