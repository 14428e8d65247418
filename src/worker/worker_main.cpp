// The program of a worker: opens its device, prepares the tasks, then serves the mailboxes of its
// channel, one thread each, until the program that started it has ended.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <unordered_map>

#include "scheduler/poll_briefly.hpp"
#include "worker/task_list.hpp"
#include "worker/worker_process.hpp"

namespace berth::worker {
namespace {

// Blocks of the shared memory, pinned for copies with the device when they are first used.
class SharedBlocks {
 public:
  SharedBlocks(SealedMemory memory, Device& device) : memory_(std::move(memory)), device_(device) {}

  Result<std::span<std::byte>> find(std::uint64_t begin, std::uint64_t bytes) {
    const std::span<std::byte> all = memory_.bytes();
    if (bytes == 0 || begin > all.size() || bytes > all.size() - begin)
      return Error{ErrorCode::invalid_argument, "the span is not within the shared memory",
                   "send what SharedMemory::as_argument() gives"};
    const std::span<std::byte> block = all.subspan(begin, bytes);
    const std::lock_guard lock(mutex_);
    if (const auto known = blocks_.find(begin); known != blocks_.end() && known->second.bytes == bytes) return block;
    // The program has released the blocks that were here before.
    std::erase_if(blocks_,
                  [&](const auto& old) { return old.first < begin + bytes && begin < old.first + old.second.bytes; });
    // If it cannot be pinned, copies are just slower.
    blocks_.emplace(begin, Block{bytes, device_.pin(block).value_or(PinnedMemory())});
    return block;
  }

 private:
  const SealedMemory memory_;
  Device& device_;
  struct Block {
    std::uint64_t bytes = 0;
    PinnedMemory pinned;
  };
  std::mutex mutex_;  // guards blocks_
  std::map<std::uint64_t, Block> blocks_;
};

// Everything that a worker needs once its device is open.
struct WorkerSetup {
  Channel channel;
  SharedBlocks shared;
  Scheduler scheduler;
  struct Task {
    const detail::TaskDefinition& definition;
    std::shared_ptr<void> state = {};   // the result of init
    std::optional<Error> refused = {};  // the error if init refused
  };
  std::unordered_map<std::uint64_t, Task> tasks = {};  // by task_number
  const WorkerContext::Find find = [this](std::uint64_t begin, std::uint64_t bytes) {
    return shared.find(begin, bytes);
  };
};

Error wrong_library(const std::string& path, const std::string& why) {
  return {ErrorCode::invalid_argument, "cannot use the library of tasks " + path + ": " + why,
          "link it with berth::berth, and define its tasks with BERTH_TASK"};
}

// A worker ends with its program, not before it, so it ignores signals that a terminal or a service manager sends to
// both.
void confine(const Setup& setup) {
  prctl(PR_SET_NAME, "berth-worker");
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != setup.parent) _exit(0);  // the program has already ended
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) std::signal(signal, SIG_IGN);
  for (const int descriptor : {worker_socket, worker_channel, worker_shared}) fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  // When the machine is out of memory, the kernel should kill a worker before the program.
  if (const world::Descriptor file(open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC)); file)
    static_cast<void>(!write(file.get(), "1000", 4));
}

Result<std::shared_ptr<Device>> open_device(const Setup& setup) {
  BackendOptions options;
  options.host_devices = setup.host_devices;
  const std::unique_ptr<Backend> backend = BERTH_TRY(make_backend(setup.backend.text().value_or(""), options));
  return backend->open(DeviceId(setup.device.text().value_or("")));
}

Result<void> load_libraries(const Setup& setup) {
  std::istringstream paths(setup.libraries.text().value_or(""));
  std::set<void*> loaded;
  for (std::string path; std::getline(paths, path);) {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) return wrong_library(path, dlerror());
    const auto list = reinterpret_cast<ListFunction*>(dlsym(library, list_function));
    if (!list) return wrong_library(path, "it defines no tasks of this version of Berth");
    if (!loaded.insert(library).second) continue;
    for (const detail::TaskDefinition& task : *list())
      if (!add_task(task)) return wrong_library(path, "another task is named " + task.name);
  }
  return {};
}

