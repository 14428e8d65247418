// A thousand machines by seed on which anything may go wrong at any call, used
// by two threads at once: no crash, no hang, and whatever is not lost gives back
// everything. The same seeds in every run of ctest, new ones under make soak;
// BERTH_SEED=17 repeats one of them.
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <thread>

#include "berth/assert.hpp"
#include "berth/random.hpp"
#include "device/cuda/errors.hpp"
#include "driver_double/fixture.hpp"
#include "world/test_random_cases.hpp"

namespace berth::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t seeds = world::random_cases(1000);
// Far beyond what a seed takes, also under a sanitizer on a busy machine.
constexpr auto patience = 60s;
constexpr std::size_t operations_per_thread = 40;
constexpr std::size_t host_bytes = 1 << 16;

// Calls of the back end that may fail and still leave nothing behind; calls
// that release are not among them, the pseudo calls are.
constexpr const char* fallible[] = {"cuInit",
                                    "cuDeviceGetCount",
                                    "cuDeviceGet",
                                    "cuDeviceGetName",
                                    "cuDeviceGetUuid",
                                    "cuDeviceTotalMem_v2",
                                    "cuDeviceGetAttribute",
                                    "cuDevicePrimaryCtxRetain",
                                    "cuCtxGetStreamPriorityRange",
                                    "cuMemGetInfo_v2",
                                    "cuMemAlloc_v2",
                                    "cuMemcpyHtoDAsync_v2",
                                    "cuMemcpyDtoHAsync_v2",
                                    "cuModuleLoadDataEx",
                                    "cuModuleGetFunction",
                                    "cuFuncGetAttribute",
                                    "cuLaunchKernel",
                                    "cuStreamCreateWithPriority",
                                    "cuStreamQuery",
                                    "cuEventCreate",
                                    "cuEventRecord",
                                    "cuEventQuery",
                                    "cuEventElapsedTime_v2",
                                    "cuMemHostAlloc",
                                    "cuMemHostRegister_v2",
                                    "cuMemAllocAsync",
                                    "cuDeviceGetDefaultMemPool",
                                    "cuMemPoolSetAttribute",
                                    "cuMemcpyDtoDAsync_v2",
                                    "cuMemcpyPeerAsync",
                                    "cuDeviceCanAccessPeer",
                                    "cuCtxEnablePeerAccess",
                                    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
                                    "cuDeviceGetDevResource",
                                    "cuDevSmResourceSplitByCount",
                                    "cuDevResourceGenerateDesc",
                                    "cuGreenCtxCreate",
                                    "cuGreenCtxStreamCreate",
                                    "kernel",
                                    "copy"};
constexpr const char* hangable[] = {"cu*",
                                    "cuMemAlloc_v2",
                                    "cuMemFree_v2",
                                    "cuMemFreeAsync",
                                    "cuModuleLoadDataEx",
                                    "cuModuleUnload",
                                    "cuLaunchKernel",
                                    "cuStreamDestroy_v2",
                                    "cuStreamQuery",
                                    "cuEventQuery",
                                    "cuEventRecord",
                                    "cuDevicePrimaryCtxRetain",
                                    "cuDevicePrimaryCtxRelease_v2",
                                    "cuCtxPushCurrent_v2",
                                    "cuGreenCtxDestroy",
                                    "nvml*",
                                    "nvmlDeviceGetHandleByUUID",
                                    "nvmlDeviceGetMemoryInfo_v2",
                                    "nvmlEventSetWait_v2",
                                    "kernel",
                                    "copy"};

template <class T, std::size_t n>
const T& one_of(Random& random, const T (&all)[n]) {
  return all[random.below(n)];
}

