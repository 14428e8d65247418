#include "cli/request.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "berth/bytes.hpp"
#include "cli/options.hpp"
#include "placement/nearest_name.hpp"

namespace berth::cli {
namespace {

Error wrong(std::string message, std::string advice) {
  return {ErrorCode::invalid_argument, std::move(message), std::move(advice)};
}

Result<void> read_memory(const std::string& text, Requirements& requirements) {
  if (text.ends_with('%')) {
    double percent = 0;
    const char* end = text.data() + text.size() - 1;
    const auto [rest, error] = std::from_chars(text.data(), end, percent);
    if (error != std::errc() || rest != end || !(percent > 0 && percent <= 100))
      return wrong("\"" + text + "\" is not a share of a device's memory", "write more than 0% and at most 100%");
    requirements.memory_share = percent / 100;
    return {};
  }
  const Result<std::uint64_t> bytes = parse_amount(text);
  if (!bytes) return bytes.error();
  if (*bytes == 0)
    return wrong("no memory was asked for", "leave --mem out to have whole devices, or ask for more than 0");
  requirements.memory_bytes_min = *bytes;
  return {};
}

std::optional<Priority> priority_named(std::string_view name) {
  for (const Priority priority : {Priority::low, Priority::normal, Priority::high}) {
    if (to_string(priority) == name) return priority;
  }
  return std::nullopt;
}

}  // namespace

void add_request_options(Verb& verb, RequestArguments& request) {
  OptionRules count;
  count.range = {1, 4096};
  verb.option("--mem", "AMOUNT", &request.memory,
              "memory on each device, with its unit: 20G, 512M, 50%; without it, whole devices, held exclusively");
  verb.option("-n,--devices", "N", &request.count, "how many devices, all or none; close to each other where possible",
              count);
  verb.option("--capability", "9.0", &request.capability, "at least this compute capability or OpenCL version");
  verb.option("--backend", "NAME", &request.backend, "only this back end: cuda, opencl, host or simulated");
  verb.option("--device", "DEVICE", &request.only,
              "only these: an id, its beginning (GPU-454afa53 or 454afa53), cuda:0 or 0; several with commas");
  verb.option("--avoid", "DEVICE", &request.avoid, "not these");
  verb.option("--prefer", "DEVICE", &request.prefer, "these first, where they fit");
  verb.option("--near", "DEVICE", &request.near, "as close to this device as possible");
  verb.option("--feature", "NAME", &request.features, "only devices with this feature; may be repeated");
  verb.option("--label", "NAME=VALUE", &request.labels, "only devices with this label; may be repeated");
  verb.flag("--exclusive", request.exclusive, "only devices that no other lease holds, and no other lease after that");
  add_policy_option(verb, request.policy, "how a device is chosen:");
  add_backend_options(verb, request.backends);
}

Result<ReservationRequest> read_request(const RequestArguments& arguments) {
  ReservationRequest wanted;
  const Result<const Policy*> policy = policy_named(arguments.policy);
  if (!policy) return policy.error();
  wanted.policy = *policy;
  wanted.count = arguments.count;
  // Without an amount the request is for whole devices.
  wanted.requirements.whole = arguments.memory.empty();
  wanted.requirements.exclusive = arguments.exclusive || wanted.requirements.whole;
  if (!arguments.memory.empty()) {
    if (Result<void> read = read_memory(arguments.memory, wanted.requirements); !read) return read.error();
  }
  if (!arguments.capability.empty()) {
    wanted.requirements.capability_min = parse_capability(arguments.capability);
    if (!wanted.requirements.capability_min)
      return wrong("\"" + arguments.capability + "\" is not a capability", "write it like 9.0");
  }
  const std::optional<Priority> priority = priority_named(arguments.priority);
  if (!priority) return wrong("there is no priority '" + arguments.priority + "'", "use low, normal or high");
  wanted.requirements.priority = *priority;
  if (arguments.backend) {
    if (auto known = make_backend(*arguments.backend, arguments.backends); !known) return std::move(known).error();
    wanted.requirements.backends = {*arguments.backend};
  }
  wanted.requirements.features.insert(arguments.features.begin(), arguments.features.end());
  for (const std::string& label : arguments.labels) {
    const std::size_t equals = label.find('=');
    if (equals == std::string::npos || equals == 0)
      return wrong("\"" + label + "\" is not a label", "write it as name=value");
    wanted.requirements.labels[label.substr(0, equals)] = label.substr(equals + 1);
  }
  return wanted;
}

namespace {

// "6" is a CUDA device, or else that of the only back end with such a number. Absent: it
// is not a number, or no device has it.
std::optional<Result<DeviceId>> find_by_ordinal(std::span<const ObservedDevice> devices, const std::string& name) {
  int ordinal = -1;
  const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), ordinal);
  if (error != std::errc() || rest != name.data() + name.size() || ordinal < 0) return std::nullopt;
  std::vector<std::string> named;
  const DeviceInfo* last = nullptr;
  for (const ObservedDevice& device : devices) {
    if (device.info.ordinal != ordinal) continue;
    if (device.info.backend == "cuda") return device.info.id;
    last = &device.info;
    named.push_back(last->backend + ":" + name);
  }
  if (named.empty()) return std::nullopt;
  if (named.size() == 1) return last->id;
  std::string candidates = named.front();
  for (std::size_t i = 1; i < named.size(); ++i) candidates += (i + 1 == named.size() ? " or " : ", ") + named[i];
  return wrong(std::to_string(named.size()) + " devices have the number " + name, "write " + candidates);
}

