#include "device/cuda/stream.hpp"

#include <array>
#include <exception>
#include <thread>
#include <typeinfo>

#include "device/cuda/kernel.hpp"
#include "device/cuda/memory.hpp"

namespace berth::cuda {
namespace {

// A query takes well under a microsecond, so a wait for short work makes no system call, and a wait of more than about
// a millisecond yields its core.
constexpr unsigned polls_before_yielding = 2000;
constexpr std::string_view waiting = "work was running";

}  // namespace

Code CudaEvent::query() noexcept {
  const Code code = context_->driver.cuEventQuery(handle_);
  if (code == code_success) seen_done_.store(true, std::memory_order_release);
  return code;
}

Result<bool> CudaEvent::done() {
  if (seen_done_.load(std::memory_order_acquire)) return true;
  if (Result<void> ok = context_->watchable(); !ok) return std::move(ok).error();
  const CudaCurrent current(*context_);
  const Code code = current.code() != code_success ? current.code() : query();
  if (code == code_success) return true;
  if (code == code_not_ready) return false;
  return context_->fail(code, waiting);
}

Result<void> CudaEvent::wait(Deadline deadline) {
  if (seen_done_.load(std::memory_order_acquire)) return {};
  if (Result<void> ok = context_->watchable(); !ok) return ok;
  const CudaCurrent current(*context_);
  if (current.code() != code_success) return context_->fail(current.code(), waiting);
  for (unsigned polls = 0;; ++polls) {
    const Code code = query();
    if (code == code_success) return {};
    if (code != code_not_ready) return context_->fail(code, waiting);
    // Another thread may have closed the device, or a fault may have lost it.
    if (Result<void> ok = context_->watchable(); !ok) return ok;
    if (deadline.passed(context_->clock.now())) {
      return Error{ErrorCode::timeout, "the work did not finish before the deadline",
                   "wait again with a later deadline; the work is still running", context_->info.id.text()};
    }
    if (polls >= polls_before_yielding) std::this_thread::yield();
  }
}

Result<Duration> CudaEvent::since(const Event& earlier) const {
  if (typeid(earlier) != typeid(CudaEvent) || static_cast<const CudaEvent&>(earlier).context_ != context_) {
    return context_->refuse("the earlier event belongs to another device", "compare events of one device");
  }
  const Driver& driver = context_->driver;
  const EventHandle from = static_cast<const CudaEvent&>(earlier).handle_;
  float milliseconds = 0;
  Result<void> measured = context_->call("measuring the time between two events", [&] {
    return driver.cuEventElapsedTime_v2 != nullptr ? driver.cuEventElapsedTime_v2(&milliseconds, from, handle_)
                                                   : driver.cuEventElapsedTime(&milliseconds, from, handle_);
  });
  if (!measured) return std::move(measured).error();
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(milliseconds));
}

Result<std::unique_ptr<CudaStream>> CudaStream::open(Device& device, const std::shared_ptr<CudaContext>& context,
                                                     Priority priority) {
  const Driver& driver = context->driver;
  StreamHandle handle = nullptr;
  Result<void> made = context->call("opening a stream", [&] {
    // Lower numbers are more urgent; both are 0 if the device has no priorities.
    int least = 0, greatest = 0;
    const Code code = driver.cuCtxGetStreamPriorityRange(&least, &greatest);
    if (code != code_success) return code;
    const int level = priority == Priority::low    ? least
                      : priority == Priority::high ? greatest
                                                   : (least + greatest) / 2;
    return context->create_stream(&handle, level);
  });
  if (!made) return std::move(made).error();
  return std::make_unique<CudaStream>(device, std::make_shared<CudaStreamHandle>(context, handle), priority);
}

Result<void> CudaStream::copy_in(const Buffer& to, std::uint64_t offset, std::span<const std::byte> from) {
  Result<DevicePointer> target = locate(*context_, to, offset, from.size());
  if (!target) return std::move(target).error();
  if (from.empty()) return {};
  return context_->call("copying to the device", [&] {
    return context_->driver.cuMemcpyHtoDAsync_v2(*target, from.data(), from.size(), handle_);
  });
}

