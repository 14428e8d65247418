// Streams, and the events that mark their progress.
#include "machine.hpp"
#include "symbols.hpp"

namespace berth::standin {

cuda::Code use_stream(Call& call, const Context& context, cuda::StreamHandle handle, std::shared_ptr<Stream>& stream) {
  stream = call.state().streams.find(handle);
  if (stream == nullptr) return cuda_invalid_handle;
  if (!stream->context->alive) return cuda_context_destroyed;
  return context.is_family_of(*stream->context) ? cuda::code_success : cuda_invalid_handle;
}

}  // namespace berth::standin

namespace berth::cuda {

using namespace standin;

namespace {

constexpr unsigned event_without_time = 2;

StreamHandle open_stream(Call& call, const std::shared_ptr<standin::Context>& context, int priority) {
  auto made = std::make_shared<Stream>();
  made->context = context;
  // A priority outside the range is clamped.
  made->priority = std::clamp(priority, -5, 0);
  call.state().running.push_back(made);
  return call.state().streams.add(call.machine.handle(), std::move(made));
}

Code elapsed(const char* symbol, float* milliseconds, EventHandle from, EventHandle to) {
  return context_call(symbol, AfterFault::fails, [&](Call& call, const auto&) -> Code {
    const auto begin = call.state().events.find(from), end = call.state().events.find(to);
    if (begin == nullptr || end == nullptr || !begin->timed || !end->timed) return cuda_invalid_handle;
    if (begin->records == 0 || end->records == 0) return cuda_invalid_handle;
    if (begin->finished < begin->records || end->finished < end->records) return code_not_ready;
    *milliseconds = std::chrono::duration<float, std::milli>(end->at - begin->at).count();
    return code_success;
  });
}

}  // namespace

Code cuStreamCreateWithPriority(StreamHandle* stream, unsigned flags, int priority) {
  return context_call("cuStreamCreateWithPriority", AfterFault::fails, [&](Call& call, const auto& context) -> Code {
    if (stream == nullptr || flags > stream_non_blocking) return cuda_invalid_value;
    *stream = open_stream(call, context, priority);
    return code_success;
  });
}

Code cuGreenCtxStreamCreate(StreamHandle* stream, GreenContext handle, unsigned flags, int priority) {
  return green_call("cuGreenCtxStreamCreate", handle, [&](Call& call, const auto& green) -> Code {
    if (call.state().sticky != 0) return call.state().sticky;
    if (stream == nullptr || flags != stream_non_blocking) return cuda_invalid_value;
    *stream = open_stream(call, green->context, priority);
    return code_success;
  });
}

// Its remaining work is still done.
Code cuStreamDestroy_v2(StreamHandle handle) {
  return context_call("cuStreamDestroy_v2", AfterFault::works, [&](Call& call, const auto& context) -> Code {
    std::shared_ptr<Stream> stream;
    if (const Code code = use_stream(call, *context, handle, stream)) return code;
    stream->destroyed = true;
    call.state().streams.remove(handle);
    call.machine.advance(now());
    return code_success;
  });
}

Code cuStreamQuery(StreamHandle handle) {
  return context_call("cuStreamQuery", AfterFault::fails, [&](Call& call, const auto& context) -> Code {
    std::shared_ptr<Stream> stream;
    if (const Code code = use_stream(call, *context, handle, stream)) return code;
    return stream->work.empty() ? code_success : code_not_ready;
  });
}

Code cuStreamGetPriority(StreamHandle handle, int* priority) {
  return context_call("cuStreamGetPriority", AfterFault::fails, [&](Call& call, const auto& context) -> Code {
    std::shared_ptr<Stream> stream;
    if (const Code code = use_stream(call, *context, handle, stream)) return code;
    *priority = stream->priority;
    return code_success;
  });
}

Code cuEventCreate(EventHandle* event, unsigned flags) {
  return context_call("cuEventCreate", AfterFault::fails, [&](Call& call, const auto& context) -> Code {
    auto made = std::make_shared<Event>();
    made->context = context->owner(context);
    made->timed = (flags & event_without_time) == 0;
    *event = call.state().events.add(call.machine.handle(), std::move(made));
    return code_success;
  });
}

Code cuEventDestroy_v2(EventHandle event) {
  return context_call("cuEventDestroy_v2", AfterFault::works, [&](Call& call, const auto&) -> Code {
    if (call.state().events.find(event) == nullptr) return cuda_invalid_handle;
    call.state().events.remove(event);
    return code_success;
  });
}

Code cuEventRecord(EventHandle handle, StreamHandle stream_handle) {
  return context_call("cuEventRecord", AfterFault::fails, [&](Call& call, const auto& context) -> Code {
    const auto event = call.state().events.find(handle);
    if (event == nullptr) return cuda_invalid_handle;
    std::shared_ptr<Stream> stream;
    if (const Code code = use_stream(call, *context, stream_handle, stream)) return code;
    if (!event->context->is_family_of(*stream->context)) return cuda_invalid_handle;
    const std::uint64_t record = ++event->records;
    call.machine.enqueue(*stream, {Work::Kind::other,
                                   {},
                                   {},
                                   [event, record](Time end) {
                                     event->finished = record;
                                     event->at = end;
                                     return code_success;
                                   },
                                   false,
                                   {},
                                   0});
    return code_success;
  });
}

Code cuEventQuery(EventHandle handle) {
  return context_call("cuEventQuery", AfterFault::fails, [&](Call& call, const auto&) -> Code {
    const auto event = call.state().events.find(handle);
    if (event == nullptr) return cuda_invalid_handle;
    return event->finished == event->records ? code_success : code_not_ready;
  });
}

// Only for events that are over: Berth never waits in the driver.
Code cuEventSynchronize(EventHandle handle) {
  return context_call("cuEventSynchronize", AfterFault::fails, [&](Call& call, const auto& context) -> Code {
    const auto event = call.state().events.find(handle);
    if (event == nullptr) return cuda_invalid_handle;
    if (event->finished != event->records) return code_not_ready;
    context->unit.pool_bytes_unseen = 0;
    return code_success;
  });
}

Code cuEventElapsedTime(float* milliseconds, EventHandle from, EventHandle to) {
  return elapsed("cuEventElapsedTime", milliseconds, from, to);
}

Code cuEventElapsedTime_v2(float* milliseconds, EventHandle from, EventHandle to) {
  return elapsed("cuEventElapsedTime_v2", milliseconds, from, to);
}

}  // namespace berth::cuda
