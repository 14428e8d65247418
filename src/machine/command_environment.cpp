#include "machine/command_environment.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>
#include <vector>

#include "berth/bytes.hpp"

namespace berth::machine {
namespace {

bool is_slice(const DeviceInfo& device) { return device.id.text().starts_with("MIG-"); }

bool is_part(const DeviceInfo& device) { return device.features.contains("partition") && device.parent; }

const std::string& whole_of(const DeviceInfo& device) {
  return is_part(device) ? device.parent->text() : device.id.text();
}

// Whether NVIDIA's libraries hide the device unless CUDA_VISIBLE_DEVICES names it, even from OpenCL.
bool cuda_hides(const DeviceInfo& device) {
  return device.backend == "cuda" || (device.backend == "opencl" && device.id.text().starts_with("GPU-"));
}

void append(std::string& list, char separator, const std::string& item) {
  if (!list.empty()) list += separator;
  list += item;
}

// A GPU as the command sees it: parts of one GPU count as one, with the sum of bytes.
struct VisibleDevice {
  std::string id;
  bool cuda = false;
  std::uint64_t memory_bytes = 0;  // 0: all of it
  std::optional<std::uint64_t> memory_bytes_total;
};

// The visible devices, in the order of CUDA_VISIBLE_DEVICES.
std::vector<VisibleDevice> visible_devices(std::span<const Granted> granted) {
  std::vector<VisibleDevice> devices;
  for (const Granted& grant : granted) {
    const std::string& id = whole_of(grant.device);
    auto at = std::find_if(devices.begin(), devices.end(), [&](const VisibleDevice& seen) { return seen.id == id; });
    if (at == devices.end())
      at = devices.insert(at, {id, grant.device.backend == "cuda", 0, grant.device.memory_bytes_total});
    at->memory_bytes += grant.memory_bytes;
  }
  return devices;
}

// Rounded down, so that the share of the total is never more than the bytes.
std::string fraction_text(std::uint64_t bytes, std::uint64_t total) {
  __extension__ using u128 = unsigned __int128;
  const auto parts = static_cast<unsigned>(static_cast<u128>(std::min(bytes, total)) * 10'000 / total);
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%u.%04u", parts / 10'000, parts % 10'000);
  return text.data();
}

// The limits for MPS in MiB, by CUDA ordinal of the visible GPUs; at least 1, because 0 would mean no limit.
std::string mps_limits(std::span<const VisibleDevice> devices) {
  std::string limits;
  std::size_t ordinal = 0;
  for (const VisibleDevice& device : devices) {
    if (!device.cuda) continue;
    if (device.memory_bytes > 0) {
      append(
          limits, ',',
          std::to_string(ordinal) + "=" + std::to_string(std::max<std::uint64_t>(1, device.memory_bytes >> 20)) + "M");
    }
    ++ordinal;
  }
  return limits;
}

class Variables {
 public:
  Variables(const std::map<std::string, std::string>& present, CommandEnvironment& out)
      : present_(present), out_(out) {}
  const std::string* find(const std::string& name) const {
    const auto at = present_.find(name);
    return at == present_.end() ? nullptr : &at->second;
  }
  void set(const std::string& name, std::string value) { out_.variables[name] = std::move(value); }
  // Removes a variable that an enclosing `berth run` has set for other devices and another amount.
  void forget(const std::string& name) {
    if (find(name)) out_.removed.insert(name);
  }
  // Sets a variable unless the user has set it. `outer`: the value that an enclosing run has set.
  void suggest(const std::string& name, const std::string& value, const std::string* outer) {
    const std::string* const now = find(name);
    if (now && !now->empty() && !(outer && *now == *outer)) return;
    if (value.empty())
      forget(name);
    else
      set(name, value);
  }

 private:
  const std::map<std::string, std::string>& present_;
  CommandEnvironment& out_;
};

// PyTorch reads the second name, or the first if the second is not set. An empty
// `fraction` only removes what an enclosing run has added.
void set_pytorch(Variables& variables, const std::string& fraction, const std::string* outer) {
  static constexpr std::string_view key = "per_process_memory_fraction:";
  const std::array<std::string, 2> names{"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"};
  std::array<std::string, 2> values;
  bool changed = !fraction.empty();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (const std::string* const now = variables.find(names[i])) values[i] = *now;
    if (const std::string ours = outer ? std::string(key) + *outer : ""; outer && values[i].ends_with(ours)) {
      values[i].erase(values[i].size() - ours.size());
      if (values[i].ends_with(',')) values[i].pop_back();
      changed = true;
    }
    if (values[i].find(key) != std::string::npos) return;
  }
  if (!changed) return;
  if (values[1].empty() && !fraction.empty()) values[1] = values[0];
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!fraction.empty()) append(values[i], ',', std::string(key) + fraction);
    if (values[i].empty())
      variables.forget(names[i]);
    else
      variables.set(names[i], values[i]);
  }
}

}  // namespace

