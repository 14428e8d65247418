#include "cli/intent.hpp"

#include <algorithm>
#include <cstdio>

#include "berth/ledger.hpp"
#include "cli/devices.hpp"
#include "cli/devices_text.hpp"
#include "cli/drain_text.hpp"
#include "cli/request.hpp"
#include "machine/machine_observer.hpp"

namespace berth::cli {
namespace {

// Foreign processes announce nothing: how often a draining device is looked at.
constexpr Duration look_again = std::chrono::milliseconds(250);

Result<void> set_intent(Ledger& ledger, const DeviceId& device, Intent intent) {
  Result<Ledger::Lock> lock = ledger.lock();
  if (!lock) return std::move(lock).error();
  return lock->set_intent(device, intent);
}

Result<bool> has_intent(Ledger& ledger, const DeviceId& device) {
  Result<Ledger::Lock> lock = ledger.lock();
  if (!lock) return std::move(lock).error();
  return lock->snapshot().intent(device) != nullptr;
}

class DeviceLook {
 public:
  static Result<DeviceLook> open(const IntentArguments& arguments) {
    Result<FoundMachine> found = find_machine_aloud(std::nullopt, arguments.backends);
    if (!found) return std::move(found).error();
    std::vector<ObservedDevice> seen;
    for (const DeviceInfo& info : found->machine.devices) {
      seen.emplace_back();
      seen.back().info = info;
    }
    Result<DeviceId> device = find_device(seen, arguments.device);
    if (!device) return std::move(device).error();
    return DeviceLook(std::move(found->machine), *std::move(device));
  }

  const DeviceId& device() const { return device_; }
  std::string name() const {
    std::vector<DeviceId> ids;
    for (const DeviceInfo& info : machine_.devices) ids.push_back(info.id);
    for (const DeviceInfo& info : machine_.devices) {
      if (info.id == device_) return device_label(info) + " " + printable(short_id(device_, ids));
    }
    return device_.text();
  }
  // Who is on it now.
  Occupation look() {
    rows_ = poller_->poll();
    std::fputs(add_ledger_or_note(rows_).c_str(), stderr);
    return occupation_of(row(), rows_);
  }
  std::string uncordoned() {
    look();
    const Health health = health_of(row());
    if (health == Health::healthy) return name() + " is in service\n";
    return name() + " is no longer cordoned; it is " + std::string(to_string(health)) + "\n";
  }
  std::string table(const Style& style) const { return occupants_text(std::span(&row(), 1), users(), style); }
  ProcessUsers users() const { return users_of(std::span(&row(), 1)); }

 private:
  DeviceLook(Machine machine, DeviceId device)
      : machine_(std::move(machine)),
        device_(std::move(device)),
        poller_(std::make_unique<TelemetryPoller>(machine_.backends, machine_.devices)) {}
  const DeviceRow& row() const {
    return *std::find_if(rows_.begin(), rows_.end(), [&](const DeviceRow& r) { return r.info.id == device_; });
  }

  Machine machine_;
  DeviceId device_;
  std::unique_ptr<TelemetryPoller> poller_;
  std::vector<DeviceRow> rows_;
};

int drain(const IntentArguments& arguments, DeviceLook& on, Duration wait) {
  const Deadline deadline = Deadline::after(real_clock(), wait);
  Occupation occupation = on.look();
  const Style style = stdout_style();
  const std::string text = draining_text(on.name(), arguments.plan, occupation, on.table(style), style);
  if (const int printed = print(text); printed != done) return printed;
  if (occupation.empty() || arguments.plan || wait == Duration::zero()) return done;
  while (!deadline.passed(real_clock().now())) {
    real_clock().sleep_for(std::min(look_again, deadline.at - real_clock().now()));
    occupation = on.look();
    if (occupation.empty()) return print(on.name() + " is empty\n");
  }
  const StillThere failure = still_there(on.name(), occupation, on.users());
  complain(failure.error);
  return failure.status;
}

}  // namespace

int run_intent(const IntentArguments& arguments) {
  Duration wait{};
  if (!arguments.wait.empty()) {
    const Result<Duration> read = parse_duration(arguments.wait);
    if (!read) return complain(read.error());
    wait = *read;
  }
  Result<std::shared_ptr<Ledger>> ledger = Ledger::open();
  if (!ledger) return complain(ledger.error());
  // A device that is gone can be put back in service too, by its whole id.
  if (arguments.intent == Intent::in_service) {
    const DeviceId device(arguments.device);
    const Result<bool> known = has_intent(**ledger, device);
    if (!known) return complain(known.error());
    if (*known) {
      if (const Result<void> set = set_intent(**ledger, device, arguments.intent); !set) return complain(set.error());
      Result<DeviceLook> on = DeviceLook::open(arguments);
      return print(on ? on->uncordoned() : short_id(device) + " is no longer cordoned\n");
    }
  }
  Result<DeviceLook> on = DeviceLook::open(arguments);
  if (!on) return complain(on.error());
  if (!arguments.plan) {
    if (const Result<void> set = set_intent(**ledger, on->device(), arguments.intent); !set)
      return complain(set.error());
  }
  if (arguments.intent == Intent::draining) return drain(arguments, *on, wait);
  if (arguments.intent == Intent::in_service) return print(on->uncordoned());
  return print(on->name() + " is " + std::string(to_string(arguments.intent)) +
               (on->look().empty() ? "\n" : "; what runs on it goes on\n"));
}

}  // namespace berth::cli
