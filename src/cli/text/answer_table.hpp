// Tables and paragraphs for answers of the HTTP API: a table has a column per member, is narrowed to the width of
// the terminal, and is followed by the reasons of its rows as whole sentences.
#pragma once

#include <functional>

#include "cli/text/answer_fields.hpp"

namespace berth::cli {

using Cell = std::function<std::string(const Fields&)>;

struct TableColumn {
  std::string heading;  // as in Table
  Cell cell;
  std::size_t least = 0;  // may be cut to this width; 0: it may not
  int goes = 0;           // order in which columns are dropped on a narrow terminal; 0: never
  bool has_ids = false;   // device ids: may be shortened in the middle
};
std::string table_text(const boost::json::array& rows, const std::vector<TableColumn>& columns, const Style& style);

Cell text_cell(std::string key);
Cell count_cell(std::string key);
// Bytes that were promised; "-" for 0, where none were requested.
Cell bytes_cell(std::string key);
// A state, in the colour of its meaning.
Cell state_cell(std::string key, const Style& style);

// `text` after `first`, wrapped and indented, never cut. GPUs have short ids.
std::string paragraph(const std::string& first, const std::string& text, const Style& style);
// "paused: ", for before its reason; empty where the reason begins with the state, as "paused by user:ann" does.
std::string state_prefix(const std::string& state, const std::string& reason);
// One paragraph for each row that has a reason, below its table: a truncated reason is useless.
std::string reasons_text(const boost::json::array& rows, const Cell& name, const Style& style);
// A heading and its body; empty without a body.
std::string section(const std::string& heading, const std::string& body, const Style& style);

}  // namespace berth::cli
