// How a call of the management library reaches the machine.
#pragma once

#include <cstring>
#include <string>

#include "machine.hpp"
#include "symbols.hpp"

namespace berth::nvml {

using namespace standin;

// A handle names a GPU, or one slice of it.
struct Named {
  int gpu = -1;
  int slice = -1;
};

inline Named named_by(const State& state, DeviceHandle handle) {
  for (std::size_t gpu = 0; gpu < state.gpus.size(); ++gpu) {
    const int slices = state.gpus[gpu].is_sliced ? static_cast<int>(state.gpus[gpu].units.size()) : 0;
    for (int slice = -1; slice < slices; ++slice) {
      if (nvml_handle(static_cast<int>(gpu), slice) == handle) return {static_cast<int>(gpu), slice};
    }
  }
  return {};
}

// f(Call&) -> Code.
template <class F>
Code library_call(const char* symbol, F&& f) {
  Call call(symbol, Call::Library::nvml);
  if (const int code = call.begin(-1)) return code;
  if (!call.machine.nvml_started) return nvml_uninitialized;
  return f(call);
}

// f(Call&, Gpu&, Named) -> Code.
template <class F>
Code handle_call(const char* symbol, DeviceHandle handle, F&& f) {
  Call call(symbol, Call::Library::nvml);
  if (const int code = call.begin(named_by(call.state(), handle).gpu)) return code;
  if (!call.machine.nvml_started) return nvml_uninitialized;
  const Named named = named_by(call.state(), handle);
  if (named.gpu < 0) return nvml_invalid_argument;
  return f(call, call.state().gpus[static_cast<std::size_t>(named.gpu)], named);
}

// The same for values that only a whole GPU has.
template <class F>
Code gpu_call(const char* symbol, DeviceHandle handle, F&& f) {
  return handle_call(symbol, handle, [&](Call& call, Gpu& gpu, Named named) -> Code {
    if (named.slice >= 0) return not_supported;
    return f(call, gpu);
  });
}

template <class T, class Read>
Code tell(const char* symbol, DeviceHandle handle, T* value, Read&& read) {
  return gpu_call(symbol, handle, [&](Call&, Gpu& gpu) -> Code {
    if (value == nullptr) return nvml_invalid_argument;
    *value = static_cast<T>(read(gpu));
    return success;
  });
}

inline Code copy_text(const std::string& text, char* to, unsigned size) {
  if (to == nullptr) return nvml_invalid_argument;
  if (text.size() >= size) return insufficient_size;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return success;
}

}  // namespace berth::nvml
