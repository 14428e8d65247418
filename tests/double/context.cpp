// Contexts: the primary one of each device, counted by its holders; others that
// a program creates; green ones with a share of the multiprocessors; and the
// stack of them that each thread has.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "machine.hpp"
#include "symbols.hpp"

namespace berth::standin {

std::shared_ptr<Context> Machine::current() {
  const std::vector<cuda::Context>& stack = context_stack(*this);
  return stack.empty() ? nullptr : state->contexts.find(stack.back());
}

std::shared_ptr<Context> Machine::make_context(Unit& unit, Context::Kind kind, unsigned sms) {
  auto made = std::make_shared<Context>(Context{unit, kind, nullptr, true, {}, sms});
  made->handle = state->contexts.add(handle(), made);
  if (kind != Context::Kind::green) ++unit.contexts;
  return made;
}

cuda::Code Machine::may_open(Unit& unit) {
  const Gpu& gpu = state->gpus[static_cast<std::size_t>(unit.gpu)];
  constexpr int one_process = 3, nobody = 2;
  if (gpu.compute_mode == nobody || (gpu.compute_mode == one_process && !unit.others.empty())) return cuda_unavailable;
  ++unit.contexts;  // to see what it would leave
  const bool fits = unit.bytes_free() > 0;
  --unit.contexts;
  return fits ? cuda::code_success : cuda_out_of_memory;
}

cuda::Code Machine::retain(Unit& unit) {
  if (unit.retained == 0) {
    if (const cuda::Code code = may_open(unit)) return code;
    unit.primary = make_context(unit, Context::Kind::primary, unit.sms);
  }
  ++unit.retained;
  return cuda::code_success;
}

void Machine::release_primary(Unit& unit) {
  if (--unit.retained > 0) return;
  destroy(unit.primary);
  unit.primary = nullptr;
}

void Machine::destroy(const std::shared_ptr<Context>& context) {
  context->alive = false;
  state->contexts.remove(context->handle);
  // Streams of a destroyed green context remain but cannot be used.
  if (context->kind == Context::Kind::green) return;
  const auto purge = [&](auto& things) {
    state->abandoned += std::erase_if(things, [&](const auto& thing) { return thing.second->context == context; });
  };
  for (const auto& stream : state->running) {
    if (stream->context == context) stream->destroyed = true, stream->work.clear();
  }
  purge(state->streams.all());
  purge(state->events.all());
  std::erase_if(state->functions.all(), [&](const auto& thing) { return thing.second->module->context == context; });
  purge(state->modules.all());
  std::vector<std::uint64_t> memory;
  for (const auto& [address, allocation] : state->allocations) {
    if (allocation.context == context) memory.push_back(address);
  }
  for (const std::uint64_t address : memory) free(address);
  state->abandoned += memory.size();
  for (auto at = state->host_ranges.begin(); at != state->host_ranges.end();) {
    if (at->second.context != context) {
      ++at;
      continue;
    }
    if (at->second.owned) std::free(reinterpret_cast<void*>(at->first));
    at = state->host_ranges.erase(at);
    ++state->abandoned;
  }
  if (--context->unit.contexts == 0) context->unit.pool_bytes_idle = 0;
}

}  // namespace berth::standin

