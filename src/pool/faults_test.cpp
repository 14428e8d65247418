// Devices that die, hang, fall silent and return under load, by seed. Everything
// is real but the time: simulated devices with a script of faults, the pool with
// its board and poller, streams and events, in half of the seeds the ledger too.
// The checker keeps its own account of every device and compares after every step.
//
// One seed is one sequence of events: threads take turns on a clock of the
// test's own, so waiting for a device and a driver that does not answer are
// real blocked calls and yet come in the same order each time. BERTH_SEED=17
// repeats seed 17.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <list>

#include "berth/ledger.hpp"
#include "berth/pool.hpp"
#include "device/simulated/backend.hpp"
#include "ledger/test_folder.hpp"
#include "ledger/usage.hpp"
#include "pool/internals.hpp"
#include "pool/test_fault_checker.hpp"
#include "pool/test_fault_script.hpp"

namespace berth::pool {
namespace {

using namespace std::chrono_literals;

// Sanitizers make each of them ten times slower.
#ifdef BERTH_SANITIZED
constexpr std::uint64_t seeds = 40;
#else
constexpr std::uint64_t seeds = 200;
#endif
constexpr Duration quiet_max = 30min;   // by then every device that can return is back
constexpr Duration work_patience = 3s;  // work that takes longer has failed

class World : private FaultScript, private FaultChecker {
 public:
  World(std::uint64_t seed, Tally& tally) : FaultScript(seed), FaultChecker(tally), policy_random_(seed + 1) {
    std::vector<simulated::SimulatedSpec> specs = make_specs(accounts_);
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
    // Ends all waiting calls: waits for devices by their deadline, calls in a driver by closing the device.
    for (Account& account : accounts_) {
      if (account.device) account.device->close();
    }
    clock_.advance(1h, [] {});
    waiting_.clear();
    pool_.reset();  // before its ledger
  }

  // Returns what went wrong, or an empty text.
  std::string run() {
    while (good() && clock_.now() < TimePoint(faults_end)) step(true);
    const TimePoint quiet_end = clock_.now() + quiet_max;
    while (good() && clock_.now() < quiet_end && !everybody_is_back()) step(false);
    if (good() && !everybody_is_back()) complain("not every device is back: " + pool_->to_text());
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
    std::shared_ptr<Event> event;  // null: the lease is held but not used
    Buffer buffer;
    TimePoint until;  // when the work is given up, or an unused lease given back
    double cost = 1;
  };
  struct Waiting {
    Requirements requirements;
    TimePoint deadline;
    std::optional<Result<Lease>> answer;
  };

  // ---- the load

  Requirements draw_hints() {
    Requirements requirements;
    requirements.cost = 1 + static_cast<double>(below(60));
    if (chance(40)) requirements.memory_bytes_min = 1 + below(fault_memory_bytes / 3);
    if (chance(15)) requirements.only = {accounts_[below(accounts_.size())].id};
    if (chance(30)) requirements.priority = static_cast<Priority>(below(3));
    return requirements;
  }

