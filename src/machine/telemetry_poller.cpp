#include "machine/telemetry_poller.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "device/deadline_call.hpp"
#include "device/query.hpp"

namespace berth::machine {
namespace {

void keep_events(const std::vector<DeviceEvent>& earlier, Telemetry& seen) {
  std::vector<DeviceEvent> all;
  for (const DeviceEvent& event : earlier) {
    if (seen.sampled_at - event.at < inventory::events_kept_for) all.push_back(event);
  }
  all.insert(all.end(), seen.load.events.begin(), seen.load.events.end());
  seen.load.events = std::move(all);
}

}  // namespace

// Shared with the query threads, so that a thread stuck in a driver may outlive the poller.
struct TelemetryPoller::State {
  struct Target {
    inventory::DeviceRow row;
    bool outstanding = false;
    TimePoint asked_at{};
  };
  std::mutex mutex;  // guards targets
  std::condition_variable answered;
  std::vector<Target> targets;
};

TelemetryPoller::TelemetryPoller(Backends backends, std::vector<DeviceInfo> devices, Clock& clock)
    : backends_(std::move(backends)), clock_(clock), state_(std::make_shared<State>()) {
  for (DeviceInfo& info : devices) state_->targets.push_back({{std::move(info), {}, {}}, false, {}});
}

std::vector<inventory::DeviceRow> TelemetryPoller::poll(Duration deadline) {
  std::unique_lock lock(state_->mutex);
  const Deadline until = Deadline::after(clock_, deadline);
  std::vector<std::size_t> asked;
  for (std::size_t i = 0; i < state_->targets.size(); ++i) {
    State::Target& target = state_->targets[i];
    const auto backend = std::find_if(backends_.begin(), backends_.end(),
                                      [&](const auto& known) { return known->name() == target.row.info.backend; });
    if (target.outstanding || backend == backends_.end()) continue;
    target.outstanding = true;
    target.asked_at = clock_.now();
    const bool started = device::start_detached([state = state_, backend = *backend, i, id = target.row.info.id] {
      Result<Telemetry> seen = backend->observe(id);
      const std::lock_guard guard(state->mutex);
      State::Target& mine = state->targets[i];
      mine.outstanding = false;
      if (seen) {
        if (mine.row.seen) keep_events(mine.row.seen->load.events, *seen);
        mine.row.seen = *std::move(seen);
        mine.row.error.reset();
      } else {
        mine.row.error = std::move(seen).error();
      }
      state->answered.notify_all();
    });
    if (started) {
      asked.push_back(i);
    } else {
      target.outstanding = false;
      target.row.error = Error{ErrorCode::unavailable, "no thread could be started to query the device"};
    }
  }
  const auto waiting = [&] {
    return std::any_of(asked.begin(), asked.end(), [&](std::size_t i) { return state_->targets[i].outstanding; });
  };
  while (waiting() && !until.passed(clock_.now())) clock_.wait_until(state_->answered, lock, until.at);

  std::vector<inventory::DeviceRow> rows;
  for (State::Target& target : state_->targets) {
    if (target.outstanding)
      target.row.error = device::late_error("the device", clock_.now() - target.asked_at, target.row.info.id.text());
    rows.push_back(target.row);
  }
  return rows;
}

}  // namespace berth::machine
