// Real worker processes on the host and on PoCL: tasks, shared memory, libraries, termination.
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "worker/fixture.hpp"
#include "worker/task_list.hpp"

namespace berth::worker {
namespace {

class WorkersOn : public OnBackend<std::string> {};
INSTANTIATE_TEST_SUITE_P(Backends, WorkersOn, testing::ValuesIn(backends_here()),
                         [](const auto& info) { return info.param; });

TEST_P(WorkersOn, RunTasksInProcessesOfTheirOwnOnEveryDevice) {
  Bench bench(GetParam());
  std::set<std::uint32_t> pids;
  for (const auto& device : bench.pool->devices()) {
    auto result = bench.workers->submit(add, {2, 3}, bench.on(device->id())).get(soon());
    ASSERT_TRUE(result) << result.error().to_text();
    EXPECT_EQ(result->value, 5);
    EXPECT_EQ(result->device, device->id());
    ASSERT_TRUE(bench.status(device->id()).pid);
    pids.insert(*bench.status(device->id()).pid);
  }
  EXPECT_EQ(pids.size(), bench.pool->device_count());
  EXPECT_FALSE(pids.contains(static_cast<std::uint32_t>(getpid())));
}

TEST_P(WorkersOn, ReachSharedMemoryAndTheDevice) {
  Bench bench(GetParam());
  std::vector<SharedMemory> memory;
  std::vector<Numbers> items;
  for (int i = 0; i < 20; ++i) {
    memory.push_back(bench.workers->share(1000 * sizeof(float)).value());
    for (float& x : memory.back().as<float>()) x = static_cast<float>(i);
    items.push_back({memory.back().as_argument<float>().subspan(0, 500)});
  }
  TaskOptions options;
  options.kernels = {doubling};
  const auto results = bench.workers->map(double_them, items, options);
  for (std::size_t i = 0; i < results.size(); ++i) {
    ASSERT_TRUE(results[i]) << results[i].error().to_text();
    EXPECT_EQ(results[i]->value, 2.0F * static_cast<float>(i));
    EXPECT_EQ(memory[i].as<float>()[499], 2.0F * static_cast<float>(i));
    EXPECT_EQ(memory[i].as<float>()[500], static_cast<float>(i));
  }
}

TEST(Workers, ATaskWhoseMessagesAnotherChangesEndsWithItsOwnValue) {
  SchedulerOptions lanes;
  lanes.lanes_per_device = 2;
  Bench bench("host", {}, lanes);
  for (int round = 0; round < 20; ++round) {
    new (&bench.flags()) Flags;
    TaskOptions not_for_ever;
    not_for_ever.deadline = Deadline::after(real_clock(), seconds(1));
    auto broken = bench.workers->submit(harm, bench.harmful(Harm::change_messages), not_for_ever);
    ASSERT_TRUE(within_patience([&] { return bench.flags().begun == 1; }));
    TaskOptions again;
    again.may_run_twice = true;
    const auto value = bench.workers->submit(add, {round, 3}, again).get(soon());
    ASSERT_TRUE(value) << value.error().to_text();
    EXPECT_EQ(value->value, round + 3);
    EXPECT_FALSE(broken.get(soon()));
  }
}

TEST(Workers, ATaskBesideABrokenOneIsRunAloneAndNotBlamed) {
  SchedulerOptions lanes;
  lanes.lanes_per_device = 2;
  Bench bench("host", {}, lanes);
  const DeviceId device = bench.first();
  Task<int> innocent = bench.workers->submit(wait_for_the_test, bench.harmful(Harm::kill), bench.on(device, true));
  ASSERT_TRUE(within_patience([&] { return bench.flags().begun == 1; }));
  SharedMemory others = bench.workers->share(sizeof(Flags)).value();
  new (others.bytes().data()) Flags;
  Harmful broken = bench.harmful(Harm::segv);
  broken.flags = others.as_argument<std::byte>();
  Task<int> guilty = bench.workers->submit(harm, broken, bench.on(device, true));
  ASSERT_TRUE(within_patience([&] { return bench.status(device).deaths == 1; }));
  bench.flags().go_on = 1;
  const auto result = innocent.get(soon());
  ASSERT_TRUE(result) << result.error().to_text();
  EXPECT_EQ(bench.flags().begun, 2);
  EXPECT_EQ(guilty.get(soon()).error().code, ErrorCode::poison_task);
}

TEST(Workers, ADeviceWhoseWorkerCannotBeEndedIsFenced) {
  WorkerOptions workers;
  workers.kill_deadline = seconds(1);
  if (!has_devices("opencl")) GTEST_SKIP() << "needs a device of OpenCL";
  Bench bench("opencl", workers);
  const DeviceId device = bench.first();
  // A traced process stops before it exits, like one that a driver holds.
  const auto pid = static_cast<pid_t>(*bench.status(device).pid);
  if (ptrace(PTRACE_SEIZE, pid, nullptr, PTRACE_O_TRACEEXIT) != 0) GTEST_SKIP() << "this process may not trace";
  TaskOptions options = bench.on(device);
  options.deadline = Deadline::after(real_clock(), milliseconds(100));
  Task<int> loop = bench.workers->submit(harm, bench.harmful(Harm::endless_loop), options);
  Task<int> behind = bench.workers->submit(add, {1, 1}, bench.on(device));
  EXPECT_EQ(loop.get(soon()).error().code, ErrorCode::timeout);
  const auto refused = behind.get(soon());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  EXPECT_NE(refused.error().message.find("has not ended"), std::string::npos) << refused.error().message;
  EXPECT_EQ(bench.status(device).starts, 1U) << "nothing may use the device before its worker has ended";
  EXPECT_TRUE(bench.workers->submit(add, {1, 1}).get(soon())) << "the other device works";
  EXPECT_EQ(kill(pid, 0), 0) << "the process still exists";
  ptrace(PTRACE_DETACH, pid, nullptr, nullptr);
  ASSERT_TRUE(within_patience([&] { return bench.status(device).pid.has_value(); }))
      << "the old worker is gone, so the next one starts";
  EXPECT_TRUE(bench.workers->submit(add, {1, 1}, bench.on(device)).get(soon()));
}

TEST(Workers, AKernelThatRunsPastItsDeadlineIsEndedWithItsWorker) {
  if (!has_devices("opencl")) GTEST_SKIP() << "needs a device of OpenCL";
  Bench bench("opencl");
  const auto devices = bench.pool->devices();
  // PoCL's basic device, "cpu-minimal" in newer versions, computes inside the call that launches the kernel.
  const auto device = std::find_if(devices.begin(), devices.end(), [](const auto& candidate) {
    const std::string kind =
        candidate->info().former_id.value_or(candidate->id()).text();  // it begins with PoCL's name of it
    return kind.find("basic") == std::string::npos && kind.find("minimal") == std::string::npos;
  });
  ASSERT_NE(device, devices.end()) << "POCL_DEVICES must name one that computes beside its caller";
  const auto run = [&](int fails, seconds deadline) {
    TaskOptions options = bench.on((*device)->id());
    options.deadline = Deadline::after(real_clock(), deadline);
    return bench.workers->submit(launch_endless, {fails, 0}, options).get(soon());
  };
  const auto endless = run(0, seconds(2));
  ASSERT_FALSE(endless);
  EXPECT_EQ(endless.error().code, ErrorCode::timeout) << endless.error().to_text();
  // Also when the task itself has ended with an error. A busy machine may need longer until the task has launched its
  // kernel.
  std::uint64_t runs = 1;
  auto failed = endless;
  for (seconds deadline(2); failed.error().code == ErrorCode::timeout && deadline <= seconds(16);
       deadline *= 2, ++runs) {
    failed = run(1, deadline);
    ASSERT_FALSE(failed);
  }
  EXPECT_EQ(failed.error().code, ErrorCode::work_failed) << failed.error().to_text();
  SharedMemory memory = bench.workers->share(400).value();
  const auto next =
      bench.workers->submit(double_them, {memory.as_argument<float>()}, bench.on((*device)->id())).get(soon());
  EXPECT_TRUE(next) << next.error().to_text();
  EXPECT_EQ(bench.status((*device)->id()).starts, runs + 1);
}

TEST(Workers, ATaskGoesToAnotherDeviceThanOneItOrItsInitDeclines) {
  if (!has_devices("opencl")) GTEST_SKIP() << "needs a device of OpenCL";
  Bench bench("opencl");
  for (int i = 0; i < 10; ++i) {
    const auto declined = bench.workers->submit(decline_others, {}).get(soon());
    ASSERT_TRUE(declined) << declined.error().to_text();
    EXPECT_TRUE(declined->device.text().ends_with("-0"));
    const auto made = bench.workers->submit(made_for_one_device, {i, 0}).get(soon());
    ASSERT_TRUE(made) << made.error().to_text();
    EXPECT_EQ(made->value, 100 + i);
  }
}

TEST(Workers, ATaskGoesToAnotherDeviceThanOneThatCannotHaveItsKernel) {
  if (!has_devices("opencl")) GTEST_SKIP() << "needs a device of OpenCL";
  Bench bench(std::vector<std::string>{"opencl", "host"});
  for (int i = 0; i < 10; ++i) {
    const auto ran = bench.workers->submit(launch_on_host, {}).get(soon());
    ASSERT_TRUE(ran) << ran.error().to_text();
    EXPECT_TRUE(ran->device.text().starts_with("host")) << ran->device;
  }
  TaskOptions only_there;
  only_there.requirements.backends = {"opencl"};
  EXPECT_EQ(bench.workers->submit(launch_on_host, {}, only_there).get(soon()).error().code, ErrorCode::not_supported);
}

TEST(Workers, AForkedChildHasNone) {
  Bench bench("host");
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = !bench.workers->share(64) && !Workers::start(*bench.scheduler) &&
                         bench.workers->submit(add, {1, 1}).get().error().code == ErrorCode::not_supported;
    bench.workers.reset();
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(bench.workers->submit(add, {1, 1}).get(soon()));
}

TEST(Workers, AssigningOthersEndsTheOldOnes) {
  Bench bench("host");
  const auto old = static_cast<pid_t>(*bench.status(bench.first()).pid);
  Workers others = Workers::start(*bench.scheduler).value();
  *bench.workers = std::move(others);
  EXPECT_NE(kill(old, 0), 0);
  EXPECT_TRUE(bench.workers->submit(add, {1, 1}).get(soon()));
}

TEST(TaskList, TwoTasksOfOneNameStopTheProgramUnlessAHeaderDefinesBoth) {
  const auto define_again = [](const char* source) {
    return detail::make_task({"add", source}, [](WorkerContext&, const int& x) { return x; });
  };
  EXPECT_DEATH(define_again("other.cpp:1"), "other.cpp:1: another task is named add, at .*test_tasks.hpp");
  define_again(task_named("add")->source.c_str());
}

TEST(Workers, AKernelThatFaultsCostsOneWorkerAndNoOther) {
  if (!has_devices("cuda")) GTEST_SKIP() << "needs a GPU";
  Bench bench("cuda"), neighbour("cuda");
  const DeviceId device = bench.first();
  std::atomic<bool> stop{false};
  std::atomic<int> beside{0}, failed{0};
  std::thread other([&] {
    while (!stop) {
      failed += !neighbour.workers->run(add, {1, 1}).has_value();
      ++beside;
    }
  });
  const auto fault = bench.workers->submit(launch_faulty, {}, bench.on(device)).get(soon());
  EXPECT_EQ(fault.error().code, ErrorCode::worker_lost) << fault.error().to_text();
  SharedMemory memory = bench.workers->share(400).value();
  const auto next = bench.workers->submit(double_them, {memory.as_argument<float>()}, bench.on(device)).get(soon());
  EXPECT_TRUE(next) << next.error().to_text();
  stop = true;
  other.join();
  EXPECT_EQ(bench.status(device).starts, 2U);
  EXPECT_GT(beside, 0);
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(neighbour.status(device).deaths, 0U);
}

TEST(Workers, EndWithTheirHandleAlsoWhileATaskOrItsHandleIsLeft) {
  Bench bench("host");
  const auto pid = static_cast<pid_t>(*bench.status(bench.first()).pid);
  Task<int> ended = bench.workers->submit(add, {1, 1});
  ASSERT_TRUE(within_patience([&] { return ended.ready(); }));
  Task<int> endless_one = bench.workers->submit(harm, bench.harmful(Harm::endless_loop));
  ASSERT_TRUE(within_patience([&] { return bench.flags().begun == 1; }));
  std::vector<Task<int>> waiting;
  for (int i = 0; i < 20; ++i)
    waiting.push_back(bench.workers->submit(harm, bench.harmful(Harm::endless_loop), bench.on(bench.first())));
  bench.workers.reset();
  EXPECT_EQ(endless_one.get(soon()).error().code, ErrorCode::cancelled);
  for (Task<int>& task : waiting) EXPECT_EQ(task.get(soon()).error().code, ErrorCode::cancelled);
  EXPECT_TRUE(within_patience([&] { return kill(pid, 0) != 0; }));
  EXPECT_EQ(ended.get().value().value, 2);
}

TEST(Workers, SignalsForTheWholeServiceAreTheProgramsToObey) {
  Bench bench("host");
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) kill(static_cast<pid_t>(*bench.status(bench.first()).pid), signal);
  EXPECT_TRUE(bench.workers->submit(add, {1, 1}).get(soon()));
  EXPECT_EQ(bench.status(bench.first()).deaths, 0U);
}

TEST(Workers, WhatATaskHasStartedGoesWithItsWorker) {
  Bench bench("host");
  const auto child = bench.workers->submit(start_a_process, {}).get(soon());
  ASSERT_TRUE(child);
  ASSERT_EQ(kill(child->value, 0), 0);
  EXPECT_FALSE(bench.workers->submit(harm, bench.harmful(Harm::abort)).get(soon()));
  EXPECT_TRUE(within_patience([&] { return kill(child->value, 0) != 0; }));
}

TEST(Workers, OfPartsOfTheProcessorHaveOneEach) {
  BackendOptions two_parts;
  two_parts.host_devices = 2;
  PoolOptions options;
  options.machine_wide = false;
  const Pool pool = Pool::open_all(two_parts, options).value();
  const Scheduler scheduler = Scheduler::start(pool).value();
  auto workers = Workers::start(scheduler);
  ASSERT_TRUE(workers) << workers.error().to_text();
  for (const auto& device : pool.devices()) {
    TaskOptions on;
    on.requirements.only = {device->id()};
    EXPECT_TRUE(workers->submit(add, {1, 1}, on).get(soon())) << device->id();
  }
}

TEST(Workers, CancellingReachesATaskThatRuns) {
  Bench bench("host");
  Task<int> task = bench.workers->submit(wait_for_the_test, bench.harmful(Harm::kill));
  ASSERT_TRUE(within_patience([&] { return bench.flags().begun == 1; }));
  task.cancel();
  const auto result = task.get(soon());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::cancelled);
  EXPECT_EQ(bench.status(bench.first()).deaths, 0U);
}

