// Broken tasks, on the host and on PoCL: which other work they harm, which errors follow, and how workers restart.
#include <fcntl.h>

#include <tuple>

#include "worker/fixture.hpp"

namespace berth::worker {
namespace {

class DeathOn : public OnBackend<std::string> {};
INSTANTIATE_TEST_SUITE_P(Backends, DeathOn, testing::ValuesIn(backends_here()),
                         [](const auto& info) { return info.param; });

// Every way in which a task can take its process down.
struct Broken {
  Harm harm;
  const char* name;
  const char* message;  // in the error
};
class BrokenTask : public OnBackend<std::tuple<std::string, Broken>> {};
INSTANTIATE_TEST_SUITE_P(
    Harms, BrokenTask,
    testing::Combine(testing::ValuesIn(backends_here()),
                     testing::Values(Broken{Harm::segv, "segv", "SIGSEGV"}, Broken{Harm::abort, "abort", "SIGABRT"},
                                     Broken{Harm::exit, "exit", "status 3"}, Broken{Harm::kill, "kill", "SIGKILL"},
                                     Broken{Harm::write_anything, "write_anything", "wrote"},
                                     Broken{Harm::answer_nonsense, "answer_nonsense", "an invalid answer"},
                                     Broken{Harm::answer_early, "answer_early", "an invalid answer"},
                                     Broken{Harm::answer_wrongly, "answer_wrongly", "an invalid answer"})),
    [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param).name; });

TEST_P(BrokenTask, CostsOneWorkerAndTheNextWorkRuns) {
  const auto& [backend, broken] = GetParam();
  Bench bench(backend);
  const DeviceId device = bench.first();
  const WorkerStatus before = bench.status(device);
  ASSERT_TRUE(bench.workers->submit(add, {1, 1}, bench.on(device)).get(soon())) << "this answer stays in the mailbox";
  const auto result = bench.workers->submit(harm, bench.harmful(broken.harm), bench.on(device)).get(soon());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::worker_lost) << result.error().to_text();
  EXPECT_NE(result.error().message.find(broken.message), std::string::npos) << result.error().message;
  EXPECT_EQ(result.error().where, device.text());
  EXPECT_EQ(bench.flags().begun, 1) << "the task may not run twice";

  const auto next = bench.workers->submit(add, {20, 22}, bench.on(device)).get(soon());
  ASSERT_TRUE(next) << next.error().to_text();
  EXPECT_EQ(next->value, 42);
  const WorkerStatus after = bench.status(device);
  EXPECT_NE(after.pid, before.pid);
  EXPECT_EQ(after.starts, 2U);
  EXPECT_EQ(after.deaths, 1U);
  EXPECT_EQ(bench.health(device), Health::healthy);
}

TEST_P(BrokenTask, ThatMayRunTwiceIsRunOnceMore) {
  const auto& [backend, broken] = GetParam();
  Bench bench(backend);
  const auto result =
      bench.workers->submit(harm, bench.harmful(broken.harm, 1), bench.on(bench.first(), true)).get(soon());
  ASSERT_TRUE(result) << result.error().to_text();
  EXPECT_EQ(result->value, 7);
  EXPECT_EQ(bench.flags().begun, 2);
}

TEST_P(BrokenTask, ThatTakesTwoWorkersIsPoisonousAndNotHeldAgainstTheDevice) {
  const auto& [backend, broken] = GetParam();
  Bench bench(backend);
  const DeviceId device = bench.first();
  for (int round = 1; round <= 5; ++round) {
    const auto result = bench.workers->submit(harm, bench.harmful(broken.harm), bench.on(device, true)).get(soon());
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::poison_task) << result.error().to_text();
    EXPECT_EQ(bench.flags().begun, 2 * round) << "each task runs twice, and on no other device";
    const auto next = bench.workers->submit(add, {1, 1}, bench.on(device)).get(soon());
    EXPECT_TRUE(next) << next.error().to_text();
  }
  EXPECT_EQ(bench.status(device).deaths, 10U);
  EXPECT_FALSE(bench.status(device).out_of_service);
  EXPECT_EQ(bench.health(device), Health::healthy);
}

TEST_P(DeathOn, FourPoisonousWorksInARowTakeTheDeviceOutOfService) {
  Bench bench(GetParam());
  const DeviceId device = bench.first();
  for (int round = 0; round < 4; ++round) {
    EXPECT_FALSE(bench.status(device).out_of_service);
    EXPECT_EQ(bench.workers->submit(harm, bench.harmful(Harm::kill), bench.on(device, true)).get(soon()).error().code,
              ErrorCode::poison_task);
  }
  EXPECT_TRUE(bench.status(device).out_of_service) << "the cause may be the device after all";
}