std::optional<Limit> limit_named(std::string_view name) noexcept {
  if (name == "none") return Limit::none;
  if (name == "watch") return Limit::watch;
  if (name == "framework") return Limit::framework;
  if (name == "mps") return Limit::mps;
  return std::nullopt;
}

std::map<std::string, std::string> visible_to(std::span<const Granted> granted, std::span<const DeviceInfo> all) {
  std::string ids, cuda, cuts;
  std::set<std::string> gpus, cut;
  for (const Granted& grant : granted) {
    const DeviceInfo& device = grant.device;
    append(ids, ',', device.id.text());
    const std::string& whole = whole_of(device);
    if (cuda_hides(device) && gpus.insert(whole).second) append(cuda, ',', whole);
    // The parts of a simulated device are defined in the file that describes it.
    if (!is_part(device) || device.backend == "simulated" || !cut.insert(whole).second) continue;
    // All parts of the GPU, so that the command numbers them in the same way.
    std::string units;
    for (const DeviceInfo& other : all) {
      if (other.parent == device.parent && other.compute_units)
        append(units, ',', std::to_string(*other.compute_units));
    }
    append(cuts, ';', device.backend + ":" + whole + "=" + units);
  }
  std::map<std::string, std::string> variables{
      {"BERTH_VISIBLE_DEVICES", ids}, {"CUDA_VISIBLE_DEVICES", cuda}, {"NVIDIA_VISIBLE_DEVICES", cuda}};
  // For containers an empty value means the default of the image.
  if (cuda.empty()) variables["NVIDIA_VISIBLE_DEVICES"] = "void";
  if (!cuts.empty()) variables["BERTH_PARTITION"] = cuts;
  return variables;
}

CommandEnvironment memory_variables(std::span<const Granted> granted, Limit limit, bool mps,
                                    const std::map<std::string, std::string>& present) {
  CommandEnvironment out;
  Variables variables(present, out);
  const std::vector<VisibleDevice> devices = visible_devices(granted);
  // The smallest amount of all devices, because one variable is valid for all.
  std::optional<std::uint64_t> least;
  std::string fraction;
  bool whole = false, cuda = false;
  for (const VisibleDevice& device : devices) {
    whole = whole || device.memory_bytes == 0;
    cuda = cuda || device.cuda;
    const std::optional<std::uint64_t> bytes =
        device.memory_bytes ? std::optional(device.memory_bytes) : device.memory_bytes_total;
    if (!bytes) continue;
    least = std::min(least.value_or(*bytes), *bytes);
    if (!device.memory_bytes_total || *device.memory_bytes_total == 0) continue;
    const std::string share = fraction_text(*bytes, *device.memory_bytes_total);
    if (fraction.empty() || share < fraction) fraction = share;
  }
  const std::string *const outer_bytes = variables.find("BERTH_MEMORY_BYTES"), *const outer_fraction = variables.find(
                                                                                   "BERTH_MEMORY_FRACTION");
  if (least)
    variables.set("BERTH_MEMORY_BYTES", std::to_string(*least));
  else
    variables.forget("BERTH_MEMORY_BYTES");
  if (!fraction.empty())
    variables.set("BERTH_MEMORY_FRACTION", fraction);
  else
    variables.forget("BERTH_MEMORY_FRACTION");

  // A whole device has no limit. Frameworks would read a share of 0 as "no limit".
  const bool is_limited = limit != Limit::none && cuda && !whole && least;
  const std::string share = is_limited && fraction != "0.0000" ? fraction : "";
  variables.suggest("XLA_PYTHON_CLIENT_MEM_FRACTION", share, outer_fraction);
  variables.suggest("CUPY_GPU_MEMORY_LIMIT", is_limited ? std::to_string(*least) : "", outer_bytes);
  set_pytorch(variables, limit == Limit::framework ? share : "", outer_fraction);
  const std::string limits = mps && limit != Limit::none ? mps_limits(devices) : "";
  if (!limits.empty())
    variables.set("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", limits);
  else if (outer_bytes)
    variables.forget("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
  return out;
}

std::string strength_of(const Granted& granted, Limit limit, bool mps) {
  const DeviceInfo& device = granted.device;
  if (is_slice(device)) {
    return "the hardware limits it to the slice's " +
           (device.memory_bytes_total ? bytes_text(*device.memory_bytes_total) : std::string("memory")) + " (MIG)";
  }
  const bool cuda = device.backend == "cuda";
  if (cuda && granted.memory_bytes > 0) {
    if (mps && limit != Limit::none) return "the driver enforces it for each process (MPS)";
    if (limit == Limit::watch) return "Berth ends the job after it has used more for ten seconds";
    if (limit == Limit::framework)
      return "PyTorch, JAX and CuPy enforce it for each process; other programs can use more";
  }
  if (is_part(device)) return "not enforced for programs that do not use Berth (partition)";
  return granted.memory_bytes > 0 ? "not enforced: the command can use more" : "";
}

}  // namespace berth::machine