TEST(Workers, RunOnTheCallersThread) {
  Bench bench("host");
  const auto result = bench.workers->run(add, {2, 3});
  ASSERT_TRUE(result) << result.error().to_text();
  EXPECT_EQ(result->value, 5);
  EXPECT_EQ(bench.workers->run(harm, bench.harmful(Harm::kill)).error().code, ErrorCode::worker_lost);
}

TEST(Workers, WaitingForAWorkerIsNotLearntAsTheCostOfTheWork) {
  Bench bench("host");
  const auto pid = static_cast<pid_t>(*bench.status(bench.first()).pid);
  kill(pid, SIGSTOP);
  ASSERT_TRUE(within_patience([&] { return is_stopped(pid); }));
  Task<int> task = bench.workers->submit(add, {1, 1}, bench.on(bench.first()));
  ASSERT_TRUE(within_patience([&] { return bench.scheduler->statistics().total().in_flight == 1; }));
  const TimePoint later = real_clock().now() + milliseconds(300);
  ASSERT_TRUE(within_patience([&] { return real_clock().now() >= later; }));
  kill(pid, SIGKILL);
  ASSERT_TRUE(task.get(soon()));
  const auto rate = bench.scheduler->statistics().devices.front().rate;
  ASSERT_TRUE(rate);
  EXPECT_GT(*rate, 5) << "pieces of work per second: each takes less than 0.2 s";
}