TEST_P(DeathOn, AnEndlessLoopIsEndedAtItsDeadline) {
  Bench bench(GetParam());
  TaskOptions options = bench.on(bench.first());
  options.deadline = Deadline::after(real_clock(), milliseconds(300));
  const auto result = bench.workers->submit(harm, bench.harmful(Harm::endless_loop), options).get(soon());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::timeout);
  EXPECT_EQ(bench.flags().begun, 1);
  ASSERT_TRUE(bench.workers->submit(add, {1, 1}, bench.on(bench.first())).get(soon()));
  EXPECT_EQ(bench.status(bench.first()).starts, 2U);
}

TEST_P(DeathOn, OneThatTakesTooMuchMemoryIsReplaced) {
  WorkerOptions options;
  options.host_memory_bytes_max = std::uint64_t{1} << 30;
  Bench bench(GetParam(), options);
  const auto result = bench.workers->submit(harm, bench.harmful(Harm::allocate), bench.on(bench.first())).get(soon());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::worker_lost);
  EXPECT_NE(result.error().message.find("of memory; it may have"), std::string::npos) << result.error().message;
  EXPECT_TRUE(bench.workers->submit(add, {1, 1}, bench.on(bench.first())).get(soon()));
}

TEST_P(DeathOn, OneThatIsKilledFromOutsideIsReplaced) {
  Bench bench(GetParam());
  const DeviceId device = bench.first();
  // While the worker is idle.
  kill(static_cast<pid_t>(*bench.status(device).pid), SIGKILL);
  ASSERT_TRUE(within_patience([&] { return bench.status(device).deaths == 1; }));
  EXPECT_TRUE(bench.workers->submit(add, {1, 1}, bench.on(device)).get(soon()));
  // While the worker is busy.
  Task<int> task = bench.workers->submit(wait_for_the_test, bench.harmful(Harm::kill), bench.on(device, true));
  ASSERT_TRUE(within_patience([&] { return bench.flags().begun == 1; }));
  kill(static_cast<pid_t>(*bench.status(device).pid), SIGKILL);
  bench.flags().go_on = 1;
  const auto result = task.get(soon());
  ASSERT_TRUE(result) << result.error().to_text();
  EXPECT_EQ(bench.flags().begun, 2);
  EXPECT_EQ(bench.status(device).deaths, 2U);
}

TEST_P(DeathOn, WorkThatADyingWorkerHasNotBegunIsNotLostAndRunsOnce) {
  Bench bench(GetParam());
  const DeviceId device = bench.first();
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(within_patience([&] { return bench.status(device).pid.has_value(); }));
    const auto pid = static_cast<pid_t>(*bench.status(device).pid);
    // The worker has the work in its mailbox but cannot begin it.
    kill(pid, SIGSTOP);
    ASSERT_TRUE(within_patience([&] { return is_stopped(pid); }));
    Task<int> task = bench.workers->submit(harm, bench.harmful(Harm::kill, 0), bench.on(device));
    ASSERT_TRUE(within_patience([&] { return bench.scheduler->statistics().total().in_flight == 1; }));
    kill(pid, SIGKILL);
    const auto result = task.get(soon());
    ASSERT_TRUE(result) << result.error().to_text();
    EXPECT_EQ(result->value, 7);
    EXPECT_EQ(bench.flags().begun, round + 1);
  }
}

TEST_P(DeathOn, AFourthDeathInAMinuteTakesTheDeviceOutOfService) {
  Bench bench(GetParam());
  const DeviceId device = bench.first();
  for (std::uint64_t death = 1; death <= 4; ++death) {
    ASSERT_TRUE(within_patience([&] { return bench.status(device).pid.has_value(); }));
    kill(static_cast<pid_t>(*bench.status(device).pid), SIGKILL);
    ASSERT_TRUE(within_patience([&] { return bench.status(device).deaths == death; }));
  }
  ASSERT_TRUE(bench.status(device).out_of_service);
  EXPECT_NE(bench.status(device).out_of_service->message.find("four workers"), std::string::npos);
  const auto result = bench.workers->submit(add, {1, 1}, bench.on(device)).get(soon());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::unavailable);
  EXPECT_EQ(result.error().where, device.text());
  if (bench.pool->device_count() == 1) return;
  // Work that has not begun goes to another device, and the pool soon gives this device no more.
  std::vector<Task<int>> tasks;
  for (int i = 0; i < 50; ++i) tasks.push_back(bench.workers->submit(add, {i, 1}));
  for (int i = 0; i < 50; ++i) {
    const auto added = tasks[static_cast<std::size_t>(i)].get(soon());
    ASSERT_TRUE(added) << added.error().to_text();
    EXPECT_EQ(added->value, i + 1);
    EXPECT_NE(added->device, device);
  }
  EXPECT_NE(bench.health(device), Health::healthy);
}