// The beginning of a UUID without "GPU-". Fewer than four characters are probably a
// mistake.
bool is_short_id(const DeviceInfo& info, const std::string& name) {
  const std::string& id = info.id.text();
  return name.size() >= 4 && (id.starts_with("GPU-") || id.starts_with("MIG-")) &&
         std::string_view(id).substr(4).starts_with(name);
}

// " on this machine", or the variables that restrict the devices.
std::string where_searched() {
  std::string hiding;
  std::size_t count = 0;
  for (const char* const name : {"BERTH_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}) {
    if (std::getenv(name)) hiding += (count++ > 0 ? " and " : "") + std::string(name);
  }
  if (count == 0) return " on this machine";
  return " among those that " + hiding + (count > 1 ? " show" : " shows");
}

}  // namespace

Result<DeviceId> find_device(std::span<const ObservedDevice> devices, const std::string& name) {
  if (name.empty()) return wrong("the name of a device is empty", "berth devices lists them");
  std::vector<std::string_view> names;
  std::vector<const DeviceInfo*> begun;
  for (const ObservedDevice& device : devices) {
    const DeviceInfo& info = device.info;
    if (info.id.text() == name || info.backend + ":" + std::to_string(info.ordinal) == name ||
        info.backend + ":" + info.id.text() == name)
      return info.id;
    names.push_back(info.id.text());
    if (info.id.text().starts_with(name) || is_short_id(info, name)) begun.push_back(&info);
  }
  if (std::optional<Result<DeviceId>> found = find_by_ordinal(devices, name)) return *std::move(found);
  if (begun.size() == 1) return begun.front()->id;
  if (begun.size() > 1)
    return wrong("'" + name + "' is the beginning of " + std::to_string(begun.size()) + " devices",
                 "write more of the id");
  const auto nearest = placement::nearest_name(name, names);
  return Error{ErrorCode::not_found, "there is no device '" + name + "'" + where_searched(),
               nearest ? "did you mean " + std::string(*nearest) + "?" : "berth devices lists them"};
}

Result<void> resolve_devices(const RequestArguments& arguments, const MachineSnapshot& observed,
                             Requirements& requirements) {
  const auto resolve = [&](const std::vector<std::string>& names, std::vector<DeviceId>& into) -> Result<void> {
    into.clear();
    for (std::string_view rest : names) {
      for (bool more = true; more;) {
        const std::size_t comma = rest.find(',');
        Result<DeviceId> id = find_device(observed.devices, std::string(rest.substr(0, comma)));
        if (!id) return std::move(id).error();
        into.push_back(*std::move(id));
        more = comma != std::string_view::npos;
        if (more) rest.remove_prefix(comma + 1);
      }
    }
    return {};
  };
  if (Result<void> done = resolve(arguments.only, requirements.only); !done) return done;
  for (auto id = requirements.only.begin(); id != requirements.only.end(); ++id) {
    if (std::find(requirements.only.begin(), id, *id) != id)
      return wrong("--device names " + id->text() + " twice", "name each device once");
  }
  if (Result<void> done = resolve(arguments.avoid, requirements.avoid); !done) return done;
  if (Result<void> done = resolve(arguments.prefer, requirements.prefer); !done) return done;
  if (!arguments.near.empty()) {
    Result<DeviceId> id = find_device(observed.devices, arguments.near);
    if (!id) return std::move(id).error();
    requirements.near = *std::move(id);
  }
  return {};
}

Result<void> keep_to_whole_gpus(const MachineSnapshot& observed, ReservationRequest& wanted) {
  if (wanted.count < 2 || !wanted.requirements.only.empty()) return {};
  std::size_t others = 0;
  std::vector<DeviceId> slices;
  for (const ObservedDevice& device : observed.devices) {
    if (device.info.id.text().starts_with("MIG-"))
      slices.push_back(device.info.id);
    else
      ++others;
  }
  if (!slices.empty() && others < wanted.count) {
    return Error{
        ErrorCode::no_eligible_device,
        "CUDA shows one MIG slice to a process, so a command cannot use " + std::to_string(wanted.count) + " of them",
        "start a command for each slice, or name the slices with --device if it starts a process for each",
        {},
        {}};
  }
  wanted.requirements.avoid.insert(wanted.requirements.avoid.end(), slices.begin(), slices.end());
  return {};
}

Result<Duration> parse_duration(const std::string& text) {
  const char* const advice = "write it like 90s, 5m, 2h or 1d, at most 366d";
  if (text.empty()) return wrong("a length of time is empty", advice);
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string unit(rest, end);
  double seconds = -1;
  if (unit == "s" || unit.empty())
    seconds = number;
  else if (unit == "ms")
    seconds = number / 1000;
  else if (unit == "m")
    seconds = number * 60;
  else if (unit == "h")
    seconds = number * 3600;
  else if (unit == "d")
    seconds = number * 86400;
  if (error != std::errc() || !(seconds >= 0) || seconds > 366.0 * 86400)
    return wrong("\"" + text + "\" is not a length of time", advice);
  if (unit.empty() && number > 0)
    return wrong("\"" + text + "\" is a length of time without a unit", "did you mean " + text + "s?");
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

std::string duration_text(Duration duration) {
  const auto milliseconds = duration / std::chrono::milliseconds(1);
  if (milliseconds < 1000) return std::to_string(milliseconds) + " ms";
  const auto seconds = milliseconds / 1000;
  if (seconds < 120) return std::to_string(seconds) + " s";
  if (seconds < 7200) return std::to_string(seconds / 60) + " min";
  return std::to_string(seconds / 3600) + " h " + std::to_string(seconds / 60 % 60) + " min";
}

}  // namespace berth::cli