TEST(Workers, WorkThatWaitsForAWorkerEndsAtItsDeadline) {
  SchedulerOptions lanes;
  lanes.lanes_per_device = std::thread::hardware_concurrency() + 2;  // more than the worker has threads
  Bench bench("host", {}, lanes);
  std::vector<Task<int>> busy;
  for (unsigned i = 0; i < std::max(1U, bench.pool->devices().front()->info().concurrency); ++i)
    busy.push_back(bench.workers->submit(wait_for_the_test, bench.harmful(Harm::kill)));
  ASSERT_TRUE(within_patience([&] { return bench.flags().begun == static_cast<int>(busy.size()); }));
  TaskOptions late;
  late.deadline = Deadline::after(real_clock(), milliseconds(100));
  const auto result = bench.workers->submit(add, {1, 1}, late).get(soon());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::timeout);
  bench.flags().go_on = 1;
  for (Task<int>& task : busy) EXPECT_TRUE(task.get(soon()));
  EXPECT_EQ(bench.status(bench.first()).deaths, 0U);
}

TEST(Workers, LeaveNothingBehind) {
  const auto descriptors = [] {
    std::size_t count = 0;
    for (int fd = 0; fd < 1024; ++fd)
      if (fcntl(fd, F_GETFD) != -1) ++count;
    return count;
  };
  {
    const Bench warm_up("host");
  }
  const std::size_t before = descriptors();
  std::vector<std::uint32_t> pids;
  {
    Bench bench("host");
    pids.push_back(*bench.status(bench.first()).pid);
    EXPECT_FALSE(bench.workers->submit(harm, bench.harmful(Harm::kill)).get(soon()));
    EXPECT_TRUE(bench.workers->submit(add, {1, 1}).get(soon()));
    pids.push_back(*bench.status(bench.first()).pid);
  }
  EXPECT_EQ(descriptors(), before);
  for (const std::uint32_t pid : pids) EXPECT_NE(kill(static_cast<pid_t>(pid), 0), 0);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "no child is left, not even as a zombie";
}

