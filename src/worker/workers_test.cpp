// Real worker processes on the host and on PoCL, and what happens when a task is broken.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>

#include "worker/test_tasks.hpp"

namespace berth::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

BERTH_TASK(add, [](WorkerContext&, const Pair& in) { return in.a + in.b; });
BERTH_TASK(harm, do_harm);
BERTH_TASK(harm_or_fail, [](WorkerContext& context, const Harmful& in) -> Result<int> {
  if (in.harm == Harm::refuse) return Error{ErrorCode::work_failed, "refused", "as asked"};
  return do_harm(context, in);
});
BERTH_TASK(double_them, [](WorkerContext& task, const Numbers& in) -> Result<float> {
  const std::span<float> values = BERTH_TRY(task.shared(in.values));
  const Buffer x = BERTH_TRY(task.copy_in(values));
  BERTH_TRY(task.launch(doubling, {values.size()}, {x, static_cast<unsigned>(values.size())}));
  BERTH_TRY(task.copy_out(x, values));
  BERTH_TRY(task.wait());
  return values.back();
});
// Begins, then waits to be told to go on.
BERTH_TASK(wait_for_the_test, [](WorkerContext& task, const Harmful& in) -> Result<int> {
  Flags& flags = flags_in(task, in.flags);
  flags.begun.fetch_add(1);
  while (flags.go_on.load() == 0) {
    if (task.cancelled()) return Error{ErrorCode::cancelled, "stopped"};
    usleep(200);
  }
  return 1;
});

struct Weights {
  Buffer on_device;
  int made_by = 0;
};
BERTH_TASK(
    use_weights,
    [](WorkerContext& task, const Pair& in, Weights& weights) -> Result<int> {
      std::vector<int> values(4);
      BERTH_TRY(task.copy_out(weights.on_device, values));
      BERTH_TRY(task.wait());
      return weights.made_by == getpid() ? values[2] + in.a : -1;
    },
    [](WorkerContext& task) -> Result<Weights> {
      static const std::vector<int> values{1, 2, 30, 4};
      Weights weights;
      weights.on_device = BERTH_TRY(task.device().allocate(16));
      Stream* const stream = BERTH_TRY(task.stream());
      BERTH_TRY(stream->copy_in(weights.on_device, values));
      weights.made_by = getpid();
      return weights;
    });

constexpr auto patience = seconds(60);
Deadline soon() { return Deadline::after(real_clock(), patience); }

template <class Condition>
bool within_patience(Condition condition) {
  const Deadline deadline = soon();
  while (!condition()) {
    if (deadline.passed(real_clock().now())) return false;
    std::this_thread::yield();
  }
  return true;
}

bool is_stopped(pid_t pid) {
  std::FILE* const file = std::fopen(("/proc/" + std::to_string(pid) + "/stat").c_str(), "re");
  char state = 0;
  const int read = file ? std::fscanf(file, "%*d %*s %c", &state) : 0;
  if (file) std::fclose(file);
  return read == 1 && state == 'T';
}

// A pool of the devices of one back end, and workers on them.
class Bench {
 public:
  explicit Bench(const std::string& backend, WorkerOptions options = {}, SchedulerOptions scheduling = {}) {
    std::vector<std::shared_ptr<Backend>> backends;
    backends.push_back(make_backend(backend).value());
    PoolOptions pool_options;
    pool_options.machine_wide = false;
    pool = Pool::open_backends(backends, pool_options).value();
    scheduler = Scheduler::start(*pool, std::move(scheduling)).value();
    workers = Workers::start(*scheduler, std::move(options)).value();
    flags_memory = workers->share(sizeof(Flags)).value();
    new (flags_memory.bytes().data()) Flags;
  }
  Flags& flags() { return *reinterpret_cast<Flags*>(flags_memory.bytes().data()); }
  Harmful harmful(Harm kind, int first_times = 1'000'000) {
    return {kind, first_times, flags_memory.to_send<std::byte>(), 1};
  }
  TaskOptions on(const DeviceId& device, bool may_run_twice = false) {
    TaskOptions options;
    options.requirements.only = {device};
    options.may_run_twice = may_run_twice;
    return options;
  }
  WorkerStatus status(const DeviceId& device) const {
    for (const WorkerStatus& one : workers->status())
      if (one.device == device) return one;
    return {};
  }
  // Of its only or first device.
  DeviceId first() const { return pool->devices().front()->id(); }
  Health health(const DeviceId& device) const {
    for (const DeviceStatus& one : pool->status())
      if (one.info.id == device) return one.view.health;
    return Health::lost;
  }