TEST_P(DeathOn, DeathsWithAKnownCauseDoNotTakeTheDeviceOutOfService) {
  Bench bench(GetParam());
  const DeviceId device = bench.first();
  for (int round = 0; round < 5; ++round) {
    TaskOptions late = bench.on(device);
    late.deadline = Deadline::after(real_clock(), milliseconds(100));
    EXPECT_EQ(bench.workers->submit(harm, bench.harmful(Harm::endless_loop), late).get(soon()).error().code,
              ErrorCode::timeout);
    EXPECT_EQ(
        bench.workers->submit(harm, bench.harmful(Harm::answer_nonsense), bench.on(device)).get(soon()).error().code,
        ErrorCode::worker_lost);
    EXPECT_FALSE(bench.status(device).out_of_service);
    // A success in between: the pool counts time-outs in a row.
    EXPECT_TRUE(bench.workers->submit(add, {1, 1}, bench.on(device)).get(soon()));
  }
  EXPECT_EQ(bench.status(device).deaths, 10U);
}

TEST(Death, WorkThatFailedElsewhereAndThenDiedIsNotRunAThirdTime) {
  if (!has_devices("opencl")) GTEST_SKIP() << "needs a device of OpenCL";
  Bench bench("opencl");
  TaskOptions options;
  options.may_run_twice = true;
  const auto result = bench.workers->submit(fail_and_die, bench.harmful(Harm::kill), options).get(soon());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::worker_lost) << result.error().to_text();
  EXPECT_EQ(bench.flags().begun, 2);
}

TEST(Death, ATaskThatCrashesAgainAndAgainTakesNoDeviceOutOfService) {
  if (!has_devices("opencl")) GTEST_SKIP() << "needs a device of OpenCL";
  Bench bench("opencl");
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(bench.workers->submit(harm, bench.harmful(Harm::abort)).get(soon()).error().code, ErrorCode::worker_lost);
  for (const WorkerStatus& worker : bench.workers->status()) EXPECT_FALSE(worker.out_of_service) << worker.device;
  EXPECT_TRUE(bench.workers->submit(add, {1, 1}).get(soon()));
}

TEST_P(DeathOn, WorkThatDiedAndThenFailedIsNotRunAThirdTime) {
  Bench bench(GetParam());
  TaskOptions options;
  options.may_run_twice = true;
  const auto result = bench.workers->submit(die_and_fail, bench.harmful(Harm::kill), options).get(soon());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::worker_lost);
  EXPECT_NE(result.error().message.find("the second time"), std::string::npos);
  EXPECT_EQ(bench.flags().begun, 2);
}

TEST(Death, WorkThatHasEndedDoesNotRunAgainWhereAnotherTaskWritesOverItsMailbox) {
  SchedulerOptions lanes;
  lanes.lanes_per_device = 2;
  Bench bench("host", {}, lanes);
  // Two concurrent tasks use two mailboxes.
  std::vector<Task<int>> both;
  for (int i = 0; i < 2; ++i) both.push_back(bench.workers->submit(wait_for_the_test, bench.harmful(Harm::refuse)));
  ASSERT_TRUE(within_patience([&] { return bench.flags().begun == 2; }));
  bench.flags().go_on = 1;
  for (Task<int>& task : both) ASSERT_TRUE(task.get(soon()));
  // The task uses one of the two mailboxes; the other still has its last request.
  SharedMemory others = bench.workers->share(sizeof(Flags)).value();
  new (others.bytes().data()) Flags;
  Harmful broken = bench.harmful(Harm::ask_again);
  broken.flags = others.as_argument<std::byte>();
  ASSERT_TRUE(bench.workers->submit(harm, broken).get(soon()));
  EXPECT_EQ(bench.flags().begun, 2);
}

TEST_P(DeathOn, AnInitRunsInEveryWorker) {
  Bench bench(GetParam());
  const DeviceId device = bench.first();
  EXPECT_EQ(bench.workers->submit(use_weights, {1, 0}, bench.on(device)).get(soon()).value().value, 31);
  EXPECT_FALSE(bench.workers->submit(harm, bench.harmful(Harm::abort), bench.on(device)).get(soon()));
  EXPECT_EQ(bench.workers->submit(use_weights, {2, 0}, bench.on(device)).get(soon()).value().value, 32);
}

TEST_P(DeathOn, ErrorsAndExceptionsOfATaskArriveAndCostNoWorker) {
  Bench bench(GetParam());
  const DeviceId device = bench.first();
  const auto refused = bench.workers->submit(harm_or_fail, bench.harmful(Harm::refuse), bench.on(device)).get(soon());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::work_failed);
  EXPECT_EQ(refused.error().message, "refused");
  EXPECT_EQ(refused.error().advice, "as asked");
  EXPECT_EQ(refused.error().where, device.text());
  const auto failed =
      bench.workers->submit(harm_or_fail, bench.harmful(Harm::fail_inside), bench.on(device)).get(soon());
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::internal);
  EXPECT_EQ(failed.error().message, "a bug");
  const auto thrown = bench.workers->submit(harm, bench.harmful(Harm::throw_it), bench.on(device)).get(soon());
  ASSERT_FALSE(thrown);
  EXPECT_NE(thrown.error().message.find("thrown by a task"), std::string::npos);
  EXPECT_EQ(bench.status(device).starts, 1U);
}

}  // namespace
}  // namespace berth::worker
