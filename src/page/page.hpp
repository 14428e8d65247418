// The files of the page (web/), which are part of the program: built with Vite, gzipped and embedded when the program
// is built. Without BERTH_PAGE there are none, and a server answers with a message about that.
#pragma once

#include <span>
#include <string_view>

namespace berth::page {

// Everything exists as long as the program. Names do not change with the content, so a browser must revalidate its
// copy with the entity tag.
struct PageFile {
  std::string_view path;          // "/index.html"
  std::string_view content_type;  // "text/html; charset=utf-8"
  std::string_view etag;          // of the content, without quotes
  std::string_view bytes;
  std::string_view gzipped;  // empty if that would not be smaller
};

// Empty: built without the page.
std::span<const PageFile> page_files() noexcept;

}  // namespace berth::page
