#include "page/page.hpp"

namespace berth::page {

#ifdef BERTH_HAS_PAGE
// Defined in the source file that web/embed.mjs writes.
extern const std::span<const PageFile> embedded_files;
std::span<const PageFile> page_files() noexcept { return embedded_files; }
#else
std::span<const PageFile> page_files() noexcept { return {}; }
#endif

}  // namespace berth::page
