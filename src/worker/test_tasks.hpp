// Tasks of the tests of this folder: good ones, and one that does to its worker what a broken task can.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "berth/kernel.hpp"
#include "berth/worker.hpp"
#include "worker/worker_process.hpp"

namespace berth::worker {

struct Pair {
  int a = 0, b = 0;
};

// What a test and its tasks tell each other.
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
    .cuda_cpp = R"(extern "C" __global__ void twice(float* x, unsigned n) {
      const unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2; })",
});

struct Numbers {
  SharedSpan<float> values;
};

enum class Harm { segv, abort, exit, endless_loop, kill, allocate, write_anything, answer_nonsense, throw_it, refuse };

struct Harmful {
  Harm harm = Harm::segv;
  int first_times = 1'000'000;  // how often it does harm, by the count of all runs
  SharedFlags flags;
  std::uint64_t seed = 1;
};

// The channel, as a broken pointer might find it.
inline Channel channel_of_this_worker() { return Channel::open(dup(worker_channel)).value(); }

inline int do_harm(WorkerContext& context, const Harmful& in) {
  Flags& flags = flags_in(context, in.flags);
  if (flags.begun.fetch_add(1) >= in.first_times) return 7;
  switch (in.harm) {
    case Harm::segv: {
      std::signal(SIGSEGV, SIG_DFL);  // sanitizers have one of their own
      *reinterpret_cast<volatile int*>(64) = 1;
      break;
    }
    case Harm::abort: std::signal(SIGABRT, SIG_DFL); std::abort();
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
      // The answer as well, while the program reads it; then nothing more comes.
      for (volatile bool on = true; on;) {
      }
      return 0;
    }
    case Harm::answer_nonsense: {
      const Channel channel = channel_of_this_worker();
      for (std::size_t i = 0; i < channel.mailboxes(); ++i) {
        Answer& answer = channel.mailbox(i).answer;
        std::memset(static_cast<void*>(&answer), 0xff, sizeof answer);
        if (in.seed % 2 == 0) answer.code = 3;  // an error, with texts that have no end
        channel.mailbox(i).state.store(Mailbox::answered);
      }
      for (volatile bool on = true; on;) {
      }
      return 0;
    }
    case Harm::throw_it: throw std::runtime_error("thrown by a task");
    case Harm::refuse: break;
  }
  return 0;
}

}  // namespace berth::worker
