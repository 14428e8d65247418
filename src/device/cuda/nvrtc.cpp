#include "device/cuda/nvrtc.hpp"

#include <dlfcn.h>

#include <array>
#include <vector>

namespace berth::nvrtc {
namespace {

// Enough for the first errors of the log.
constexpr std::size_t log_bytes_shown = 8192;

struct Library {
#define BERTH_NVRTC_MEMBER(symbol, ...) \
  using symbol##_type = __VA_ARGS__;    \
  symbol##_type* symbol = nullptr;
  BERTH_NVRTC_CALLS(BERTH_NVRTC_MEMBER)
#undef BERTH_NVRTC_MEMBER
  std::vector<int> architectures;  // empty if there is no usable library

  Library() {
    void* library = nullptr;
    for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"}) {
      if ((library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) != nullptr) break;
    }
    if (library == nullptr) return;
#define BERTH_NVRTC_FIND(symbol, ...)                                 \
  symbol = reinterpret_cast<symbol##_type*>(dlsym(library, #symbol)); \
  if (symbol == nullptr) return;
    BERTH_NVRTC_CALLS(BERTH_NVRTC_FIND)
#undef BERTH_NVRTC_FIND
    int count = 0;
    if (nvrtcGetNumSupportedArchs(&count) != success || count <= 0) return;
    architectures.resize(static_cast<std::size_t>(count));
    if (nvrtcGetSupportedArchs(architectures.data()) != success) architectures.clear();
  }
};

// Never unloaded: the compiler keeps state.
const Library& library() {
  static const Library& loaded = *new Library;
  return loaded;
}

class OwnedProgram {
 public:
  explicit OwnedProgram(const Library& library) : library_(library) {}
  ~OwnedProgram() {
    if (handle != nullptr) library_.nvrtcDestroyProgram(&handle);
  }
  OwnedProgram(const OwnedProgram&) = delete;
  OwnedProgram& operator=(const OwnedProgram&) = delete;
  Program handle = nullptr;

 private:
  const Library& library_;
};

// Reads a string from the library, whose size includes the final zero.
template <class Size, class Get>
std::string text_of(Program program, Size size_call, Get get_call) {
  std::size_t bytes = 0;
  if (size_call(program, &bytes) != success || bytes == 0) return {};
  std::string text(bytes, '\0');
  if (get_call(program, text.data()) != success) return {};
  while (!text.empty() && (text.back() == '\0' || text.back() == '\n')) text.pop_back();
  return text;
}

Error not_compiled(ErrorCode code, const Library& library, Code returned, const std::string& name, std::string log) {
  if (log.size() > log_bytes_shown) log.resize(log_bytes_shown);
  return {code,
          "the run-time compiler cannot compile the CUDA C++ of '" + name + "'" + (log.empty() ? "" : ": " + log),
          "correct the source",
          {},
          DriverError{returned, library.nvrtcGetErrorString(returned)}};
}

}  // namespace

std::optional<int> newest_for(std::span<const int> known, Capability device) {
  const int limit = device.major * 10 + device.minor;
  std::optional<int> newest;
  for (const int architecture : known) {
    if (architecture <= limit && architecture > newest.value_or(0)) newest = architecture;
  }
  return newest;
}

Result<std::string> compile(const std::string& source, const std::string& name, Capability device) {
  const Library& compiler = library();
  if (compiler.architectures.empty()) {
    return Error{ErrorCode::not_supported,
                 "this machine has no CUDA run-time compiler (libnvrtc) for the CUDA C++ of '" + name + "'",
                 "install the CUDA toolkit's NVRTC, or give the source's ptx"};
  }
  const std::optional<int> architecture = newest_for(compiler.architectures, device);
  if (!architecture) {
    return Error{ErrorCode::not_supported,
                 "the CUDA run-time compiler no longer supports devices of capability " + to_string(device),
                 "install an older NVRTC, or give the source's ptx"};
  }
  OwnedProgram program(compiler);
  Code code = compiler.nvrtcCreateProgram(&program.handle, source.c_str(), (name + ".cu").c_str(), 0, nullptr, nullptr);
  if (code != success) return not_compiled(ErrorCode::invalid_argument, compiler, code, name, {});
  const std::string option = "--gpu-architecture=compute_" + std::to_string(*architecture);
  const std::array<const char*, 1> options{option.c_str()};
  code = compiler.nvrtcCompileProgram(program.handle, options.size(), options.data());
  if (code != success) {
    return not_compiled(ErrorCode::invalid_argument, compiler, code, name,
                        text_of(program.handle, compiler.nvrtcGetProgramLogSize, compiler.nvrtcGetProgramLog));
  }
  std::string ptx = text_of(program.handle, compiler.nvrtcGetPTXSize, compiler.nvrtcGetPTX);
  if (ptx.empty()) return not_compiled(ErrorCode::internal, compiler, code, name, "there is no PTX");
  return ptx;
}

}  // namespace berth::nvrtc
