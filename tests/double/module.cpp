// Modules and kernels. A binary is, to the double, a line that names its
// architecture and PTX after it: "cubin sm_90\n.version ...".
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "machine.hpp"
#include "symbols.hpp"

namespace berth::cuda {

using namespace standin;

namespace {

constexpr int most_threads = 1024;
constexpr unsigned most_blocks_per_sm = 32;
constexpr unsigned threads_per_sm = 2048;
constexpr int newest_ptx = 90;  // of the driver that is imitated
// The shortest kernel, and how many threads of a multiprocessor advance at once.
constexpr Span launch_time{2000};
constexpr std::uint64_t lanes_per_sm = 64;

struct Log {
  char* buffer = nullptr;
  std::size_t size = 0;

  Log(unsigned count, const int* options, void* const* values) {
    for (unsigned i = 0; i < count; ++i) {
      if (options[i] == jit_error_log_buffer) buffer = static_cast<char*>(values[i]);
      if (options[i] == jit_error_log_buffer_size_bytes) size = reinterpret_cast<std::size_t>(values[i]);
    }
  }
  void say(int line, const std::string& text) const {
    if (buffer != nullptr && size > 0)
      std::snprintf(buffer, size, "ptxas application ptx input, line %d; error   : %s\n", line, text.c_str());
  }
};

int fault_of(ptx::Outcome::End end) {
  switch (end) {
    case ptx::Outcome::End::illegal_address: return cuda_illegal_address;
    case ptx::Outcome::End::misaligned: return cuda_misaligned;
    case ptx::Outcome::End::trapped: return cuda_launch_failed;
    default: return code_success;
  }
}

}  // namespace

Code cuModuleLoadDataEx(Module* module, const void* image, unsigned count, int* options, void** values) {
  return context_call("cuModuleLoadDataEx", AfterFault::fails, [&](Call& call, const auto& context) -> Code {
    if (module == nullptr || image == nullptr) return cuda_invalid_value;
    const Gpu& gpu = call.state().gpus[static_cast<std::size_t>(context->unit.gpu)];
    const int capability = 10 * gpu.capability_major + gpu.capability_minor;
    std::string_view text = static_cast<const char*>(image);
    if (text.starts_with("cubin sm_")) {
      const std::size_t line = text.find('\n');
      const std::string_view target = text.substr(9, line - 9);
      if (line == std::string_view::npos) return cuda_invalid_image;
      if (target != std::to_string(capability)) return cuda_no_binary;
      text.remove_prefix(line + 1);
    } else if (text.find_first_not_of(" \t\r\n") == std::string_view::npos || text.starts_with("\x7f"
                                                                                               "ELF")) {
      return cuda_invalid_image;
    }
    const Log log(count, options, values);
    ptx::Complaint complaint;
    std::optional<ptx::Module> parsed = ptx::parse(text, complaint);
    if (!parsed) {
      log.say(complaint.line, complaint.text);
      return cuda_invalid_ptx;
    }
    if (parsed->version > newest_ptx) return cuda_unsupported_ptx;
    if (parsed->target > capability) {
      log.say(1, "SM version specified by .target is higher than default SM version assumed");
      return cuda_invalid_ptx;
    }
    auto made = std::make_shared<standin::Module>(standin::Module{context->owner(context), *std::move(parsed)});
    *module = call.state().modules.add(call.machine.handle(), std::move(made));
    return code_success;
  });
}

Code cuModuleUnload(Module handle) {
  return context_call("cuModuleUnload", AfterFault::works, [&](Call& call, const auto&) -> Code {
    const auto module = call.state().modules.find(handle);
    if (module == nullptr) return cuda_invalid_handle;
    if (call.wait_idle(module->context->unit) == cuda_deinitialized) return cuda_deinitialized;
    std::erase_if(call.state().functions.all(), [&](const auto& thing) { return thing.second->module == module; });
    call.state().modules.remove(handle);
    return code_success;
  });
}

Code cuModuleGetFunction(Function* function, Module handle, const char* name) {
  return context_call("cuModuleGetFunction", AfterFault::fails, [&](Call& call, const auto&) -> Code {
    const auto module = call.state().modules.find(handle);
    if (module == nullptr) return cuda_invalid_handle;
    const auto entry = module->code.entries.find(name);
    if (entry == module->code.entries.end()) return cuda_not_found;
    auto made = std::make_shared<standin::Function>(standin::Function{module, &entry->second});
    *function = call.state().functions.add(call.machine.handle(), std::move(made));
    return code_success;
  });
}

Code cuFuncGetAttribute(int* value, int attribute, Function handle) {
  return context_call("cuFuncGetAttribute", AfterFault::fails, [&](Call& call, const auto&) -> Code {
    const auto function = call.state().functions.find(handle);
    if (function == nullptr) return cuda_invalid_handle;
    if (attribute != function_max_threads_per_block) return cuda_invalid_value;
    *value = most_threads;
    return code_success;
  });
}

Code cuFuncGetParamInfo(Function handle, std::size_t index, std::size_t* offset, std::size_t* bytes) {
  return context_call("cuFuncGetParamInfo", AfterFault::fails, [&](Call& call, const auto&) -> Code {
    const auto function = call.state().functions.find(handle);
    if (function == nullptr) return cuda_invalid_handle;
    if (index >= function->entry->parameters.size()) return cuda_invalid_value;
    *offset = function->entry->parameters[index].offset;
    if (bytes != nullptr) *bytes = function->entry->parameters[index].bytes;
    return code_success;
  });
}

Code cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function handle, int threads, std::size_t) {
  return context_call(
      "cuOccupancyMaxActiveBlocksPerMultiprocessor", AfterFault::fails, [&](Call& call, const auto&) -> Code {
        if (call.state().functions.find(handle) == nullptr) return cuda_invalid_handle;
        if (threads <= 0) return cuda_invalid_value;
        *blocks = threads > most_threads
                      ? 0
                      : static_cast<int>(std::min(most_blocks_per_sm, threads_per_sm / static_cast<unsigned>(threads)));
        return code_success;
      });
}

