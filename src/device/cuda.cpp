// NVIDIA GPUs through the driver API. A device is its primary context, the one
// that libraries on the runtime API use too; it is retained while the Device or
// anything made from it lives. Completion is learnt by polling events, which
// tells of errors as well; a host callback would never come once the context
// has failed. After a fault nothing in this process reaches the GPU again
// (measured: neither new contexts nor a reset help), so the device stays lost
// and no further driver call is made for it.
#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <typeinfo>

#include "device/backends.hpp"
#include "device/cuda_driver.hpp"
#include "device/cuda_geometry.hpp"
#include "device/nvml.hpp"

namespace berth {
namespace {

using cuda::Driver;

// Two streams fill the link in both directions at once; a third hides the
// moment in which a thread learns of one frame and submits the next.
constexpr std::uint32_t streams_to_fill_a_gpu = 3;
// A query takes well under a microsecond: short work is met without a system
// call, a wait of more than about a millisecond offers its core to others.
constexpr unsigned polls_before_yielding = 2000;
// Enough for the compiler's first complaints; it cuts off the rest.
constexpr std::size_t jit_log_bytes = 8192;
// How long closing waits for work on its way; longer than any sane kernel, and
// short enough for a person to wait for the end of a program.
constexpr std::chrono::seconds drain_limit{10};
// Kernels take at most 32764 bytes of parameters.
constexpr std::size_t most_parameters = 4096;

std::uint64_t next_generation() noexcept {
  static std::atomic<std::uint64_t> generation{0};
  return generation.fetch_add(1, std::memory_order_relaxed) + 1;
}

// GPUs that a fault took from this process. Retaining the primary context again
// would succeed and every call on it fail, so opening asks here first.
class LostDevices {
 public:
  static LostDevices& of_this_process() {
    static LostDevices lost;
    return lost;
  }
  void add(cuda::DeviceNumber number, cuda::Code code) {
    const std::lock_guard lock(mutex_);
    by_.emplace(number, code);
  }
  cuda::Code code(cuda::DeviceNumber number) {
    const std::lock_guard lock(mutex_);
    const auto found = by_.find(number);
    return found == by_.end() ? cuda::code_success : found->second;
  }

 private:
  std::mutex mutex_;  // guards by_
  std::map<cuda::DeviceNumber, cuda::Code> by_;
};

Error lost_error(cuda::Code code, const DeviceId& id) {
  Error error = cuda::error_of(code, "", id.text());
  error.message = "the device is lost to this process since an earlier fault";
  return error;
}

// One retained primary context, and whether it can still be used. Shared by the
// device and every handle made from it. Thread-safe.
class PrimaryContext {
 public:
  PrimaryContext(const Driver& driver, cuda::DeviceNumber number, cuda::Context handle, DeviceInfo info, Clock& clock)
      : driver(driver),
        number(number),
        handle(handle),
        info(std::move(info)),
        clock(clock),
        generation(next_generation()) {}
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  ~PrimaryContext();

  const Driver& driver;
  const cuda::DeviceNumber number;
  const cuda::Context handle;
  const DeviceInfo info;
  Clock& clock;
  const std::uint64_t generation;

  // Refuses new work, then waits for what the streams still have: a copy on its
  // way must not outlive the caller's memory. A stuck stream is given up after
  // drain_limit.
  void close() noexcept;
  void add(cuda::StreamHandle stream) {
    const std::lock_guard lock(streams_mutex_);
    streams_.insert(stream);
  }
  void destroy(cuda::StreamHandle stream) noexcept;
  bool lost() const noexcept { return lost_by_.load(std::memory_order_relaxed) != cuda::code_success; }
  // For new work.
  Result<void> usable() const {
    if (!lost() && !closing_.load(std::memory_order_relaxed)) [[likely]]
      return {};
    return unusable();
  }
  // For watching work that is on its way; true until closing has waited for it.
  Result<void> watchable() const {
    if (!lost() && !closed_.load(std::memory_order_relaxed)) [[likely]]
      return {};
    return unusable();
  }
  // The error for a failed call; a fatal code loses the device.
  Error fail(cuda::Code code, std::string_view doing);
  Error refuse(std::string message, std::string advice) const {
    return {ErrorCode::invalid_argument, std::move(message), std::move(advice), info.id.text(), {}};
  }

