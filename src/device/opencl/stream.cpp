#include "device/opencl/stream.hpp"

#include <algorithm>

#include "device/opencl/event.hpp"
#include "device/opencl/kernel.hpp"

namespace berth::opencl {

Result<void> OpenclStream::copy_in(const Buffer& to, std::uint64_t offset, std::span<const std::byte> from) {
  const OpenclDevice::Entry entry(*device_);
  if (entry.refused()) return device_->lost();
  if (Result<void> allowed = device_->check(to, offset, from.size()); !allowed || from.empty()) return allowed;
  cl_event event = nullptr;
  const cl_int code = api().clEnqueueWriteBuffer(queue_.get(), static_cast<cl_mem>(to.native()), CL_FALSE, offset,
                                                 from.size(), from.data(), 0, nullptr, &event);
  return accept(code, event, "the copy to the device could not be enqueued");
}

Result<void> OpenclStream::copy_out(const Buffer& from, std::uint64_t offset, std::span<std::byte> to) {
  const OpenclDevice::Entry entry(*device_);
  if (entry.refused()) return device_->lost();
  if (Result<void> allowed = device_->check(from, offset, to.size()); !allowed || to.empty()) return allowed;
  cl_event event = nullptr;
  const cl_int code = api().clEnqueueReadBuffer(queue_.get(), static_cast<cl_mem>(from.native()), CL_FALSE, offset,
                                                to.size(), to.data(), 0, nullptr, &event);
  return accept(code, event, "the copy from the device could not be enqueued");
}

Result<void> OpenclStream::copy(const Buffer& to, std::uint64_t to_offset, const Buffer& from,
                                std::uint64_t from_offset, std::uint64_t bytes) {
  if (device_->closed()) return device_->lost();
  if (Result<void> allowed = device_->check(to, to_offset, bytes); !allowed) return allowed;
  if (Result<void> allowed = device_->check_source(from, from_offset, bytes); !allowed) return allowed;
  if (Result<void> disjoint = check_apart(to, to_offset, from, from_offset, bytes); !disjoint || bytes == 0)
    return disjoint;
  cl_event event = nullptr;
  const cl_int code =
      api().clEnqueueCopyBuffer(queue_.get(), static_cast<cl_mem>(from.native()), static_cast<cl_mem>(to.native()),
                                from_offset, to_offset, bytes, 0, nullptr, &event);
  return accept(code, event, "the copy between buffers could not be enqueued");
}

Result<void> OpenclStream::launch(const LoadedKernel& kernel, const LaunchShape& shape,
                                  std::span<const Argument> arguments) {
  if (device_->closed()) return device_->lost();
  const auto* ours = dynamic_cast<const OpenclKernel*>(&kernel);
  if (!ours) return device_->refused("the kernel belongs to another back end", "load it on this device");
  if (ours->device() != device_) return device_->misplaced("kernel", ours->device()->id());
  if (Result<void> fits = ours->check(arguments); !fits) return fits;

  // As on CUDA, the size is rounded up to whole groups, because not every driver accepts a remainder. If no group size
  // is given, the driver chooses one and nothing is rounded.
  const bool grouped = shape.group[0] || shape.group[1] || shape.group[2];
  std::size_t global[3];
  std::size_t group[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (shape.global[i] == 0) {
      return device_->refused("the launch of '" + ours->entry() + "' has a dimension of size zero");
    }
    group[i] = std::max<std::size_t>(1, shape.group[i]);
    global[i] = (shape.global[i] + group[i] - 1) / group[i] * group[i];
  }
  cl_uint dimensions = 3;
  while (dimensions > 1 && global[dimensions - 1] == 1) --dimensions;

  Result<Owned<cl_kernel>> borrowed = ours->borrow();
  if (!borrowed) return std::move(borrowed).error();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Argument& argument = arguments[i];
    cl_mem memory = argument.is_buffer() ? static_cast<cl_mem>(argument.buffer().native()) : nullptr;
    const cl_int code = api().clSetKernelArg(borrowed->get(), static_cast<cl_uint>(i),
                                             argument.is_buffer() ? sizeof memory : argument.value_size(),
                                             argument.is_buffer() ? &memory : argument.value());
    if (code != CL_SUCCESS) {
      ours->give_back(*std::move(borrowed));
      return device_->failed(code,
                             "argument " + std::to_string(i) + " of kernel '" + ours->entry() + "' was not accepted");
    }
  }
  cl_event event = nullptr;
  const cl_int code = api().clEnqueueNDRangeKernel(queue_.get(), borrowed->get(), dimensions, nullptr, global,
                                                   grouped ? group : nullptr, 0, nullptr, &event);
  ours->give_back(*std::move(borrowed));
  return accept(code, event, "the kernel could not be enqueued");
}

Result<std::shared_ptr<Event>> OpenclStream::record() {
  if (device_->closed()) return device_->lost();
  if (unrecorded_.empty() || native_given_) {
    cl_event event = nullptr;
    const cl_int code = api().clEnqueueMarkerWithWaitList(queue_.get(), 0, nullptr, &event);
    if (Result<void> accepted = accept(code, event, "the event could not be recorded"); !accepted) {
      return std::move(accepted).error();
    }
  }
  OwnedEvent last = std::move(unrecorded_.back());
  unrecorded_.pop_back();
  std::vector<OwnedEvent> earlier;
  if (!unrecorded_.empty()) earlier.swap(unrecorded_);
  auto event = std::make_shared<OpenclEvent>(device_, std::move(earlier), std::move(last));
  // Only a flush guarantees that a queued command starts; polling does not.
  if (event->poll() > CL_COMPLETE) {
    const cl_int code = api().clFlush(queue_.get());
    if (code != CL_SUCCESS) return device_->failed(code, "the queue could not be flushed");
  }
  return std::shared_ptr<Event>(std::move(event));
}

Result<void> OpenclStream::run(const std::function<Result<void>(Stream&)>& closure) {
  if (device_->closed()) return device_->lost();
  return device::guarded(device_->id(), [&] { return closure(*this); });
}

Result<void> OpenclStream::accept(cl_int code, cl_event event, const char* what) {
  if (code != CL_SUCCESS) return device_->failed(code, what);
  if (unrecorded_.size() >= forget_at_) forget_finished();
  unrecorded_.emplace_back(event, api().clReleaseEvent);
  return {};
}

void OpenclStream::forget_finished() {
  std::erase_if(unrecorded_, [&](const OwnedEvent& event) { return event_status(api(), event.get()) == CL_COMPLETE; });
  forget_at_ = std::max(unrecorded_limit, 2 * unrecorded_.size());
}

}  // namespace berth::opencl
