// Tasks for the tests of this folder: good ones, and one that does whatever a broken task can do to its
// worker.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "berth/kernel.hpp"
#include "berth/worker.hpp"
#include "worker/worker_process.hpp"

namespace berth::worker {

struct Pair {
  int a = 0, b = 0;
};

// Signals between a test and its tasks.
struct Flags {
  std::atomic<int> begun{0};
  std::atomic<int> go_on{0};
};
using SharedFlags = SharedSpan<std::byte>;
inline Flags& flags_in(WorkerContext& context, const SharedFlags& shared) {
  return *reinterpret_cast<Flags*>(context.shared(shared).value().data());
}

inline const Kernel doubling({
    .entry = "twice",
    .host =
        [](const LaunchShape&, unsigned begin, unsigned end, const HostArguments& arguments) {
          for (float& x : arguments.buffer<float>(0).subspan(begin, end - begin)) x *= 2;
        },
    .opencl_c = "kernel void twice(global float* x, uint n) { uint i = get_global_id(0); if (i < n) x[i] *= 2; }",
    // PTX rather than CUDA C++: a machine with a GPU need not have the compiler.
    .ptx = R"(
      .version 6.0
      .target sm_52
      .address_size 64
      .visible .entry twice(.param .u64 values, .param .u32 n) {
        .reg .pred %outside;
        .reg .b32 %block, %size, %thread, %i, %n;
        .reg .b64 %x, %offset;
        .reg .f32 %value;
        mov.u32 %block, %ctaid.x;
        mov.u32 %size, %ntid.x;
        mov.u32 %thread, %tid.x;
        mad.lo.u32 %i, %block, %size, %thread;
        ld.param.u32 %n, [n];
        setp.ge.u32 %outside, %i, %n;
        @%outside bra done;
        mul.wide.u32 %offset, %i, 4;
        ld.param.u64 %x, [values];
        cvta.to.global.u64 %x, %x;
        add.u64 %x, %x, %offset;
        ld.global.f32 %value, [%x];
        add.f32 %value, %value, %value;
        st.global.f32 [%x], %value;
      done:
        ret;
      })",
});

// A kernel that takes minutes.
inline const Kernel endless({
    .entry = "endless",
    .opencl_c = R"(kernel void endless(global volatile uint* x) {
      for (ulong i = 0; i < 1000000000000UL; ++i) x[0] += i; })",
    .cuda_cpp = R"(extern "C" __global__ void endless(volatile unsigned* x) {
      for (unsigned long long i = 0; i < 1000000000000ULL; ++i) x[0] += i; })",
});

// Writes to an address that is not mapped.
inline const Kernel faulty({.entry = "faulty",
                            .ptx = ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry faulty()\n{\n"
                                   "  .reg .b64 %a;\n  mov.u64 %a, 64;\n  st.global.u64 [%a], %a;\n  ret;\n}\n"});

struct Numbers {
  SharedSpan<float> values;
};

enum class Harm {
  segv,
  abort,
  exit,
  endless_loop,
  kill,
  allocate,
  write_anything,
  change_messages,
  answer_nonsense,
  answer_early,
  answer_wrongly,
  ask_again,
  throw_it,
  refuse,
  fail_inside
};

struct Harmful {
  Harm harm = Harm::segv;
  int first_times = 1'000'000;  // harms only in this many first runs
  SharedFlags flags;
  std::uint64_t seed = 1;
};

// The channel, as a broken pointer might reach it.
inline Channel channel_of_this_worker() { return Channel::open(world::Descriptor(dup(worker_channel))).value(); }

// Sanitizers have their own handlers, which would end the process in another way.
inline void without_sanitizer([[maybe_unused]] int signal) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  std::signal(signal, SIG_DFL);
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  std::signal(signal, SIG_DFL);
#endif
#endif
}