  // Makes one driver call, f() -> Code, with the context current.
  template <class F>
  Result<void> call(std::string_view doing, F&& f);
  // The same for releasing things: says nothing, and leaves a lost device alone.
  template <class F>
  void release(F&& f) noexcept;

  Result<cuda::EventHandle> take_event();
  void give_back(cuda::EventHandle event) noexcept;

 private:
  Error unusable() const;
  std::atomic<cuda::Code> lost_by_{cuda::code_success};
  std::atomic<bool> closing_{false};
  std::atomic<bool> closed_{false};
  std::mutex mutex_;  // guards idle_events_
  std::vector<cuda::EventHandle> idle_events_;
  std::mutex streams_mutex_;  // guards streams_; held while one is asked, so that it is not destroyed meanwhile
  std::set<cuda::StreamHandle> streams_;
};

// The context is current on this thread for a scope; afterwards the thread is
// as it was.
class Current {
 public:
  explicit Current(const PrimaryContext& context) noexcept : driver_(context.driver) {
    code_ = driver_.cuCtxGetCurrent(&before_);
    if (code_ != cuda::code_success || before_ == context.handle) return;
    code_ = driver_.cuCtxPushCurrent_v2(context.handle);
    pushed_ = code_ == cuda::code_success;
  }
  ~Current() {
    cuda::Context popped = nullptr;
    if (pushed_ && driver_.cuCtxPopCurrent_v2(&popped) != cuda::code_success) driver_.cuCtxSetCurrent(before_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  cuda::Code code() const noexcept { return code_; }

 private:
  const Driver& driver_;
  cuda::Context before_ = nullptr;
  cuda::Code code_;
  bool pushed_ = false;
};

template <class F>
Result<void> PrimaryContext::call(std::string_view doing, F&& f) {
  if (Result<void> ok = usable(); !ok) return ok;
  const Current current(*this);
  cuda::Code code = current.code();
  if (code == cuda::code_success) code = f();
  if (code != cuda::code_success) return fail(code, doing);
  return {};
}

template <class F>
void PrimaryContext::release(F&& f) noexcept {
  if (lost()) return;
  const Current current(*this);
  if (current.code() == cuda::code_success) f();
}

void PrimaryContext::destroy(cuda::StreamHandle stream) noexcept {
  const std::lock_guard lock(streams_mutex_);
  streams_.erase(stream);
  release([&] { driver.cuStreamDestroy_v2(stream); });
}

void PrimaryContext::close() noexcept {
  if (closing_.exchange(true)) return;
  const TimePoint until = clock.now() + drain_limit;
  const auto busy = [&] {
    bool any = false;
    const std::lock_guard lock(streams_mutex_);
    release([&] {
      for (cuda::StreamHandle stream : streams_) any = any || driver.cuStreamQuery(stream) == cuda::code_not_ready;
    });
    return any;
  };
  while (busy() && clock.now() < until) std::this_thread::yield();
  closed_.store(true);
}

PrimaryContext::~PrimaryContext() {
  release([&] {
    for (cuda::EventHandle event : idle_events_) driver.cuEventDestroy_v2(event);
  });
  if (!lost()) driver.cuDevicePrimaryCtxRelease_v2(number);
}

Error PrimaryContext::fail(cuda::Code code, std::string_view doing) {
  Error error = cuda::error_of(code, doing, info.id.text());
  if (error.code == ErrorCode::device_lost) {
    error.message = "the device is lost to this process: " + error.message;
    cuda::Code none = cuda::code_success;
    lost_by_.compare_exchange_strong(none, code);
    LostDevices::of_this_process().add(number, code);
  }
  return error;
}

Error PrimaryContext::unusable() const {
  const cuda::Code code = lost_by_.load();
  if (code == cuda::code_success) {
    return {ErrorCode::device_lost, "the device was closed", "open it again", info.id.text(), {}};
  }
  return lost_error(code, info.id);
}

Result<cuda::EventHandle> PrimaryContext::take_event() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_events_.empty()) {
      const cuda::EventHandle event = idle_events_.back();
      idle_events_.pop_back();
      return event;
    }
  }
  cuda::EventHandle event = nullptr;
  Result<void> made = call("creating an event", [&] { return driver.cuEventCreate(&event, cuda::event_default); });
  if (!made) return std::move(made).error();
  return event;
}

void PrimaryContext::give_back(cuda::EventHandle event) noexcept {
  const std::lock_guard lock(mutex_);
  idle_events_.push_back(event);
}

class CudaMemory final : public Memory {
 public:
  explicit CudaMemory(std::shared_ptr<PrimaryContext> owner) : context(std::move(owner)) {}
  ~CudaMemory() override {
    context->release([&] { context->driver.cuMemFree_v2(reinterpret_cast<cuda::DevicePointer>(native)); });
  }
  const std::shared_ptr<PrimaryContext> context;
};

class CudaKernel final : public Kernel {
 public:
  CudaKernel(std::shared_ptr<PrimaryContext> owner, cuda::Module module, std::string entry)
      : context(std::move(owner)), entry(std::move(entry)), module_(module) {}
  ~CudaKernel() override {
    context->release([&] { context->driver.cuModuleUnload(module_); });
  }
  // Finds the entry and learns what a launch must respect.
  Result<void> resolve();
  Result<void> check_arguments(std::span<const Argument> arguments) const;

