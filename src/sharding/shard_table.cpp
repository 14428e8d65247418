#include "berth/shard_table.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

namespace berth {
namespace {

constexpr std::string_view first_line = "berth-shards 1";

Error damaged(std::size_t line, const std::string& what) {
  return {.code = ErrorCode::invalid_argument,
          .message = "The shard table is damaged: line " + std::to_string(line) + " " + what + ".",
          .advice = "Restore the table from its last good copy, or allocate a new one.",
          .where = {},
          .driver = {}};
}

std::string checksum(std::string_view text) {
  char out[17];
  std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(hash_key(KeyHash::xxh3_v1, text)));
  return out;
}

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Takes lines, and words of a line, off the front of a text.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}
  std::string_view next() {
    ++number_;
    return take(rest_, '\n');
  }
  // The rest of the next line after `word` and a space; nothing if it begins otherwise.
  std::optional<std::string_view> next(std::string_view word) {
    std::string_view line = next();
    if (take(line, ' ') != word) return std::nullopt;
    return line;
  }
  bool starts_with(std::string_view word) const { return rest_.starts_with(word); }
  bool empty() const { return rest_.empty(); }
  std::size_t number() const { return number_; }

  static std::string_view take(std::string_view& text, char separator) {
    const std::size_t end = std::min(text.find(separator), text.size());
    const std::string_view front = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return front;
  }

 private:
  std::string_view rest_;
  std::size_t number_ = 0;
};

}  // namespace

std::string shard_name(std::uint32_t shard) { return "shard-" + std::to_string(shard); }

std::uint32_t ShardTable::shards_of(const DeviceId& owner) const noexcept {
  const auto found = std::find_if(owners_.begin(), owners_.end(), [&](const ShardOwner& o) { return o.id == owner; });
  if (found == owners_.end()) return 0;
  const auto slot = static_cast<std::uint16_t>(found - owners_.begin());
  return static_cast<std::uint32_t>(std::count(slots_.begin(), slots_.end(), slot));
}

std::vector<DeviceId> ShardTable::in_order(std::uint32_t shard) const {
  std::vector<std::pair<std::uint64_t, const DeviceId*>> others;
  const DeviceId* const owner = owner_of(shard);
  for (const ShardOwner& candidate : owners_) {
    const std::uint64_t rank =
        hash_key(hash_key(KeyHash::xxh3_v1, candidate.id.text()) + hash_key(std::uint64_t{shard}));
    if (!owner || candidate.id != *owner) others.emplace_back(rank, &candidate.id);
  }
  std::sort(others.begin(), others.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : *a.second < *b.second;
  });
  std::vector<DeviceId> order;
  if (owner) order.push_back(*owner);
  for (const auto& [rank, id] : others) order.push_back(*id);
  return order;
}

bool ShardTable::rename(const DeviceId& from, const DeviceId& to) {
  const auto position_of = [&](const DeviceId& id) {
    return std::find_if(owners_.begin(), owners_.end(), [&](const ShardOwner& o) { return o.id == id; });
  };
  const auto found = position_of(from);
  if (found == owners_.end() || position_of(to) != owners_.end()) return false;
  const auto old_slot = static_cast<std::uint16_t>(found - owners_.begin());
  ShardOwner owner = std::move(*found);
  owner.id = to;
  owners_.erase(found);
  const auto place = std::find_if(owners_.begin(), owners_.end(), [&](const ShardOwner& o) { return to < o.id; });
  const auto new_slot = static_cast<std::uint16_t>(place - owners_.begin());
  owners_.insert(place, std::move(owner));
  // Owners are sorted by id, so those between the two positions have moved by one.
  for (std::uint16_t& slot : slots_) {
    if (slot == unowned) continue;
    if (slot == old_slot) {
      slot = new_slot;
    } else {
      const std::uint16_t without = slot > old_slot ? slot - 1 : slot;
      slot = without >= new_slot ? without + 1 : without;
    }
  }
  return true;
}

