#include "cli/text/answer_table.hpp"

#include <algorithm>

#include "inventory/short_id.hpp"

namespace berth::cli {

using namespace inventory;
using namespace world;

std::string table_text(const boost::json::array& rows, const std::vector<TableColumn>& columns, const Style& style) {
  std::vector<std::string> headings;
  for (const TableColumn& column : columns) headings.push_back(column.heading);
  Table table(std::move(headings));
  std::vector<std::pair<int, std::size_t>> going;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].has_ids) table.may_shrink_ids(i);
    if (columns[i].least > 0) table.may_shrink(i, columns[i].least);
    if (columns[i].goes > 0) going.emplace_back(columns[i].goes, i);
  }
  std::sort(going.begin(), going.end());
  for (const auto& [order, column] : going) table.may_go(column);
  for (const boost::json::value& row : rows) {
    std::vector<std::string> cells;
    for (const TableColumn& column : columns) cells.push_back(column.cell(Fields(row)));
    table.add(std::move(cells));
  }
  return table.to_text(style);
}

Cell text_cell(std::string key) {
  return [key = std::move(key)](const Fields& row) { return row.text(key); };
}

Cell count_cell(std::string key) {
  return [key = std::move(key)](const Fields& row) { return row.count(key); };
}

Cell bytes_cell(std::string key) {
  return [key = std::move(key)](const Fields& row) {
    return row.number(key).value_or(0) > 0 ? row.bytes(key) : std::string("-");
  };
}

Cell state_cell(std::string key, const Style& style) {
  return [key = std::move(key), style](const Fields& row) {
    const std::string word = row.word(key);
    for (const std::string_view good : {"healthy", "ready", "serving", "in service"})
      if (word == good) return paint(style, Colour::green, word);
    for (const std::string_view bad : {"lost", "failed", "refused", "quarantined", "waiting to restart", "not ready"})
      if (word == bad) return paint(style, Colour::red, word);
    return paint(style, word == "-" ? Colour::none : Colour::yellow, word);
  };
}
std::string paragraph(const std::string& first, const std::string& text, const Style& style) {
  const std::size_t indent = shown_width(first);
  std::string out;
  const std::size_t width = style.columns > indent + 20 ? style.columns - indent : 20;
  for (const std::string& line : wrapped(with_short_ids(text), width))
    out += (out.empty() ? first : std::string(indent, ' ')) + line + "\n";
  return out.empty() ? first + "\n" : out;
}

std::string state_prefix(const std::string& state, const std::string& reason) {
  return reason.starts_with(state) ? "" : state + ": ";
}

std::string reasons_text(const boost::json::array& rows, const Cell& name, const Style& style) {
  std::string text;
  for (const boost::json::value& value : rows) {
    const Fields row(value);
    if (!row.has("reason")) continue;
    const std::string reason = row.raw("reason");
    text += paragraph("! " + name(row) + "  " + state_prefix(row.word("state"), reason), printable(reason), style);
  }
  return text.empty() ? "" : "\n" + text;
}

std::string section(const std::string& heading, const std::string& body, const Style& style) {
  return body.empty() ? "" : "\n" + paint(style, Colour::bold, heading) + "\n" + body;
}

}  // namespace berth::cli