  const std::shared_ptr<PrimaryContext> context;
  const std::string entry;
  cuda::Function function = nullptr;
  std::uint32_t most_threads = 0;

 private:
  const cuda::Module module_;
  std::optional<std::vector<std::size_t>> parameter_bytes_;  // absent: the driver is too old to tell
};

Result<void> CudaKernel::resolve() {
  const Driver& driver = context->driver;
  int threads = 0;
  Result<void> found = context->call("looking for the kernel '" + entry + "' in its module", [&] {
    const cuda::Code code = driver.cuModuleGetFunction(&function, module_, entry.c_str());
    if (code != cuda::code_success) return code;
    return driver.cuFuncGetAttribute(&threads, cuda::function_max_threads_per_block, function);
  });
  if (!found) return found;
  most_threads = static_cast<std::uint32_t>(threads);
  if (driver.cuFuncGetParamInfo == nullptr) return {};
  return context->call("reading the parameters of '" + entry + "'", [&] {
    std::vector<std::size_t> sizes;
    std::size_t offset = 0, bytes = 0;
    // The driver answers "invalid value" to the first index past the last one.
    while (sizes.size() < most_parameters &&
           driver.cuFuncGetParamInfo(function, sizes.size(), &offset, &bytes) == cuda::code_success) {
      sizes.push_back(bytes);
    }
    parameter_bytes_ = std::move(sizes);
    return cuda::code_success;
  });
}

Result<void> CudaKernel::check_arguments(std::span<const Argument> arguments) const {
  if (!parameter_bytes_) return {};
  if (arguments.size() != parameter_bytes_->size()) {
    return context->refuse("the kernel '" + entry + "' takes " + std::to_string(parameter_bytes_->size()) +
                               " arguments and got " + std::to_string(arguments.size()),
                           "pass one argument per parameter");
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::size_t bytes = arguments[i].is_buffer() ? sizeof(cuda::DevicePointer) : arguments[i].value_size();
    if (bytes == (*parameter_bytes_)[i]) continue;
    return context->refuse("argument " + std::to_string(i) + " of the kernel '" + entry + "' has " +
                               std::to_string(bytes) + " bytes instead of " + std::to_string((*parameter_bytes_)[i]),
                           "pass a value of the parameter's type");
  }
  return {};
}

class CudaEvent final : public Event {
 public:
  CudaEvent(std::shared_ptr<PrimaryContext> context, cuda::EventHandle handle)
      : context_(std::move(context)), handle_(handle) {}
  ~CudaEvent() override { context_->give_back(handle_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  Result<bool> done() override {
    if (seen_done_.load(std::memory_order_acquire)) return true;
    if (Result<void> ok = context_->watchable(); !ok) return std::move(ok).error();
    const Current current(*context_);
    const cuda::Code code = current.code() != cuda::code_success ? current.code() : query();
    if (code == cuda::code_success) return true;
    if (code == cuda::code_not_ready) return false;
    return context_->fail(code, waiting);
  }

  Result<void> wait(Deadline deadline) override {
    if (seen_done_.load(std::memory_order_acquire)) return {};
    if (Result<void> ok = context_->watchable(); !ok) return ok;
    const Current current(*context_);
    if (current.code() != cuda::code_success) return context_->fail(current.code(), waiting);
    for (unsigned polls = 0;; ++polls) {
      const cuda::Code code = query();
      if (code == cuda::code_success) return {};
      if (code != cuda::code_not_ready) return context_->fail(code, waiting);
      // Another thread may have closed the device or met its fault.
      if (Result<void> ok = context_->watchable(); !ok) return ok;
      if (deadline.passed(context_->clock.now())) {
        return Error{ErrorCode::timeout,
                     "the work did not finish before the deadline",
                     "wait again with a later deadline; the work is still running",
                     context_->info.id.text(),
                     {}};
      }
      if (polls >= polls_before_yielding) std::this_thread::yield();
    }
  }

  Result<Duration> since(const Event& earlier) const override {
    if (typeid(earlier) != typeid(CudaEvent) || static_cast<const CudaEvent&>(earlier).context_ != context_) {
      return context_->refuse("the earlier event belongs to another device", "compare events of one device");
    }
    const Driver& driver = context_->driver;
    const cuda::EventHandle from = static_cast<const CudaEvent&>(earlier).handle_;
    float milliseconds = 0;
    Result<void> measured = context_->call("measuring the time between two events", [&] {
      return driver.cuEventElapsedTime_v2 != nullptr ? driver.cuEventElapsedTime_v2(&milliseconds, from, handle_)
                                                     : driver.cuEventElapsedTime(&milliseconds, from, handle_);
    });
    if (!measured) return std::move(measured).error();
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(milliseconds));
  }

 private:
  static constexpr std::string_view waiting = "work was running";
  cuda::Code query() noexcept {
    const cuda::Code code = context_->driver.cuEventQuery(handle_);
    if (code == cuda::code_success) seen_done_.store(true, std::memory_order_release);
    return code;
  }
  const std::shared_ptr<PrimaryContext> context_;
  const cuda::EventHandle handle_;
  std::atomic<bool> seen_done_{false};
};

class CudaStream final : public Stream {
 public:
  CudaStream(Device& device, std::shared_ptr<PrimaryContext> context, const cuda::GeometryLimits& limits,
             cuda::StreamHandle handle, Priority priority)
      : device_(device), context_(std::move(context)), limits_(limits), handle_(handle), priority_(priority) {
    context_->add(handle_);
  }
  // What is enqueued still runs; the driver frees the stream afterwards.
  ~CudaStream() override { context_->destroy(handle_); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  Device& device() noexcept override { return device_; }
  Priority priority() const noexcept override { return priority_; }
  void* native() const noexcept override { return handle_; }

  Result<void> copy_in(const Buffer& to, std::uint64_t offset, std::span<const std::byte> from) override {
    Result<cuda::DevicePointer> target = locate(to, offset, from.size());
    if (!target) return std::move(target).error();
    if (from.empty()) return {};
    return context_->call("copying to the device", [&] {
      return context_->driver.cuMemcpyHtoDAsync_v2(*target, from.data(), from.size(), handle_);
    });
  }

  Result<void> copy_out(const Buffer& from, std::uint64_t offset, std::span<std::byte> to) override {
    Result<cuda::DevicePointer> source = locate(from, offset, to.size());
    if (!source) return std::move(source).error();
    if (to.empty()) return {};
    return context_->call("copying from the device", [&] {
      return context_->driver.cuMemcpyDtoHAsync_v2(to.data(), *source, to.size(), handle_);
    });
  }

  Result<void> launch(const Kernel& kernel, const LaunchShape& shape, std::span<const Argument> arguments) override;

  Result<std::shared_ptr<Event>> record() override {
    if (Result<void> ok = context_->usable(); !ok) return std::move(ok).error();
    Result<cuda::EventHandle> handle = context_->take_event();
    if (!handle) return std::move(handle).error();
    auto event = std::make_shared<CudaEvent>(context_, *handle);
    Result<void> recorded =
        context_->call("recording an event", [&] { return context_->driver.cuEventRecord(*handle, handle_); });
    if (!recorded) return std::move(recorded).error();
    return std::shared_ptr<Event>(std::move(event));
  }

  Result<void> run(const std::function<Result<void>(Stream&)>& closure) override {
    if (Result<void> ok = context_->usable(); !ok) return ok;
    const Current current(*context_);
    if (current.code() != cuda::code_success) return context_->fail(current.code(), "making its context current");
    try {
      return closure(*this);
    } catch (const std::exception& failure) {
      return threw(failure.what());
    } catch (...) {
      return threw("something that is no std::exception");
    }
  }

 private:
  Error threw(const std::string& what) const {
    return {ErrorCode::work_failed, "the work threw: " + what, {}, context_->info.id.text(), {}};
  }

  // A handle made with `owner` may be used here.
  Result<void> check_owner(const std::shared_ptr<PrimaryContext>& owner, const char* what) const {
    if (owner == context_) return {};
    if (owner->info.id == context_->info.id) {
      return Error{ErrorCode::stale_handle,
                   std::string("the ") + what + " belongs to generation " + std::to_string(owner->generation) +
                       ", the device is at " + std::to_string(context_->generation),
                   "make it anew on the reopened device",
                   context_->info.id.text(),
                   {}};
    }
    return context_->refuse(std::string("the ") + what + " belongs to " + owner->info.id.text(),
                            "use it on the device that made it");
  }

  Result<void> check_buffer(const Buffer& buffer) const {
    if (!buffer) return context_->refuse("the buffer is empty", "allocate it first");
    const Memory& memory = *buffer.memory();
    if (typeid(memory) != typeid(CudaMemory)) {
      return context_->refuse("the buffer belongs to a device of another back end",
                              "allocate it on the device that uses it");
    }
    return check_owner(static_cast<const CudaMemory&>(memory).context, "buffer");
  }

  Result<cuda::DevicePointer> locate(const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) const {
    if (Result<void> ok = context_->usable(); !ok) return std::move(ok).error();
    if (Result<void> ok = check_buffer(buffer); !ok) return std::move(ok).error();
    if (offset > buffer.bytes() || bytes > buffer.bytes() - offset) {
      return context_->refuse(std::to_string(bytes) + " bytes at offset " + std::to_string(offset) +
                                  " reach beyond the buffer of " + std::to_string(buffer.bytes()),
                              "keep offset and length inside the buffer");
    }
    return reinterpret_cast<cuda::DevicePointer>(buffer.native()) + offset;
  }

  Device& device_;
  const std::shared_ptr<PrimaryContext> context_;
  const cuda::GeometryLimits limits_;
  const cuda::StreamHandle handle_;
  const Priority priority_;
};

Result<void> CudaStream::launch(const Kernel& kernel, const LaunchShape& shape, std::span<const Argument> arguments) {
  if (Result<void> ok = context_->usable(); !ok) return ok;
  if (typeid(kernel) != typeid(CudaKernel)) {
    return context_->refuse("the kernel was loaded by another back end", "load it on the device that launches it");
  }
  const auto& ours = static_cast<const CudaKernel&>(kernel);
  if (Result<void> ok = check_owner(ours.context, "kernel"); !ok) return ok;
  Result<cuda::Geometry> geometry = cuda::geometry_of(shape, limits_, ours.most_threads);
  if (!geometry) {
    Error error = std::move(geometry).error();
    error.where = context_->info.id.text();
    return error;
  }
  if (Result<void> ok = ours.check_arguments(arguments); !ok) return ok;

  // The driver copies the values during the call.
  std::array<void*, 16> few{};
  std::vector<void*> many;
  if (arguments.size() > few.size()) many.resize(arguments.size());
  void** parameters = many.empty() ? few.data() : many.data();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].is_buffer()) {
      parameters[i] = const_cast<void*>(arguments[i].value());
      continue;
    }
    if (Result<void> ok = check_buffer(arguments[i].buffer()); !ok) return ok;
    parameters[i] = &arguments[i].buffer().memory()->native;
  }
  const auto& [grid, group] = *geometry;
  return context_->call("launching a kernel", [&, &grid = grid, &group = group] {
    return context_->driver.cuLaunchKernel(ours.function, grid[0], grid[1], grid[2], group[0], group[1], group[2],
                                           /*shared_memory_bytes=*/0, handle_, parameters, /*extra=*/nullptr);
  });
}