Code cuOccupancyMaxPotentialBlockSize(int* grid, int* block, Function handle, std::size_t (*)(int), std::size_t,
                                      int limit) {
  return context_call("cuOccupancyMaxPotentialBlockSize", AfterFault::fails,
                      [&](Call& call, const auto& context) -> Code {
                        if (call.state().functions.find(handle) == nullptr) return cuda_invalid_handle;
                        *block = limit > 0 ? std::min(limit, most_threads) : most_threads;
                        *grid = static_cast<int>(context->sms * (threads_per_sm / static_cast<unsigned>(*block)));
                        return code_success;
                      });
}

Code cuLaunchKernel(Function handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                    unsigned block_y, unsigned block_z, unsigned, StreamHandle stream_handle, void** parameters,
                    void** extra) {
  return context_call("cuLaunchKernel", AfterFault::fails, [&](Call& call, const auto& context) -> Code {
    const auto function = call.state().functions.find(handle);
    if (function == nullptr || !context->is_family_of(*function->module->context)) return cuda_invalid_handle;
    std::shared_ptr<Stream> stream;
    if (const Code code = use_stream(call, *context, stream_handle, stream)) return code;
    ptx::Launch launch{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, {}, 0};
    std::uint64_t threads = 1;
    for (const unsigned size : launch.block) threads *= size;
    if (threads == 0 || threads > most_threads || block_z > 64) return cuda_invalid_value;
    if (grid_x == 0 || grid_y == 0 || grid_z == 0 || grid_y > 65535 || grid_z > 65535) return cuda_invalid_value;
    if (extra != nullptr || (parameters == nullptr && !function->entry->parameters.empty())) return cuda_invalid_value;
    launch.parameters.resize(function->entry->parameter_bytes);
    for (std::size_t i = 0; i < function->entry->parameters.size(); ++i) {
      const ptx::Parameter& parameter = function->entry->parameters[i];
      std::memcpy(launch.parameters.data() + parameter.offset, parameters[i], parameter.bytes);
    }
    const auto owner = stream->context->owner(stream->context);
    const std::uint64_t lanes = lanes_per_sm * std::max(stream->context->sms, 1U);
    call.machine.enqueue(
        *stream, {Work::Kind::kernel,
                  {},
                  [&machine = call.machine, function, owner, lanes, launch = std::move(launch)](Time begin, int& code) {
                    ptx::Launch started = launch;
                    started.timer_ns = static_cast<std::uint64_t>(begin.time_since_epoch().count());
                    const auto reach = [&](std::uint64_t address) { return machine.reach(*owner, address); };
                    const ptx::Outcome outcome = ptx::run(*function->entry, started, reach);
                    code = fault_of(outcome.end);
                    if (outcome.end == ptx::Outcome::End::endless) return never;
                    return begin + launch_time + Span(outcome.timer_ns + outcome.instructions / lanes);
                  },
                  {},
                  false,
                  {},
                  0});
    return code_success;
  });
}

}  // namespace berth::cuda
