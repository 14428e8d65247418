// Operations on a task: wait, check, continue when it has ended, cancel.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <coroutine>
#include <deque>
#include <string>
#include <thread>

#include "scheduler/fixture.hpp"

namespace berth::scheduler {
namespace {

using Number = Result<TaskResult<int>>;

// A coroutine that starts at once. Its caller does not wait for it.
struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

TEST(Task, ThenGetsTheResultAndItsOwnValueIsATask) {
  Bench bench(2);
  Gate gate;
  auto text = bench
                  ->submit(
                      [&](TaskContext&) {
                        gate.pass();
                        return 20;
                      },
                      only_on(1))
                  .then([](Number number) { return number->value + 1; })
                  .then([](Number number) { return std::to_string(number->value); });
  EXPECT_FALSE(text.ready());
  gate.open();
  const auto result = text.get(soon());
  ASSERT_TRUE(result) << result.error().to_text();
  EXPECT_EQ(result->value, "21");
  EXPECT_EQ(result->device, sim(1)) << "where the work ran";
}

TEST(Task, ThenAfterTheEndIsCalledAtOnceOnThisThread) {
  Bench bench(1);
  auto task = bench->submit([](TaskContext&) { return 1; });
  while (!task.ready()) std::this_thread::yield();
  std::thread::id called;
  const auto next = std::move(task).then([&](Number) { called = std::this_thread::get_id(); });
  EXPECT_EQ(called, std::this_thread::get_id());
  EXPECT_TRUE(next.ready());
}

TEST(Task, ThenHearsOfFailuresAndItsOwnAreTheNewTasks) {
  Bench bench(1);
  const auto failing = [](TaskContext&) -> Result<int> { return failure(ErrorCode::unavailable); };
  const auto seen = bench->submit(failing).then([](Number number) { return number.error().code; }).get(soon());
  EXPECT_EQ(seen->value, ErrorCode::unavailable);

  auto passed_on = bench->submit(failing).then([](Number number) -> Result<int> { return BERTH_TRY(number).value; });
  EXPECT_EQ(passed_on.get(soon()).error().code, ErrorCode::unavailable);

  auto thrown =
      bench->submit([](TaskContext&) { return 1; }).then([](Number) -> int { throw std::runtime_error("not today"); });
  const auto error = thrown.get(soon()).error();
  EXPECT_EQ(error.code, ErrorCode::work_failed);
  EXPECT_NE(error.message.find("not today"), std::string::npos);
}

TEST(Task, ThenThatGivesATaskEndsWithIt) {
  Bench bench(2);
  Gate gate;
  auto both = bench->submit([](TaskContext&) { return 4; }, only_on(0)).then([&](Number first) {
    return bench->submit(
        [&gate, value = first->value](TaskContext&) {
          gate.pass();
          return value * 10;
        },
        only_on(1));
  });
  EXPECT_TRUE(gate.wait_for_arrivals(1));
  EXPECT_FALSE(both.ready());
  gate.open();
  const auto result = both.get(soon());
  ASSERT_TRUE(result) << result.error().to_text();
  EXPECT_EQ(result->value, 40);
  EXPECT_EQ(result->device, sim(1));

  auto empty = bench->submit([](TaskContext&) { return 4; }).then([](Number) { return Task<int>(); });
  EXPECT_EQ(empty.get(soon()).error().code, ErrorCode::invalid_argument);
}

TEST(Task, CancellingAChainedTaskCancelsTheWorkItFollows) {
  Bench bench(1, with_policy("least_loaded", 1));
  Gate gate;
  auto blocking = bench->submit([&](TaskContext&) { gate.pass(); });
  auto waiting = bench->submit([](TaskContext&) { return 1; }).then([](Number number) -> Result<int> {
    return BERTH_TRY(number).value;
  });
  waiting.cancel();
  EXPECT_TRUE(waiting.ready());
  EXPECT_EQ(waiting.get(soon()).error().code, ErrorCode::cancelled);

  // The second task of a chain, which did not exist when the chain was made.
  Gate reached;
  auto second = bench->submit(nothing).then([&](Result<TaskResult<NoValue>>) {
    auto task = bench->submit([](TaskContext&) { return 2; });
    reached.pass();
    return task;
  });
  gate.open();
  ASSERT_TRUE(reached.wait_for_arrivals(1));
  second.cancel();
  reached.open();
  EXPECT_EQ(second.get(soon()).error().code, ErrorCode::cancelled);
  EXPECT_TRUE(blocking.get(soon()));
  EXPECT_TRUE(adds_up(bench->statistics()));
}

TEST(Task, ADroppedChainIsACallback) {
  Bench bench(1);
  Gate called;
  bench->submit([](TaskContext&) { return 3; }).then([&](Number number) {
    if (number->value == 3) called.pass();
  });
  EXPECT_TRUE(called.wait_for_arrivals(1));
  called.open();
  bench.scheduler.reset();  // no lane may use objects of this scope any longer
}

// One thread that owns all state, and never waits for work.
TEST(Task, AnEventLoopIsToldAndNeverBlocks) {
  Bench bench(2);
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<int> arrived;
  constexpr int count = 100;
  for (int i = 0; i < count; ++i) {
    bench->submit([i](TaskContext&) { return i; }).then([&](Number number) {
      const std::lock_guard lock(mutex);
      arrived.push_back(number->value);
      changed.notify_one();
    });
  }
  int sum = 0;
  for (int i = 0; i < count; ++i) {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, patience, [&] { return !arrived.empty(); }));
    sum += arrived.front();
    arrived.pop_front();
  }
  EXPECT_EQ(sum, count * (count - 1) / 2);
  bench.scheduler.reset();  // no lane may use objects of this scope any longer
}