TEST(Workers, EndWithAProgramThatIsKilled) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const std::string descriptor = std::to_string(ends[1]);
  const pid_t program = fork();
  if (program == 0) {
    execl("/proc/self/exe", "workers_test", "--start-workers-and-wait", descriptor.c_str(), nullptr);
    _exit(1);
  }
  close(ends[1]);
  std::uint32_t worker = 0;
  ASSERT_EQ(read(ends[0], &worker, sizeof worker), static_cast<ssize_t>(sizeof worker));
  close(ends[0]);
  ASSERT_EQ(kill(static_cast<pid_t>(worker), 0), 0);
  kill(program, SIGKILL);
  waitpid(program, nullptr, 0);
  EXPECT_TRUE(within_patience([&] { return kill(static_cast<pid_t>(worker), 0) != 0; }));
}

TEST(Workers, AProgramThatIsNoWorkerIsNamed) {
  Bench bench("host");
  WorkerOptions options;
  options.program = "/bin/true";
  auto started = Workers::start(*bench.scheduler, options);
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().to_text().find("worker_entry"), std::string::npos) << started.error().to_text();
  options.program = "/nowhere/berth-worker";
  started = Workers::start(*bench.scheduler, options);
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, ErrorCode::not_found);
  options.program = "/bin/cat";  // waits forever, or refuses its argument
  options.start_deadline = milliseconds(200);
  EXPECT_FALSE(Workers::start(*bench.scheduler, options));
}

