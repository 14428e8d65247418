#include "cli/devices_text.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "berth/bytes.hpp"
#include "berth/health.hpp"

namespace berth::cli {
namespace {

struct Sign {
  std::string_view plain;
  std::string_view block;
  Colour colour;
  std::string_view words;
};
// By Owner. Each differs in its character as well as in its colour.
constexpr std::array<Sign, owners> signs{{
    {"#", "█", Colour::green, "this process"},
    {"=", "▓", Colour::cyan, "other Berth processes"},
    {"x", "▚", Colour::magenta, "foreign processes"},
    {"?", "░", Colour::yellow, "driver or hidden processes"},
    {"o", "■", Colour::blue, "in use"},
    {"+", "▒", Colour::yellow, "promised"},
    {".", "·", Colour::dim, "free"},
}};

constexpr std::size_t bar_least = 10, bar_most = 24;
constexpr std::size_t name_least = 8, name_most = 28;

constexpr std::size_t at(Owner owner) { return static_cast<std::size_t>(owner); }

// "GPU-ea3b8f50-1234-...": a word, and 36 characters of digits and dashes.
bool is_uuid(std::string_view id) {
  return id.size() == 40 && id[3] == '-' && std::all_of(id.begin() + 4, id.end(), [](char c) {
           return std::isxdigit(static_cast<unsigned char>(c)) || c == '-';
         });
}

// "101.2/139.8 GiB": both in the unit of the total.
std::string free_of_total(Maybe free, Maybe total) {
  if (!total) return free ? bytes_text(*free) + " free" : "-";
  const std::string whole = bytes_text(*total);
  const std::size_t blank = whole.find(' ');
  std::string part = "-";
  if (free) {
    static constexpr std::string_view units = "BKMGTPE";
    const double scale = std::ldexp(1.0, 10 * static_cast<int>(units.find(whole[blank + 1])));
    char text[32];
    std::snprintf(text, sizeof text, scale > 1 ? "%.1f" : "%.0f", static_cast<double>(*free) / scale);
    part = text;
  }
  return part + "/" + whole;
}

std::string number_text(const auto& value, const char* unit) {
  if (!value) return "-";
  return std::to_string(std::lround(static_cast<double>(*value))) + unit;
}

Maybe total_of(const DeviceRow& row) {
  return row.seen && row.seen->load.memory_bytes_total ? row.seen->load.memory_bytes_total
                                                       : row.info.memory_bytes_total;
}
Maybe free_of(const DeviceRow& row) { return row.seen ? Maybe(row.seen->load.memory_bytes_free) : Maybe(); }

// Its memory is that of the whole it is a part of.
bool shares_memory(const DeviceInfo& info) { return info.parent && info.memory_domain != info.id.text(); }

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
      more += ", wants " + std::string(to_string(*row.seen->recovery_action));
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
  std::replace(more.begin(), more.end(), '_', ' ');
  return text + paint(style, Colour::yellow, more);
}

// One line of the table before it is fitted: a device, or the whole whose parts follow.
struct Line {
  const DeviceRow* row;
  bool whole = false;  // stands for the parent of `row`, which is not listed itself
  std::string tree;    // what is before the id of a part
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
constexpr std::array<std::string_view, 10> titles{"DEVICE", "ID",    "NAME",   "MEMORY", ">FREE/TOTAL",
                                                  ">LOAD",  ">TEMP", ">POWER", ">MHZ",   "HEALTH"};
// What goes first when there is no room.
constexpr std::array less_important{clock, power, temperature, load, split, name};

struct Cells {
  std::array<std::string, titles.size()> texts;
  std::optional<MemoryParts> parts;  // the bar waits until its width is known
};

// The maker is known from the back end, a slice's GPU from the line above it.
std::string name_text(const Line& line) {
  const DeviceInfo& info = line.row->info;
  const std::string name = info.name.starts_with("NVIDIA ") ? info.name.substr(7) : info.name;
  const std::size_t slice = name.find(" MIG ");
  if (line.whole) return name.substr(0, slice);
  if (line.tree.empty()) return name;
  if (slice != std::string::npos) return name.substr(slice + 1);
  const std::uint32_t units = info.compute_units.value_or(0);
  return units == 0 ? name : std::to_string(units) + (units == 1 ? " unit" : " units");
}

// A name that a driver made up may be long; its end tells equal devices apart.
// The whole id is in --json.
std::string cut_middle(const Style& style, const std::string& text) {
  constexpr std::size_t most = 24, end = 8;
  if (text.size() <= most) return text;
  return text.substr(0, most - end - 1) + (style.blocks ? "…" : "~") + text.substr(text.size() - end);
}

Cells cells_of(const Line& line, const std::string& short_id, TimePoint now, const Style& style) {
  const DeviceRow& row = *line.row;
  const DeviceInfo& info = row.info;
  const bool part = !line.tree.empty();
  Cells cells;
  auto& texts = cells.texts;
  texts[device] = line.whole ? info.backend : info.backend + ":" + std::to_string(info.ordinal);
  // The whole of a part stands above it, the back end in the column before.
  const std::string known = (part ? info.parent->text() : info.backend) + "/";
  texts[id] = line.tree + cut_middle(style, short_id.starts_with(known) ? short_id.substr(known.size()) : short_id);
  texts[name] = name_text(line);
  if (!line.whole) texts[health] = health_text(row, now, style);
  // Parts that share the memory of their whole share what is measured of it as
  // well: it stands once, beside the whole.
  const Telemetry nothing{}, &seen = row.seen ? *row.seen : nothing;
  if (line.whole ? shares_memory(info) : !(part && shares_memory(info))) {
    cells.parts = memory_parts(row);
    texts[memory] = free_of_total(free_of(row), total_of(row));
    const auto& share = seen.load.utilisation;
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

Health health_of(const DeviceRow& row) {
  if (row.error) return row.error->code == ErrorCode::device_lost ? Health::lost : Health::suspect;
  if (!row.seen) return Health::healthy;
  HealthState state;
  const auto hear = [&](const DeviceEvent& event) { state = after_event(state, event, event.at, {}, true); };
  for (const DeviceEvent& event : row.seen->load.events) hear(event);
  if (row.seen->recovery_action && *row.seen->recovery_action != RecoveryAction::none)
    hear({DeviceEvent::Kind::recovery_action, static_cast<std::uint32_t>(*row.seen->recovery_action),
          row.seen->sampled_at});
  return state.health;
}

std::vector<std::string> short_ids(std::span<const DeviceId> ids) {
  constexpr std::size_t least = 12;  // "GPU-" and eight digits
  std::vector<std::string> out;
  for (const DeviceId& id : ids) {
    if (!is_uuid(id.text())) {
      out.push_back(id.text());
      continue;
    }
    std::size_t length = least;
    for (const DeviceId& other : ids) {
      // A part's id begins with that of its whole; the tree tells them apart.
      if (other.text().starts_with(id.text())) continue;
      const auto differ = std::mismatch(id.text().begin(), id.text().end(), other.text().begin(), other.text().end());
      length = std::max(length, static_cast<std::size_t>(differ.first - id.text().begin()) + 1);
    }
    out.push_back(id.text().substr(0, length));
  }
  return out;
}

std::optional<MemoryParts> memory_parts(const DeviceRow& row) {
  const Maybe total = total_of(row), free = free_of(row);
  if (!total || !free || *total == 0) return std::nullopt;
  MemoryParts parts{};
  const std::uint64_t unused = std::min(*free, *total);
  parts[at(Owner::promised)] = std::min(row.memory_bytes_promised, unused);
  parts[at(Owner::free)] = unused - parts[at(Owner::promised)];
  std::uint64_t rest = *total - unused;
  const MemoryUse& use = row.seen->memory_use;
  const auto take = [&](Owner owner, std::optional<std::uint64_t> bytes) {
    parts[at(owner)] = std::min(bytes.value_or(0), rest);
    rest -= parts[at(owner)];
  };
  take(Owner::own, use.own);
  take(Owner::berth, use.berth);
  take(Owner::foreign, use.foreign);
  take(Owner::unattributed, use.unattributed);
  parts[at(Owner::used)] = rest;
  return parts;
}

std::string memory_bar(const MemoryParts& parts, std::size_t width, const Style& style) {
  const double total = static_cast<double>(std::accumulate(parts.begin(), parts.end(), std::uint64_t{0}));
  std::array<std::size_t, owners> cells{};
  std::size_t left = width;
  // Whole cells first, one at least for everybody but the driver and the free.
  for (std::size_t i = 0; i < owners && total > 0; ++i) {
    cells[i] = static_cast<std::size_t>(static_cast<double>(parts[i]) / total * static_cast<double>(width));
    const bool noticed = i != at(Owner::unattributed) && i != at(Owner::used) && i != at(Owner::free);
    if (noticed && parts[i] > 0) cells[i] = std::max<std::size_t>(cells[i], 1);
    cells[i] = std::min(cells[i], left);
    left -= cells[i];
  }
  // Then the rest to those with the largest remainder.
  for (; left > 0 && total > 0; --left) {
    std::size_t neediest = 0;
    double need = -1e9;
    for (std::size_t i = 0; i < owners; ++i) {
      const double missing =
          static_cast<double>(parts[i]) / total * static_cast<double>(width) - static_cast<double>(cells[i]);
      if (parts[i] > 0 && missing > need) {
        neediest = i;
        need = missing;
      }
    }
    ++cells[neediest];
  }
  std::string bar = "[";
  for (std::size_t i = 0; i < owners; ++i) {
    std::string run;
    for (std::size_t n = 0; n < cells[i]; ++n) run += style.blocks ? signs[i].block : signs[i].plain;
    bar += paint(style, signs[i].colour, std::move(run));
  }
  return bar + "]";
}

std::string memory_legend(std::span<const DeviceRow> rows, const Style& style) {
  MemoryParts sum{};
  for (const DeviceRow& row : rows) {
    const auto parts = memory_parts(row);
    for (std::size_t i = 0; parts && i < owners; ++i) sum[i] |= (*parts)[i];
  }
  std::string text;
  for (std::size_t i = 0; i < owners; ++i) {
    if (sum[i] == 0) continue;
    text += text.empty() ? "memory: " : "  ";
    text += paint(style, signs[i].colour, std::string(style.blocks ? signs[i].block : signs[i].plain)) + " " +
            std::string(signs[i].words);
  }
  return text;
}

std::string devices_text(std::span<const DeviceRow> rows, TimePoint now, const Style& style) {
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
    for (const Cells& cells : table) width = std::max(width, shown_width(cells.texts[column]));
    return width;
  };
  // Names and bars take what the others leave, within limits.
  constexpr std::size_t brackets = 2;
  const auto least = [&](std::size_t column) {
    if (column == name) return std::min(widest(name), name_least);
    return column == split ? bar_least + brackets : widest(column);
  };
  const auto needed = [&] {
    std::size_t sum = 0;
    for (std::size_t column = 0; column < titles.size(); ++column) {
      if (shown[column]) sum += least(column) + (column > 0 ? 2 : 0);
    }
    return sum;
  };
  for (const Column column : less_important) {
    if (needed() > style.columns) shown[column] = false;
  }
  const std::size_t spare = style.columns - std::min<std::size_t>(needed(), style.columns);
  const std::size_t name_width = std::min({widest(name), name_most, least(name) + spare});
  const std::size_t bar_width = std::min(bar_least + spare - (name_width - least(name)), bar_most);

  std::vector<std::string> headings;
  for (std::size_t column = 0; column < titles.size(); ++column) {
    if (shown[column]) headings.emplace_back(titles[column]);
  }
  Table out(std::move(headings));
  for (Cells& cells : table) {
    cells.texts[name] = cut(style, std::move(cells.texts[name]), name_width);
    if (cells.parts) cells.texts[split] = memory_bar(*cells.parts, bar_width, style);
    std::vector<std::string> texts;
    for (std::size_t column = 0; column < titles.size(); ++column) {
      if (shown[column]) texts.push_back(std::move(cells.texts[column]));
    }
    out.add(std::move(texts));
  }
  return out.to_text();
}

}  // namespace berth::cli
