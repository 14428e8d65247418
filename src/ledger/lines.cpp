#include "ledger/lines.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>
#include <vector>

namespace berth::ledger {
namespace {

// Separators and non-printable bytes are written as %XX.
std::string encoded(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte > ' ' && byte < 0x7f && c != '%' && c != ',' && c != '=') {
      out += c;
    } else {
      out += '%';
      out += digits[byte >> 4];
      out += digits[byte & 15];
    }
  }
  return out;
}

std::optional<std::string> decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const auto byte = number(text.substr(i + 1, 2), 0xff, 16);
    if (!byte || text.size() - i < 3) return std::nullopt;
    out += static_cast<char>(*byte);
    i += 2;
  }
  return out;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

constexpr std::uint64_t time_max = ~std::uint64_t{0} >> 1;
std::uint64_t to_ns(TimePoint time) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, time.time_since_epoch().count()));
}
TimePoint to_time(std::uint64_t ns) { return TimePoint(Duration(static_cast<std::int64_t>(ns))); }

// A claim is written as device,domain,bytes,outside,exclusive; later versions may append parts.
std::optional<Claim> claim_of(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, ',');
  if (parts.size() < 3) return std::nullopt;
  const auto device = decoded(parts[0]), domain = decoded(parts[1]);
  const auto bytes = number(parts[2]);
  if (!device || device->empty() || !domain || domain->empty() || !bytes) return std::nullopt;
  Claim claim{DeviceId(*device), *domain, *bytes, 0, false};
  if (parts.size() > 3) claim.memory_bytes_outside = number(parts[3]).value_or(0);
  if (parts.size() > 4) claim.exclusive = parts[4] == "1";
  return claim;
}

std::string text_of(const Claim& claim) {
  return encoded(claim.device.text()) + "," + encoded(claim.memory_domain) + "," + std::to_string(claim.memory_bytes) +
         "," + std::to_string(claim.memory_bytes_outside) + "," + (claim.exclusive ? "1" : "0");
}

// A kind from a later version counts as a command.
EntryKind kind_of(std::string_view word) {
  for (const EntryKind kind : {EntryKind::pool, EntryKind::waiting}) {
    if (to_string(kind) == word) return kind;
  }
  return EntryKind::command;
}

std::optional<EntryLine> entry_of(const std::vector<std::string_view>& words) {
  if (words.size() < 3) return std::nullopt;
  const auto id = number(words[1], id_max);
  if (!id || *id == 0) return std::nullopt;
  EntryLine line;
  LedgerEntry& entry = line.entry;
  entry.reference.id = *id;
  entry.kind = kind_of(words[2]);
  for (std::size_t i = 3; i < words.size(); ++i) {
    const std::size_t at = words[i].find('=');
    if (at == std::string_view::npos) continue;
    const std::string_view key = words[i].substr(0, at), value = words[i].substr(at + 1);
    const auto whole = number(value, time_max);
    if (key == "pid" && whole) entry.holder.pid = static_cast<std::uint32_t>(*whole);
    if (key == "start" && whole) entry.holder.start_time = *whole;
    if (key == "pidns" && whole) entry.holder.pid_namespace = *whole;
    if (key == "since" && whole) entry.since = to_time(*whole);
    if (key == "loads" && whole) entry.loads_until = to_time(*whole);
    if (key == "priority" && whole) entry.priority = static_cast<Priority>(std::min<std::uint64_t>(*whole, 2));
    if (key == "count" && whole) entry.count = std::clamp<std::uint64_t>(*whole, 1, claims_max);
    if (key == "beat" && whole) line.heartbeat_slot = *whole;
    if (key == "within") entry.within = parse_lease(value);
    // `of` follows `within`.
    if (key == "of" && whole && entry.within) entry.within->user = static_cast<std::uint32_t>(*whole);
    if (key == "name") entry.name = decoded(value).value_or("");
    if (key == "cgroup") entry.cgroup = decoded(value).value_or("");
    if (key == "claim" && entry.claims.size() < claims_max) {
      const std::optional<Claim> claim = claim_of(value);
      // An incomplete promise would be worse than none, because other programs would rely on it.
      if (!claim) return std::nullopt;
      entry.claims.push_back(*claim);
    }
  }
  return line;
}

// The time after `key`; zero if there is none.
TimePoint time_of(const std::vector<std::string_view>& words, std::string_view key) {
  std::uint64_t ns = 0;
  for (const std::string_view word : words) {
    if (word.starts_with(key)) ns = number(word.substr(key.size()), time_max).value_or(0);
  }
  return to_time(ns);
}

std::optional<DeviceIntent> intent_of(const std::vector<std::string_view>& words) {
  if (words.size() < 3) return std::nullopt;
  const auto device = decoded(words[1]);
  if (!device || device->empty()) return std::nullopt;
  const Intent intent = words[2] == to_string(Intent::draining) ? Intent::draining : Intent::cordoned;
  return DeviceIntent{DeviceId(*device), intent, 0, time_of(words, "since=")};
}

std::optional<FileHistory> history_of(const std::vector<std::string_view>& words) {
  const auto id = words.size() < 2 ? std::nullopt : number(words[1], id_max);
  if (!id) return std::nullopt;
  return FileHistory{std::max<std::uint64_t>(*id, 1), time_of(words, "granted=")};
}

}  // namespace

std::optional<std::uint64_t> number(std::string_view text, std::uint64_t largest, int base) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size() || value > largest) return std::nullopt;
  return value;
}

std::string line_of(const EntryLine& line) {
  const LedgerEntry& entry = line.entry;
  std::string text = "lease " + std::to_string(entry.id()) + " " + std::string(to_string(entry.kind));
  const auto add = [&](std::string_view key, const std::string& value) {
    text += " ";
    text += key;
    text += "=" + value;
  };
  add("pid", std::to_string(entry.holder.pid));
  add("start", std::to_string(entry.holder.start_time));
  add("pidns", std::to_string(entry.holder.pid_namespace));
  add("since", std::to_string(to_ns(entry.since)));
  if (entry.loads_until) add("loads", std::to_string(to_ns(*entry.loads_until)));
  add("priority", std::to_string(static_cast<unsigned>(entry.priority)));
  if (entry.within) add("within", to_string(*entry.within));
  // Only root may nest in another user's lease, so only root's lines name the user.
  if (entry.within && entry.user == 0 && entry.within->user != 0) add("of", std::to_string(entry.within->user));
  if (!entry.cgroup.empty()) add("cgroup", encoded(entry.cgroup));
  if (entry.kind == EntryKind::waiting) {
    add("count", std::to_string(entry.count));
    add("beat", std::to_string(line.heartbeat_slot));
  }
  add("name", encoded(entry.name));
  for (const Claim& claim : entry.claims) add("claim", text_of(claim));
  return text + "\n";
}

std::string line_of(const DeviceIntent& intent) {
  return "intent " + encoded(intent.device.text()) + " " + std::string(to_string(intent.intent)) +
         " since=" + std::to_string(to_ns(intent.since)) + "\n";
}

std::string line_of(const FileHistory& history) {
  return "next " + std::to_string(history.next_id) + " granted=" + std::to_string(to_ns(history.last_grant)) + "\n";
}

std::optional<std::variant<EntryLine, DeviceIntent, FileHistory>> parse_line(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  const std::vector<std::string_view> words = split(text, ' ');
  if (words.front() == "lease") return entry_of(words);
  if (words.front() == "intent") return intent_of(words);
  if (words.front() == "next") return history_of(words);
  return std::nullopt;
}

}  // namespace berth::ledger
