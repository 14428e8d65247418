// Shared by the tests of texts.
#pragma once

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "berth/ids.hpp"
#include "cli/text/terminal.hpp"
#include "world/test_units.hpp"

namespace berth::cli {

using world::gib;

inline DeviceId gpu_id(int number) {
  return DeviceId("GPU-0000000" + std::to_string(number) + "-1111-2222-3333-444455556666");
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// `text` is a function of the Style.
template <class Text>
void expect_fits_narrow_terminals(const Text& text) {
  for (const unsigned columns : {80u, 60u}) {
    for (const std::string& line : lines_of(text(Style{columns, false, false})))
      EXPECT_LE(shown_width(line), columns) << line;
  }
}

// A hostile name of a program or user, and its form on a terminal.
inline const std::string hostile_name = "\033[2Jx\n\u202e\a\r";
inline const std::string escaped_name = "\\x1b[2Jx\\x0a\\u{202e}\\x07\\x0d";

inline void expect_escaped(const std::string& text) {
  EXPECT_EQ(text.find_first_of("\033\a\r"), std::string::npos) << text;
  EXPECT_NE(text.find(escaped_name), std::string::npos) << text;
}

}  // namespace berth::cli