class CudaDevice final : public Device {
 public:
  CudaDevice(std::shared_ptr<PrimaryContext> context, const cuda::GeometryLimits& limits)
      : context_(std::move(context)), limits_(limits) {}
  ~CudaDevice() override { context_->close(); }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const DeviceInfo& info() const noexcept override { return context_->info; }
  std::uint64_t generation() const noexcept override { return context_->generation; }
  void close() noexcept override { context_->close(); }
  NativeHandles native() const noexcept override {
    return {reinterpret_cast<void*>(static_cast<std::intptr_t>(context_->number)), context_->handle};
  }

  Result<Buffer> allocate(std::uint64_t bytes) override {
    if (Result<void> ok = context_->usable(); !ok) return std::move(ok).error();
    if (bytes == 0) return context_->refuse("a buffer of zero bytes was asked for", "ask for at least one byte");
    if (context_->info.memory_bytes_total && bytes > *context_->info.memory_bytes_total) {
      return Error{ErrorCode::out_of_memory,
                   std::to_string(bytes) + " bytes do not fit, the device has " +
                       std::to_string(*context_->info.memory_bytes_total),
                   "ask for less, or split the data over devices",
                   context_->info.id.text(),
                   {}};
    }
    cuda::DevicePointer pointer = 0;
    Result<void> got = context_->call("allocating " + std::to_string(bytes) + " bytes",
                                      [&] { return context_->driver.cuMemAlloc_v2(&pointer, bytes); });
    if (!got) return std::move(got).error();
    auto memory = std::make_shared<CudaMemory>(context_);
    memory->bytes = bytes;
    memory->generation = context_->generation;
    memory->native = reinterpret_cast<void*>(pointer);
    memory->device = this;
    return Buffer(std::move(memory));
  }

