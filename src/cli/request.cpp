#include "cli/request.hpp"

#include <algorithm>
#include <charconv>

#include "berth/bytes.hpp"
#include "cli/options.hpp"

namespace berth::cli {

using namespace machine;
namespace {

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
  if (*bytes == 0) return wrong("no memory was requested", "omit --mem to get whole devices, or request more than 0");
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
              "memory on each device, with its unit: 20G, 512M, 50%; by default whole devices, held exclusively");
  verb.option("-n,--devices", "N", &request.count, "number of devices, all or none; close to each other where possible",
              count);
  verb.option("--capability", "9.0", &request.capability,
              "use only devices with at least this compute capability or OpenCL version");
  add_backend_option(verb, request.backend, "use only this back end:");
  verb.option("--device", "DEVICE", &request.only,
              "use only these devices: an id, its beginning (GPU-454afa53 or 454afa53), cuda:0 or 0; separate several "
              "with commas");
  verb.option("--avoid", "DEVICE", &request.avoid, "do not use these devices");
  verb.option("--prefer", "DEVICE", &request.prefer, "prefer these devices");
  verb.option("--near", "DEVICE", &request.near, "prefer devices close to this one");
  for (const char* const option : {"--device", "--avoid", "--prefer", "--near"}) verb.offer(option, {Names::devices});
  verb.option("--feature", "NAME", &request.features, "use only devices with this feature; may be repeated");
  verb.option("--label", "NAME=VALUE", &request.labels, "use only devices with this label; may be repeated");
  verb.flag("--exclusive", request.exclusive,
            "use only devices without other leases, and allow none while this lease lasts");
  add_policy_option(verb, request.policy, "policy that chooses the device:");
  add_backend_options(verb, request.backends);
}

Result<DeviceRequest> read_request(const RequestArguments& arguments) {
  DeviceRequest wanted;
  if (const auto policy = policy_named(arguments.policy); !policy) return policy.error();
  wanted.policy = arguments.policy;
  wanted.only = arguments.only;
  wanted.avoid = arguments.avoid;
  wanted.prefer = arguments.prefer;
  wanted.near = arguments.near;
  wanted.backend = arguments.backend;
  wanted.backends = arguments.backends;
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

}  // namespace berth::cli