namespace berth::cuda {

using namespace standin;

namespace {

// f(Call&, this thread's stack) -> Code. Rules for a GPU apply to the context
// named, or else to the current one.
template <class F>
Code stack_call(const char* symbol, std::optional<Context> named, F&& f) {
  Call call(symbol, Call::Library::cuda);
  const auto context = call.state().contexts.find(named ? *named : top_of(context_stack(call.machine)));
  if (const int code = call.begin(context ? context->unit.gpu : -1, false)) return code;
  if (!call.state().cuda_started) return code_not_initialized;
  return f(call, context_stack(call.machine));
}

}  // namespace

Code cuDevicePrimaryCtxRetain(Context* context, DeviceNumber number) {
  return device_call("cuDevicePrimaryCtxRetain", Needs::gpu, number, [&](Call& call, Unit& unit) -> Code {
    if (call.state().sticky != 0) return call.state().sticky;
    const Code code = call.machine.retain(unit);
    if (code == code_success) *context = unit.primary->handle;
    return code;
  });
}

Code cuDevicePrimaryCtxRelease_v2(DeviceNumber number) {
  return device_call("cuDevicePrimaryCtxRelease_v2", Needs::gpu, number, [&](Call& call, Unit& unit) -> Code {
    if (unit.retained == 0) return cuda_invalid_context;
    // The last release waits for running work.
    if (unit.retained == 1 && call.wait_idle(unit) == cuda_deinitialized) return cuda_deinitialized;
    if (unit.retained > 0) call.machine.release_primary(unit);
    return code_success;
  });
}

Code cuDevicePrimaryCtxGetState(DeviceNumber number, unsigned* flags, int* active) {
  return device_call("cuDevicePrimaryCtxGetState", Needs::memory_of_driver, number,
                     [&](Call&, const Unit& unit) -> Code {
                       *flags = 0;
                       *active = unit.retained > 0 ? 1 : 0;
                       return code_success;
                     });
}

Code cuCtxCreate_v2(Context* context, unsigned, DeviceNumber number) {
  return device_call("cuCtxCreate_v2", Needs::gpu, number, [&](Call& call, Unit& unit) -> Code {
    if (call.state().sticky != 0) return call.state().sticky;
    if (const Code code = call.machine.may_open(unit)) return code;
    *context = call.machine.make_context(unit, standin::Context::Kind::created, unit.sms)->handle;
    context_stack(call.machine).push_back(*context);
    return code_success;
  });
}

Code cuCtxDestroy_v2(Context handle) {
  return plain_call("cuCtxDestroy_v2", [&](Call& call) -> Code {
    const auto context = call.state().contexts.find(handle);
    if (context == nullptr || context->kind != standin::Context::Kind::created) return cuda_invalid_context;
    if (call.wait_idle(context->unit) == cuda_deinitialized) return cuda_deinitialized;
    std::vector<Context>& stack = context_stack(call.machine);
    if (!stack.empty() && stack.back() == handle) stack.pop_back();
    if (context->alive) call.machine.destroy(context);
    return code_success;
  });
}

// The calls that change a thread's stack are about the context in question.
Code cuCtxGetCurrent(Context* context) {
  return stack_call("cuCtxGetCurrent", {}, [&](Call&, const std::vector<Context>& stack) -> Code {
    *context = top_of(stack);
    return code_success;
  });
}

Code cuCtxSetCurrent(Context context) {
  return stack_call("cuCtxSetCurrent", context, [&](Call& call, std::vector<Context>& stack) -> Code {
    if (context != nullptr && call.state().contexts.find(context) == nullptr) return cuda_invalid_context;
    if (!stack.empty()) stack.pop_back();
    if (context != nullptr) stack.push_back(context);
    return code_success;
  });
}

Code cuCtxPushCurrent_v2(Context context) {
  return stack_call("cuCtxPushCurrent_v2", context, [&](Call& call, std::vector<Context>& stack) -> Code {
    if (call.state().contexts.find(context) == nullptr) return cuda_invalid_context;
    stack.push_back(context);
    return code_success;
  });
}

Code cuCtxPopCurrent_v2(Context* context) {
  return stack_call("cuCtxPopCurrent_v2", {}, [&](Call&, std::vector<Context>& stack) -> Code {
    if (stack.empty()) return cuda_invalid_context;
    if (context != nullptr) *context = stack.back();
    stack.pop_back();
    return code_success;
  });
}

Code cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return context_call("cuCtxGetStreamPriorityRange", AfterFault::fails, [&](Call&, const auto&) -> Code {
    *least = 0;
    *greatest = -5;
    return code_success;
  });
}

Code cuCtxEnablePeerAccess(Context peer_handle, unsigned flags) {
  return context_call("cuCtxEnablePeerAccess", AfterFault::fails, [&](Call& call, const auto& context) -> Code {
    const auto peer = call.state().contexts.find(peer_handle);
    if (flags != 0) return cuda_invalid_value;
    if (peer == nullptr) return cuda_invalid_context;
    if (&peer->unit == &context->unit) return cuda_invalid_device;
    if (!call.machine.can_access(context->unit, peer->unit)) return cuda_peer_unsupported;
    return context->owner(context)->peers.insert(&peer->unit).second ? code_success : cuda_peer_already;
  });
}

namespace {

// What the driver keeps inside of a Resource.
struct Share {
  std::uint32_t magic = 0x62727468;
  std::uint32_t unit = 0;
  std::uint64_t split = 0;  // 0: the whole device
  std::uint32_t part = 0;
};
static_assert(sizeof(Share) <= sizeof(Resource::internal));

Resource resource_of(const Share& share, unsigned count, const Gpu& gpu) {
  Resource made;
  made.type = resource_sm;
  std::memcpy(made.internal, &share, sizeof share);
  made.sm = {count, gpu.part_min(), gpu.part_alignment()};
  return made;
}

std::optional<Share> share_of(const State& state, const Resource& resource) {
  Share share{0, 0, 0, 0};
  std::memcpy(&share, resource.internal, sizeof share);
  if (share.magic != Share().magic || share.unit >= state.units.size()) return std::nullopt;
  return share;
}

}  // namespace

