// A checker that is independent of the code: it keeps its own account of every device, from the input of the pool
// and the documented rules alone, and compares.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "berth/pool.hpp"
#include "pool/internals.hpp"
#include "pool/test_turn_clock.hpp"

namespace berth::pool {

constexpr std::size_t fault_devices_max = 12;

// A device that passes its answers to the pool to the checker too.
class MonitoredDevice final : public Device {
 public:
  using OnSample = std::function<void(const MonitoredDevice&, const Result<LoadSample>&)>;
  MonitoredDevice(std::shared_ptr<Device> inner, OnSample on_sample)
      : inner_(std::move(inner)), on_sample_(std::move(on_sample)) {}
  Device& inner() { return *inner_; }
  bool is_asked() const { return asked_; }

  const DeviceInfo& info() const noexcept override { return inner_->info(); }
  std::uint64_t generation() const noexcept override { return inner_->generation(); }
  Result<Buffer> allocate(std::uint64_t bytes) override { return inner_->allocate(bytes); }
  Result<std::unique_ptr<Stream>> open_stream(Priority priority) override { return inner_->open_stream(priority); }
  Result<std::shared_ptr<LoadedKernel>> load(const KernelSource& source) override { return inner_->load(source); }
  Result<LoadSample> sample() override {
    asked_ = true;
    Result<LoadSample> answer = inner_->sample();
    asked_ = false;
    on_sample_(*this, answer);
    return answer;
  }
  NativeHandles native() const noexcept override { return {}; }
  void close() noexcept override { inner_->close(); }

 private:
  const std::shared_ptr<Device> inner_;
  const OnSample on_sample_;
  bool asked_ = false;  // queried, and has not answered
};

// Counts over all seeds, which show that the test was not idle.
struct Tally {
  std::uint64_t leases = 0, groups = 0, waited = 0, timeouts = 0, failures = 0, ejections = 0, spared = 0, losses = 0,
                returns = 0, hung_polls = 0, silences = 0;
  Duration latest_lease{};  // the longest time from the death of a device to a lease on it

  std::string to_text() const {
    std::string text;
    for (const auto& [count, what] : {std::pair(leases, " leases, "),
                                      {groups, " groups, "},
                                      {waited, " waited for, "},
                                      {timeouts, " not in time, "},
                                      {failures, " failures, "},
                                      {ejections, " ejections, "},
                                      {spared, " spared by the cap, "},
                                      {losses, " losses, "},
                                      {returns, " returns, "},
                                      {hung_polls, " polls beside a stuck one, "},
                                      {silences, " silences"}})
      text += std::to_string(count) + what;
    const auto latest = std::chrono::duration_cast<std::chrono::milliseconds>(latest_lease);
    return text + "; latest lease on a dead device after " + std::to_string(latest.count()) + " ms";
  }
};

// The checker's account of one device.
struct Account {
  DeviceId id;
  std::size_t domain = 0;  // the first of the devices that share its memory and are lost with it
  std::vector<Duration> deaths;
  bool dies_for_good = false;

  std::shared_ptr<MonitoredDevice> device;  // null: not in the pool
  TimePoint opened_at{};
  Health health = Health::healthy;
  std::uint32_t failures = 0, successes = 0, ejections = 0;
  TimePoint out_until{};
  bool needs_recovery = false;
  bool reports_recovery = false;  // the device itself, and not another one of its domain
  bool cordoned = false;
  bool lost_perhaps = false;  // it reported so, but after the deadline of the poll
  std::optional<TimePoint> silent_since;
  std::optional<TimePoint> repair_at;

  std::uint64_t completed = 0, failed = 0, cancelled = 0, held = 0, held_bytes = 0;
  std::uint64_t promised_ahead = 0;  // granted to waiters that have not noticed it yet
};

class FaultChecker {
 protected:
  explicit FaultChecker(Tally& tally) : tally_(tally) {}

  bool good() const { return complaint_.empty(); }
  void complain(const std::string& what) {
    if (good()) complaint_ = at() + what;
  }
  std::string at() const {
    return std::to_string(
               std::chrono::duration_cast<std::chrono::milliseconds>(clock_.now().time_since_epoch()).count()) +
           " ms: ";
  }
  void note(const std::string& what) {
    notes_.push_back(at() + what);
    if (notes_.size() > 40) notes_.pop_front();
  }

