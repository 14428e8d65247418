#include "cli/run_context.hpp"

#include <cstdio>

#include "inventory/short_id.hpp"
#include "machine/record_store.hpp"

namespace berth::cli {
namespace {

// The names of devices in the arguments.
std::vector<std::string> names_in(const RequestArguments& arguments) {
  std::vector<std::string> names = arguments.only;
  names.insert(names.end(), arguments.avoid.begin(), arguments.avoid.end());
  names.insert(names.end(), arguments.prefer.begin(), arguments.prefer.end());
  if (!arguments.near.empty()) names.push_back(arguments.near);
  return names;
}

}  // namespace

Result<RunContext> open_run_context(const RequestArguments& arguments) {
  Result<ReservationRequest> wanted = read_request(arguments);
  if (!wanted) return std::move(wanted).error();
  Result<MachineObserver> observer =
      MachineObserver::open({arguments.backend, arguments.backends, false, names_in(arguments),
                             arguments.count > 1 || !arguments.near.empty()});
  if (!observer) return std::move(observer).error();
  const bool named = arguments.backend || !arguments.only.empty();
  if (!named && observer->accelerator_error()) return *observer->accelerator_error();
  for (const Machine::Problem& problem : observer->problems()) {
    if (problem.named) return problem.error;
    print_error(problem.error);
  }
  observer->include_fallback(named);
  const MachineSnapshot observed = observer->listed();
  if (Result<void> resolved = resolve_devices(arguments, observed, wanted->requirements); !resolved)
    return std::move(resolved).error();
  if (Result<void> kept = keep_to_whole_gpus(observed, *wanted); !kept) return std::move(kept).error();
  Result<std::shared_ptr<Ledger>> ledger = Ledger::open();
  if (!ledger) return std::move(ledger).error();
  return RunContext{*std::move(wanted), *std::move(observer), *std::move(ledger)};
}

std::string record_decision(std::string_view verb, const std::string& program, const Reservation& decided) {
  const Result<std::string> folder = decisions_folder();
  if (!folder) return {};
  const DecisionRecord record =
      make_record(verb, program, decided.explanation, decided.views, decided.observed.topology);
  return store_record(*folder, record) ? record.id : std::string();
}

std::vector<DeviceId> ids_of(std::span<const DeviceInfo> devices) {
  std::vector<DeviceId> ids;
  for (const DeviceInfo& device : devices) ids.push_back(device.id);
  return ids;
}

int print_refusal(const Reservation& decided, std::span<const DeviceInfo> all, std::string advice) {
  const std::vector<DeviceId> ids = ids_of(all);
  if (decided.never) advice = "this machine cannot serve it even when idle";
  if (decided.within) {
    advice = "this runs inside lease " + std::to_string(decided.within->id) + ", which " +
             (decided.never ? "is smaller than that" : "has no more left") +
             "; to ask the machine instead: env -u BERTH_LEASE berth ...";
  }
  std::fprintf(stderr, "berth: %s; %s\n  %s\n", printable(with_short_ids(decided.explanation.reason(), ids)).c_str(),
               advice.c_str(), printable(with_short_ids(decided.explanation.funnel_text(), ids)).c_str());
  return does_not_fit;
}

std::vector<Granted> granted_by(const ReservationRequest& wanted, const Reservation& decided) {
  std::vector<Granted> granted;
  for (const std::size_t winner : decided.winners) {
    const DeviceInfo& device = decided.observed.devices[winner].info;
    granted.push_back({device, wanted.requirements.memory_bytes_needed(device).value_or(0)});
  }
  return granted;
}

}  // namespace berth::cli
