#include "device/opencl/device.hpp"

#include <algorithm>
#include <cctype>

#include "device/host/limits.hpp"
#include "device/opencl/kernel.hpp"
#include "device/opencl/stream.hpp"

namespace berth::opencl {
namespace {

// The free memory and the largest free block, in KiB. The Khronos headers do not declare this query.
constexpr cl_device_info device_global_free_memory_amd = 0x4039;

// How long close() waits for enqueued work: longer than a copy of the whole memory of
// any device takes.
constexpr std::chrono::seconds drain_limit{10};
constexpr std::chrono::microseconds drain_poll_interval{20};

}  // namespace

Error OpenclDevice::misplaced(const char* what, const DeviceId& maker) const {
  if (maker != id()) {
    return refused(std::string("the ") + what + " belongs to " + maker.text(), "use it on the device that made it");
  }
  return {ErrorCode::stale_handle, std::string("the ") + what + " was created before the device was reopened",
          "create it again on the reopened device", id().text()};
}

Result<void> OpenclDevice::check(const Buffer& buffer) const {
  if (!buffer) return refused("the buffer is empty", "allocate it first");
  const Memory& memory = *buffer.memory();
  if (memory.device == this && memory.generation == generation_) return {};
  const auto* ours = dynamic_cast<const OpenclMemory*>(&memory);
  if (!ours) return refused("the buffer belongs to a device of another back end", "use it on the device that made it");
  return misplaced("buffer", ours->owner().id());
}

Result<void> OpenclDevice::check(const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) const {
  if (Result<void> usable = check(buffer); !usable) return usable;
  return check_range(buffer, offset, bytes);
}

Result<void> OpenclDevice::check_source(const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) const {
  const auto* ours = dynamic_cast<const OpenclMemory*>(buffer.memory().get());
  if (!ours || ours->owner().id() == id()) return check(buffer, offset, bytes);
  if (ours->owner().closed()) {
    return Error{ErrorCode::stale_handle,
                 "the buffer belongs to an opening of " + ours->owner().id().text() + " that was closed",
                 "create it again on the reopened device", id().text()};
  }
  if (ours->owner().context_ != context_) {
    return Error{ErrorCode::not_supported, "OpenCL does not copy from " + ours->owner().id().text() + " to this device",
                 "copy the data to the host, and from there to this device", id().text()};
  }
  return check_range(buffer, offset, bytes);
}

Result<void> OpenclDevice::check_range(const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) const {
  if (offset > buffer.bytes() || bytes > buffer.bytes() - offset) {
    return refused(std::to_string(bytes) + " bytes at offset " + std::to_string(offset) + " exceed the buffer of " +
                   std::to_string(buffer.bytes()) + " bytes");
  }
  return {};
}

// Enqueued copies use host memory that the caller frees once their event has
// completed, so close() waits for them, up to drain_limit.
void OpenclDevice::close() noexcept {
  if (closed_.exchange(true)) return;
  std::vector<OwnedEvent> markers;
  bool marked = false;
  const TimePoint until = clock_.now() + drain_limit;
  while (!(marked && drained(markers)) && clock_.now() < until) {
    if (!marked && entered_.load() == 0) {
      const std::lock_guard guard(mutex_);
      for (cl_command_queue queue : queues_) {
        cl_event event = nullptr;
        if (api_.clEnqueueMarkerWithWaitList(queue, 0, nullptr, &event) != CL_SUCCESS) continue;
        markers.emplace_back(event, api_.clReleaseEvent);
        api_.clFlush(queue);
      }
      marked = true;
      continue;
    }
    clock_.sleep_for(drain_poll_interval);
  }
  abandoned_.store(true, std::memory_order_release);
}

bool OpenclDevice::drained(std::vector<OwnedEvent>& markers) const {
  return std::ranges::all_of(markers,
                             [&](const OwnedEvent& marker) { return event_status(api_, marker.get()) <= CL_COMPLETE; });
}

Result<Buffer> OpenclDevice::allocate(std::uint64_t bytes) {
  if (closed()) return lost();
  if (bytes == 0) return refused("the size of the buffer is zero");
  if (bytes > largest_bytes_) {
    Error error = device::too_much_error(id(), bytes, largest_bytes_);
    error.message = std::to_string(bytes) + " bytes do not fit: the device allows at most " +
                    std::to_string(largest_bytes_) + " in one buffer";
    return error;
  }
  // Drivers allow allocations beyond the device's memory, and fail only when the memory is touched.
  const std::uint64_t total = info().memory_bytes_total.value_or(std::numeric_limits<std::uint64_t>::max());
  const std::uint64_t used = used_->fetch_add(bytes, std::memory_order_relaxed);
  auto memory = std::make_shared<OpenclMemory>(shared_from_this(), used_, bytes);
  if (used > total || bytes > total - used) return device::too_much_error(id(), bytes, total > used ? total - used : 0);
  cl_int code = CL_SUCCESS;
  cl_mem handle = api_.clCreateBuffer(context_->handle.get(), CL_MEM_READ_WRITE, bytes, nullptr, &code);
  if (code != CL_SUCCESS) return failed(code, std::to_string(bytes) + " bytes could not be allocated");
  memory->hold({handle, api_.clReleaseMemObject});
  memory->bytes = bytes;
  memory->generation = generation_;
  memory->device = this;
  count(*memory);
  return Buffer(std::move(memory));
}

Result<std::unique_ptr<Stream>> OpenclDevice::open_stream(Priority priority) {
  if (closed()) return lost();
  // Profiling is the only source of times measured on the device. It costs 0.1 us per launch on PoCL and 6 us on
  // NVIDIA, where the CUDA back end is preferred anyway.
  cl_int code = CL_SUCCESS;
  cl_command_queue queue = nullptr;
  if (info().features.contains("stream_priority")) {
    const cl_queue_properties level = priority == Priority::high  ? CL_QUEUE_PRIORITY_HIGH_KHR
                                      : priority == Priority::low ? CL_QUEUE_PRIORITY_LOW_KHR
                                                                  : CL_QUEUE_PRIORITY_MED_KHR;
    const cl_queue_properties wanted[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, CL_QUEUE_PRIORITY_KHR, level,
                                          0};
    queue = api_.clCreateCommandQueueWithProperties(context_->handle.get(), found_.device, wanted, &code);
  } else {
    queue = api_.clCreateCommandQueue(context_->handle.get(), found_.device, CL_QUEUE_PROFILING_ENABLE, &code);
  }
  if (code != CL_SUCCESS) return failed(code, "a stream could not be opened");
  return std::unique_ptr<Stream>(std::make_unique<OpenclStream>(
      shared_from_this(), Owned<cl_command_queue>(queue, api_.clReleaseCommandQueue), priority));
}

Result<std::shared_ptr<LoadedKernel>> OpenclDevice::load(const KernelSource& source) {
  if (closed()) return lost();
  if (source.opencl_c.empty()) {
    return Error{ErrorCode::not_supported, "kernel '" + source.entry + "' has no OpenCL C form",
                 "give its source in OpenCL C", id().text()};
  }
  const char* text = source.opencl_c.data();
  const std::size_t size = source.opencl_c.size();
  cl_int code = CL_SUCCESS;
  Owned<cl_program> program(api_.clCreateProgramWithSource(context_->handle.get(), 1, &text, &size, &code),
                            api_.clReleaseProgram);
  if (code != CL_SUCCESS) return failed(code, "kernel '" + source.entry + "' could not be read");
  // The kinds of the arguments are needed to refuse a value in place of a buffer, which drivers would use as an
  // address.
  code = api_.clBuildProgram(program.get(), 1, &found_.device, "-cl-kernel-arg-info", nullptr, nullptr);
  if (code != CL_SUCCESS) {
    std::string log = text_of([&](std::size_t space, void* to, std::size_t* used) {
      return api_.clGetProgramBuildInfo(program.get(), found_.device, CL_PROGRAM_BUILD_LOG, space, to, used);
    });
    while (!log.empty() && std::isspace(static_cast<unsigned char>(log.back()))) log.pop_back();
    Error error =
        failed(code, "kernel '" + source.entry + "' does not compile: " + (log.empty() ? "no build log" : log));
    if (code == CL_BUILD_PROGRAM_FAILURE) error.advice = "correct the source";
    return error;
  }
  auto kernel = std::make_shared<OpenclKernel>(shared_from_this(), std::move(program), source.entry);
  if (Result<void> ready = kernel->prepare(); !ready) return std::move(ready).error();
  return std::shared_ptr<LoadedKernel>(std::move(kernel));
}

Result<LoadSample> OpenclDevice::sample() {
  if (closed()) return lost();
  LoadSample sample;
  sample.memory_bytes_total = info().memory_bytes_total;
  {
    const std::lock_guard guard(mutex_);
    sample.active_streams = static_cast<std::uint32_t>(queues_.size());
  }
  if (info().is_fallback && info().memory_bytes_total) {
    // For host memory: the machine's free memory, but at most what this device has not allocated yet.
    const std::uint64_t total = *info().memory_bytes_total;
    const std::uint64_t used = used_->load(std::memory_order_relaxed);
    const auto available = device::read_host_limits().memory_bytes_free;
    if (available) sample.memory_bytes_free = std::min(*available, total > used ? total - used : 0);
  } else if (found_.reports_free_memory) {
    const auto kib = device_value<std::array<std::size_t, 2>>(api_, found_.device, device_global_free_memory_amd);
    if (kib) sample.memory_bytes_free = std::uint64_t{(*kib)[0]} * 1024;
  }
  return sample;
}

}  // namespace berth::opencl