  Result<std::unique_ptr<Stream>> open_stream(Priority priority) override {
    const Driver& driver = context_->driver;
    cuda::StreamHandle handle = nullptr;
    Result<void> made = context_->call("opening a stream", [&] {
      // Lower numbers are more urgent; both are 0 where there are no priorities.
      int least = 0, greatest = 0;
      const cuda::Code code = driver.cuCtxGetStreamPriorityRange(&least, &greatest);
      if (code != cuda::code_success) return code;
      const int level = priority == Priority::low    ? least
                        : priority == Priority::high ? greatest
                                                     : (least + greatest) / 2;
      return driver.cuStreamCreateWithPriority(&handle, cuda::stream_non_blocking, level);
    });
    if (!made) return std::move(made).error();
    return std::unique_ptr<Stream>(std::make_unique<CudaStream>(*this, context_, limits_, handle, priority));
  }

  Result<std::shared_ptr<Kernel>> load(const KernelSource& source) override {
    if (Result<void> ok = context_->usable(); !ok) return std::move(ok).error();
    if (source.ptx.empty()) {
      return Error{ErrorCode::not_supported,
                   "the kernel '" + source.entry + "' has no PTX form",
                   "give the source's ptx, or use a back end that speaks the form it has",
                   context_->info.id.text(),
                   {}};
    }
    if (source.entry.empty()) return context_->refuse("the kernel has no entry name", "name the function to launch");
    std::array<char, jit_log_bytes> log{};
    std::array<int, 2> options{cuda::jit_error_log_buffer, cuda::jit_error_log_buffer_size_bytes};
    std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size())};
    cuda::Module module = nullptr;
    // The same call takes a cubin or a fat binary.
    Result<void> loaded = context_->call("compiling the kernel '" + source.entry + "'", [&] {
      return context_->driver.cuModuleLoadDataEx(&module, source.ptx.c_str(), options.size(), options.data(),
                                                 values.data());
    });
    if (!loaded) {
      Error error = std::move(loaded).error();
      log.back() = '\0';
      std::string complaint = log.data();
      while (!complaint.empty() && complaint.back() == '\n') complaint.pop_back();
      if (!complaint.empty()) error.message += ": " + complaint;
      return error;
    }
    auto kernel = std::make_shared<CudaKernel>(context_, module, source.entry);
    if (Result<void> found = kernel->resolve(); !found) return std::move(found).error();
    return std::shared_ptr<Kernel>(std::move(kernel));
  }

  Result<LoadSample> sample() override {
    if (Result<void> ok = context_->usable(); !ok) return std::move(ok).error();
    LoadSample sample;
    // NVML's total counts memory that no program can have; what can be
    // allocated is the total that matters here.
    sample.memory_bytes_total = context_->info.memory_bytes_total;
    std::size_t free = 0, total = 0;
    if (const std::optional<NvmlSample> seen = nvml_sample(context_->info.id.text())) {
      free = seen->memory_bytes_free;
      sample.utilisation = seen->utilisation;
    } else {
      Result<void> asked =
          context_->call("asking for free memory", [&] { return context_->driver.cuMemGetInfo_v2(&free, &total); });
      if (!asked) return std::move(asked).error();
    }
    sample.memory_bytes_free = std::min<std::uint64_t>(free, sample.memory_bytes_total.value_or(free));
    return sample;
  }

 private:
  const std::shared_ptr<PrimaryContext> context_;
  const cuda::GeometryLimits limits_;
};

