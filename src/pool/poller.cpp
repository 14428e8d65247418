#include "pool/poller.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

namespace berth::pool {

// Shared with the polling threads, so that a thread stuck in a driver may outlive the pool. The board's lock is taken
// while this state's lock is held, never the other way round.
struct Poller::State : std::enable_shared_from_this<Poller::State> {
  // State of the polls of one slot.
  struct Target {
    std::uint64_t incarnation = 0;
    std::uint64_t sequence = 0;
    bool outstanding = false;
    bool given_up = false;
    bool wanted = false;   // poll it before the next round
    bool settled = false;  // the first poll was answered or timed out
    TimePoint asked_at{};
  };
  struct Question {
    std::size_t slot;
    std::shared_ptr<Device> device;
    std::uint64_t incarnation;
    std::uint64_t sequence;
    TimePoint asked_at;
  };
  struct Asker {
    std::thread thread;
    bool ended = false;
  };

  State(Board& b, const PoolOptions& options)
      : board(b),
        clock(b.clock()),
        period(options.poll_period),
        deadline(options.poll_deadline),
        threads(options.poll),
        targets(b.capacity()) {}

  Board& board;  // not used once `stopped`
  Clock& clock;  // not used once `stopped`
  const Duration period, deadline;
  const bool threads;

  std::mutex mutex;  // guards everything below
  bool stopped = false;
  bool asked_to_wake = false;
  std::vector<Target> targets;  // by slot
  std::deque<Question> questions;
  std::vector<std::unique_ptr<Asker>> askers;
  std::size_t idle = 0;
  std::condition_variable has_question;
  std::condition_variable timer_wakes;
  std::condition_variable changed;

  // The polls that are due: of all devices, or only of new devices and of those that are `wanted`.
  std::vector<Question> due(bool all) {
    std::vector<Question> found;
    const TimePoint now = clock.now();
    for (Board::Entry& entry : board.entries()) {
      if (!entry.device) continue;
      Target& target = targets[entry.slot];
      if (target.incarnation != entry.incarnation) {
        // The device has joined again since its last poll, so earlier polls do not count.
        const std::uint64_t sequence = target.sequence;
        target = {};
        target.incarnation = entry.incarnation;
        target.sequence = sequence;
      } else if (!all && !target.wanted) {
        continue;
      }
      if (target.outstanding) continue;
      target.outstanding = true;
      target.given_up = false;
      target.wanted = false;
      target.asked_at = now;
      board.poll_started(entry.slot, now);
      found.push_back({entry.slot, std::move(entry.device), entry.incarnation, ++target.sequence, now});
    }
    return found;
  }

  void wake_timer() {
    asked_to_wake = true;
    timer_wakes.notify_all();
  }

  void hand_out(std::vector<Question> found) {
    for (Question& question : found) questions.push_back(std::move(question));
    // A thread that is stuck in a driver is not idle, and is not waited for.
    for (std::size_t missing = questions.size() - std::min(idle, questions.size()); missing > 0; --missing) {
      auto asker = std::make_unique<Asker>();
      try {
        asker->thread =
            std::thread([state = shared_from_this(), self = asker.get()] { state->answer_questions(*self); });
      } catch (const std::system_error&) {
        break;  // no thread can be started now; existing threads poll later, or the next round tries again
      }
      askers.push_back(std::move(asker));
      ++idle;
    }
    has_question.notify_all();
  }

  void answer_questions(Asker& self) {
    std::unique_lock lock(mutex);
    for (;;) {
      has_question.wait(lock, [&] { return stopped || !questions.empty(); });
      if (stopped) break;
      Question question = std::move(questions.front());
      questions.pop_front();
      --idle;
      ask(lock, std::move(question));
      ++idle;
    }
    self.ended = true;
    changed.notify_all();
  }

  void ask(std::unique_lock<std::mutex>& lock, Question question) {
    lock.unlock();
    const Result<LoadSample> answer = question.device->sample();
    question.device.reset();
    lock.lock();
    if (stopped) return;
    const std::size_t slot = question.slot;
    Target& target = targets[slot];
    if (target.sequence != question.sequence) return;
    target.outstanding = false;
    target.settled = true;
    if (target.wanted) wake_timer();
    // Other errors count as silence: the device may answer next time.
    if (answer)
      board.apply_sample(slot, question.sequence, *answer, question.asked_at, question.incarnation);
    else if (answer.error().code == ErrorCode::device_lost && !target.given_up)
      board.apply_failure(slot, answer.error(), question.incarnation);
    changed.notify_all();
  }

