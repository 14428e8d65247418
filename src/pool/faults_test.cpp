// Devices that die, hang, fall silent and return under load, by seed. Everything
// is real but the time: simulated devices with a script of faults, the pool with
// its board and poller, streams and events, in half of the seeds the ledger too.
// A checker apart from the code keeps its own account of every device, from what
// the pool was told and from the documents alone, and compares after every step.
//
// One seed is one sequence of events: threads take turns on a clock of the
// test's own, so waiting for a device and a driver that does not answer are
// real blocked calls and yet come in the same order each time. BERTH_SEED=17
// repeats seed 17.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <list>
#include <thread>

#include "berth/ledger.hpp"
#include "berth/pool.hpp"
#include "device/simulated/backend.hpp"
#include "ledger/test_folder.hpp"
#include "ledger/usage.hpp"
#include "pool/internals.hpp"

namespace berth::pool {
namespace {

using namespace std::chrono_literals;
using Fault = simulated::SimulatedFault;

// Sanitizers make each of them ten times slower.
#ifdef BERTH_SANITIZED
constexpr std::uint64_t seeds = 40;
#else
constexpr std::uint64_t seeds = 200;
#endif
constexpr Duration faults_end = 20s;    // no scripted fault begins or lasts later
constexpr Duration quiet_max = 30min;   // by then everybody who can be is back
constexpr Duration work_patience = 3s;  // work that takes longer has failed
constexpr std::uint64_t memory = 1 << 20;
constexpr std::size_t devices_max = 12;

// Virtual time in which one thread runs at a time. A call that waits hands over
// to the test, and looks again whenever the test lets all look.
class TurnClock final : public Clock {
 public:
  ~TurnClock() override {
    for (const auto& actor : actors_) {
      hand_to(*actor, true);
      actor->thread.join();
    }
  }

  TimePoint now() const noexcept override { return TimePoint(Duration(now_ns_.load())); }
  void sleep_until(TimePoint) override { BERTH_ASSERT(!"nobody sleeps here"); }
  bool wait_until(std::condition_variable&, std::unique_lock<std::mutex>& lock, TimePoint when) override {
    BERTH_ASSERT(me != nullptr);
    lock.unlock();
    me->wakes_at = when;
    hand_back();
    lock.lock();
    return now() < when;
  }

  // Runs `work` on another thread until it ends or waits.
  void start(std::function<void()> work) {
    for (const auto& actor : actors_) {
      if (actor->work) continue;
      actor->work = std::move(work);
      return hand_to(*actor);
    }
    actors_.push_back(std::make_unique<Actor>());
    Actor& actor = *actors_.back();
    actor.work = std::move(work);
    actor.thread = std::thread([this, &actor] { live(actor); });
    hand_to(actor);
  }
  void let_all_look() {
    for (std::size_t i = 0; i < actors_.size(); ++i) {
      if (actors_[i]->work) hand_to(*actors_[i]);
    }
  }
  // Stops wherever somebody wanted to be woken.
  void advance(Duration duration, const std::function<void()>& woken) {
    const TimePoint end = now() + duration;
    for (;;) {
      TimePoint next = end;
      for (const auto& actor : actors_) {
        if (actor->work && actor->wakes_at > now()) next = std::min(next, actor->wakes_at);
      }
      now_ns_ = next.time_since_epoch().count();
      let_all_look();
      woken();
      if (next == end) return;
    }
  }

 private:
  struct Actor {
    std::function<void()> work;  // empty: idle
    TimePoint wakes_at = TimePoint::max();
    bool ends = false;
    std::thread thread;
  };

  void live(Actor& actor) {
    me = &actor;
    await([&] { return running_ == &actor; });
    while (!actor.ends) {
      actor.work();
      actor.work = nullptr;
      hand_back();
    }
  }
  void hand_to(Actor& actor, bool ends = false) {
    actor.ends = ends;
    give(&actor);
    if (!ends) await([&] { return running_ == nullptr; });
  }
  void hand_back() {
    Actor* actor = me;
    give(nullptr);
    await([&] { return running_ == actor; });
  }
  void give(Actor* to) {
    const std::lock_guard lock(mutex_);
    running_ = to;
    turned_.notify_all();
  }
  template <class Mine>
  void await(Mine mine) {
    std::unique_lock lock(mutex_);
    turned_.wait(lock, mine);
  }

