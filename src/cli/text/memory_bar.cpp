#include "cli/text/memory_bar.hpp"

#include <algorithm>
#include <numeric>

namespace berth::cli {

using namespace inventory;
namespace {

struct Sign {
  std::string_view plain;
  std::string_view block;
  Colour colour;
  std::string_view words;
};
// Indexed by Owner. The signs differ in character as well as in colour.
constexpr std::array<Sign, owners> signs{{
    {"#", "█", Colour::green, "this process"},
    {"=", "▓", Colour::cyan, "other Berth processes"},
    {"x", "▚", Colour::magenta, "foreign processes"},
    {"?", "░", Colour::yellow, "driver or hidden processes"},
    {"o", "■", Colour::blue, "in use"},
    {"+", "▒", Colour::yellow, "promised"},
    {".", "·", Colour::dim, "free"},
}};

constexpr std::size_t at(Owner owner) { return static_cast<std::size_t>(owner); }

// How many characters of a bar each owner has.
std::array<std::size_t, owners> shares(const MemoryParts& parts, std::size_t width) {
  const double total = static_cast<double>(std::accumulate(parts.begin(), parts.end(), std::uint64_t{0}));
  std::array<std::size_t, owners> cells{};
  std::size_t left = width;
  // Whole cells first; at least one for every owner except "driver or hidden processes" and "free".
  for (std::size_t i = 0; i < owners && total > 0; ++i) {
    cells[i] = static_cast<std::size_t>(static_cast<double>(parts[i]) / total * static_cast<double>(width));
    const bool noticed = i != at(Owner::unattributed) && i != at(Owner::free);
    if (noticed && parts[i] > 0) cells[i] = std::max<std::size_t>(cells[i], 1);
    cells[i] = std::min(cells[i], left);
    left -= cells[i];
  }
  // Then the remaining cells go to the largest remainders.
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
  return cells;
}

}  // namespace

OptionalU64 memory_bytes_total(const DeviceRow& row) {
  return row.seen && row.seen->load.memory_bytes_total ? row.seen->load.memory_bytes_total
                                                       : row.info.memory_bytes_total;
}
OptionalU64 memory_bytes_free(const DeviceRow& row) {
  return row.seen ? OptionalU64(row.seen->load.memory_bytes_free) : OptionalU64();
}

std::optional<MemoryParts> memory_parts(const DeviceRow& row) {
  const OptionalU64 total = memory_bytes_total(row), free = memory_bytes_free(row);
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
  const std::array<std::size_t, owners> cells = shares(parts, width);
  std::string bar = "[";
  for (std::size_t i = 0; i < owners; ++i) {
    std::string run;
    for (std::size_t n = 0; n < cells[i]; ++n) run += style.blocks ? signs[i].block : signs[i].plain;
    bar += paint(style, signs[i].colour, std::move(run));
  }
  return bar + "]";
}

std::string memory_legend(std::span<const DeviceRow> rows, std::size_t width, const Style& style) {
  std::array<std::size_t, owners> sum{};
  for (const DeviceRow& row : rows) {
    const auto parts = memory_parts(row);
    if (!parts) continue;
    const std::array<std::size_t, owners> cells = shares(*parts, width);
    for (std::size_t i = 0; i < owners; ++i) sum[i] += cells[i];
  }
  const std::string title = "memory:";
  std::string text;
  std::size_t used = 0;  // of the line
  for (std::size_t i = 0; i < owners; ++i) {
    if (sum[i] == 0) continue;
    const std::string sign(style.blocks ? signs[i].block : signs[i].plain);
    const std::size_t length = 3 + signs[i].words.size();  // with a blank before the character and before the words
    if (text.empty()) {
      text = title;
      used = title.size();
    } else if (used + 1 + length > style.columns) {
      text += "\n" + std::string(title.size(), ' ');
      used = title.size();
    } else {
      text += " ";
      ++used;
    }
    text += " " + paint(style, signs[i].colour, sign) + " " + std::string(signs[i].words);
    used += length;
  }
  return text;
}

}  // namespace berth::cli