std::string random_machine(Random& random, std::uint64_t gpus) {
  std::string script;
  for (std::uint64_t i = 0; i < gpus; ++i) {
    // Some are so small that memory runs out.
    script += "gpu memory=" + std::to_string(random.below(3) == 0 ? 1 : 300 + random.below(4000)) + "MiB\n";
  }
  if (gpus > 1 && random.below(2) == 0) script += "nvlink 0-" + std::to_string(gpus - 1) + "\n";
  if (random.below(3) == 0) script += "process gpu=0 pid=4194711 bytes=200MiB\n";
  const auto at = [&](std::uint64_t most) {
    return " gpu=" + std::to_string(random.below(gpus)) + " at=" + std::to_string(1 + random.below(most));
  };
  const auto codes = cuda::driver_codes();
  for (std::uint64_t rules = random.below(6); rules > 0; --rules) {
    const std::uint64_t kind = random.below(20);
    if (kind < 9) {
      const std::string call = one_of(random, fallible);
      // A fault on the device stays for the process, and a driver reports it with one of the codes that say so.
      constexpr int codes_of_faults[] = {700, 714, 715, 716, 717, 718, 719};
      const int code =
          call == "kernel" || call == "copy" ? one_of(random, codes_of_faults) : codes[random.below(codes.size())].code;
      script += "error " + call + at(12) + " times=" + std::to_string(1 + random.below(3)) +
                " code=" + std::to_string(code) + "\n";
    } else if (kind < 12) {
      constexpr int nvml_codes[] = {1, 2, 3, 4, 6, 15, 16, 999};
      script += "error nvml*" + at(60) + " times=" + std::to_string(1 + random.below(20)) +
                " code=" + std::to_string(one_of(random, nvml_codes)) + "\n";
    } else if (kind < 15) {
      script += std::string("hang ") + one_of(random, hangable) + at(30) + "\n";
    } else if (kind < 17) {
      script += std::string("delay ") + one_of(random, hangable) + at(30) + " for=1ms times=3\n";
    } else if (kind < 19) {
      constexpr const char* events[] = {"xid code=31", "xid code=79", "xid code=95", "ecc", "recovery code=1"};
      script += "event *" + at(200) + " kind=" + one_of(random, events) + "\n";
    } else {
      constexpr int codes_of_loss[] = {719, 999, 46};
      script += "lost *" + at(300) + " code=" + std::to_string(one_of(random, codes_of_loss)) + "\n";
    }
  }
  return script;
}

// What one thread does and holds. Host memory belongs to the test, so that it outlives
// every copy.
class User {
 public:
  User(Backend& backend, std::vector<DeviceId> ids, std::uint64_t seed, std::span<std::byte> host)
      : backend_(backend), ids_(std::move(ids)), random_(seed), host_(host) {}

  void work() {
    for (std::size_t i = 0; i < operations_per_thread; ++i) step();
    // In no particular order: everything may outlive everything else.
    while (!devices_.empty() || !streams_.empty() || !buffers_.empty() || !kernels_.empty() || !events_.empty() ||
           !pinned_.empty()) {
      drop();
    }
  }
  std::size_t mistakes() const { return mistakes_; }

 private:
  Deadline short_while() { return Deadline::after(real_clock(), 2ms); }

  template <class T>
  bool good(const Result<T>& result) {
    if (result) return true;
    // Every error has a message and is not an internal one.
    if (result.error().message.empty() || result.error().code == ErrorCode::internal) ++mistakes_;
    return false;
  }
  template <class T>
  T* any(std::vector<T>& things) {
    return things.empty() ? nullptr : &things[random_.below(things.size())];
  }
  template <class T>
  void drop_one(std::vector<T>& things) {
    if (!things.empty()) things.erase(things.begin() + static_cast<std::ptrdiff_t>(random_.below(things.size())));
  }
  void drop() {
    switch (random_.below(6)) {
      case 0: return drop_one(devices_);
      case 1: return drop_one(streams_);
      case 2: return drop_one(buffers_);
      case 3: return drop_one(kernels_);
      case 4: return drop_one(events_);
      default: return drop_one(pinned_);
    }
  }
  void open() {
    auto device = backend_.open(ids_[random_.below(ids_.size())]);
    if (good(device)) devices_.push_back(*std::move(device));
  }