  static thread_local Actor* me;
  std::atomic<std::int64_t> now_ns_{0};
  std::vector<std::unique_ptr<Actor>> actors_;
  std::mutex mutex_;  // guards whose turn it is
  std::condition_variable turned_;
  Actor* running_ = nullptr;  // null: the test
};
thread_local TurnClock::Actor* TurnClock::me = nullptr;

// A device that lets the checker hear what it says to the pool.
class Overheard final : public Device {
 public:
  using Hear = std::function<void(const Overheard&, const Result<LoadSample>&)>;
  Overheard(std::shared_ptr<Device> inner, Hear hear) : inner_(std::move(inner)), hear_(std::move(hear)) {}
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
    hear_(*this, answer);
    return answer;
  }
  NativeHandles native() const noexcept override { return {}; }
  void close() noexcept override { inner_->close(); }

 private:
  const std::shared_ptr<Device> inner_;
  const Hear hear_;
  bool asked_ = false;  // and has not answered
};

// What happened in all seeds together, so that nobody takes an idle test for a good one.
struct Tally {
  std::uint64_t leases = 0, groups = 0, waited = 0, timeouts = 0, failures = 0, ejections = 0, spared = 0, losses = 0,
                returns = 0, hung_polls = 0, silences = 0;
  Duration latest_lease{};  // on a device that was dead, after its death
};

// The checker's account of one device.
struct Account {
  DeviceId id;
  std::size_t domain = 0;  // the first device of what shares its memory and is lost with it
  std::vector<Duration> deaths;
  bool dies_for_good = false;

  std::shared_ptr<Overheard> device;  // null: not in the pool
  TimePoint opened_at{};
  Health health = Health::healthy;
  std::uint32_t failures = 0, successes = 0, ejections = 0;
  TimePoint out_until{};
  bool needs_recovery = false;
  bool reports_recovery = false;  // itself, and not a device of its domain
  bool cordoned = false;
  bool lost_perhaps = false;  // it said so, later than the pool waits for
  std::optional<TimePoint> silent_since;
  std::optional<TimePoint> repair_at;

  std::uint64_t completed = 0, failed = 0, cancelled = 0, held = 0, held_bytes = 0;
  std::uint64_t promised_ahead = 0;  // granted to somebody who waits and has not looked yet
};

class World {
 public:
  World(std::uint64_t seed, Tally& tally) : random_(seed), policy_random_(seed + 1), tally_(tally) {
    std::vector<simulated::SimulatedSpec> specs = make_specs();
    backend_ = simulated::make_simulated_backend(specs, clock_);
    PoolOptions options;
    options.policy = policies()[below(policies().size())].name;
    options.poll = false;
    options.clock = &clock_;
    options.random = &policy_random_;
    if (below(2) == 0) options.ledger = ledger_ = Ledger::open({folder_.path, &clock_}).value();
    rules_ = options;
    std::vector<std::shared_ptr<Device>> devices;
    for (Account& account : accounts_) {
      account.device = open(account.id);
      devices.push_back(account.device);
    }
    pool_ = Pool::open(std::move(devices), options).value();
    note("policy " + options.policy + ", " + std::to_string(accounts_.size()) + " devices" +
         (ledger_ ? ", with a ledger" : ""));
  }

  ~World() {
    for (Piece& piece : pieces_) piece.lease.release();
    pieces_.clear();
    // Whoever waits is let go: those for devices by their deadline, those in a driver by its end.
    for (Account& account : accounts_) {
      if (account.device) account.device->close();
    }
    clock_.advance(1h, [] {});
    waiting_.clear();
  }

  // Empty: everything held.
  std::string run() {
    while (good() && clock_.now() < TimePoint(faults_end)) step(true);
    const TimePoint quiet_end = clock_.now() + quiet_max;
    while (good() && clock_.now() < quiet_end && !everybody_is_back()) step(false);
    if (good() && !everybody_is_back()) complain("not everybody is back: " + pool_->to_text());
    if (good()) everybody_works();
    if (good()) nothing_is_left();
    if (good()) return {};
    std::string text;
    for (const std::string& line : notes_) text += line + "\n";
    return text + complaint_;
  }

 private:
  struct Piece {
    Lease lease;
    std::unique_ptr<Stream> stream;
    std::shared_ptr<Event> event;  // null: the lease is held and not used
    Buffer buffer;
    TimePoint until;  // used: given up then; else given back then
    double cost = 1;
  };
  struct Waiting {
    Requirements requirements;
    TimePoint deadline;
    std::optional<Result<Lease>> answer;
  };