TEST(Workers, ThatCannotStartSayWhy) {
  Bench bench("host");
  WorkerOptions options;
  options.program = BERTH_WORKER_PROGRAM;
  options.libraries = {"/proc/self/exe"};  // not a library of tasks
  for (int round = 0; round < 100; ++round) {
    const auto started = Workers::start(*bench.scheduler, options);
    ASSERT_FALSE(started);
    EXPECT_NE(started.error().to_text().find("library of tasks"), std::string::npos) << started.error().to_text();
    EXPECT_EQ(started.error().where, bench.first().text());
  }
}

TEST(Workers, AreReplacedAfterTheProgramHasChangedItsFolder) {
  const std::filesystem::path before = std::filesystem::current_path();
  WorkerOptions options;
  options.program = std::filesystem::relative(BERTH_WORKER_PROGRAM).string();
  options.libraries = {std::filesystem::relative(BERTH_TASK_LIBRARY).string()};
  Bench bench("host", options);
  std::filesystem::current_path("/");
  kill(static_cast<pid_t>(*bench.status(bench.first()).pid), SIGKILL);
  ASSERT_TRUE(within_patience([&] { return bench.status(bench.first()).deaths == 1; }));
  EXPECT_TRUE(bench.workers->submit(WorkerTask<Pair, int>("multiply"), {6, 7}).get(soon()));
  std::filesystem::current_path(before);
}