Code cuDeviceGetDevResource(DeviceNumber number, Resource* resource, int type) {
  return device_call("cuDeviceGetDevResource", Needs::memory_of_driver, number,
                     [&](Call& call, const Unit& unit) -> Code {
                       if (resource == nullptr) return cuda_invalid_value;
                       if (type != resource_sm) return cuda_resource_type;
                       Share share;
                       while (&call.state().units[share.unit] != &unit) ++share.unit;
                       *resource = resource_of(share, unit.sms, call.state().gpus[static_cast<std::size_t>(unit.gpu)]);
                       return code_success;
                     });
}

Code cuDevSmResourceSplitByCount(Resource* result, unsigned* groups, const Resource* input, Resource* remaining,
                                 unsigned flags, unsigned least) {
  return plain_call("cuDevSmResourceSplitByCount", [&](Call& call) -> Code {
    if (groups == nullptr || input == nullptr || flags != 0) return cuda_invalid_value;
    if (input->type != resource_sm) return cuda_resource_type;
    const std::optional<Share> share = share_of(call.state(), *input);
    if (!share || least > input->sm.count) return cuda_invalid_value;
    // The result of a split cannot be split again.
    if (share->split != 0) return cuda_resource_configuration;
    const Gpu& gpu = call.state().gpus[static_cast<std::size_t>(call.state().units[share->unit].gpu)];
    const unsigned step = gpu.part_alignment();
    const unsigned size = std::max(gpu.part_min(), (least + step - 1) / step * step);
    unsigned possible = input->sm.count / size;
    // Measured on 132 multiprocessors: 15 x 8, 8 x 16, 4 x 32, 2 x 64. Where the
    // count is not a multiple, one of the smallest groups would lie over two clusters.
    if (size == gpu.part_min() && input->sm.count % size != 0 && possible > 1) --possible;
    if (possible == 0) return cuda_resource_configuration;
    if (result == nullptr) {
      *groups = possible;
      return code_success;
    }
    *groups = std::min(*groups, possible);
    Share part = *share;
    part.split = call.machine.next_split++;
    for (; part.part < *groups; ++part.part) result[part.part] = resource_of(part, size, gpu);
    const unsigned left = input->sm.count - *groups * size;
    if (remaining != nullptr) *remaining = left > 0 ? resource_of(part, left, gpu) : Resource();
    return code_success;
  });
}

Code cuDevResourceGenerateDesc(ResourceDescription* description, Resource* resources, unsigned count) {
  return plain_call("cuDevResourceGenerateDesc", [&](Call& call) -> Code {
    if (description == nullptr || resources == nullptr || count == 0) return cuda_invalid_value;
    auto made = std::make_shared<standin::ResourceDescription>();
    std::set<std::uint32_t> parts;
    std::optional<Share> first;
    for (unsigned i = 0; i < count; ++i) {
      if (resources[i].type != resource_sm) return cuda_resource_type;
      const std::optional<Share> share = share_of(call.state(), resources[i]);
      if (!share) return cuda_invalid_value;
      if (!first) first = share;
      // All of one device and of one split, each once.
      if (share->unit != first->unit || share->split != first->split || !parts.insert(share->part).second)
        return cuda_resource_configuration;
      made->sms += resources[i].sm.count;
    }
    made->unit = &call.state().units[first->unit];
    *description = call.state().descriptions.add(call.machine.handle(), std::move(made));
    return code_success;
  });
}

Code cuGreenCtxCreate(GreenContext* green, ResourceDescription handle, DeviceNumber number, unsigned flags) {
  return device_call("cuGreenCtxCreate", Needs::gpu, number, [&](Call& call, Unit& unit) -> Code {
    if (call.state().sticky != 0) return call.state().sticky;
    const auto description = call.state().descriptions.find(handle);
    if (description == nullptr || flags != green_default_stream) return cuda_invalid_value;
    if (description->unit != &unit) return cuda_invalid_device;
    if (const Code code = call.machine.retain(unit)) return code;
    auto made = std::make_shared<standin::GreenContext>();
    made->context = call.machine.make_context(unit, standin::Context::Kind::green, description->sms);
    *green = call.state().greens.add(call.machine.handle(), std::move(made));
    return code_success;
  });
}

Code cuGreenCtxDestroy(GreenContext handle) {
  return green_call("cuGreenCtxDestroy", handle, [&](Call& call, const auto& green) -> Code {
    Unit& unit = green->context->unit;
    if (call.wait_idle(unit) == cuda_deinitialized) return cuda_deinitialized;
    if (call.state().greens.find(handle) == nullptr) return cuda_invalid_context;
    call.state().greens.remove(handle);
    call.machine.destroy(green->context);
    call.machine.release_primary(unit);
    return code_success;
  });
}

Code cuCtxFromGreenCtx(Context* context, GreenContext handle) {
  return green_call("cuCtxFromGreenCtx", handle, [&](Call&, const auto& green) -> Code {
    *context = green->context->handle;
    return code_success;
  });
}

}  // namespace berth::cuda