  void step() {
    std::shared_ptr<Device>* device = any(devices_);
    if (device == nullptr) return open();
    std::unique_ptr<Stream>* stream = any(streams_);
    Buffer* buffer = any(buffers_);
    const std::uint64_t what = random_.below(22);
    switch (what) {
      case 0: return open();
      case 1: return static_cast<void>(good((*device)->sample()));
      case 2: return static_cast<void>(good(backend_.observe((*device)->id())));
      case 3: return static_cast<void>(good(backend_.list()));
      case 4: return static_cast<void>(good(backend_.links()));
      case 5: return drop();
      case 6: return (*device)->close();
      case 7: {
        auto pinned = random_.below(2) == 0 ? (*device)->pin(4096) : (*device)->pin(host_);
        if (good(pinned)) pinned_.push_back(*std::move(pinned));
        return;
      }
      case 8: {
        auto kernel =
            random_.below(2) == 0 ? (*device)->load(contract::add_source()) : (*device)->load(test::kernel("empty"));
        if (good(kernel)) kernels_.push_back({*std::move(kernel), (*device)->id()});
        return;
      }
      case 9:
      case 10: {
        auto made = (*device)->allocate(random_.below(8) == 0 ? 1ULL << 30 : 1 + random_.below(host_bytes));
        if (good(made)) buffers_.push_back(*std::move(made));
        return;
      }
      default: break;
    }
    if (stream == nullptr) {
      auto made = (*device)->open_stream(static_cast<Priority>(random_.below(3)));
      if (good(made)) streams_.push_back(*std::move(made));
      return;
    }
    const std::uint64_t bytes =
        buffer != nullptr ? 1 + random_.below(std::min<std::uint64_t>(buffer->bytes(), host_bytes)) : 0;
    switch (what) {
      case 11:
        if (buffer != nullptr) good((*stream)->copy_in(*buffer, 0, host_.first(bytes)));
        return;
      case 12:
        if (buffer != nullptr) good((*stream)->copy_out(*buffer, 0, host_.first(bytes)));
        return;
      case 13: {
        const Buffer* other = any(buffers_);
        if (buffer != nullptr) good((*stream)->copy(*other, 0, *buffer, 0, std::min(bytes, other->bytes())));
        return;
      }
      case 14: {
        auto made = (*stream)->allocate(1 + random_.below(host_bytes));
        if (good(made)) buffers_.push_back(*std::move(made));
        return;
      }
      case 15:
      case 16: {
        const auto* kernel = any(kernels_);
        if (kernel == nullptr) return;
        const auto count = static_cast<std::uint32_t>(buffer != nullptr ? buffer->bytes() / sizeof(float) : 0);
        const std::vector<Argument> four{buffer != nullptr ? *buffer : Buffer(), buffer != nullptr ? *buffer : Buffer(),
                                         buffer != nullptr ? *buffer : Buffer(), std::min(count, 64U)};
        good((*stream)->launch(*kernel->first, {{64, 1, 1}, {}},
                               random_.below(2) == 0 ? std::span<const Argument>(four) : std::span<const Argument>()));
        good(kernel->first->occupancy(64));
        return;
      }
      case 17: {
        auto event = (*stream)->record();
        if (good(event)) events_.push_back(*std::move(event));
        return;
      }
      case 18: return static_cast<void>(good((*stream)->wait(short_while())));
      case 19: {
        const auto *first = any(events_), *second = any(events_);
        if (first == nullptr) return;
        good((*first)->done());
        good((*first)->wait(short_while()));
        good((*second)->since(**first));
        return;
      }
      case 20:
        return static_cast<void>(good((*stream)->run([&](Stream& inside) { return inside.wait(short_while()); })));
      default: return drop_one(streams_);
    }
  }

  Backend& backend_;
  const std::vector<DeviceId> ids_;
  SeededRandom random_;
  const std::span<std::byte> host_;
  std::size_t mistakes_ = 0;
  std::vector<std::shared_ptr<Device>> devices_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<Buffer> buffers_;
  std::vector<std::pair<std::shared_ptr<LoadedKernel>, DeviceId>> kernels_;
  std::vector<std::shared_ptr<Event>> events_;
  std::vector<PinnedMemory> pinned_;
};