Result<void> CudaStream::copy_out(const Buffer& from, std::uint64_t offset, std::span<std::byte> to) {
  Result<DevicePointer> source = locate(*context_, from, offset, to.size());
  if (!source) return std::move(source).error();
  if (to.empty()) return {};
  return context_->call("copying from the device",
                        [&] { return context_->driver.cuMemcpyDtoHAsync_v2(to.data(), *source, to.size(), handle_); });
}

Result<void> CudaStream::copy(const Buffer& to, std::uint64_t to_offset, const Buffer& from, std::uint64_t from_offset,
                              std::uint64_t bytes) {
  Result<DevicePointer> target = locate(*context_, to, to_offset, bytes);
  if (!target) return std::move(target).error();
  Result<CopySource> source = locate_source(*context_, from, from_offset, bytes);
  if (!source) return std::move(source).error();
  if (Result<void> disjoint = check_apart(to, to_offset, from, from_offset, bytes); !disjoint || bytes == 0)
    return disjoint;
  const auto& [owner, pointer] = *source;
  const Driver& driver = context_->driver;
  // Parts of one GPU share its memory.
  if (owner->number == context_->number) {
    return context_->call("copying within the device", [&, &pointer = pointer] {
      return driver.cuMemcpyDtoDAsync_v2(*target, pointer, bytes, handle_);
    });
  }
  context_->reach(*owner);
  return context_->call("copying from " + owner->info.id.text(), [&, &owner = owner, &pointer = pointer] {
    return driver.cuMemcpyPeerAsync(*target, context_->handle, pointer, owner->handle, bytes, handle_);
  });
}

Result<Buffer> CudaStream::allocate(std::uint64_t bytes) {
  return allocate_cuda(context_, device_, bytes, context_->has_pool() ? stream_ : nullptr);
}

Result<void> CudaStream::launch(const LoadedKernel& kernel, const LaunchShape& shape,
                                std::span<const Argument> arguments) {
  if (Result<void> ok = context_->usable(); !ok) return ok;
  if (typeid(kernel) != typeid(CudaKernel)) {
    return context_->refuse("the kernel was loaded by another back end", "load it on the device that launches it");
  }
  const auto& ours = static_cast<const CudaKernel&>(kernel);
  if (Result<void> ok = check_owner(*context_, *ours.context, "kernel"); !ok) return ok;
  Result<Geometry> geometry = geometry_of(shape, context_->limits, ours.most_threads);
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
    if (Result<void> ok = check_buffer(*context_, arguments[i].buffer()); !ok) return ok;
    parameters[i] = &arguments[i].buffer().memory()->native;
  }
  const auto& [grid, group] = *geometry;
  return context_->call("launching a kernel", [&, &grid = grid, &group = group] {
    return context_->driver.cuLaunchKernel(ours.function, grid[0], grid[1], grid[2], group[0], group[1], group[2],
                                           /*shared_memory_bytes=*/0, handle_, parameters, /*extra=*/nullptr);
  });
}

Result<std::shared_ptr<Event>> CudaStream::record() {
  if (Result<void> ok = context_->usable(); !ok) return std::move(ok).error();
  Result<EventHandle> handle = context_->take_event();
  if (!handle) return std::move(handle).error();
  auto event = std::make_shared<CudaEvent>(context_, *handle);
  Result<void> recorded =
      context_->call("recording an event", [&] { return context_->driver.cuEventRecord(*handle, handle_); });
  if (!recorded) return std::move(recorded).error();
  return std::shared_ptr<Event>(std::move(event));
}

Result<void> CudaStream::run(const std::function<Result<void>(Stream&)>& closure) {
  if (Result<void> ok = context_->usable(); !ok) return ok;
  const CudaCurrent current(*context_);
  if (current.code() != code_success) return context_->fail(current.code(), "making its context current");
  try {
    return closure(*this);
  } catch (const std::exception& failure) {
    return threw(failure.what());
  } catch (...) {
    return threw("something that is not a std::exception");
  }
}

Error CudaStream::threw(const std::string& what) const {
  return {ErrorCode::work_failed, "the work threw: " + what, {}, context_->info.id.text()};
}

}  // namespace berth::cuda