  std::uint64_t below(std::uint64_t bound) { return random_.below(bound); }
  bool chance(std::uint64_t percent) { return below(100) < percent; }
  Duration between(Duration least, Duration most) {
    return least + Duration(static_cast<std::int64_t>(below(static_cast<std::uint64_t>((most - least).count()))));
  }
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

  // ---- the script

  std::vector<simulated::SimulatedSpec> make_specs() {
    std::vector<simulated::SimulatedSpec> specs;
    const std::size_t count = 4 + below(devices_max - 3);
    while (specs.size() < count) {
      // One in five is a device in two or three parts.
      const std::size_t parts = std::min(count - specs.size(), chance(20) ? 2 + below(2) : 1);
      const std::string name = "sim-" + std::to_string(specs.size());
      for (std::size_t part = 0; part < parts; ++part) {
        simulated::SimulatedSpec spec;
        spec.id = parts > 1 ? name + "." + std::to_string(part) : name;
        if (parts > 1) spec.parent = name;
        spec.memory_bytes_total = memory;
        spec.concurrency = static_cast<std::uint32_t>(1 + below(4));
        spec.speed = 0.5 + static_cast<double>(below(8)) / 2;
        Account account;
        account.id = DeviceId(spec.id);
        account.domain = accounts_.size() - part;
        for (std::uint64_t faults = below(4); faults > 0; --faults) add_fault(spec, account);
        specs.push_back(std::move(spec));
        accounts_.push_back(std::move(account));
      }
    }
    return specs;
  }

  void add_fault(simulated::SimulatedSpec& spec, Account& account) {
    Fault fault;
    const auto by_time = [&](Duration longest) {
      fault.trigger = Fault::Trigger::time;
      fault.at_time = between(1s, faults_end - longest);
      fault.lasting = between(50ms, longest);
    };
    const auto by_count = [&](Fault::Trigger trigger, std::uint64_t most) {
      fault.trigger = trigger;
      fault.at = 1 + below(40);
      fault.times = 1 + below(most);
    };
    switch (below(11)) {
      case 0:
        fault.kind = Fault::Kind::error;
        by_count(Fault::Trigger::launch, 12);
        break;
      case 1:
        fault.kind = Fault::Kind::error;
        by_time(15s);
        break;
      case 2:
        fault.kind = Fault::Kind::hang;
        by_count(Fault::Trigger::launch, 2);
        break;
      case 3:
        fault.kind = Fault::Kind::lost;
        by_count(Fault::Trigger::launch, 1);
        break;
      case 4:
      case 5:
        fault.kind = Fault::Kind::lost;
        by_time(12s);
        if (chance(30)) {
          fault.lasting.reset();
          account.dies_for_good = true;
        }
        account.deaths.push_back(fault.at_time);
        break;
      case 6:
        fault.kind = Fault::Kind::out_of_memory;
        by_count(Fault::Trigger::launch, 5);
        break;
      case 7:
        fault.kind = Fault::Kind::sample_silent;
        by_time(10s);
        break;
      case 8:
        fault.kind = Fault::Kind::sample_hang;
        by_count(Fault::Trigger::sample, 1);
        break;
      default: return add_event(spec);
    }
    spec.faults.push_back(fault);
  }

  void add_event(simulated::SimulatedSpec& spec) {
    const auto xid = [&](std::uint32_t number) {
      spec.events.push_back({between(1s, faults_end), DeviceEvent::Kind::xid, number});
    };
    switch (below(5)) {
      case 0: return xid(std::to_array<std::uint32_t>({13, 31, 43, 45, 68, 109})[below(6)]);
      case 1: return xid(std::to_array<std::uint32_t>({48, 62, 64, 74, 95, 119})[below(6)]);
      case 2: return xid(79);
      case 3: return xid(std::to_array<std::uint32_t>({8, 94})[below(2)]);
      default: break;
    }
    const Duration begin = between(1s, faults_end / 2);
    const auto action = [&](Duration when, RecoveryAction what) {
      spec.events.push_back({when, DeviceEvent::Kind::recovery_action, static_cast<std::uint32_t>(what)});
    };
    action(begin, chance(70) ? RecoveryAction::reset : RecoveryAction::drain_peers);
    action(begin + between(1s, 15s), RecoveryAction::none);
  }

  // ---- what must be true

