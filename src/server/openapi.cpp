#include "server/openapi.hpp"

// Global and hidden: GCC resolves local symbols through the linker's address table, and on arm64 the linker treats
// all symbols that begin in one section as the same.
asm(".section .rodata\n"
    ".global berth_openapi_begin, berth_openapi_end\n"
    ".hidden berth_openapi_begin, berth_openapi_end\n"
    "berth_openapi_begin:\n"
    ".incbin \"" BERTH_OPENAPI_FILE
    "\"\n"
    "berth_openapi_end:\n"
    ".byte 0\n"
    ".previous\n");
extern const char berth_openapi_begin[] __asm__("berth_openapi_begin") __attribute__((visibility("hidden")));
extern const char berth_openapi_end[] __asm__("berth_openapi_end") __attribute__((visibility("hidden")));

namespace berth::server {

std::string_view openapi_document() noexcept {
  return {berth_openapi_begin, static_cast<std::size_t>(berth_openapi_end - berth_openapi_begin)};
}

}  // namespace berth::server