std::optional<int> attribute(const Driver& driver, cuda::DeviceNumber number, cuda::Attribute which) {
  int value = 0;
  if (driver.cuDeviceGetAttribute(&value, which, number) != cuda::code_success) return std::nullopt;
  return value;
}

// A slice of a GPU has a UUID of its own, which only the second version of the
// query tells.
std::optional<std::string> identity(const Driver& driver, cuda::DeviceNumber number) {
  cuda::UuidBytes gpu{}, own{};
  if (driver.cuDeviceGetUuid(reinterpret_cast<CUuuid_st*>(gpu.data()), number) != cuda::code_success) return {};
  if (driver.cuDeviceGetUuid_v2 != nullptr &&
      driver.cuDeviceGetUuid_v2(reinterpret_cast<CUuuid_st*>(own.data()), number) == cuda::code_success && own != gpu) {
    return cuda::uuid_text("MIG", own);
  }
  return cuda::uuid_text("GPU", gpu);
}

DeviceInfo describe(const Driver& driver, cuda::DeviceNumber number, int ordinal) {
  const auto ask = [&](cuda::Attribute which) { return attribute(driver, number, which); };
  DeviceInfo info;
  info.backend = "cuda";
  info.ordinal = ordinal;
  const auto domain = ask(cuda::pci_domain_id), bus = ask(cuda::pci_bus_id), slot = ask(cuda::pci_device_id);
  if (domain && bus && slot) info.pci_address = cuda::pci_text(*domain, *bus, *slot);
  info.id = DeviceId(
      identity(driver, number).value_or("cuda-" + info.pci_address.value_or("ordinal-" + std::to_string(ordinal))));
  std::array<char, 256> name{};
  if (driver.cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, number) == cuda::code_success) {
    info.name = name.data();
  }
  std::size_t bytes = 0;
  if (driver.cuDeviceTotalMem_v2(&bytes, number) == cuda::code_success) info.memory_bytes_total = bytes;
  const auto major = ask(cuda::compute_capability_major), minor = ask(cuda::compute_capability_minor);
  if (major && minor) info.capability = Capability{*major, *minor};
  if (const auto units = ask(cuda::multiprocessor_count)) info.compute_units = static_cast<std::uint32_t>(*units);
  if (const auto node = ask(cuda::host_numa_id); node && *node >= 0) info.numa_node = *node;
  info.memory_domain = info.fault_domain = info.id.text();
  info.concurrency = streams_to_fill_a_gpu;
  info.features.insert("ptx");
  if (ask(cuda::stream_priorities_supported).value_or(0) != 0) info.features.insert("stream_priority");
  if (ask(cuda::memory_pools_supported).value_or(0) != 0) info.features.insert("memory_pools");
  return info;
}

