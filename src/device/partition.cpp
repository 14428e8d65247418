#include "device/partition.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <string>

namespace berth {
namespace {

Error refused(std::string message, std::string advice, std::string where = {}) {
  return {ErrorCode::invalid_argument, std::move(message), std::move(advice), std::move(where)};
}

// Absent if the text is not a number or the number is too large.
std::optional<std::uint32_t> whole_number(std::string_view text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return number;
}

struct Selector {
  std::string_view backend, device;
};
// Splits "cuda:0" at the first colon, because an id may contain colons.
Selector split(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return {};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

// The device with this id or ordinal.
std::optional<std::size_t> find(std::span<const DeviceInfo> devices, std::string_view wanted) {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].is_called(DeviceId(std::string(wanted)))) return i;
  }
  const std::optional<std::uint32_t> ordinal = whole_number(wanted);
  if (ordinal && *ordinal < devices.size()) return *ordinal;
  return {};
}

Result<void> check_sum(const DeviceInfo& whole, const PartitionRequest& request) {
  if (!whole.compute_units) {
    return refused("the device does not report its number of compute units", "do not cut it into parts",
                   whole.id.text());
  }
  std::uint64_t sum = 0;
  std::string sum_text;
  for (const std::uint32_t units : request.units) {
    if (units == 0) return refused("a part of '" + request.device + "' has no compute units", "give it one or more");
    sum += units;
    sum_text += (sum_text.empty() ? "" : " + ") + std::to_string(units);
  }
  if (sum <= *whole.compute_units) return {};
  if (request.units.size() > 1) sum_text += " = " + std::to_string(sum);
  return refused(sum_text + " compute units, but " + whole.id.text() + " has " + std::to_string(*whole.compute_units),
                 "ask for no more than the device has");
}

}  // namespace

Result<BackendOptions> with_environment(BackendOptions options) {
  const char* const simulated = std::getenv("BERTH_SIMULATED");
  if (simulated && options.simulated_file.empty()) options.simulated_file = simulated;
  const char* const variable = std::getenv("BERTH_PARTITION");
  if (!variable || !options.partitions.empty() || options.host_devices != 1) return options;
  for (std::string_view rest = variable; !rest.empty();) {
    const std::size_t end = std::min(rest.find(';'), rest.size());
    Result<PartitionRequest> request = parse_partition(rest.substr(0, end));
    if (!request) {
      Error error = std::move(request).error();
      error.message = "BERTH_PARTITION: " + error.message;
      return error;
    }
    options.partitions.push_back(*std::move(request));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return options;
}

Result<PartitionRequest> parse_partition(std::string_view text) {
  const std::string advice = "write it as in cuda:0=64,32,16,16";
  const std::string quoted = "the partition '" + std::string(text) + "' ";
  const std::size_t equals = text.rfind('=');
  if (equals == std::string_view::npos) return refused(quoted + "has no '='", advice);
  PartitionRequest request{std::string(text.substr(0, equals)), {}};
  if (request.device.find(':') == std::string::npos) {
    return refused(quoted + "does not name a back end and a device before the '='", advice);
  }
  const auto [backend, device] = split(request.device);
  if (device.empty()) return refused(quoted + "does not name a device after the ':'", advice);
  std::string known;
  bool is_known = false;
  for (const BackendEntry& entry : backend_list()) {
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
    is_known = is_known || entry.name == backend;
  }
  if (!is_known) {
    return refused(quoted + "names the back end '" + std::string(backend) + "', which is unknown",
                   "use one of " + known);
  }
  std::string_view rest = text.substr(equals + 1);
  for (;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    if (item.empty()) return refused(quoted + "has a part without a number of compute units", advice);
    const bool digits = item.find_first_not_of("0123456789") == std::string_view::npos;
    const std::optional<std::uint32_t> units = digits ? whole_number(item) : std::nullopt;
    if (!digits) return refused(quoted + "has '" + std::string(item) + "' where a whole number is expected", advice);
    if (!units)
      return refused(quoted + "asks for " + std::string(item) + " compute units, which no device has", advice);
    if (*units == 0) return refused(quoted + "has a part of zero compute units", "give each part one or more");
    if (request.units.size() == device::partition_parts_most) {
      return refused(quoted + "has more than " + std::to_string(device::partition_parts_most) + " parts",
                     "ask for fewer");
    }
    request.units.push_back(*units);
    if (comma == std::string_view::npos) return request;
    rest.remove_prefix(comma + 1);
  }
}

namespace device {

Result<std::vector<Part>> divide(std::string_view backend, std::string_view unit, std::span<const DeviceInfo> devices,
                                 std::span<const PartitionRequest> requests) {
  std::map<std::size_t, const PartitionRequest*> cuts;
  for (const PartitionRequest& request : requests) {
    const Selector selector = split(request.device);
    if (selector.backend != backend) continue;
    const std::optional<std::size_t> whole = find(devices, selector.device);
    if (!whole) {
      return refused("there is no device '" + request.device + "' to cut into parts",
                     std::string(backend) + " has " + std::to_string(devices.size()) +
                         " devices; see `berth devices` for their ids");
    }
    const DeviceInfo& info = devices[*whole];
    if (!cuts.emplace(*whole, &request).second) {
      return refused("the device is named by two partitions", "give one --partition with all of its parts",
                     info.id.text());
    }
    if (Result<void> adds_up = check_sum(info, request); !adds_up) return std::move(adds_up).error();
  }

  std::vector<Part> parts;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const auto cut = cuts.find(i);
    if (cut == cuts.end()) {
      parts.push_back({devices[i], i, {}, {}});
    } else {
      const DeviceInfo& whole = devices[i];
      const std::vector<std::uint32_t>& sizes = cut->second->units;
      for (std::size_t place = 0; place < sizes.size(); ++place) {
        const auto twins = std::count(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(place), sizes[place]);
        Part part{whole, i, place, sizes};
        const std::string suffix = "/" + std::string(unit) + std::to_string(sizes[place]) + "." + std::to_string(twins);
        part.info.id = DeviceId(whole.id.text() + suffix);
        if (whole.former_id) part.info.former_id = DeviceId(whole.former_id->text() + suffix);
        part.info.parent = whole.id;
        part.info.compute_units = sizes[place];
        part.info.features.insert("partition");
        parts.push_back(std::move(part));
      }
    }
  }
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].info.ordinal = static_cast<int>(i);
  return parts;
}

}  // namespace device

}  // namespace berth