TEST(Workers, LoadTasksFromALibrary) {
  WorkerOptions options;
  options.program = BERTH_WORKER_PROGRAM;
  options.libraries = {BERTH_TASK_LIBRARY};
  Bench bench("host", options);
  const WorkerTask<Pair, int> multiply("multiply");
  EXPECT_EQ(bench.workers->submit(multiply, {6, 7}).get(soon()).value().value, 42);
  const auto unknown = bench.workers->submit(add, {6, 7}).get(soon());
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::not_found);
  const auto other_size = bench.workers->submit(WorkerTask<int, int>("multiply"), 1).get(soon());
  ASSERT_FALSE(other_size);
  EXPECT_EQ(other_size.error().code, ErrorCode::invalid_argument);
  options.libraries = {"/nowhere/tasks.so"};
  const auto started = Workers::start(*bench.scheduler, options);
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().to_text().find("/nowhere/tasks.so"), std::string::npos) << started.error().to_text();
}

TEST(Workers, SharedMemoryIsBounded) {
  WorkerOptions options;
  options.shared_bytes = 1 << 20;
  Bench bench("host", options);
  EXPECT_EQ(bench.workers->share((1 << 20) + 1).error().code, ErrorCode::out_of_memory);
  EXPECT_EQ(bench.workers->share(0).error().code, ErrorCode::invalid_argument);
  Numbers wrong;
  wrong.values = {1 << 30, 1 << 20, 0, 10};
  EXPECT_EQ(bench.workers->submit(double_them, wrong).get(soon()).error().code, ErrorCode::invalid_argument);
  wrong.values = {0, 64, 10, 10};
  EXPECT_EQ(bench.workers->submit(double_them, wrong).get(soon()).error().code, ErrorCode::invalid_argument);
}

}  // namespace

// Starts workers, reports the PID of one, and waits to be killed.
int start_workers_and_wait(int descriptor) {
  Bench bench("host");
  const std::uint32_t worker = *bench.status(bench.first()).pid;
  if (write(descriptor, &worker, sizeof worker) != sizeof worker) return 1;
  for (;;) pause();
}

}  // namespace berth::worker

int main(int argc, char** argv) {
  berth::worker_entry(argc, argv);
  if (argc == 3 && std::string_view(argv[1]) == "--start-workers-and-wait")
    return berth::worker::start_workers_and_wait(std::atoi(argv[2]));
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