  std::optional<Pool> pool;
  std::optional<Scheduler> scheduler;
  std::optional<Workers> workers;
  SharedMemory flags_memory;
};

class WorkersOn : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Backends, WorkersOn, testing::Values("host", "opencl"),
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
    items.push_back({memory.back().to_send<float>().subspan(0, 500)});
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

// Every way in which a task can take its process down.
struct Broken {
  Harm harm;
  const char* name;
  const char* said;  // in the error
};
class BrokenTask : public testing::TestWithParam<std::tuple<std::string, Broken>> {};
INSTANTIATE_TEST_SUITE_P(
    Harms, BrokenTask,
    testing::Combine(testing::Values("host", "opencl"),
                     testing::Values(Broken{Harm::segv, "segv", "SIGSEGV"}, Broken{Harm::abort, "abort", "SIGABRT"},
                                     Broken{Harm::exit, "exit", "status 3"}, Broken{Harm::kill, "kill", "SIGKILL"},
                                     Broken{Harm::write_anything, "write_anything", "wrote"},
                                     Broken{Harm::answer_nonsense, "answer_nonsense", "no meaning"})),
    [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param).name; });

TEST_P(BrokenTask, CostsOneWorkerAndTheNextWorkRuns) {
  const auto& [backend, broken] = GetParam();
  Bench bench(backend);
  const DeviceId device = bench.first();
  const WorkerStatus before = bench.status(device);
  const auto result = bench.workers->submit(harm, bench.harmful(broken.harm), bench.on(device)).get(soon());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::worker_lost) << result.error().to_text();
  EXPECT_NE(result.error().message.find(broken.said), std::string::npos) << result.error().message;
  EXPECT_EQ(result.error().where, device.text());
  EXPECT_EQ(bench.flags().begun, 1) << "it may not run twice";

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
  for (int round = 1; round <= 3; ++round) {
    const auto result = bench.workers->submit(harm, bench.harmful(broken.harm), bench.on(device, true)).get(soon());
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::poisonous_work) << result.error().to_text();
    EXPECT_EQ(bench.flags().begun, 2 * round) << "twice each, and on no other device";
  }
  EXPECT_EQ(bench.status(device).deaths, 6U);
  EXPECT_FALSE(bench.status(device).out_of_service);
  EXPECT_EQ(bench.health(device), Health::healthy);
  EXPECT_TRUE(bench.workers->submit(add, {1, 1}, bench.on(device)).get(soon()));
}

TEST_P(WorkersOn, AnEndlessLoopIsEndedAtItsDeadline) {
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

TEST_P(WorkersOn, OneThatTakesTooMuchMemoryIsReplaced) {
  WorkerOptions options;
  options.host_memory_bytes_max = std::uint64_t{1} << 30;
  Bench bench(GetParam(), options);
  const auto result = bench.workers->submit(harm, bench.harmful(Harm::allocate), bench.on(bench.first())).get(soon());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::worker_lost);
  EXPECT_NE(result.error().message.find("of host memory"), std::string::npos) << result.error().message;
  EXPECT_TRUE(bench.workers->submit(add, {1, 1}, bench.on(bench.first())).get(soon()));
}

TEST_P(WorkersOn, OneThatIsKilledFromOutsideIsReplaced) {
  Bench bench(GetParam());
  const DeviceId device = bench.first();
  // While it has nothing to do.
  kill(static_cast<pid_t>(*bench.status(device).pid), SIGKILL);
  ASSERT_TRUE(within_patience([&] { return bench.status(device).deaths == 1; }));
  EXPECT_TRUE(bench.workers->submit(add, {1, 1}, bench.on(device)).get(soon()));
  // While it works.
  Task<int> task = bench.workers->submit(wait_for_the_test, bench.harmful(Harm::kill), bench.on(device, true));
  ASSERT_TRUE(within_patience([&] { return bench.flags().begun == 1; }));
  kill(static_cast<pid_t>(*bench.status(device).pid), SIGKILL);
  bench.flags().go_on = 1;
  const auto result = task.get(soon());
  ASSERT_TRUE(result) << result.error().to_text();
  EXPECT_EQ(bench.flags().begun, 2);
  EXPECT_EQ(bench.status(device).deaths, 2U);
}