// Ends the process and prints the seed when it takes too long.
class Watchdog {
 public:
  Watchdog() : thread_([this] { watch(); }) {}
  ~Watchdog() {
    stop_ = true;
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  void next(std::uint64_t seed) {
    seed_ = seed;
    since_ = real_clock().now().time_since_epoch().count();
  }

 private:
  void watch() {
    while (!stop_) {
      real_clock().sleep_for(20ms);
      const Duration taken = real_clock().now().time_since_epoch() - Duration(since_.load());
      if (taken < patience) continue;
      std::fprintf(stderr, "seed %llu hangs\n", static_cast<unsigned long long>(seed_.load()));
      std::abort();
    }
  }
  std::atomic<bool> stop_ = false;
  std::atomic<std::uint64_t> seed_ = 0;
  std::atomic<Duration::rep> since_ = real_clock().now().time_since_epoch().count();
  std::thread thread_;
};

// Runs all of these, and releases whatever hangs meanwhile.
void together(const std::vector<std::function<void()>>& works) {
  std::mutex mutex;  // guards `left`
  std::condition_variable ended;
  std::size_t left = works.size();
  std::vector<std::thread> threads;
  for (const auto& work : works) {
    threads.emplace_back([&] {
      work();
      const std::lock_guard lock(mutex);
      if (--left == 0) ended.notify_all();
    });
  }
  std::unique_lock lock(mutex);
  while (!ended.wait_for(lock, 500us, [&] { return left == 0; })) {
    if (count("hung") > 0) release();
  }
  lock.unlock();
  for (std::thread& thread : threads) thread.join();
}

void run_seed(std::uint64_t seed) {
  SeededRandom random(seed);
  const std::uint64_t gpus = 1 + random.below(4);
  const std::string script = random_machine(random, gpus);
  SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + script);
  set_assert_seed(seed);
  std::array<std::vector<std::byte>, 2> host{std::vector<std::byte>(host_bytes), std::vector<std::byte>(host_bytes)};
  // Copies that still run must not access freed memory.
  const std::shared_ptr<void> last(nullptr, [](void*) { start("gpu"); });
  ASSERT_NO_FATAL_FAILURE(start(script));
  // One of three machines has its first GPU cut into parts.
  BackendOptions options;
  if (random.below(3) == 0) options.partitions = {{"cuda:0", {32, 16}}};
  const auto backend = device::make_cuda_backend(options);
  std::vector<DeviceId> ids;
  together({[&] {
    for (int tries = 0; tries < 20 && ids.empty(); ++tries) {
      const auto listed = backend->list();
      if (!listed) continue;
      for (const DeviceInfo& info : *listed) ids.push_back(info.id);
    }
  }});
  if (ids.empty()) ids.emplace_back("GPU-of-nobody");
  std::array<User, 2> users{User(*backend, ids, random.next(), host[0]), User(*backend, ids, random.next(), host[1])};
  together({[&] { users[0].work(); }, [&] { users[1].work(); }});
  for (const User& user : users) EXPECT_EQ(user.mistakes(), 0U);

  also("calm");
  release();
  const auto wholes = device::make_cuda_backend({});
  const auto listed = wholes->list();
  ASSERT_TRUE(works(listed));
  for (const DeviceInfo& info : *listed) {
    // What the process has lost cannot be given back.
    auto device = wholes->open(info.id);
    const bool lost = !device && device.error().code != ErrorCode::out_of_memory;
    device = Error{};
    if (!lost) {
      EXPECT_EQ(left_over(info.ordinal), nothing) << "on GPU " << info.ordinal;
    }
  }
}

TEST(RandomScripts, NeverCrashHangOrLeak) {
  const char* only = std::getenv("BERTH_SEED");
  const bool fixed = std::getenv("RC_PARAMS") != nullptr;
  const std::uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10)
                              : fixed         ? 1
                                              : real_random().next() >> 1;
  std::printf("seeds from %llu on\n", static_cast<unsigned long long>(first));
  Watchdog watchdog;
  for (std::uint64_t seed = first; seed < first + (only != nullptr ? 1 : seeds); ++seed) {
    watchdog.next(seed);
    run_seed(seed);
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace berth::test