  // Abandons polls past their deadline; returns the time of the next deadline.
  TimePoint give_up_late() {
    const TimePoint now = clock.now();
    TimePoint next = TimePoint::max();
    for (std::size_t slot = 0; slot < targets.size(); ++slot) {
      Target& target = targets[slot];
      if (!target.outstanding || target.given_up) continue;
      const TimePoint limit = target.asked_at + deadline;
      if (now < limit) {
        next = std::min(next, limit);
        continue;
      }
      target.given_up = true;
      target.settled = true;
      board.give_up_poll(slot, target.sequence);
      changed.notify_all();
    }
    return next;
  }

  void keep_time() {
    std::unique_lock lock(mutex);
    TimePoint next_round = clock.now();
    while (!stopped) {
      const TimePoint limit = give_up_late();
      const bool round = clock.now() >= next_round;
      if (round) next_round = clock.now() + period;
      if (round || asked_to_wake) hand_out(due(round));
      asked_to_wake = false;
      board.tick(clock.now());
      clock.wait_until(timer_wakes, lock, std::min(limit, next_round));
    }
  }

  bool ready() {
    for (const Board::Entry& entry : board.entries()) {
      if (!entry.device) continue;
      const Target& target = targets[entry.slot];
      if (target.incarnation != entry.incarnation || !target.settled) return false;
    }
    return true;
  }
};

Poller::Poller(Board& board, const PoolOptions& options) : state_(std::make_shared<State>(board, options)) {
  if (options.poll) timer_ = std::thread([state = state_] { state->keep_time(); });
}

void Poller::stop() {
  std::vector<std::unique_ptr<State::Asker>> askers;
  {
    std::unique_lock lock(state_->mutex);
    if (std::exchange(state_->stopped, true)) return;
    state_->timer_wakes.notify_all();
    state_->has_question.notify_all();
    const auto ended = [](const auto& asker) { return asker->ended; };
    // Waits in real time, because a test clock that stands still must not block the end.
    state_->changed.wait_for(lock, state_->deadline,
                             [&] { return std::all_of(state_->askers.begin(), state_->askers.end(), ended); });
    for (auto& asker : state_->askers) {
      if (asker->ended)
        askers.push_back(std::move(asker));
      else
        asker->thread.detach();  // stuck in a driver; it owns what it uses
    }
  }
  for (auto& asker : askers) asker->thread.join();
  if (timer_.joinable()) timer_.join();
}

void Poller::ask_new_devices() {
  const std::lock_guard lock(state_->mutex);
  state_->wake_timer();
}

void Poller::ask_soon(std::size_t slot) {
  const std::lock_guard lock(state_->mutex);
  state_->targets[slot].wanted = true;
  state_->wake_timer();
}

void Poller::poll_now() {
  State& state = *state_;
  std::vector<State::Question> questions;  // destroyed after the lock is released
  std::unique_lock lock(state.mutex);
  state.give_up_late();
  questions = state.due(true);
  if (state.threads) state.hand_out(questions);
  for (const State::Question& question : questions) {
    if (!state.threads) state.ask(lock, question);
    const State::Target& target = state.targets[question.slot];
    const auto is_waited_for = [&] {
      return target.sequence == question.sequence && target.outstanding && !target.given_up;
    };
    while (is_waited_for()) {
      const TimePoint limit = state.give_up_late();
      if (is_waited_for()) state.clock.wait_until(state.changed, lock, limit);
    }
  }
  state.board.tick(state.clock.now());
}

bool Poller::ready() const {
  const std::lock_guard lock(state_->mutex);
  return state_->ready();
}

Result<void> Poller::wait_ready(Deadline deadline) {
  if (!state_->threads && !ready()) poll_now();
  std::unique_lock lock(state_->mutex);
  while (!state_->ready()) {
    if (deadline.passed(state_->clock.now())) {
      return Error{ErrorCode::timeout, "not every device has answered its first poll",
                   "wait longer, or look at the pool's status"};
    }
    state_->clock.wait_until(state_->changed, lock, deadline.at);
  }
  return {};
}

}  // namespace berth::pool