Result<Scheduler> schedule_on(std::shared_ptr<Device> device) {
  PoolOptions options;
  options.poll = false;          // the program polls the device
  options.machine_wide = false;  // the program has promised the bytes
  // The program decides whether the device is healthy.
  options.health.suspect_after = options.health.quarantine_after = ~std::uint32_t{0};
  const Pool pool = BERTH_TRY(Pool::open({std::move(device)}, std::move(options)));
  SchedulerOptions lanes;
  lanes.lanes_per_device = 1;  // tasks run on the threads of the mailboxes
  return Scheduler::start(pool, std::move(lanes));
}

Result<void> prepare_tasks(WorkerSetup& setup) {
  for (const detail::TaskDefinition& definition : all_tasks()) {
    WorkerSetup::Task& task =
        setup.tasks.emplace(task_number(definition.name), WorkerSetup::Task{definition}).first->second;
    if (!definition.init) continue;
    const auto ended = setup.scheduler.run([&](TaskContext& on) -> Result<void> {
      WorkerContext context(on, setup.find, nullptr);
      task.state = BERTH_TRY(definition.init(context));
      return {};
    });
    // The task needs another kind of device.
    if (!ended && ended.error().code == ErrorCode::not_supported)
      task.refused = ended.error();
    else if (!ended)
      return Error{ended.error().code, "the init of task " + definition.name + " failed: " + ended.error().to_text()};
  }
  return {};
}

// A copy of the program's request; null if a broken task has overwritten it.
const Request* read_request(const Mailbox& mailbox, Request& copy) {
  std::memcpy(&copy.header, &mailbox.request.header, sizeof copy.header);
  const std::size_t bytes = copy.header.argument_bytes;
  if (bytes > copy.arguments.size()) return nullptr;
  std::memcpy(copy.arguments.data(), mailbox.request.arguments.data(), bytes);
  const bool intact = checksum_of(copy.header, std::span(copy.arguments).first(bytes)) == copy.header.checksum;
  return intact ? &copy : nullptr;
}

Result<void> run_task(const WorkerSetup& setup, Mailbox& mailbox, const Request& request, AnswerHeader& answer,
                      std::span<std::byte> value) {
  const RequestHeader& asked = request.header;
  const auto found = setup.tasks.find(asked.task);
  if (found == setup.tasks.end())
    return Error{ErrorCode::not_found, "the worker has no task named " + mailbox.request.task_name.text().value_or(""),
                 "define it with BERTH_TASK in the program or library that the worker executes"};
  const WorkerSetup::Task& task = found->second;
  if (asked.argument_bytes != task.definition.argument_bytes || asked.value_bytes != task.definition.value_bytes)
    return Error{ErrorCode::invalid_argument,
                 "task " + task.definition.name + " has arguments or a value of a different size in the worker",
                 "build the program and the library of tasks from the same sources"};
  if (task.refused) {
    answer.declined = 1;
    return *task.refused;
  }
  TaskOptions options;
  options.requirements.priority = static_cast<Priority>(asked.priority);
  options.deadline.at = TimePoint(Duration(asked.deadline_ns));
  bool begun = false, used_stream = false;
  auto on_lane = [&](TaskContext& on) -> Result<void> {
    begun = true;
    mailbox.begun.store(asked.number, std::memory_order_release);
    WorkerContext context(on, setup.find, &mailbox.cancelled);
    Result<void> result = task.definition.call(context, std::span(request.arguments).first(asked.argument_bytes), value,
                                               task.state.get());
    used_stream = context.used_stream();
    answer.declined = context.has_declined() ? 1 : 0;
    return result;
  };
  auto ended = setup.scheduler.run(on_lane, options);
  if (ended) return {};
  // After any error, the device may still be busy with enqueued work if the deadline has passed.
  answer.device_busy = used_stream && options.deadline.passed(real_clock().now()) ? 1 : 0;
  Error error = std::move(ended).error();
  // The task did not begin, because another task has just lost the device.
  if (!begun && error.code != ErrorCode::timeout && error.code != ErrorCode::cancelled)
    error.code = ErrorCode::device_lost;
  return error;
}

