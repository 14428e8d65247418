#include "cli/request.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "berth/bytes.hpp"
#include "placement/nearest_name.hpp"

namespace berth::cli {
namespace {

Error wrong(std::string message, std::string advice) {
  return {ErrorCode::invalid_argument, std::move(message), std::move(advice), {}, {}};
}

Result<void> read_memory(const std::string& text, Hints& hints) {
  if (text.ends_with('%')) {
    double percent = 0;
    const char* end = text.data() + text.size() - 1;
    const auto [rest, error] = std::from_chars(text.data(), end, percent);
    if (error != std::errc() || rest != end || !(percent > 0 && percent <= 100))
      return wrong("\"" + text + "\" is not a share of a device's memory", "write more than 0% and at most 100%");
    hints.memory_share = percent / 100;
    return {};
  }
  const Result<std::uint64_t> bytes = parse_bytes(text);
  if (!bytes) return bytes.error();
  if (*bytes == 0)
    return wrong("no memory was asked for", "leave --mem out to have whole devices, or ask for more than 0");
  hints.memory_bytes_min = *bytes;
  return {};
}

std::optional<Priority> priority_named(std::string_view name) {
  for (const Priority priority : {Priority::low, Priority::normal, Priority::high}) {
    if (to_string(priority) == name) return priority;
  }
  return std::nullopt;
}

}  // namespace

Result<Wanted> read_request(const RequestArguments& arguments) {
  Wanted wanted;
  const Result<const Policy*> policy = policy_named(arguments.policy);
  if (!policy) return policy.error();
  wanted.policy = *policy;
  wanted.count = arguments.count;
  wanted.hints.exclusive = arguments.exclusive || arguments.memory.empty();
  if (!arguments.memory.empty()) {
    if (Result<void> read = read_memory(arguments.memory, wanted.hints); !read) return read.error();
  }
  if (!arguments.capability.empty()) {
    wanted.hints.capability_min = parse_capability(arguments.capability);
    if (!wanted.hints.capability_min)
      return wrong("\"" + arguments.capability + "\" is not a capability", "write it like 9.0");
  }
  const std::optional<Priority> priority = priority_named(arguments.priority);
  if (!priority) return wrong("there is no priority '" + arguments.priority + "'", "use low, normal or high");
  wanted.hints.priority = *priority;
  if (arguments.backend) {
    if (auto known = make_backend(*arguments.backend, arguments.backends); !known) return std::move(known).error();
    wanted.hints.backend = arguments.backend;
  }
  wanted.hints.features.insert(arguments.features.begin(), arguments.features.end());
  for (const std::string& label : arguments.labels) {
    const std::size_t equals = label.find('=');
    if (equals == std::string::npos || equals == 0)
      return wrong("\"" + label + "\" is not a label", "write it as name=value");
    wanted.hints.labels[label.substr(0, equals)] = label.substr(equals + 1);
  }
  return wanted;
}

Result<DeviceId> find_device(std::span<const SeenDevice> devices, const std::string& name) {
  std::vector<std::string_view> names;
  std::vector<const DeviceInfo*> begun;
  for (const SeenDevice& device : devices) {
    const DeviceInfo& info = device.info;
    if (info.id.text() == name || info.backend + ":" + std::to_string(info.ordinal) == name ||
        info.backend + ":" + info.id.text() == name)
      return info.id;
    names.push_back(info.id.text());
    if (!name.empty() && info.id.text().starts_with(name)) begun.push_back(&info);
  }
  if (begun.size() == 1) return begun.front()->id;
  if (begun.size() > 1)
    return wrong("'" + name + "' is the beginning of " + std::to_string(begun.size()) + " devices",
                 "write more of the id");
  const auto nearest = nearest_name(name, names);
  return Error{ErrorCode::not_found,
               "there is no device '" + name + "' on this machine",
               nearest ? "did you mean " + std::string(*nearest) + "?" : "berth devices lists them",
               {},
               {}};
}

Result<void> resolve_devices(const RequestArguments& arguments, const Sight& sight, Hints& hints) {
  const auto resolve = [&](const std::vector<std::string>& names, std::vector<DeviceId>& into) -> Result<void> {
    into.clear();
    for (const std::string& name : names) {
      Result<DeviceId> id = find_device(sight.devices, name);
      if (!id) return std::move(id).error();
      into.push_back(*std::move(id));
    }
    return {};
  };
  if (Result<void> done = resolve(arguments.only, hints.only); !done) return done;
  if (Result<void> done = resolve(arguments.avoid, hints.avoid); !done) return done;
  if (Result<void> done = resolve(arguments.prefer, hints.prefer); !done) return done;
  if (!arguments.near.empty()) {
    Result<DeviceId> id = find_device(sight.devices, arguments.near);
    if (!id) return std::move(id).error();
    hints.near = *std::move(id);
  }
  return {};
}

Result<Duration> parse_duration(const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string unit(rest, end);
  double seconds = 0;
  if (unit.empty() || unit == "s")
    seconds = number;
  else if (unit == "ms")
    seconds = number / 1000;
  else if (unit == "m")
    seconds = number * 60;
  else if (unit == "h")
    seconds = number * 3600;
  else
    seconds = -1;
  // A year is for ever.
  if (error != std::errc() || !(seconds >= 0) || seconds > 366.0 * 86400)
    return wrong("\"" + text + "\" is not a length of time", "write it like 90s, 5m or 2h");
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace berth::cli
