#include "page/page.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace berth::page {
namespace {

#ifdef BERTH_HAS_PAGE

const PageFile* file_at(std::string_view path) {
  const auto files = page_files();
  const auto found = std::ranges::find(files, path, &PageFile::path);
  return found == files.end() ? nullptr : &*found;
}

TEST(Page, IsThereWithAllFilesThatItNames) {
  const PageFile* index = file_at("/index.html");
  ASSERT_NE(index, nullptr);
  EXPECT_EQ(index->content_type, "text/html; charset=utf-8");
  int named = 0;
  for (const std::string_view attribute : {"src=\"./", "href=\"./"}) {
    for (std::size_t at = index->bytes.find(attribute); at != std::string_view::npos;
         at = index->bytes.find(attribute, at + 1)) {
      const std::size_t begin = at + attribute.size();
      const std::string path = "/" + std::string(index->bytes.substr(begin, index->bytes.find('"', begin) - begin));
      EXPECT_NE(file_at(path), nullptr) << path;
      named += 1;
    }
  }
  EXPECT_EQ(named, 3) << "script, style sheet, icon";
}

TEST(Page, BytesAreThoseOfTheFiles) {
  for (const PageFile& file : page_files()) {
    std::ifstream stream(BERTH_PAGE_DIST + std::string(file.path), std::ios::binary);
    std::ostringstream content;
    content << stream.rdbuf();
    EXPECT_EQ(content.str(), file.bytes) << file.path;
    if (file.gzipped.empty()) continue;
    // The last four bytes of a gzip file are the size of what it holds.
    std::uint32_t size = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      size |= static_cast<std::uint32_t>(static_cast<unsigned char>(file.gzipped[file.gzipped.size() - 4 + i]))
              << (8 * i);
    }
    EXPECT_EQ(file.gzipped.substr(0, 2), "\x1f\x8b") << file.path;
    EXPECT_EQ(size, file.bytes.size()) << file.path;
    EXPECT_LT(file.gzipped.size(), file.bytes.size()) << file.path;
  }
}

TEST(Page, TagsTellTheFilesApart) {
  std::set<std::string_view> tags;
  for (const PageFile& file : page_files()) {
    EXPECT_GE(file.etag.size(), 16u);
    EXPECT_TRUE(tags.insert(file.etag).second) << file.path;
  }
}

TEST(Page, HasNothingInlineAndNothingFromOutside) {
  const std::string_view index = file_at("/index.html")->bytes;
  EXPECT_EQ(index.find("<style"), std::string_view::npos);
  EXPECT_EQ(index.find("<script>"), std::string_view::npos);
  EXPECT_EQ(index.find("style=\""), std::string_view::npos);
  EXPECT_EQ(index.find("://"), std::string_view::npos);
}

#else

TEST(Page, NeedsNodeAndNpm) {
  EXPECT_TRUE(page_files().empty());
  GTEST_SKIP() << "the page is not built here";
}

#endif

}  // namespace
}  // namespace berth::page