  Account& account_of(const DeviceId& id) {
    return *std::find_if(accounts_.begin(), accounts_.end(), [&](const Account& a) { return a.id == id; });
  }
  // The devices are joined in this order and keep their slots.
  std::size_t slot_of(const Account& account) const { return static_cast<std::size_t>(&account - accounts_.data()); }

  // The rule by which the device must not get work now; null if there is none.
  const char* barred(const Account& account) const {
    if (!account.device) return "it has left";
    if (account.cordoned) return "it is cordoned";
    if (account.health == Health::lost) return "it is lost";
    if (account.health == Health::quarantined && clock_.now() < account.out_until) return "its pause is not over";
    if (account.silent_since && judged_at_ - *account.silent_since > rules_.stale_after) return "it is silent";
    return nullptr;
  }

  // Compares the board with the accounts; called after every step.
  void audit() {
    const auto [views, slots, charges] = board_of(*pool_).snapshot({});
    const std::size_t count = views.size();
    bool known[fault_devices_max] = {};
    seen_stale_.assign(accounts_.size(), false);
    bool all_seen = true;
    // Must precede all comparisons, because devices of one domain are lost together.
    for (std::size_t i = 0; i < count; ++i) {
      Account& account = accounts_[slots[i]];
      if (std::exchange(account.lost_perhaps, false) && views[i].health == Health::lost) lose(account);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const DeviceView& view = views[i];
      Account& account = accounts_[slots[i]];
      known[slots[i]] = true;
      seen_stale_[slots[i]] = view.sample == SampleState::stale;
      if (!account.device) return complain(account.id.text() + " has left and is still there");
      // Once a pause is over, any request may put the device on probation.
      if (account.health == Health::quarantined && clock_.now() >= account.out_until &&
          view.health == Health::probation) {
        account.health = Health::probation;
        account.successes = 0;
      }
      if (view.health != account.health) {
        return complain(account.id.text() + " is " + std::string(to_string(view.health)) + " and should be " +
                        std::string(to_string(account.health)));
      }
      const std::uint64_t expected = account.held + account.promised_ahead;
      if (view.in_flight < expected) return complain("a lease on " + account.id.text() + " was lost");
      if (view.in_flight > expected) {
        if (const char* rule = barred(account)) return complain(account.id.text() + " must not get work: " + rule);
        account.promised_ahead += view.in_flight - expected;
      }
      all_seen = all_seen && account.promised_ahead == 0;
    }
    for (std::size_t i = 0; i < accounts_.size(); ++i) {
      if (accounts_[i].device && !known[i]) return complain(accounts_[i].id.text() + " is missing");
    }
    if (!all_seen) return;
    std::uint64_t promised[fault_devices_max] = {};
    for (const Account& account : accounts_) promised[account.domain] += account.held_bytes;
    for (std::size_t i = 0; i < count; ++i) {
      const Account& account = accounts_[slots[i]];
      if (views[i].memory_bytes_promised != promised[account.domain])
        return complain("the promises of " + account.id.text() + " do not add up");
    }
  }

  // Whether at most half of the domains that are neither lost nor silent would be out because of errors, this one
  // included.
  bool may_go(const Account& leaving) const {
    std::set<std::size_t> alive, out{leaving.domain};
    for (const Account& account : accounts_) {
      if (!account.device) continue;
      if (account.health == Health::quarantined) out.insert(account.domain);
      if (account.health != Health::lost && !seen_stale_[slot_of(account)]) alive.insert(account.domain);
    }
    return 2 * out.size() <= alive.size();
  }

  void eject(Account& account) {
    account.successes = 0;
    if (!may_go(account)) {
      ++tally_.spared;
      account.health = Health::suspect;
      return;
    }
    ++tally_.ejections;
    const Duration pause =
        std::min<Duration>(std::chrono::seconds(5) * (1 << std::min(account.ejections, 10U)), std::chrono::seconds(60));
    ++account.ejections;
    account.health = Health::quarantined;
    account.out_until = account.needs_recovery ? TimePoint::max() : clock_.now() + pause;
    note(account.id.text() + " is out");
  }
  void lose(const Account& lost) {
    for (Account& account : accounts_) {
      if (account.domain != lost.domain || !account.device || account.health == Health::lost) continue;
      ++tally_.losses;
      account.health = Health::lost;
      account.reports_recovery = false;
      note(account.id.text() + " is lost");
    }
  }