TEST(Task, CoAwaitGivesTheResultWithoutBlockingAThread) {
  Bench bench(2);
  Gate gate;
  std::atomic<int> sum{0};
  std::atomic<bool> failed{false};
  Gate finished;
  const auto coroutine = [&]() -> Detached {
    const Number first = co_await bench->submit([&](TaskContext&) {
      gate.pass();
      return 5;
    });
    sum += first->value;
    for (int i = 0; i < 10; ++i) sum += (co_await bench->submit([i](TaskContext&) { return i; }))->value;
    const Number refused = co_await bench->submit([](TaskContext&) -> Result<int> { return failure(); });
    failed = !refused;
    finished.pass();
  };
  coroutine();
  EXPECT_EQ(sum, 0) << "the coroutine is suspended, and this thread continues";
  gate.open();
  EXPECT_TRUE(finished.wait_for_arrivals(1));
  EXPECT_EQ(sum, 50);
  EXPECT_TRUE(failed);
  finished.open();
  bench.scheduler.reset();  // no lane may use objects of this scope any longer
}

TEST(Task, AContinuationMayLetGoOfTheHandleThatIsBeingCancelled) {
  Bench bench(1, with_policy("least_loaded", 1));
  Gate gate;
  auto blocking = bench->submit([&](TaskContext&) { gate.pass(); });
  std::optional<Task<NoValue>> session;
  session = bench->submit(nothing).then([&](Result<TaskResult<NoValue>>) { session.reset(); });
  session->cancel();
  EXPECT_FALSE(session);
  gate.open();
  EXPECT_TRUE(blocking.get(soon()));
}

TEST(Task, ACoroutineThatIsDestroyedWhileItWaitsIsNotResumed) {
  struct Owned {
    struct promise_type {
      Owned get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
      std::suspend_never initial_suspend() noexcept { return {}; }
      std::suspend_always final_suspend() noexcept { return {}; }
      void return_void() {}
      void unhandled_exception() { std::terminate(); }
    };
    std::coroutine_handle<promise_type> handle;
  };
  Bench bench(1);
  Gate gate;
  std::atomic<bool> resumed{false};
  const auto coroutine = [&]() -> Owned {
    const auto result = co_await bench->submit([&](TaskContext&) { gate.pass(); });
    resumed = result.has_value();
  };
  coroutine().handle.destroy();
  gate.open();
  bench.scheduler.reset();
  EXPECT_FALSE(resumed);
}

