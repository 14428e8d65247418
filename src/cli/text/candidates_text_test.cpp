#include "cli/text/candidates_text.hpp"
#include "world/test_units.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace berth::cli {
namespace {

using world::gib;

DeviceId gpu_id(int number) {
  return DeviceId("GPU-0000000" + std::to_string(number) + "-1111-2222-3333-444455556666");
}

std::vector<DeviceId> eight() {
  std::vector<DeviceId> ids;
  for (int i = 0; i < 8; ++i) ids.push_back(gpu_id(i));
  ids.emplace_back("opencl/pocl/basic-neoverse-n1-processor.0");
  return ids;
}

std::size_t widest(const std::string& text) {
  std::istringstream lines(text);
  std::size_t width = 0;
  for (std::string line; std::getline(lines, line);) width = std::max(width, line.size());
  return width;
}

TEST(CandidatesText, EveryDeviceHasALineThatFits) {
  Explanation explanation;
  for (const DeviceId& id : eight()) {
    Explanation::Candidate candidate;
    candidate.device = id;
    candidate.rejection = Rejection::not_in_service;
    candidate.detail = "needs 100.0 GiB on top of what " + gpu_id(3).text() + " has, 41.0 GiB available";
    candidate.memory_bytes_available = 141 * gib;
    explanation.candidates.push_back(candidate);
  }
  for (const unsigned columns : {80u, 60u}) {
    const std::string text = candidates_text(explanation, eight(), {columns, false, false});
    EXPECT_LE(widest(text), columns) << text;
    EXPECT_NE(text.find("\nGPU-00000007"), std::string::npos) << text;
  }
  EXPECT_NE(candidates_text(explanation, eight(), {200, false, false}).find("of what GPU-00000003 has, 41.0 GiB"),
            std::string::npos);
}

TEST(ChangesText, ATableThatIsTooWideBecomesAList) {
  Suggestion change;
  change.text = "free 9.0 GiB on each of " + gpu_id(0).text() + ", " + gpu_id(1).text() + " and " + gpu_id(2).text();
  change.command = "berth devices";
  const std::vector<Suggestion> changes{change};
  const std::string table = changes_text(changes, eight(), {100, false, false});
  EXPECT_TRUE(table.starts_with("CHANGE ")) << table;
  EXPECT_NE(table.find("GPU-00000001 and GPU-00000002  berth devices\n"), std::string::npos) << table;
  EXPECT_EQ(changes_text(changes, eight(), {60, false, false}),
            "free 9.0 GiB on each of GPU-00000000, GPU-00000001 and\n"
            "GPU-00000002\n"
            "  > berth devices\n");
}

TEST(SentenceText, HasShortIdsAndNoControlCharacters) {
  EXPECT_EQ(sentence_text("\033[1mlargest: 2 GiB on " + gpu_id(1).text(), eight(), {}),
            "\\x1b[1mlargest: 2 GiB on GPU-00000001\n");
}

}  // namespace
}  // namespace berth::cli