  // Checks whether the new lease is allowed, and begins its work.
  void begin(Lease lease, double cost) {
    ++tally_.leases;
    Account& account = accounts_[lease.slot()];
    account.held_bytes += lease.memory_bytes();
    if (account.promised_ahead > 0) {
      --account.promised_ahead;
    } else if (const char* rule = barred(account)) {
      complain(account.id.text() + " must not get work: " + rule);
    }
    ++account.held;
    for (const Account& other : accounts_) {
      if (other.domain != account.domain) continue;
      for (const Duration death : other.deaths) {
        const TimePoint dead(death);
        if (dead <= account.opened_at || dead > clock_.now()) continue;
        tally_.latest_lease = std::max(tally_.latest_lease, clock_.now() - dead);
        // A poll that is still running has judged no device yet.
        const Duration gap = std::max(longest_gap_, clock_.now() - last_judged_);
        if (clock_.now() - dead > rules_.stale_after + gap)
          complain(account.id.text() + " got work long after its death");
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

  // No outcome means no verdict.
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
        note_failure(account, code);
      if (current && code == ErrorCode::timeout && chance(50)) plan_repair(account);
    } else {
      ++account.completed;
      if (current) note_success(account);
    }
    if (outcome)
      piece.lease.settle(*outcome);
    else
      piece.lease.release();
    look_around();
  }

  void progress() {
    for (std::size_t i = pieces_.size(); good() && i-- > 0;) {
      if (i >= pieces_.size()) continue;  // settling one granted a waiting request, whose work failed at once
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

  // Lets the waiting requests check again, and collects those that were served.
  void look_around() {
    audit();
    const auto granted = [](const Account& account) { return account.promised_ahead > 0; };
    // With a ledger a waiter may have to make the pool's claim larger first.
    if (!ledger_ && std::none_of(accounts_.begin(), accounts_.end(), granted)) return;
    clock_.let_all_look();
    collect();
  }
  // Collects waiting requests that were served or have timed out.
  void collect() {
    audit();
    for (auto at = waiting_.begin(); good() && at != waiting_.end();) {
      if (!at->answer) {
        if (clock_.now() >= at->deadline) complain("a request waits beyond its deadline");
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

  std::shared_ptr<MonitoredDevice> open(const DeviceId& id) {
    Result<std::shared_ptr<Device>> device = backend_->open(id);
    if (!device) return nullptr;
    return std::make_shared<MonitoredDevice>(
        *std::move(device),
        [this](const MonitoredDevice& from, const Result<LoadSample>& answer) { note_sample(from, answer); });
  }

  void plan_repair(Account& account) {
    if (!account.repair_at) account.repair_at = clock_.now() + between(100ms, 10s);
  }
  // The operator takes the device out, resets it and brings it back.
  void repair(Account& account) {
    if (account.reports_recovery)
      note_event(account, {DeviceEvent::Kind::recovery_action, static_cast<std::uint32_t>(RecoveryAction::none), {}});
    const std::shared_ptr<MonitoredDevice> old = std::exchange(account.device, nullptr);
    const bool close_first = chance(50);
    if (old) {
      if (!pool_->leave(account.id)) complain(account.id.text() + " could not leave");
      note(account.id.text() + " leaves");
      if (close_first) close(*old);
    }
    account.repair_at.reset();
    account.lost_perhaps = false;
    if (std::shared_ptr<MonitoredDevice> device = open(account.id)) {
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
  // Calls that hang in the device return, maybe when the pool has already opened it again.
  void close(MonitoredDevice& device) {
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
    if (chance(3) && !simulated::set_simulated_foreign_bytes(any.device->inner(), below(fault_memory_bytes / 2)))
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
    // A request that was granted but has not had its turn yet does not count as waiting,
    // nor does one that enlarges the pool's claim, which may serve another request.
    for (std::size_t turns = 2 * waiting_.size() + 1; turns > 0; --turns) look_around();
    for (const Waiting& waiting : waiting_) {
      if (good() && pool_->explain(waiting.requirements).winner)
        complain("a request waits although a device could serve it");
    }
    if (good() && chance(10)) add_up();
  }

  // Faults are over: every device gets work, and the operator repairs those that need it.
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
    // The last events are known only after a poll that began after them.
    return waiting_.empty() && polls_under_way_ == 0 && asked_at_ >= TimePoint(faults_end) &&
           std::all_of(accounts_.begin(), accounts_.end(), [&](const Account& account) {
             return gone_for_good(account) || (account.device && account.health == Health::healthy && !barred(account));
           });
  }
  // Acquires devices without naming one, until none is left.
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

  void nothing_is_left() {
    add_up();
    if (!waiting_.empty()) complain("a request still waits");
    for (const Board::Entry& entry : board_of(*pool_).entries()) {
      if (entry.view.in_flight != 0 || entry.view.memory_bytes_promised != 0 || entry.view.backlog_ns != 0)
        complain("something is left on " + entry.info->id.text());
    }
    if (!ledger_) return;
    if (pool_->ledger_error()) complain("the ledger: " + pool_->ledger_error()->to_text());
    // A poll returns unused memory if nothing was claimed since the poll before.
    for (int i = 0; i < 2; ++i) poll();
    if (polls_under_way_ > 0) return;  // a poll that hangs on a device returns nothing yet
    const LedgerSnapshot snapshot = ledger_->snapshot().value();
    for (const Account& account : accounts_) {
      const std::string domain = account.device ? account.device->info().memory_domain : account.id.text();
      if (ledger::unallocated_bytes(snapshot, {domain, 0, std::nullopt, {}}) != 0)
        complain("the ledger still promises bytes of " + domain);
    }
  }

  SeededRandom policy_random_;
  ledger::TestFolder folder_;
  std::shared_ptr<Ledger> ledger_;

  TimePoint next_poll_{}, asked_at_{}, last_judged_{};
  Duration longest_gap_{};
  std::uint64_t polls_under_way_ = 0;
  std::list<Waiting> waiting_;
  std::unique_ptr<Backend> backend_;
  std::vector<Piece> pieces_;
};

TEST(Faults, DevicesDieHangAndReturnUnderLoadAndNothingIsLost) {
  const char* only = std::getenv("BERTH_SEED");
  // A soak, which has no fixed seed, uses new seeds each time.
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
  std::printf("seeds from %llu: %s\n", static_cast<unsigned long long>(first), tally.to_text().c_str());
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