// The stack that a chain of tasks needs does not grow with the length of the chain.
Task<int> count_down(Scheduler& scheduler, int from) {
  return scheduler.submit([from](TaskContext&) { return from; }).then([&scheduler](Number number) {
    return number->value == 0 ? scheduler.submit([](TaskContext&) { return 0; })
                              : count_down(scheduler, number->value - 1);
  });
}
TEST(Task, AChainOfTasksMayBeLong) {
  Bench bench(1);
  EXPECT_EQ(count_down(*bench.scheduler, 20000).get(soon())->value, 0);
}

TEST(Task, AChainAfterARefusalCanBeWaitedFor) {
  Bench bench(1);
  TaskOptions impossible;
  impossible.requirements.backends = {"cuda"};
  auto fallback = bench->submit([](TaskContext&) { return 1; }, impossible).then([&](Number first) {
    EXPECT_EQ(first.error().code, ErrorCode::no_eligible_device);
    return bench->submit([](TaskContext&) {
      std::this_thread::yield();
      return 2;
    });
  });
  EXPECT_EQ(fallback.get(soon())->value, 2);
}

TEST(Task, AForkedChildIsToldThatTheSchedulerIsNotIts) {
  Bench bench(1);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const bool is_refused =
        bench->submit(nothing).get().error().code == ErrorCode::not_supported &&
        bench->run(nothing).error().code == ErrorCode::not_supported &&
        bench->map(std::vector<int>(3), [](TaskContext&, int) {})[2].error().code == ErrorCode::not_supported;
    bench.scheduler.reset();  // waits for no lane
    _exit(is_refused ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(bench->submit(nothing).get(soon())) << "the parent continues";
}

TEST(Task, TheLastHandleOfASchedulerMayGoInsideOfItsOwnWork) {
  for (int i = 0; i < 20; ++i) {
    Bench bench(2);
    Gate gate;
    auto shared = std::make_shared<Scheduler>(*std::move(bench.scheduler));
    bench.scheduler.reset();
    Scheduler& scheduler = *shared;
    auto task = scheduler.submit([&gate, last = shared](TaskContext&) mutable {
      gate.pass();
      last.reset();
      return 1;
    });
    ASSERT_TRUE(gate.wait_for_arrivals(1));
    shared.reset();
    gate.open();
    EXPECT_EQ(task.get(soon())->value, 1);
    while (bench.pool->statistics().total().in_flight != 0) std::this_thread::yield();
  }
}

TEST(Task, WorkWakesALaneThatSleeps) {
  Bench bench(1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(bench->submit(nothing).get(soon())) << "round " << i;
    // Much longer than a lane stays awake without work.
    const TimePoint asleep = real_clock().now() + milliseconds(5);
    while (real_clock().now() < asleep) std::this_thread::yield();
  }
}

TEST(Task, GivingUpAndEndingAtTheSameMomentLosesNothing) {
  Bench bench(1);
  for (int i = 0; i < 2000; ++i) {
    auto task = bench->submit([](TaskContext&) { return 7; });
    Number result = task.get(Deadline::after(real_clock(), std::chrono::microseconds(i % 30)));
    while (!result && result.error().code == ErrorCode::timeout) result = task.get(soon());
    ASSERT_TRUE(result);
    ASSERT_EQ(result->value, 7);
  }
}

TEST(Task, AnAbandonedPieceOfWorkEndsAtItsDeadlineAlsoWhenNobodyWaits) {
  FakeClock clock{FakeClock::Sleepers::block};
  Bench bench(1, with_policy("least_loaded", 1), clock);
  Gate gate;
  auto blocking = bench->submit([&](TaskContext&) { gate.pass(); });
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  TaskOptions late;
  late.deadline = {clock.now() + seconds(5)};
  Gate continuation;
  std::atomic<bool> timed_out{false};
  bench->submit([](TaskContext&) { return 1; }, late).then([&](Number number) {
    timed_out = !number && number.error().code == ErrorCode::timeout;
    continuation.pass();
  });
  clock.advance(seconds(4));
  EXPECT_FALSE(timed_out);
  clock.advance(seconds(1));
  EXPECT_TRUE(continuation.wait_for_arrivals(1));
  EXPECT_FALSE(blocking.ready()) << "while the only lane is busy";
  EXPECT_TRUE(timed_out);
  continuation.open();
  EXPECT_EQ(bench.total().cancelled, 1U);
  gate.open();
  EXPECT_TRUE(blocking.get(soon()));
  bench.scheduler.reset();  // no lane may use objects of this scope any longer
}

TEST(Task, ARequestToStopWithdrawsWhatWaitsAndTellsWhatRuns) {
  Bench bench(1, with_policy("least_loaded", 1));
  std::stop_source source;
  const TaskOptions stoppable{.stop = source.get_token()};
  Gate started;
  auto running = bench->submit(
      [&](TaskContext& context) {
        started.open();
        started.pass();
        while (!context.cancelled()) std::this_thread::yield();
      },
      stoppable);
  ASSERT_TRUE(started.wait_for_arrivals(1));
  auto waiting = bench->submit(nothing, stoppable);
  auto other = bench->submit(nothing);
  source.request_stop();
  EXPECT_TRUE(waiting.ready()) << "at once, not when its turn comes";
  EXPECT_EQ(waiting.get(soon()).error().code, ErrorCode::cancelled);
  EXPECT_TRUE(running.get(soon()));
  EXPECT_TRUE(other.get(soon())) << "it does not have this token";
  EXPECT_EQ(bench->submit(nothing, stoppable).get(soon()).error().code, ErrorCode::cancelled);
  EXPECT_EQ(bench->run(nothing, stoppable).error().code, ErrorCode::cancelled);
  EXPECT_TRUE(adds_up(bench->statistics()));
}

TEST(Task, WorkThatRunsIsToldOfTheEndOfItsScheduler) {
  Bench bench(1);
  Gate started;
  auto task = bench->submit([&](TaskContext& context) -> Result<void> {
    started.open();
    started.pass();
    while (!context.cancelled()) std::this_thread::yield();
    return failure(ErrorCode::cancelled);
  });
  ASSERT_TRUE(started.wait_for_arrivals(1));
  bench.scheduler.reset();
  EXPECT_EQ(task.get(soon()).error().code, ErrorCode::cancelled);
  EXPECT_EQ(bench.pool->statistics().total().cancelled, 1U);
}

TEST(Task, S3_F1_ARequestToStopCancelsAWholeMap) {
  Bench bench(2);
  std::stop_source source;
  std::atomic<int> begun{0};
  const auto results = bench->map(
      std::vector<int>(1000),
      [&](TaskContext& context, int) {
        if (++begun == 10) source.request_stop();
        return context.cancelled();
      },
      TaskOptions{.stop = source.get_token()});
  ASSERT_EQ(results.size(), 1000U);
  int cancelled = 0, done = 0;
  for (const auto& result : results) {
    if (result)
      ++done;
    else if (result.error().code == ErrorCode::cancelled)
      ++cancelled;
  }
  EXPECT_EQ(done, begun);
  EXPECT_EQ(done + cancelled, 1000);
  EXPECT_LT(done, 100) << "the rest was never started";
  EXPECT_TRUE(adds_up(bench->statistics()));
  EXPECT_EQ(bench.total().in_flight, 0U);
}

TEST(Task, RequestsToStopAndEndsAtTheSameMomentAgree) {
  Bench bench(2);
  for (int round = 0; round < 200; ++round) {
    std::stop_source source;
    std::vector<Task<int>> tasks;
    for (int i = 0; i < 8; ++i)
      tasks.push_back(bench->submit([i](TaskContext&) { return i; }, TaskOptions{.stop = source.get_token()}));
    std::thread stopper([&] { source.request_stop(); });
    for (int i = 0; i < 8; ++i) {
      const auto result = tasks[static_cast<std::size_t>(i)].get(soon());
      if (result)
        EXPECT_EQ(result->value, i);
      else
        EXPECT_EQ(result.error().code, ErrorCode::cancelled);
    }
    stopper.join();
  }
  EXPECT_TRUE(adds_up(bench->statistics()));
}

}  // namespace
}  // namespace berth::scheduler