// One line per fact, then the shards in order as runs "position*length" ("-" for no owner), then
// the checksum of all lines before it.
std::string ShardTable::to_text() const {
  std::string text(first_line);
  text += "\nhash " + std::string(to_string(space_.hash()));
  text += "\nshards " + std::to_string(space_.count());
  text += "\nepoch " + std::to_string(epoch_);
  for (const ShardOwner& owner : owners_)
    text += "\nowner " + std::to_string(owner.weight_milli) + " " + owner.id.text();
  text += "\nmap";
  for (std::size_t begin = 0, end; begin < slots_.size(); begin = end) {
    for (end = begin + 1; end < slots_.size() && slots_[end] == slots_[begin];) ++end;
    text += slots_[begin] == unowned ? " -" : " " + std::to_string(slots_[begin]);
    text += "*" + std::to_string(end - begin);
  }
  text += "\n";
  return text + "check " + checksum(text) + "\n";
}

Result<ShardTable> ShardTable::parse(std::string_view text) {
  Lines lines(text);
  if (const std::string_view line = lines.next(); line != first_line)
    return line.starts_with("berth-shards ") ? damaged(1, "names a version that this build does not support")
                                             : damaged(1, "is not \"" + std::string(first_line) + "\"");
  const std::size_t check = text.rfind("\ncheck ");
  if (check == std::string_view::npos ||
      text.substr(check + 1) != "check " + checksum(text.substr(0, check + 1)) + "\n")
    return damaged(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')),
                   "is not the checksum of the lines before");

  const auto hash_text = lines.next("hash");
  if (!hash_text) return damaged(lines.number(), "does not name the hash");
  const Result<KeyHash> hash = key_hash_named(*hash_text);
  if (!hash) return hash.error();
  const auto count_text = lines.next("shards");
  const auto count = count_text ? number<std::uint32_t>(*count_text) : std::nullopt;
  if (!count || *count < 1 || *count > ShardSpace::count_max)
    return damaged(lines.number(), "does not give the number of shards");

  ShardTable table(ShardSpace(*count, *hash));
  const auto epoch_text = lines.next("epoch");
  const auto epoch = epoch_text ? number<std::uint64_t>(*epoch_text) : std::nullopt;
  if (!epoch) return damaged(lines.number(), "does not give the epoch");
  table.epoch_ = *epoch;
  while (lines.starts_with("owner ")) {
    std::string_view id = *lines.next("owner");
    const auto weight = number<std::uint32_t>(Lines::take(id, ' '));
    if (!weight || id.empty()) return damaged(lines.number(), "does not give an owner's weight and id");
    if (!table.owners_.empty() && table.owners_.back().id.text() >= id)
      return damaged(lines.number(), "is not in the order of the owners' ids");
    if (table.owners_.size() + 1 == unowned) return damaged(lines.number(), "names too many owners");
    table.owners_.push_back({DeviceId(std::string(id)), *weight});
  }

  auto map = lines.next("map");
  if (!map) return damaged(lines.number(), "does not give the shards");
  std::size_t filled = 0;
  while (!map->empty()) {
    std::string_view run = Lines::take(*map, ' ');
    const std::string_view slot_text = Lines::take(run, '*');
    const auto slot = slot_text == "-" ? std::optional(unowned) : number<std::uint16_t>(slot_text);
    const auto length = number<std::uint32_t>(run);
    if (!slot || !length || *length > table.slots_.size() - filled ||
        (*slot >= table.owners_.size() && slot_text != "-"))
      return damaged(lines.number(), "contains an impossible run of shards");
    std::fill_n(table.slots_.begin() + static_cast<std::ptrdiff_t>(filled), *length, *slot);
    filled += *length;
  }
  if (filled != table.slots_.size()) return damaged(lines.number(), "does not cover every shard");
  if (!lines.next("check") || !lines.empty()) return damaged(lines.number(), "is not expected");
  return table;
}

}  // namespace berth
