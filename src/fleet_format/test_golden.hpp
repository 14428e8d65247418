// For tests of what releases have written: tests/golden/VERSION/NOUN.jsonl, a document per line. Every later version
// reads them, and loses nothing when it writes them again. A release adds a folder: BERTH_WRITE_GOLDEN=1 makes the
// tests write its files.
#pragma once

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "berth/random.hpp"
#include "berth/result.hpp"
#include "berth/version.hpp"
#include "format/json_reading.hpp"

namespace berth::format::golden {

struct Noun {
  std::function<boost::json::object(Random&)> make;
  std::function<Result<boost::json::object>(std::string_view)> read_and_write;
};
using Nouns = std::map<std::string, Noun>;

inline std::filesystem::path folder() { return std::filesystem::path(BERTH_SOURCE_DIR) / "tests" / "golden"; }

// The value of a field that was not set.
inline bool is_nothing(const boost::json::value& value) {
  return value == boost::json::value(0) || value == boost::json::value(0u) || value == boost::json::value(false) ||
         value == boost::json::value("") || (value.is_array() && value.get_array().empty()) ||
         (value.is_object() && value.get_object().empty());
}

// Fields that had other names in 0.1.0. Its inventories had the memory in use as memory_bytes_foreign.
inline const std::map<std::string_view, std::string_view> new_names{{"utilisation", "utilization"},
                                                                    {"memory_utilisation", "memory_utilization"},
                                                                    {"memory_bytes_foreign", "memory_bytes_used"}};

inline void expect_kept(const boost::json::value& before, const boost::json::value& after, const std::string& where) {
  if (before.is_object() && after.is_object()) {
    for (const auto& [name, value] : before.get_object()) {
      const boost::json::value* kept = after.get_object().if_contains(name);
      if (const auto renamed = new_names.find(name); !kept && renamed != new_names.end())
        kept = after.get_object().if_contains(renamed->second);
      if (name == "sharing") {  // the default, "exclusive", was not written, and is not now
        kept = after.get_object().if_contains("exclusive");
        EXPECT_TRUE(kept && value == boost::json::value("memory") && *kept == boost::json::value(false)) << where;
        continue;
      }
      if (kept)
        expect_kept(value, *kept, where + "." + std::string(name));
      else
        EXPECT_TRUE(is_nothing(value)) << where << "." << name << " is lost";
    }
  } else if (before.is_array() && after.is_array()) {
    ASSERT_EQ(before.get_array().size(), after.get_array().size()) << where;
    for (std::size_t i = 0; i < before.get_array().size(); ++i)
      expect_kept(before.get_array()[i], after.get_array()[i], where + "[" + std::to_string(i) + "]");
  } else {
    EXPECT_EQ(before, after) << where;
  }
}

inline void write(const Nouns& nouns) {
  const std::filesystem::path release =
      folder() / (std::to_string(BERTH_VERSION_MAJOR) + "." + std::to_string(BERTH_VERSION_MINOR) + "." +
                  std::to_string(BERTH_VERSION_PATCH));
  std::filesystem::create_directories(release);
  for (const auto& [name, noun] : nouns) {
    std::ofstream file(release / (name + ".jsonl"));
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      SeededRandom random(seed);
      file << document(noun.make(random)) << "\n";
    }
  }
}

// Reads the files of these nouns of all releases. Returns the names of the nouns that have a file, by release.
inline std::map<std::string, std::set<std::string>> expect_all_kept(const Nouns& nouns) {
  if (std::getenv("BERTH_WRITE_GOLDEN")) write(nouns);
  std::map<std::string, std::set<std::string>> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder())) {
    const std::string release = entry.path().parent_path().filename(), name = entry.path().stem();
    const auto noun = nouns.find(name);
    if (entry.is_directory() || noun == nouns.end()) continue;
    found[release].insert(name);
    const std::string where = release + "/" + name;
    std::ifstream file(entry.path());
    std::size_t read = 0;
    for (std::string line; std::getline(file, line); ++read) {
      const Result<boost::json::object> written = noun->second.read_and_write(line);
      if (!written) {
        ADD_FAILURE() << where << ": " << written.error().to_text() << "\n" << line;
        continue;
      }
      expect_kept(boost::json::parse(line), boost::json::parse(document(*written)), where);
      EXPECT_EQ(document(noun->second.read_and_write(document(*written)).value()), document(*written)) << where;
    }
    EXPECT_EQ(read, 5u) << where;
  }
  return found;
}

}  // namespace berth::format::golden