cuda::GeometryLimits limits_of(const Driver& driver, cuda::DeviceNumber number) {
  cuda::GeometryLimits limits;
  const auto read = [&](std::uint32_t& limit, cuda::Attribute which) {
    if (const auto value = attribute(driver, number, which)) limit = static_cast<std::uint32_t>(*value);
  };
  read(limits.group_threads, cuda::max_threads_per_block);
  read(limits.group[0], cuda::max_block_dim_x);
  read(limits.group[1], cuda::max_block_dim_y);
  read(limits.group[2], cuda::max_block_dim_z);
  read(limits.grid[0], cuda::max_grid_dim_x);
  read(limits.grid[1], cuda::max_grid_dim_y);
  read(limits.grid[2], cuda::max_grid_dim_z);
  return limits;
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(Clock& clock) : clock_(clock) {}
  std::string_view name() const noexcept override { return "cuda"; }

  Result<std::vector<DeviceInfo>> list() override {
    Result<const Driver*> loaded = Driver::load();
    if (!loaded) return std::move(loaded).error();
    const Driver& driver = **loaded;
    const cuda::Code started = driver.cuInit(0);
    if (started == cuda::code_no_device) return std::vector<DeviceInfo>{};
    if (started != cuda::code_success) return cuda::error_of(started, "starting", "");
    int count = 0;
    if (const cuda::Code code = driver.cuDeviceGetCount(&count); code != cuda::code_success) {
      return cuda::error_of(code, "counting the devices", "");
    }
    std::vector<DeviceInfo> found;
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      cuda::DeviceNumber number = 0;
      // A device that cannot even be named hides no other.
      if (driver.cuDeviceGet(&number, ordinal) != cuda::code_success) continue;
      found.push_back(describe(driver, number, ordinal));
    }
    return found;
  }

  Result<std::shared_ptr<Device>> open(const DeviceId& id) override {
    Result<std::vector<DeviceInfo>> found = list();
    if (!found) return std::move(found).error();
    for (DeviceInfo& info : *found) {
      if (info.id == id) return open(std::move(info));
    }
    return Error{ErrorCode::not_found,
                 "there is no CUDA device called '" + id.text() + "'",
                 "see `berth devices` for the ids; CUDA_VISIBLE_DEVICES may hide some",
                 id.text(),
                 {}};
  }

 private:
  Result<std::shared_ptr<Device>> open(DeviceInfo info) {
    Result<const Driver*> loaded = Driver::load();
    if (!loaded) return std::move(loaded).error();
    const Driver& driver = **loaded;
    cuda::DeviceNumber number = 0;
    cuda::Context handle = nullptr;
    cuda::Code code = driver.cuDeviceGet(&number, info.ordinal);
    if (code == cuda::code_success) {
      const cuda::Code lost_by = LostDevices::of_this_process().code(number);
      if (lost_by != cuda::code_success) return lost_error(lost_by, info.id);
      code = driver.cuDevicePrimaryCtxRetain(&handle, number);
    }
    if (code != cuda::code_success) return cuda::error_of(code, "opening the device", info.id.text());
    auto context = std::make_shared<PrimaryContext>(driver, number, handle, std::move(info), clock_);
    return std::shared_ptr<Device>(std::make_shared<CudaDevice>(std::move(context), limits_of(driver, number)));
  }

  Clock& clock_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options) {
  return std::make_unique<CudaBackend>(options.clock != nullptr ? *options.clock : real_clock());
}

}  // namespace berth