TEST_P(WorkersOn, WorkThatADyingWorkerHasNotBegunIsNotLostAndRunsOnce) {
  Bench bench(GetParam());
  const DeviceId device = bench.first();
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(within_patience([&] { return bench.status(device).pid.has_value(); }));
    const auto pid = static_cast<pid_t>(*bench.status(device).pid);
    // It has the work in its mailbox and cannot begin it.
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

TEST_P(WorkersOn, AFourthDeathInAMinuteTakesTheDeviceOutOfService) {
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
  EXPECT_EQ(result.error().code, ErrorCode::device_lost);
  EXPECT_EQ(bench.health(device), Health::lost);
  if (bench.pool->device_count() > 1) {
    EXPECT_TRUE(bench.workers->submit(add, {1, 1}).get(soon()));
  }
}

TEST_P(WorkersOn, AnInitRunsInEveryWorker) {
  Bench bench(GetParam());
  const DeviceId device = bench.first();
  EXPECT_EQ(bench.workers->submit(use_weights, {1, 0}, bench.on(device)).get(soon()).value().value, 31);
  EXPECT_FALSE(bench.workers->submit(harm, bench.harmful(Harm::abort), bench.on(device)).get(soon()));
  EXPECT_EQ(bench.workers->submit(use_weights, {2, 0}, bench.on(device)).get(soon()).value().value, 32);
}

TEST_P(WorkersOn, ErrorsAndExceptionsOfATaskArriveAndCostNoWorker) {
  Bench bench(GetParam());
  const DeviceId device = bench.first();
  const auto refused = bench.workers->submit(harm_or_fail, bench.harmful(Harm::refuse), bench.on(device)).get(soon());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::work_failed);
  EXPECT_EQ(refused.error().message, "refused");
  EXPECT_EQ(refused.error().advice, "as asked");
  EXPECT_EQ(refused.error().where, device.text());
  const auto thrown = bench.workers->submit(harm, bench.harmful(Harm::throw_it), bench.on(device)).get(soon());
  ASSERT_FALSE(thrown);
  EXPECT_NE(thrown.error().message.find("thrown by a task"), std::string::npos);
  EXPECT_EQ(bench.status(device).starts, 1U);
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
  broken.flags = others.to_send<std::byte>();
  Task<int> guilty = bench.workers->submit(harm, broken, bench.on(device, true));
  ASSERT_TRUE(within_patience([&] { return bench.status(device).deaths == 1; }));
  bench.flags().go_on = 1;
  const auto result = innocent.get(soon());
  ASSERT_TRUE(result) << result.error().to_text();
  EXPECT_EQ(bench.flags().begun, 2);
  EXPECT_EQ(guilty.get(soon()).error().code, ErrorCode::poisonous_work);
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

TEST(Workers, WorkThatWaitsForAWorkerEndsAtItsDeadline) {
  SchedulerOptions lanes;
  lanes.lanes_per_device = 8;  // more than the worker has threads
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
  std::array<int, 2> told{};
  ASSERT_EQ(pipe(told.data()), 0);
  const std::string descriptor = std::to_string(told[1]);
  const pid_t program = fork();
  if (program == 0) {
    execl("/proc/self/exe", "workers_test", "--start-workers-and-wait", descriptor.c_str(), nullptr);
    _exit(1);
  }
  close(told[1]);
  std::uint32_t worker = 0;
  ASSERT_EQ(read(told[0], &worker, sizeof worker), static_cast<ssize_t>(sizeof worker));
  close(told[0]);
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
  options.program = "/bin/cat";  // waits for ever, or refuses its argument
  options.start_deadline = milliseconds(200);
  EXPECT_FALSE(Workers::start(*bench.scheduler, options));
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

// Starts workers, says which, and waits to be killed.
int start_workers_and_wait(int told) {
  Bench bench("host");
  const std::uint32_t worker = *bench.status(bench.first()).pid;
  if (write(told, &worker, sizeof worker) != sizeof worker) return 1;
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
