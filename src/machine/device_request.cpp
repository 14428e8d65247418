#include "machine/device_request.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "placement/nearest_name.hpp"

namespace berth::machine {
namespace {

Error wrong(std::string message, std::string advice) {
  return {ErrorCode::invalid_argument, std::move(message), std::move(advice)};
}

// "6" means cuda:6, otherwise the only other device with that number. Absent if it is not a number, or no device has
// it.
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
  return wrong(std::to_string(named.size()) + " devices match the number " + name, "write " + candidates);
}

// Whether the name is the beginning of a UUID without "GPU-". Names shorter than four characters are probably a
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
  if (name.empty()) return wrong("the name of a device is empty", "see berth devices");
  std::vector<std::string_view> names;
  std::vector<const DeviceInfo*> begun;
  for (const ObservedDevice& device : devices) {
    const DeviceInfo& info = device.info;
    if (info.is_called(DeviceId(name)) || info.backend + ":" + std::to_string(info.ordinal) == name ||
        info.backend + ":" + info.id.text() == name)
      return info.id;
    names.push_back(info.id.text());
    if (info.id.text().starts_with(name) || is_short_id(info, name)) begun.push_back(&info);
  }
  if (std::optional<Result<DeviceId>> found = find_by_ordinal(devices, name)) return *std::move(found);
  if (begun.size() == 1) return begun.front()->id;
  if (begun.size() > 1)
    return wrong("'" + name + "' matches " + std::to_string(begun.size()) + " devices", "give more of the id");
  const auto nearest = placement::nearest_name(name, names);
  return Error{ErrorCode::not_found, "there is no device '" + name + "'" + where_searched(),
               nearest ? "did you mean " + std::string(*nearest) + "?" : "see berth devices"};
}

namespace {

Result<void> resolve_devices(const DeviceRequest& request, const MachineSnapshot& observed,
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
  if (Result<void> done = resolve(request.only, requirements.only); !done) return done;
  for (auto id = requirements.only.begin(); id != requirements.only.end(); ++id) {
    if (std::find(requirements.only.begin(), id, *id) != id)
      return wrong("--device names " + id->text() + " twice", "name each device once");
  }
  if (Result<void> done = resolve(request.avoid, requirements.avoid); !done) return done;
  if (Result<void> done = resolve(request.prefer, requirements.prefer); !done) return done;
  if (!request.near.empty()) {
    Result<DeviceId> id = find_device(observed.devices, request.near);
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
    return Error{ErrorCode::no_eligible_device,
                 "CUDA shows only one MIG slice to a process, so one command cannot use " +
                     std::to_string(wanted.count) + " of them",
                 "start a command for each slice, or name the slices with --device if it starts a process for each",
                 {},
                 {}};
  }
  wanted.requirements.avoid.insert(wanted.requirements.avoid.end(), slices.begin(), slices.end());
  return {};
}

}  // namespace

std::vector<std::string> DeviceRequest::names() const {
  std::vector<std::string> all = only;
  all.insert(all.end(), avoid.begin(), avoid.end());
  all.insert(all.end(), prefer.begin(), prefer.end());
  if (!near.empty()) all.push_back(near);
  return all;
}

Result<ReservationRequest> reservation_request(const DeviceRequest& request, const MachineSnapshot& observed) {
  const Result<const Policy*> policy = policy_named(request.policy);
  if (!policy) return policy.error();
  ReservationRequest wanted;
  wanted.requirements = request.requirements;
  wanted.count = request.count;
  wanted.policy = *policy;
  wanted.load_lock = request.load_lock;
  if (Result<void> resolved = resolve_devices(request, observed, wanted.requirements); !resolved)
    return std::move(resolved).error();
  if (Result<void> kept = keep_to_whole_gpus(observed, wanted); !kept) return std::move(kept).error();
  return wanted;
}

}  // namespace berth::machine
