#include "cli/text/devices_text.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "berth/bytes.hpp"
#include "berth/health.hpp"
#include "cli/text/memory_bar.hpp"
#include "inventory/available_memory.hpp"
#include "inventory/short_id.hpp"

namespace berth::cli {

using namespace inventory;
using namespace world;
namespace {

constexpr std::size_t bar_least = 7, bar_wanted = 10, bar_most = 24;
// "GPU-454afa53" is never cut; ids of other drivers may be long.
constexpr std::size_t id_least = 12, id_most = 24;
constexpr std::size_t name_least = 8, name_most = 28;
// "quarantined, Xid 79": the state and one reason.
constexpr std::size_t health_least = 19, health_wanted = 36;

std::string number_text(const auto& value, const char* unit) {
  if (!value) return "-";
  return std::to_string(std::lround(static_cast<double>(*value))) + unit;
}

// "50.0/78.0/80.0 GiB": what a new request could get, what is free, and all.
std::string memory_text(OptionalU64 available, OptionalU64 free, OptionalU64 total) {
  if (!total) return free ? bytes_text(*free) + " free" : "-";
  const std::string first = part_of_total(available, *total);
  return first.substr(0, first.find('/') + 1) + part_of_total(free, *total);
}

// Whether the device is a part that shares the memory of its parent.
bool shares_memory(const DeviceInfo& info) { return info.parent && info.memory_home() != info.id.text(); }

std::string health_text(const DeviceRow& row, TimePoint now, const Style& style) {
  const Health health = health_of(row);
  std::string text = paint(style,
                           health == Health::healthy                                 ? Colour::green
                           : health == Health::lost || health == Health::quarantined ? Colour::red
                                                                                     : Colour::yellow,
                           std::string(to_string(health)));
  std::string more;
  if (row.intent != Intent::in_service) more += ", " + std::string(to_string(row.intent));
  if (row.seen) {
    if (row.seen->recovery_action && *row.seen->recovery_action != RecoveryAction::none)
      more += ", needs " + std::string(to_string(*row.seen->recovery_action));
    for (const DeviceEvent& event : row.seen->load.events) {
      if (event.kind == DeviceEvent::Kind::xid) more += ", Xid " + std::to_string(event.code);
      if (event.kind == DeviceEvent::Kind::ecc_error) more += ", memory error";
    }
    if (row.seen->throttle_reasons) {
      for (const std::string& reason : *row.seen->throttle_reasons) more += ", " + reason;
    }
    const Duration age = now - row.seen->sampled_at;
    if (age > fresh_for) more += ", " + std::to_string(age / std::chrono::seconds(1)) + " s old";
  }
  if (!row.held_by.empty()) {
    const bool exclusive = std::any_of(row.held_by.begin(), row.held_by.end(),
                                       [](const DeviceLease& holding) { return holding.exclusive; });
    more += exclusive ? ", exclusive" : ", held";
  }
  std::replace(more.begin(), more.end(), '_', ' ');
  return text + paint(style, Colour::yellow, more);
}

// One line of the table before columns are fitted: a device, or the parent of the parts
// that follow.
struct Line {
  const DeviceRow* row;
  bool whole = false;  // the line shows the parent of `row`
  std::string tree;    // drawn before the id of a part
};

std::vector<Line> arrange(std::span<const DeviceRow> rows, const Style& style) {
  std::map<DeviceId, std::vector<const DeviceRow*>> parts;
  std::map<DeviceId, const DeviceRow*> listed;
  for (const DeviceRow& row : rows) {
    listed.emplace(row.info.id, &row);
    if (row.info.parent) parts[*row.info.parent].push_back(&row);
  }
  std::vector<Line> lines;
  const auto add_parts = [&](const DeviceId& whole) {
    const auto found = parts.find(whole);
    if (found == parts.end()) return;
    for (const DeviceRow* part : found->second) {
      const bool last = part == found->second.back();
      lines.push_back({part, false, style.blocks ? (last ? "└ " : "├ ") : (last ? "`- " : "|- ")});
    }
    parts.erase(found);
  };
  for (const DeviceRow& row : rows) {
    if (row.info.parent) {
      if (listed.contains(*row.info.parent) || !parts.contains(*row.info.parent)) continue;
      lines.push_back({&row, true, {}});
      add_parts(*row.info.parent);
    } else {
      lines.push_back({&row, false, {}});
      add_parts(row.info.id);
    }
  }
  return lines;
}

enum Column : std::size_t { device, id, name, split, memory, load, temperature, power, clock, health };
constexpr std::array<std::string_view, 10> titles{"DEVICE", "ID",    "NAME",   "MEMORY", ">AVAIL/FREE/TOTAL",
                                                  ">LOAD",  ">TEMP", ">POWER", ">MHZ",   "HEALTH"};
// The order in which columns are dropped when there is no room.
constexpr std::array less_important{clock, power, temperature, name, split, load, memory};

struct Cells {
  std::array<std::string, titles.size()> texts;
  std::optional<MemoryParts> parts;  // drawn once the width of the bar is known
  std::string tree;                  // drawn before the id; never cut
};

// The name without the vendor, which the back end implies; for a slice without the GPU's name, which is on the line
// above.
std::string name_text(const Line& line) {
  const DeviceInfo& info = line.row->info;
  const std::string name = printable(info.name.starts_with("NVIDIA ") ? info.name.substr(7) : info.name);
  const std::size_t slice = name.find(" MIG ");
  if (line.whole) return name.substr(0, slice);
  if (line.tree.empty()) return name;
  if (slice != std::string::npos) return name.substr(slice + 1);
  const std::uint32_t units = info.compute_units.value_or(0);
  return units == 0 ? name : std::to_string(units) + (units == 1 ? " unit" : " units");
}

Cells cells_of(const Line& line, const std::string& brief, TimePoint now, const Style& style) {
  const DeviceRow& row = *line.row;
  const DeviceInfo& info = row.info;
  const bool part = !line.tree.empty();
  Cells cells;
  auto& texts = cells.texts;
  texts[device] = line.whole ? info.backend : device_label(info);
  // The id of a part without the prefix that the line above already shows.
  std::string own = brief;
  if (part && info.id.text().starts_with(info.parent->text() + "/"))
    own = info.id.text().substr(info.parent->text().size() + 1);
  cells.tree = line.tree;
  texts[id] = cut_middle(style, printable(own), id_most);
  texts[name] = name_text(line);
  if (!line.whole) texts[health] = health_text(row, now, style);
  // Parts that share the memory of their parent share its measurements too, which are
  // shown once, on the line of the parent.
  const Telemetry nothing{}, &seen = row.seen ? *row.seen : nothing;
  if (line.whole ? shares_memory(info) : !(part && shares_memory(info))) {
    cells.parts = memory_parts(row);
    // On the parent's line, `row` is its first part, whose lease does not cover the other parts.
    const OptionalU64 available = line.whole && cells.parts
                                      ? OptionalU64((*cells.parts)[static_cast<std::size_t>(Owner::free)])
                                      : memory_bytes_available(row);
    texts[memory] = memory_text(available, memory_bytes_free(row), memory_bytes_total(row));
    const auto& share = seen.load.utilization;
    texts[load] = number_text(share ? std::optional(*share * 100) : std::nullopt, "%");
  }
  if (!part) {
    texts[temperature] = number_text(seen.temperature_celsius, "C");
    texts[power] = number_text(seen.power_watts, "W");
    texts[clock] = number_text(seen.clock_mhz, "");
  }
  return cells;
}

}  // namespace

std::string part_of_total(OptionalU64 part, std::uint64_t total) {
  const std::string whole = bytes_text(total);
  const std::size_t blank = whole.find(' ');
  std::string amount = "-";
  if (part) {
    static constexpr std::string_view units = "BKMGTPE";
    const double scale = std::ldexp(1.0, 10 * static_cast<int>(units.find(whole[blank + 1])));
    char text[32];
    std::snprintf(text, sizeof text, scale > 1 ? "%.1f" : "%.0f", static_cast<double>(*part) / scale);
    amount = text;
  }
  return amount + "/" + whole;
}

std::string device_label(const DeviceInfo& info) { return info.backend + ":" + std::to_string(info.ordinal); }

std::string devices_text(std::span<const DeviceRow> rows, TimePoint now, const Style& style, Legend legend) {
  const std::vector<Line> lines = arrange(rows, style);
  std::vector<DeviceId> ids;
  for (const Line& line : lines) ids.push_back(line.whole ? *line.row->info.parent : line.row->info.id);
  const std::vector<std::string> shortened = short_ids(ids);

  std::vector<Cells> table;
  for (std::size_t i = 0; i < lines.size(); ++i) table.push_back(cells_of(lines[i], shortened[i], now, style));

  std::array<bool, titles.size()> shown;
  shown.fill(true);
  shown[split] = std::any_of(table.begin(), table.end(), [](const Cells& cells) { return cells.parts.has_value(); });
  for (const Column column : {clock, power, temperature, load}) {
    shown[column] = std::any_of(table.begin(), table.end(), [&](const Cells& cells) {
      return !cells.texts[column].empty() && cells.texts[column] != "-";
    });
  }
  const auto widest = [&](std::size_t column) {
    std::size_t width = titles[column].size() - (titles[column].starts_with('>') ? 1 : 0);
    for (const Cells& cells : table)
      width = std::max(width, (column == id ? shown_width(cells.tree) : 0) + shown_width(cells.texts[column]));
    return width;
  };
  std::size_t narrowest_id = 0;
  for (const Cells& cells : table)
    narrowest_id = std::max(narrowest_id, shown_width(cells.tree) + std::min(shown_width(cells.texts[id]), id_least));
  // Names, bars and the text beside the health share the columns that are left.
  constexpr std::size_t brackets = 2;
  bool crowded = false;  // columns are narrowed before more of them are dropped
  const auto least = [&](std::size_t column) {
    if (column == id) return narrowest_id;
    if (column == name) return std::min(widest(name), name_least);
    if (column == health) return std::min(widest(health), crowded ? health_least : health_wanted);
    return column == split ? (crowded ? bar_least : bar_wanted) + brackets : widest(column);
  };
  const auto needed = [&] {
    std::size_t sum = 0;
    for (std::size_t column = 0; column < titles.size(); ++column) {
      if (shown[column]) sum += least(column) + (column > 0 ? 2 : 0);
    }
    return sum;
  };
  for (const Column column : less_important) {
    crowded = crowded || (column == name && needed() > style.columns);
    if (needed() > style.columns) shown[column] = false;
  }
  std::size_t spare = style.columns - std::min<std::size_t>(needed(), style.columns);
  const auto grown = [&](std::size_t column, std::size_t most) {
    if (!shown[column]) return least(column);
    const std::size_t width = std::min(std::max(most, least(column)), least(column) + spare);
    spare -= width - least(column);
    return width;
  };
  const std::size_t health_width = grown(health, widest(health));
  const std::size_t id_width = grown(id, widest(id));
  const std::size_t name_width = grown(name, std::min(widest(name), name_most));
  const std::size_t bar_width = grown(split, bar_most + brackets) - brackets;

  std::vector<std::string> headings;
  for (std::size_t column = 0; column < titles.size(); ++column) {
    if (shown[column]) headings.emplace_back(titles[column]);
  }
  Table out(std::move(headings));
  for (Cells& cells : table) {
    cells.texts[id] = cells.tree + cut_middle(style, cells.texts[id], id_width - shown_width(cells.tree));
    cells.texts[name] = cut(style, std::move(cells.texts[name]), name_width);
    cells.texts[health] = cut(style, std::move(cells.texts[health]), health_width);
    if (cells.parts) cells.texts[split] = memory_bar(*cells.parts, bar_width, style);
    std::vector<std::string> texts;
    for (std::size_t column = 0; column < titles.size(); ++column) {
      if (shown[column]) texts.push_back(std::move(cells.texts[column]));
    }
    out.add(std::move(texts));
  }
  std::string text = out.to_text(style);
  if (legend == Legend::shown && shown[split]) text += memory_legend(rows, bar_width, style) + "\n";
  return text;
}

}  // namespace berth::cli