void answer_request(const WorkerSetup& setup, Mailbox& mailbox, const Request& request) {
  AnswerHeader answer;
  answer.request = request.header.number;
  alignas(16) std::array<std::byte, message_bytes_max> place;
  const std::span<std::byte> value =
      std::span(place).first(std::min<std::size_t>(request.header.value_bytes, place.size()));
  if (const Result<void> ended = run_task(setup, mailbox, request, answer, value); ended) {
    answer.checksum = checksum_of(answer, value);
    std::memcpy(mailbox.value.data(), value.data(), value.size());
  } else {
    const ErrorText text(ended.error());
    answer.code = static_cast<std::uint32_t>(ended.error().code) + 1;
    answer.checksum = checksum_of(answer, std::as_bytes(std::span(&text, 1)));
    mailbox.error = text;
  }
  mailbox.answer = answer;
  mailbox.state.store(Mailbox::answered);
}

void serve(const WorkerSetup& setup, Mailbox& mailbox) {
  Request copy;
  std::uint64_t latest = 0;  // number of the last started request
  for (;;) {
    if (!scheduler::poll_briefly([&] { return mailbox.state.load(std::memory_order_acquire) == Mailbox::asked; })) {
      mailbox.worker_sleeps.store(1);
      for (std::uint32_t seen = 0; (seen = mailbox.state.load()) != Mailbox::asked;)
        sleep_while(mailbox.state, seen, std::chrono::hours(1));
      mailbox.worker_sleeps.store(0, std::memory_order_relaxed);
    }
    // Each request of a mailbox has a higher number than the previous one. If not, a broken task has overwritten the
    // state: the request has already run, and its caller may be using the shared memory for other work.
    if (const Request* const request = read_request(mailbox, copy); request && request->header.number > latest) {
      latest = request->header.number;
      answer_request(setup, mailbox, *request);
    } else {
      mailbox.state.store(Mailbox::empty);  // no answer: the program kills this worker
    }
    if (mailbox.program_sleeps.load() != 0) wake(mailbox.state);
  }
}

// Sends one line: "ready", or the number of an ErrorCode and a text.
void send_to_program(std::string line) {
  for (char& c : line)
    if (c == '\n') c = ' ';
  line += '\n';
  static_cast<void>(send(worker_socket, line.data(), line.size(), MSG_NOSIGNAL));
}

Result<void> work() {
  Channel channel = BERTH_TRY(Channel::open(world::Descriptor(worker_channel)));
  SealedMemory shared = BERTH_TRY(SealedMemory::open(world::Descriptor(worker_shared)));
  const Setup& setup = channel.setup();
  confine(setup);
  BERTH_TRY(load_libraries(setup));
  const std::shared_ptr<Device> device = BERTH_TRY(open_device(setup));
  Scheduler scheduler = BERTH_TRY(schedule_on(device));
  WorkerSetup ready{std::move(channel), SharedBlocks(std::move(shared), *device), std::move(scheduler)};
  BERTH_TRY(prepare_tasks(ready));
  for (std::size_t i = 0; i < ready.channel.mailboxes(); ++i)
    std::thread(serve, std::cref(ready), std::ref(ready.channel.mailbox(i))).detach();
  send_to_program("ready");
  // The program never sends anything; when its end of the socket is closed, it has ended.
  char byte = 0;
  while (recv(worker_socket, &byte, 1, 0) < 0 && errno == EINTR) {
  }
  _exit(0);
}

}  // namespace
}  // namespace berth::worker

void berth::worker_entry(int argc, char** argv) {
  if (argc < 2 || std::strcmp(argv[1], worker::worker_argument) != 0) return;
  unsetenv(worker::worker_variable);
  const Result<void> ended = worker::work();
  worker::send_to_program(std::to_string(static_cast<int>(ended.error().code)) + " " + ended.error().to_text());
  _exit(1);
}
