#include "gateway/request_id.hpp"

#include <algorithm>

#include "fleet/requests.hpp"

namespace berth::gateway {
namespace {

std::string digits(std::uint64_t number) {
  std::string text(16, '0');
  for (std::size_t i = text.size(); i-- > 0; number >>= 4) text[i] = "0123456789abcdef"[number & 15];
  return text;
}

bool is_plain(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '-';
}

bool is_hexadecimal(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_all_zero(std::string_view text) { return text.find_first_not_of('0') == text.npos; }

// Never 0, which is not valid.
std::string random_digits(Random& random) { return digits(std::max<std::uint64_t>(random.next(), 1)); }

// "00-", the trace (32 digits), "-", the parent (16), "-", flags (2). A later version may append more.
bool is_valid(std::string_view text) {
  if (text.size() < 55 || text[2] != '-' || text[35] != '-' || text[52] != '-') return false;
  const std::string_view version = text.substr(0, 2), trace = text.substr(3, 32), parent = text.substr(36, 16);
  if (!is_hexadecimal(version) || version == "ff" || !is_hexadecimal(text.substr(53, 2))) return false;
  if (version == "00" ? text.size() != 55 : text.size() > 55 && text[55] != '-') return false;
  return is_hexadecimal(trace) && is_hexadecimal(parent) && !is_all_zero(trace) && !is_all_zero(parent);
}

}  // namespace

std::string request_id(std::optional<std::string_view> given, Random& random) {
  if (given && !given->empty() && given->size() <= fleet::request_id_bytes_max &&
      std::all_of(given->begin(), given->end(), is_plain))
    return std::string(*given);
  return digits(random.next());
}

TraceParent trace_parent(std::optional<std::string_view> given, Random& random) {
  const bool is_new = !given || !is_valid(*given);
  // A later version is forwarded as the version known here.
  const std::string trace = is_new ? random_digits(random) + digits(random.next()) : std::string(given->substr(3, 32));
  const std::string flags = is_new ? "00" : std::string(given->substr(53, 2));
  return {"00-" + trace + "-" + random_digits(random) + "-" + flags, is_new};
}

}  // namespace berth::gateway