  void note_failure(Account& account, ErrorCode code) {
    if (account.health == Health::lost) return;
    if (code == ErrorCode::device_lost) return lose(account);
    if (account.health == Health::quarantined) return;
    ++account.failures;
    if (account.health == Health::probation || account.failures >= 5)
      eject(account);
    else if (account.failures >= 3)
      account.health = Health::suspect;
  }
  void note_success(Account& account) {
    if (account.health == Health::lost || account.health == Health::quarantined) return;
    account.failures = 0;
    if (account.needs_recovery || (account.health == Health::probation && ++account.successes < 3)) return;
    account.health = Health::healthy;
    account.successes = account.ejections = 0;
  }
  void note_event(Account& origin, const DeviceEvent& event) {
    if (origin.health == Health::lost) return;
    const bool action = event.kind == DeviceEvent::Kind::recovery_action;
    if (!action && event.code == 79) return lose(origin);
    const bool hopeless = std::set<std::uint32_t>{48, 62, 64, 74, 95, 119}.contains(event.code);
    const bool unclear = event.code == 8 || event.code == 94;
    if (action) origin.reports_recovery = static_cast<RecoveryAction>(event.code) == RecoveryAction::reset;
    const bool still_needed = action && !origin.reports_recovery &&
                              std::any_of(accounts_.begin(), accounts_.end(), [&](const Account& other) {
                                return other.domain == origin.domain && other.reports_recovery;
                              });
    for (Account& account : accounts_) {
      if (account.domain != origin.domain || !account.device || account.health == Health::lost) continue;
      if (still_needed && account.needs_recovery) continue;
      bool goes = !action && hopeless;
      bool doubtful = !action && unclear;
      if (action) {
        const auto what = static_cast<RecoveryAction>(event.code);
        const bool needed = std::exchange(account.needs_recovery, what == RecoveryAction::reset);
        if (account.needs_recovery) account.out_until = TimePoint::max();
        if (needed && !account.needs_recovery) account.out_until = clock_.now() + std::chrono::seconds(5);
        goes = account.needs_recovery;
        doubtful = what == RecoveryAction::drain_peers;
      }
      if (goes && account.health != Health::quarantined) eject(account);
      if (doubtful && account.health == Health::healthy) account.health = Health::suspect;
    }
  }

  // Called with each answer before the pool gets it.
  void note_sample(const MonitoredDevice& device, const Result<LoadSample>& answer) {
    audit();
    Account& account = account_of(device.id());
    if (account.device.get() != &device) return;  // an earlier opening, whose answers have no effect
    if (answer) {
      account.silent_since = std::max(*account.silent_since, poll_began);
      for (const DeviceEvent& event : answer->events) note_event(account, event);
    } else if (answer.error().code == ErrorCode::device_lost) {
      if (clock_.now() - poll_began < rules_.poll_deadline)
        note_failure(account, ErrorCode::device_lost);
      else
        account.lost_perhaps = account.health != Health::lost;
    } else {
      ++tally_.silences;
    }
  }

  // Checks that every lease ever granted is counted exactly once.
  void add_up() {
    std::uint64_t dispatched = 0;
    const Statistics statistics = board_of(*pool_).statistics();
    for (const DeviceStatistics& device : statistics.devices) {
      const Account& account = account_of(device.device);
      dispatched += device.dispatched;
      if (device.completed != account.completed || device.failed != account.failed ||
          device.cancelled != account.cancelled || device.in_flight != account.held + account.promised_ahead)
        complain("the statistics of " + account.id.text() + " are not what was done on it");
      if (device.dispatched != device.completed + device.failed + device.cancelled + device.in_flight)
        complain("the statistics of " + account.id.text() + " do not add up");
    }
    if (statistics.total().dispatched != dispatched) complain("the statistics do not add up");
  }

  Tally& tally_;
  TurnClock clock_;  // outlives everything that waits on it
  PoolOptions rules_;
  std::vector<Account> accounts_;
  std::deque<std::string> notes_;
  std::string complaint_;
  static inline thread_local TimePoint poll_began{};
  TimePoint judged_at_{};
  std::vector<bool> seen_stale_;
  std::optional<Pool> pool_;
};

}  // namespace berth::pool
