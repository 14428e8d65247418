#include "inventory/short_id.hpp"

#include <algorithm>

namespace berth::inventory {
namespace {

constexpr std::size_t shortest = 12;  // "GPU-" and eight digits
constexpr std::size_t uuid_length = 40;

bool is_digit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// "GPU-ea3b8f50-1234-...", or a part of such a device: a word, 36 characters of digits
// and dashes, and possibly the name of the part.
bool begins_with_uuid(std::string_view id) {
  return id.size() >= uuid_length && id[3] == '-' && (id.size() == uuid_length || id[uuid_length] == '/') &&
         std::all_of(id.begin() + 4, id.begin() + uuid_length, [](char c) { return is_digit(c) || c == '-'; });
}

std::string_view uuid_of(std::string_view id) { return id.substr(0, uuid_length); }

}  // namespace

std::string short_id(const DeviceId& id, std::span<const DeviceId> all) {
  if (!begins_with_uuid(id.text())) return id.text();
  const std::string_view uuid = uuid_of(id.text());
  std::size_t length = shortest;
  for (const DeviceId& other : all) {
    const std::string_view theirs =
        begins_with_uuid(other.text()) ? uuid_of(other.text()) : std::string_view(other.text());
    if (theirs == uuid) continue;
    const auto differ = std::mismatch(uuid.begin(), uuid.end(), theirs.begin(), theirs.end());
    length = std::max(length, static_cast<std::size_t>(differ.first - uuid.begin()) + 1);
  }
  return std::string(uuid.substr(0, length)) + id.text().substr(uuid_length);
}

std::vector<std::string> short_ids(std::span<const DeviceId> ids) {
  std::vector<std::string> out;
  for (const DeviceId& id : ids) out.push_back(short_id(id, ids));
  return out;
}

std::string with_short_ids(std::string text, std::span<const DeviceId> ids) {
  for (const DeviceId& id : ids) {
    if (!begins_with_uuid(id.text())) continue;
    // Only the id of the device is replaced; the name of the part follows it.
    const std::string whole(uuid_of(id.text()));
    const std::string brief = short_id(DeviceId(whole), ids);
    for (std::size_t at = 0; (at = text.find(whole, at)) != std::string::npos; at += brief.size())
      text.replace(at, whole.size(), brief);
  }
  return text;
}

std::string with_short_ids(std::string text) {
  constexpr std::size_t id_size = 40;  // "GPU-" and a UUID
  std::vector<DeviceId> ids;
  for (std::size_t at = text.find("GPU-"); at != std::string::npos; at = text.find("GPU-", at + 1)) {
    const std::string word = text.substr(at, text.find_first_not_of("GPU-0123456789abcdef", at) - at);
    if (word.size() == id_size) ids.emplace_back(word);
  }
  return with_short_ids(std::move(text), ids);
}

}  // namespace berth::inventory