  Account& account_of(const DeviceId& id) {
    return *std::find_if(accounts_.begin(), accounts_.end(), [&](const Account& a) { return a.id == id; });
  }
  // The devices are joined in this order and keep their slots.
  std::size_t slot_of(const Account& account) const { return static_cast<std::size_t>(&account - accounts_.data()); }

  // By which rule the device must not get work now; null: by none.
  const char* barred(const Account& account) const {
    if (!account.device) return "it has left";
    if (account.cordoned) return "it is cordoned";
    if (account.health == Health::lost) return "it is lost";
    if (account.health == Health::quarantined && clock_.now() < account.out_until) return "its pause is not over";
    if (account.silent_since && judged_at_ - *account.silent_since > rules_.stale_after) return "it is silent";
    return nullptr;
  }

  // The board's own words, after every step beside the checker's.
  void audit() {
    const auto [views, slots, charges] = board_of(*pool_).snapshot({});
    const std::size_t count = views.size();
    bool known[devices_max] = {};
    seen_stale_.assign(accounts_.size(), false);
    bool all_seen = true;
    // Before any is compared: one that is lost takes its siblings along.
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
      // Whoever asks for a device may notice that a pause is over, from its end on.
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
        if (const char* rule = barred(account)) return complain(account.id.text() + " was given away: " + rule);
        account.promised_ahead += view.in_flight - expected;
      }
      all_seen = all_seen && account.promised_ahead == 0;
    }
    for (std::size_t i = 0; i < accounts_.size(); ++i) {
      if (accounts_[i].device && !known[i]) return complain(accounts_[i].id.text() + " is missing");
    }
    if (!all_seen) return;
    std::uint64_t promised[devices_max] = {};
    for (const Account& account : accounts_) promised[account.domain] += account.held_bytes;
    for (std::size_t i = 0; i < count; ++i) {
      const Account& account = accounts_[slots[i]];
      if (views[i].memory_bytes_promised != promised[account.domain])
        return complain("the promises of " + account.id.text() + " do not add up");
    }
  }

  // At most half of what is neither lost nor silent is out because of errors, with this one.
  // What belongs together counts once.
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
    const Duration pause = std::min<Duration>(5s * (1 << std::min(account.ejections, 10U)), 60s);
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

  void told_failure(Account& account, ErrorCode code) {
    if (account.health == Health::lost) return;
    if (code == ErrorCode::device_lost) return lose(account);
    if (account.health == Health::quarantined) return;
    ++account.failures;
    if (account.health == Health::probation || account.failures >= 5)
      eject(account);
    else if (account.failures >= 3)
      account.health = Health::suspect;
  }
  void told_success(Account& account) {
    if (account.health == Health::lost || account.health == Health::quarantined) return;
    account.failures = 0;
    if (account.needs_recovery || (account.health == Health::probation && ++account.successes < 3)) return;
    account.health = Health::healthy;
    account.successes = account.ejections = 0;
  }
  void told_event(Account& origin, const DeviceEvent& event) {
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
        if (needed && !account.needs_recovery) account.out_until = clock_.now() + 5s;
        goes = account.needs_recovery;
        doubtful = what == RecoveryAction::drain_peers;
      }
      if (goes && account.health != Health::quarantined) eject(account);
      if (doubtful && account.health == Health::healthy) account.health = Health::suspect;
    }
  }

  // On its way to the pool.
  void heard(const Overheard& device, const Result<LoadSample>& answer) {
    audit();
    Account& account = account_of(device.id());
    if (account.device.get() != &device) return;  // an earlier opening; what it says concerns nobody
    if (answer) {
      account.silent_since = std::max(*account.silent_since, poll_began);
      for (const DeviceEvent& event : answer->events) told_event(account, event);
    } else if (answer.error().code == ErrorCode::device_lost) {
      if (clock_.now() - poll_began < rules_.poll_deadline)
        told_failure(account, ErrorCode::device_lost);
      else
        account.lost_perhaps = account.health != Health::lost;
    } else {
      ++tally_.silences;
    }
  }

  // ---- the load

  Requirements draw_hints() {
    Requirements requirements;
    requirements.cost = 1 + static_cast<double>(below(60));
    if (chance(40)) requirements.memory_bytes_min = 1 + below(memory / 3);
    if (chance(15)) requirements.only = {accounts_[below(accounts_.size())].id};
    if (chance(30)) requirements.priority = static_cast<Priority>(below(3));
    return requirements;
  }

  // The lease is new: may it be, and what is done with it.
  void begin(Lease lease, double cost) {
    ++tally_.leases;
    Account& account = accounts_[lease.slot()];
    account.held_bytes += lease.memory_bytes();
    if (account.promised_ahead > 0) {
      --account.promised_ahead;
    } else if (const char* rule = barred(account)) {
      complain(account.id.text() + " was given away: " + rule);
    }
    ++account.held;
    for (const Account& other : accounts_) {
      if (other.domain != account.domain) continue;
      for (const Duration death : other.deaths) {
        const TimePoint dead(death);
        if (dead <= account.opened_at || dead > clock_.now()) continue;
        tally_.latest_lease = std::max(tally_.latest_lease, clock_.now() - dead);
        // A poll that is still under way has judged nobody yet.
        const Duration gap = std::max(longest_gap_, clock_.now() - last_judged_);
        if (clock_.now() - dead > rules_.stale_after + gap)
          complain(account.id.text() + " was given away although dead for long");
      }
    }
    Piece piece{std::move(lease), {}, {}, {}, clock_.now() + work_patience, cost};
    Device& device = piece.lease.device();
    if (chance(15)) {  // held across whatever happens
      piece.until = clock_.now() + between(0ms, 8s);
      pieces_.push_back(std::move(piece));
      return;
    }
    const auto failed = [&](const Error& error) {
      pieces_.push_back(std::move(piece));
      settle(pieces_.size() - 1, Outcome{error.code, {}});
    };
    if (piece.lease.memory_bytes() > 0 && chance(30)) {
      Result<Buffer> buffer = device.allocate(piece.lease.memory_bytes());
      if (!buffer) return failed(buffer.error());
      piece.buffer = *std::move(buffer);
    }
    Result<std::unique_ptr<Stream>> stream = device.open_stream(Priority::normal);
    if (!stream) return failed(stream.error());
    piece.stream = *std::move(stream);
    if (Result<void> enqueued = simulated::simulated_work(*piece.stream, cost); !enqueued)
      return failed(enqueued.error());
    Result<std::shared_ptr<Event>> event = piece.stream->record();
    if (!event) return failed(event.error());
    piece.event = *std::move(event);
    pieces_.push_back(std::move(piece));
  }

  // Absent: no verdict.
  void settle(std::size_t at, std::optional<Outcome> outcome) {
    audit();
    Piece piece = std::move(pieces_[at]);
    pieces_.erase(pieces_.begin() + static_cast<std::ptrdiff_t>(at));
    Account& account = accounts_[piece.lease.slot()];
    --account.held;
    account.held_bytes -= piece.lease.memory_bytes();
    const bool current = account.device.get() == &piece.lease.device();
    piece.event.reset();
    piece.stream.reset();
    piece.buffer = {};
    if (!outcome || outcome->error == ErrorCode::cancelled) {
      ++account.cancelled;
    } else if (outcome->error) {
      ++account.failed;
      ++tally_.failures;
      // The caller's own mistakes are not held against the device.
      const ErrorCode code = *outcome->error;
      if (current && (code == ErrorCode::work_failed || code == ErrorCode::timeout || code == ErrorCode::device_lost))
        told_failure(account, code);
      if (current && code == ErrorCode::timeout && chance(50)) plan_repair(account);
    } else {
      ++account.completed;
      if (current) told_success(account);
    }
    if (outcome)
      piece.lease.settle(*outcome);
    else
      piece.lease.release();
    look_around();
  }

  void progress() {
    for (std::size_t i = pieces_.size(); good() && i-- > 0;) {
      if (i >= pieces_.size()) continue;  // settling one served somebody else, who failed at once
      Piece& piece = pieces_[i];
      const bool late = clock_.now() >= piece.until;
      if (!piece.event) {
        if (!late) continue;
        if (chance(50))
          settle(i, std::nullopt);
        else
          settle(i, Outcome{chance(50) ? ErrorCode::invalid_argument : ErrorCode::cancelled, {}});
        continue;
      }
      const Result<bool> done = piece.event->done();
      if (!done)
        settle(i, Outcome{done.error().code, {}});
      else if (*done)
        settle(i, Outcome{{},
                          std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(piece.cost))});
      else if (late)
        settle(i, Outcome{ErrorCode::timeout, {}});
      else if (chance(1))
        settle(i, std::nullopt);
    }
  }

  // Whoever was served meanwhile takes up what is theirs.
  void look_around() {
    audit();
    const auto granted = [](const Account& account) { return account.promised_ahead > 0; };
    // With a ledger a waiter may have to make the pool's claim larger first.
    if (!ledger_ && std::none_of(accounts_.begin(), accounts_.end(), granted)) return;
    clock_.let_all_look();
    collect();
  }
  // Those who waited and were served, or were not in time.
  void collect() {
    audit();
    for (auto at = waiting_.begin(); good() && at != waiting_.end();) {
      if (!at->answer) {
        if (clock_.now() >= at->deadline) complain("somebody waits beyond the deadline");
        ++at;
        continue;
      }
      Result<Lease> answer = *std::move(at->answer);
      const double cost = at->requirements.cost;
      if (!answer && answer.error().code != ErrorCode::timeout) complain("waiting: " + answer.error().to_text());
      if (!answer && clock_.now() != at->deadline) complain("a wait ended early or late");
      if (!answer) ++tally_.timeouts;
      waiting_.erase(at);
      if (answer) {
        ++tally_.waited;
        begin(*std::move(answer), cost);
      }
      // Beginning may settle, and settling collects.
      at = waiting_.begin();
    }
  }

  void load() {
    const Requirements requirements = draw_hints();
    const std::uint64_t kind = below(10);
    if (kind == 0) {
      const std::size_t count = 2 + below(3);
      Result<std::vector<Lease>> group = pool_->acquire_group(requirements, count);
      if (!group) return;
      ++tally_.groups;
      if (group->size() != count) complain("a group is not whole");
      // All of them are held before the first begins.
      std::set<DeviceId> members;
      for (const Lease& lease : *group) {
        members.insert(lease.id());
        if (const char* rule = barred(account_of(lease.id()))) complain(lease.id().text() + " in a group: " + rule);
        ++account_of(lease.id()).promised_ahead;
      }
      if (members.size() != count) complain("a group has a device twice");
      for (Lease& lease : *group) begin(std::move(lease), requirements.cost);
    } else if (kind < 3 && waiting_.size() < 3) {
      waiting_.push_back({requirements, clock_.now() + between(1ms, 4s), {}});
      Waiting& mine = waiting_.back();
      clock_.start([this, &mine] { mine.answer = pool_->acquire(mine.requirements, Deadline{mine.deadline}); });
      collect();
    } else if (Result<Lease> lease = pool_->acquire(requirements)) {
      begin(*std::move(lease), requirements.cost);
    }
  }

  // ---- the world around

  void poll() {
    for (Account& account : accounts_) {
      if (!account.device) continue;
      if (!account.silent_since) account.silent_since = clock_.now();
    }
    std::uint64_t under_way = polls_under_way_++;
    if (under_way > 0) ++tally_.hung_polls;
    clock_.start([this] {
      poll_began = clock_.now();
      pool_->poll_now();
      asked_at_ = std::max(asked_at_, poll_began);
      judged_at_ = clock_.now();
      --polls_under_way_;
      longest_gap_ = std::max(longest_gap_, judged_at_ - std::exchange(last_judged_, judged_at_));
    });
    look_around();
    for (const Account& account : accounts_) {
      if (account.device && account.health == Health::quarantined && judged_at_ >= account.out_until)
        complain(account.id.text() + " is still out after its pause");
    }
  }

  std::shared_ptr<Overheard> open(const DeviceId& id) {
    Result<std::shared_ptr<Device>> device = backend_->open(id);
    if (!device) return nullptr;
    return std::make_shared<Overheard>(
        *std::move(device), [this](const Overheard& from, const Result<LoadSample>& answer) { heard(from, answer); });
  }

  void plan_repair(Account& account) {
    if (!account.repair_at) account.repair_at = clock_.now() + between(100ms, 10s);
  }
  // The operator takes it out, resets it and brings it back.
  void repair(Account& account) {
    if (account.reports_recovery)
      told_event(account, {DeviceEvent::Kind::recovery_action, static_cast<std::uint32_t>(RecoveryAction::none), {}});
    const std::shared_ptr<Overheard> old = std::exchange(account.device, nullptr);
    const bool close_first = chance(50);
    if (old) {
      if (!pool_->leave(account.id)) complain(account.id.text() + " could not leave");
      note(account.id.text() + " leaves");
      if (close_first) close(*old);
    }
    account.repair_at.reset();
    account.lost_perhaps = false;
    if (std::shared_ptr<Overheard> device = open(account.id)) {
      ++tally_.returns;
      account.device = device;
      account.opened_at = clock_.now();
      account.health = Health::healthy;
      account.failures = account.successes = account.ejections = 0;
      account.needs_recovery = account.cordoned = false;
      account.silent_since.reset();
      note(account.id.text() + " joins");
      if (!pool_->join(std::move(device))) complain(account.id.text() + " could not join");
    } else {
      account.repair_at = clock_.now() + between(500ms, 5s);
    }
    look_around();
    if (old) close(*old);
  }
  // Whoever hangs in it comes back, maybe to a pool that has another one.
  void close(Overheard& device) {
    device.close();
    clock_.let_all_look();
    collect();
  }

  void operate() {
    for (Account& account : accounts_) {
      const bool silent =
          account.device && account.silent_since && judged_at_ - *account.silent_since > rules_.stale_after + 3s;
      if (account.health == Health::lost || (silent && chance(5))) plan_repair(account);
      const bool impatient = account.device && account.device->is_asked() && chance(15);
      if (impatient || (account.repair_at && clock_.now() >= *account.repair_at)) repair(account);
    }
    Account& any = accounts_[below(accounts_.size())];
    if (!any.device) return;
    if (chance(3)) {
      any.cordoned = !any.cordoned;
      if (!pool_->set_intent(any.id, any.cordoned ? Intent::cordoned : Intent::in_service)) complain("no intent");
      look_around();
    }
    if (chance(3) && !simulated::set_simulated_foreign_bytes(any.device->inner(), below(memory / 2)))
      complain("not simulated");
  }

  void step(bool troubled) {
    const Duration passed = !troubled ? between(100ms, 2s) : chance(3) ? between(0ms, 3s) : between(0ms, 250ms);
    clock_.advance(passed, [this] { collect(); });
    if (clock_.now() >= next_poll_ && !(troubled && chance(5))) {
      next_poll_ = clock_.now() + rules_.poll_period;
      poll();
    }
    progress();
    if (troubled) {
      for (std::uint64_t i = below(4); good() && i > 0 && pieces_.size() < 5 * accounts_.size(); --i) load();
      operate();
    } else {
      calm();
    }
    // Who has been served, and has only not had a turn yet, does not wait; nor who
    // makes the pool's claim larger, which may serve another one.
    for (std::size_t turns = 2 * waiting_.size() + 1; turns > 0; --turns) look_around();
    for (const Waiting& waiting : waiting_) {
      if (good() && pool_->explain(waiting.requirements).winner)
        complain("somebody waits although a device could serve");
    }
    if (good() && chance(10)) add_up();
  }

  // Faults are over: everybody gets work, and what needs a hand gets it.
  void calm() {
    for (Account& account : accounts_) {
      if (account.cordoned && account.device) {
        account.cordoned = false;
        if (!pool_->set_intent(account.id, Intent::in_service)) complain("no intent");
        look_around();
      }
      const bool stuck = account.device && judged_at_ - account.silent_since.value_or(judged_at_) > rules_.stale_after;
      if (account.health == Health::lost || stuck) plan_repair(account);
      if (account.repair_at && clock_.now() >= *account.repair_at) repair(account);
      if (!good() || barred(account)) continue;
      Requirements requirements;
      requirements.only = {account.id};
      if (Result<Lease> lease = pool_->acquire(requirements)) begin(*std::move(lease), 1);
    }
  }

  bool gone_for_good(const Account& account) const {
    return std::any_of(accounts_.begin(), accounts_.end(),
                       [&](const Account& other) { return other.domain == account.domain && other.dies_for_good; });
  }
  bool everybody_is_back() {
    // The last events are known only after a poll that began when they had happened.
    return waiting_.empty() && polls_under_way_ == 0 && asked_at_ >= TimePoint(faults_end) &&
           std::all_of(accounts_.begin(), accounts_.end(), [&](const Account& account) {
             return gone_for_good(account) || (account.device && account.health == Health::healthy && !barred(account));
           });
  }
  // Without being asked for by name: the next best, until nobody is left.
  void everybody_works() {
    while (!pieces_.empty()) settle(pieces_.size() - 1, std::nullopt);
    poll();
    Requirements requirements;
    while (Result<Lease> lease = pool_->acquire(requirements)) {
      requirements.avoid.push_back(lease->id());
      ++account_of(lease->id()).cancelled;
    }
    for (const Account& account : accounts_) {
      const bool served =
          std::find(requirements.avoid.begin(), requirements.avoid.end(), account.id) != requirements.avoid.end();
      if (!gone_for_good(account) && !served) complain(account.id.text() + " gets no work");
    }
  }

  // Every lease that was ever given is in exactly one place.
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
  void nothing_is_left() {
    add_up();
    if (!waiting_.empty()) complain("somebody still waits");
    for (const Board::Entry& entry : board_of(*pool_).entries()) {
      if (entry.view.in_flight != 0 || entry.view.memory_bytes_promised != 0 || entry.view.backlog_ns != 0)
        complain("something is left on " + entry.info->id.text());
    }
    if (!ledger_) return;
    if (pool_->ledger_error()) complain("the ledger: " + pool_->ledger_error()->to_text());
    // What is not used goes back at a poll, when nothing was claimed since the last.
    for (int i = 0; i < 2; ++i) poll();
    if (polls_under_way_ > 0) return;  // one that hangs on a device gives nothing back yet
    const LedgerSnapshot snapshot = ledger_->snapshot().value();
    for (const Account& account : accounts_) {
      const std::string domain = account.device ? account.device->info().memory_domain : account.id.text();
      if (ledger::unallocated_bytes(snapshot, {domain, 0, std::nullopt, {}}) != 0)
        complain("the ledger still promises bytes of " + domain);
    }
  }

  SeededRandom random_;
  SeededRandom policy_random_;
  Tally& tally_;
  TurnClock clock_;  // outlives whoever waits on it
  ledger::TestFolder folder_;
  std::shared_ptr<Ledger> ledger_;
  PoolOptions rules_;
  std::vector<Account> accounts_;
  std::deque<std::string> notes_;
  std::string complaint_;
  static thread_local TimePoint poll_began;

  TimePoint next_poll_{}, asked_at_{}, judged_at_{}, last_judged_{};
  Duration longest_gap_{};
  std::uint64_t polls_under_way_ = 0;
  std::vector<bool> seen_stale_;
  std::list<Waiting> waiting_;
  std::unique_ptr<Backend> backend_;
  std::optional<Pool> pool_;
  std::vector<Piece> pieces_;
};
thread_local TimePoint World::poll_began{};