inline int do_harm(WorkerContext& context, const Harmful& in) {
  Flags& flags = flags_in(context, in.flags);
  if (flags.begun.fetch_add(1) >= in.first_times) return 7;
  switch (in.harm) {
    case Harm::segv: {
      without_sanitizer(SIGSEGV);
      volatile std::uintptr_t unmapped = 64;
      *reinterpret_cast<volatile int*>(unmapped) = 1;
      break;
    }
    case Harm::abort: without_sanitizer(SIGABRT); std::abort();
    case Harm::exit: _exit(3);
    case Harm::endless_loop:
      for (volatile bool on = true; on;) {
      }
      break;
    case Harm::kill: std::raise(SIGKILL); break;
    case Harm::allocate:
      for (;;) {
        void* const some = mmap(nullptr, 16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (some != MAP_FAILED) std::memset(some, 1, 16 << 20);
      }
    case Harm::write_anything: {
      const Channel channel = channel_of_this_worker();
      std::uint64_t x = in.seed * 0x9E3779B97F4A7C15;
      for (std::size_t i = 0; i < channel.mailboxes(); ++i) {
        auto* const words = reinterpret_cast<std::uint32_t*>(&channel.mailbox(i));
        for (std::size_t word = 0; word < sizeof(Mailbox) / sizeof *words; ++word) {
          x ^= x << 13, x ^= x >> 7, x ^= x << 17;
          words[word] = static_cast<std::uint32_t>(x >> 32) % (x % 2 == 0 ? 4 : ~0U);
        }
      }
      // Overwrites the answer as well while the program reads it, and then never answers.
      for (volatile bool on = true; on;) {
      }
      return 0;
    }
    case Harm::change_messages: {  // those of other running tasks, for as long as it lives
      const Channel channel = channel_of_this_worker();
      for (std::uint32_t x = 1;; ++x)
        for (std::size_t i = 0; i < channel.mailboxes(); ++i) {
          std::memset(channel.mailbox(i).request.arguments.data(), static_cast<int>(x), 8);
          std::atomic_signal_fence(std::memory_order_seq_cst);
          std::memset(channel.mailbox(i).value.data(), static_cast<int>(x), 4);
        }
    }
    case Harm::answer_nonsense: {
      const Channel channel = channel_of_this_worker();
      for (std::size_t i = 0; i < channel.mailboxes(); ++i) {
        Mailbox& mailbox = channel.mailbox(i);
        std::memset(static_cast<void*>(&mailbox.answer), 0xff, sizeof mailbox.answer);
        std::memset(static_cast<void*>(&mailbox.error), 0xff, sizeof mailbox.error);
        if (in.seed % 2 == 0) mailbox.answer.code = 3;  // an error, with texts that have no end
        mailbox.state.store(Mailbox::answered);
      }
      for (volatile bool on = true; on;) {
      }
      return 0;
    }
    case Harm::answer_early: {
      const Channel channel = channel_of_this_worker();
      for (std::size_t i = 0; i < channel.mailboxes(); ++i) channel.mailbox(i).state.store(Mailbox::answered);
      for (volatile bool on = true; on;) {
      }
      return 0;
    }
    case Harm::answer_wrongly: {  // as a worker does, except for the checksum
      const Channel channel = channel_of_this_worker();
      for (std::size_t i = 0; i < channel.mailboxes(); ++i) {
        Mailbox& mailbox = channel.mailbox(i);
        mailbox.answer = {};
        mailbox.answer.request = mailbox.request.header.number;
        mailbox.value.fill(std::byte{7});
        mailbox.state.store(Mailbox::answered);
      }
      for (volatile bool on = true; on;) {
      }
      return 0;
    }
    case Harm::ask_again: {  // repeats requests that have been answered
      const Channel channel = channel_of_this_worker();
      for (std::size_t i = 0; i < channel.mailboxes(); ++i) {
        std::atomic<std::uint32_t>& state = channel.mailbox(i).state;
        std::uint32_t ended = Mailbox::answered;
        if (!state.compare_exchange_strong(ended, Mailbox::asked)) continue;
        wake(state);
        while (state.load() == Mailbox::asked) std::this_thread::yield();
      }
      break;
    }
    case Harm::throw_it: throw std::runtime_error("thrown by a task");
    case Harm::refuse:
    case Harm::fail_inside: break;
  }
  return 0;
}

BERTH_TASK(add, [](WorkerContext&, const Pair& in) { return in.a + in.b; });
BERTH_TASK(harm, do_harm);
BERTH_TASK(harm_or_fail, [](WorkerContext& context, const Harmful& in) -> Result<int> {
  if (in.harm == Harm::refuse) return Error{ErrorCode::work_failed, "refused", "as asked"};
  if (in.harm == Harm::fail_inside) return Error{ErrorCode::internal, "a bug", ""};
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
// Dies, then fails.
BERTH_TASK(die_and_fail, [](WorkerContext& context, const Harmful& in) -> Result<int> {
  if (flags_in(context, in.flags).begun.load() == 0) return do_harm(context, in);
  flags_in(context, in.flags).begun.fetch_add(1);
  return Error{ErrorCode::work_failed, "the second time"};
});
// Fails, then dies.
BERTH_TASK(fail_and_die, [](WorkerContext& context, const Harmful& in) -> Result<int> {
  if (flags_in(context, in.flags).begun.load() > 0) return do_harm(context, in);
  flags_in(context, in.flags).begun.fetch_add(1);
  return Error{ErrorCode::work_failed, "the first time"};
});
// Fails after the launch if `a` is 1.
BERTH_TASK(launch_endless, [](WorkerContext& task, const Pair& in) -> Result<void> {
  const Buffer x = BERTH_TRY(task.allocate(4));
  BERTH_TRY(task.launch(endless, {1}, {x}));
  if (in.a == 1) return Error{ErrorCode::work_failed, "after the launch"};
  return {};
});
BERTH_TASK(launch_faulty, [](WorkerContext& task, const Pair&) -> Result<void> {
  BERTH_TRY(task.launch(faulty, {1}, {}));
  return task.wait();
});
// A kernel with only one form.
inline const Kernel for_the_host({.entry = "none",
                                  .host = [](const LaunchShape&, unsigned, unsigned, const HostArguments&) {}});
BERTH_TASK(launch_on_host, [](WorkerContext& task, const Pair&) -> Result<int> {
  BERTH_TRY(task.launch(for_the_host, {1}, {}));
  return 1;
});
// Runs on the first device only.
BERTH_TASK(decline_others, [](WorkerContext& task, const Pair&) -> Result<int> {
  if (task.device().id().text().ends_with("-0")) return 5;
  task.decline();
  return Error{ErrorCode::not_supported, "not here"};
});
BERTH_TASK(
    made_for_one_device, [](WorkerContext&, const Pair& in, int& state) { return in.a + state; },
    [](WorkerContext& task) -> Result<int> {
      if (task.device().id().text().ends_with("-0")) return 100;
      return Error{ErrorCode::not_supported, "needs another device"};
    });
// Starts a process that keeps running; returns its id.
BERTH_TASK(start_a_process, [](WorkerContext&, const Pair&) -> int {
  const pid_t child = fork();
  if (child == 0)
    for (;;) pause();
  return child;
});
// Begins, then waits for permission to continue.
BERTH_TASK(wait_for_the_test, [](WorkerContext& task, const Harmful& in) -> Result<int> {
  Flags& flags = flags_in(task, in.flags);
  flags.begun.fetch_add(1);
  while (flags.go_on.load() == 0) {
    if (task.cancelled()) return Error{ErrorCode::cancelled, "stopped"};
    std::this_thread::yield();
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

}  // namespace berth::worker
