// What releases of Berth have written: tests/golden/VERSION/NOUN.jsonl, a document per line. Every later version reads
// them, and loses nothing when it writes them again. A release adds a folder: BERTH_WRITE_GOLDEN=1 fleet_format_test
// writes the files of the nouns below; job.jsonl and job_state.jsonl are written by hand (machine/job_store_test.cpp).
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "berth/version.hpp"
#include "fleet_format/fleet_json.hpp"
#include "fleet_format/test_fleet_nouns.hpp"

namespace berth::format {
namespace {

namespace json = boost::json;

struct Noun {
  std::function<json::object(Random&)> make;
  std::function<Result<json::object>(std::string_view)> read_and_write;
};

template <class Make, class Take>
Noun noun(Make make, Take take) {
  return {[=](Random& random) { return to_json(make(random)); },
          [=](std::string_view text) -> Result<json::object> {
            return to_json(BERTH_TRY(read_document(text, "it", take)));
          }};
}

const std::map<std::string, Noun>& nouns() {
  static const std::map<std::string, Noun> all{{"wanted", noun(some_wanted, wanted_of)},
                                               {"assigned", noun(some_assigned, assigned_of)},
                                               {"event", noun(some_event, event_of)},
                                               {"credential", noun(some_credential, credential_of)},
                                               {"node", noun(some_record, node_record_of)},
                                               {"orders", noun(some_orders, node_orders_of)},
                                               {"report", noun(some_node_report, node_report_of)}};
  return all;
}

std::string version_text() {
  return std::to_string(BERTH_VERSION_MAJOR) + "." + std::to_string(BERTH_VERSION_MINOR) + "." +
         std::to_string(BERTH_VERSION_PATCH);
}

std::filesystem::path golden() { return std::filesystem::path(BERTH_SOURCE_DIR) / "tests" / "golden"; }

// What a field has that was not set.
bool is_nothing(const json::value& value) {
  return value == json::value(0) || value == json::value(0u) || value == json::value(false) ||
         value == json::value("") || (value.is_array() && value.get_array().empty()) ||
         (value.is_object() && value.get_object().empty());
}

// What 0.1.0 called some fields. Its inventories had the memory in use as memory_bytes_foreign.
const std::map<std::string_view, std::string_view> new_names{{"utilisation", "utilization"},
                                                             {"memory_utilisation", "memory_utilization"},
                                                             {"memory_bytes_foreign", "memory_bytes_used"}};

void expect_kept(const json::value& before, const json::value& after, const std::string& where) {
  if (before.is_object() && after.is_object()) {
    for (const auto& [name, value] : before.get_object()) {
      const json::value* kept = after.get_object().if_contains(name);
      if (const auto renamed = new_names.find(name); !kept && renamed != new_names.end())
        kept = after.get_object().if_contains(renamed->second);
      if (name == "sharing") {  // the default, "exclusive", was not written, and is not now
        kept = after.get_object().if_contains("exclusive");
        EXPECT_TRUE(kept && value == json::value("memory") && *kept == json::value(false)) << where;
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

TEST(Golden, WhatEveryReleaseWroteIsReadAndKept) {
  if (std::getenv("BERTH_WRITE_GOLDEN")) {
    for (const auto& [name, noun] : nouns()) {
      std::filesystem::create_directories(golden() / version_text());
      std::ofstream file(golden() / version_text() / (name + ".jsonl"));
      for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        SeededRandom random(seed);
        file << document(noun.make(random)) << "\n";
      }
    }
  }
  std::set<std::string> releases;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(golden())) {
    if (entry.is_directory()) continue;
    const std::string release = entry.path().parent_path().filename(), name = entry.path().stem();
    if (name == "job" || name == "job_state") continue;
    releases.insert(release);
    const std::string where = release + "/" + name;
    const auto noun = nouns().find(name);
    ASSERT_NE(noun, nouns().end()) << where << " is read by no test";
    std::ifstream file(entry.path());
    std::size_t read = 0;
    for (std::string line; std::getline(file, line); ++read) {
      const Result<json::object> written = noun->second.read_and_write(line);
      ASSERT_TRUE(written) << where << ": " << written.error().to_text() << "\n" << line;
      expect_kept(json::parse(line), json::parse(document(*written)), where);
      EXPECT_EQ(document(noun->second.read_and_write(document(*written)).value()), document(*written)) << where;
    }
    EXPECT_EQ(read, 5u) << where;
  }
  EXPECT_TRUE(releases.contains("0.1.0"));
}

}  // namespace
}  // namespace berth::format