TEST(Faults, DevicesDieHangAndReturnUnderLoadAndNothingIsLost) {
  const char* only = std::getenv("BERTH_SEED");
  // Without the fixed seed of the test run (a soak): new ones each time.
  const bool fixed = std::getenv("RC_PARAMS") != nullptr;
  const std::uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10)
                              : fixed         ? 1
                                              : real_random().next() >> 1;
  Tally tally;
  for (std::uint64_t seed = first; seed < first + (only != nullptr ? 1 : seeds); ++seed) {
    const std::string wrong = World(seed, tally).run();
    const std::string name = "seed " + std::to_string(seed);
    if (!wrong.empty()) FAIL() << name << "\n" << wrong << "\n" << name << ": BERTH_SEED=" << seed << " repeats it";
  }
  std::printf(
      "seeds from %llu: %llu leases, %llu groups, %llu waited for, %llu not in time, %llu failures, %llu ejections, "
      "%llu "
      "spared by the cap, %llu losses, %llu returns, %llu polls beside a stuck one, %llu silences; latest lease on a "
      "dead "
      "device after %lld ms\n",
      static_cast<unsigned long long>(first), static_cast<unsigned long long>(tally.leases),
      static_cast<unsigned long long>(tally.groups), static_cast<unsigned long long>(tally.waited),
      static_cast<unsigned long long>(tally.timeouts), static_cast<unsigned long long>(tally.failures),
      static_cast<unsigned long long>(tally.ejections), static_cast<unsigned long long>(tally.spared),
      static_cast<unsigned long long>(tally.losses), static_cast<unsigned long long>(tally.returns),
      static_cast<unsigned long long>(tally.hung_polls), static_cast<unsigned long long>(tally.silences),
      static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(tally.latest_lease).count()));
  if (only == nullptr) {
    EXPECT_GT(tally.waited, 0U);
    EXPECT_GT(tally.timeouts, 0U);
    EXPECT_GT(tally.ejections, 0U);
    EXPECT_GT(tally.spared, 0U);
    EXPECT_GT(tally.losses, 0U);
    EXPECT_GT(tally.returns, 0U);
    EXPECT_GT(tally.hung_polls, 0U);
  }
}

}  // namespace
}  // namespace berth::pool
