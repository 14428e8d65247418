#include "device/cuda/visible.hpp"

#include <algorithm>
#include <charconv>

namespace berth::cuda {
namespace {

constexpr std::string_view digits = "0123456789";
constexpr std::string_view uuid_characters = "0123456789abcdefABCDEF-";
constexpr std::size_t uuid_length = 36;
// Slurm sets this for a job without GPUs.
constexpr std::string_view none_of_slurm = "NoDevFiles";

Error malformed(std::string_view text, const std::string& what) {
  return {ErrorCode::invalid_argument, "CUDA_VISIBLE_DEVICES='" + std::string(text) + "' " + what,
          "list indices or UUIDs of nvidia-smi -L separated by commas, as in 0,1 or GPU-8f6a, or unset it"};
}

std::string_view trimmed(std::string_view item) {
  const auto first = item.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return item.substr(first, item.find_last_not_of(' ') - first + 1);
}

bool only(std::string_view text, std::string_view allowed) {
  return !text.empty() && text.find_first_not_of(allowed) == std::string_view::npos;
}

bool is_uuid(std::string_view item, std::string_view prefix) {
  if (!item.starts_with(prefix)) return false;
  item.remove_prefix(prefix.size());
  return item.size() <= uuid_length && only(item, uuid_characters);
}

// "MIG-<uuid>", or with older drivers "MIG-GPU-<uuid>/<instance>/<instance>".
bool is_slice(std::string_view item) {
  if (is_uuid(item, "MIG-")) return true;
  const auto slash = item.find('/');
  return slash != std::string_view::npos && is_uuid(item.substr(0, slash), "MIG-GPU-") &&
         only(item.substr(slash), "0123456789/");
}

// "007" and "7" name the same device.
std::string_view canonical(std::string_view item) {
  const auto first = item.find_first_not_of('0');
  if (!only(item, digits)) return item;
  return first == std::string_view::npos ? item.substr(0, 1) : item.substr(first);
}

}  // namespace

std::optional<Error> check_visible_devices(std::string_view text, std::optional<std::uint32_t> shown) {
  if (trimmed(text).empty() || text == none_of_slurm) return {};
  std::vector<std::string_view> named;
  bool slices = false;
  for (std::string_view rest = text;;) {
    const auto comma = rest.find(',');
    const std::string_view item = trimmed(rest.substr(0, comma));
    if (item == "-1") break;
    if (item.empty()) return malformed(text, "has an empty item");
    slices = slices || is_slice(item);
    if (!only(item, digits) && !is_uuid(item, "GPU-") && !is_slice(item)) {
      return malformed(text, "has '" + std::string(item) + "' where an index or a UUID is expected");
    }
    if (std::find(named.begin(), named.end(), canonical(item)) != named.end()) {
      return malformed(text, "names '" + std::string(item) + "' twice");
    }
    named.push_back(canonical(item));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  // If several slices are named, the driver uses only one of them.
  if (!shown || slices || *shown >= named.size()) return {};
  return malformed(text, "names '" + std::string(named[*shown]) + "', which the driver does not show");
}

bool hides_every_device(std::string_view text) {
  const std::string_view first = trimmed(text.substr(0, text.find(',')));
  return trimmed(text).empty() || text == none_of_slurm || first == "-1";
}

std::optional<std::vector<std::size_t>> visible_gpus(std::string_view text, std::span<const std::string> uuids,
                                                     bool in_order) {
  std::vector<std::size_t> shown;
  if (hides_every_device(text)) return shown;
  for (std::string_view rest = text;;) {
    const auto comma = rest.find(',');
    const std::string_view item = trimmed(rest.substr(0, comma));
    std::size_t index = uuids.size();
    if (only(item, digits)) {
      if (!in_order) return std::nullopt;
      const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), index);
      if (error != std::errc()) index = uuids.size();
    } else if (is_uuid(item, "GPU-")) {
      if (item.substr(4).find_first_of("ABCDEF") != std::string_view::npos) return std::nullopt;
      const auto matches = [&](const std::string& uuid) { return uuid.starts_with(item); };
      const auto found = std::find_if(uuids.begin(), uuids.end(), matches);
      if (std::count_if(uuids.begin(), uuids.end(), matches) == 1)
        index = static_cast<std::size_t>(found - uuids.begin());
    } else if (is_slice(item)) {
      return std::nullopt;
    }
    // The list ends at the first item that does not exist.
    if (index >= uuids.size()) return shown;
    if (std::find(shown.begin(), shown.end(), index) != shown.end()) return std::nullopt;
    shown.push_back(index);
    if (comma == std::string_view::npos) return shown;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace berth::cuda
