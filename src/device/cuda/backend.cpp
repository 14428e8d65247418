// NVIDIA GPUs through the driver API: listing, cutting into parts and opening. An opened
// device is a CudaDevice (cuda/device.hpp) with a CudaContext.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>

#include "device/backends.hpp"
#include "device/cuda/attributes.hpp"
#include "device/cuda/device.hpp"
#include "device/cuda/list.hpp"
#include "device/cuda/nvml.hpp"
#include "device/cuda/nvml_links.hpp"
#include "device/cuda/nvml_list.hpp"
#include "device/cuda/partition.hpp"
#include "device/cuda/start.hpp"
#include "device/partition.hpp"

namespace berth {
namespace cuda {
namespace {

// One GPU split into equal groups, and how many of them each part gets.
struct Cut {
  std::vector<Resource> groups;
  SmSplit split;

  std::vector<Resource> groups_of(std::size_t place) const {
    const auto before = split.groups.begin() + static_cast<std::ptrdiff_t>(place);
    const auto first = groups.begin() + std::accumulate(split.groups.begin(), before, std::ptrdiff_t{0});
    return {first, first + *before};
  }
};

Error cannot_cut(const DeviceInfo& gpu, std::string message, std::string advice) {
  return {ErrorCode::not_supported, std::move(message), std::move(advice), gpu.id.text()};
}

// Only computes the split; the driver allocates nothing until a context is created from it.
Result<Cut> cut_gpu(const Driver& driver, DeviceNumber number, const DeviceInfo& gpu,
                    std::span<const std::uint32_t> parts) {
  if (gpu.parent) {
    return cannot_cut(gpu, "a MIG slice cannot be cut into parts", "make smaller slices with nvidia-smi mig");
  }
  if (driver.cuDeviceGetDevResource == nullptr || driver.cuDevSmResourceSplitByCount == nullptr ||
      driver.cuDevResourceGenerateDesc == nullptr || driver.cuGreenCtxCreate == nullptr ||
      driver.cuGreenCtxDestroy == nullptr || driver.cuCtxFromGreenCtx == nullptr ||
      driver.cuGreenCtxStreamCreate == nullptr) {
    return cannot_cut(gpu, "the NVIDIA driver is too old to cut a GPU into parts",
                      "update it to release 555 (CUDA 12.5) or later, or leave the GPU whole");
  }
  Resource all;
  if (const Code code = driver.cuDeviceGetDevResource(number, &all, resource_sm); code != code_success) {
    return error_of(code, "reading the SMs of the GPU", gpu.id.text());
  }
  SmLimits limits = usual_limits(all.sm.count, gpu.capability.value_or(Capability{}));
  if (all.sm.part_min != 0 && all.sm.alignment != 0) {
    limits.least = all.sm.part_min;
    limits.step = all.sm.alignment;
  }
  Result<SmSplit> split = plan_split(gpu.id, limits, parts, [&](std::uint32_t size) {
    unsigned groups = 0;
    const Code code = driver.cuDevSmResourceSplitByCount(nullptr, &groups, &all, nullptr, 0, size);
    return code == code_success ? groups : 0;
  });
  if (!split) return std::move(split).error();
  const unsigned wanted = std::accumulate(split->groups.begin(), split->groups.end(), 0U);
  unsigned made = wanted;
  Cut cut{std::vector<Resource>(wanted), *std::move(split)};
  const Code code = driver.cuDevSmResourceSplitByCount(cut.groups.data(), &made, &all, nullptr, 0, cut.split.group_sms);
  if (code != code_success) return error_of(code, "splitting the SMs into groups", gpu.id.text());
  for (const Resource& group : cut.groups) {
    if (made == wanted && group.sm.count == cut.split.group_sms) continue;
    return cannot_cut(gpu,
                      "the driver made " + std::to_string(made) + " groups of " + std::to_string(group.sm.count) +
                          " SMs instead of " + std::to_string(wanted) + " of " + std::to_string(cut.split.group_sms),
                      "ask for parts of another size");
  }
  return cut;
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const BackendOptions& options)
      : requests_(options.partitions),
        // Cutting a GPU needs CUDA; NVML alone does not suffice.
        starts_to_list_(options.listing_starts_driver || std::any_of(requests_.begin(), requests_.end(),
                                                                     [](const PartitionRequest& request) {
                                                                       return request.device.starts_with("cuda:");
                                                                     })),
        clock_(options.clock != nullptr ? *options.clock : real_clock()) {}
  std::string_view name() const noexcept override { return "cuda"; }

  Result<std::vector<DeviceInfo>> list() override {
    if (!starts_to_list_) {
      if (std::optional<Result<std::vector<DeviceInfo>>> listed = list_without_starting()) return *std::move(listed);
    }
    Result<Found> found = look();
    if (!found) return std::move(found).error();
    std::vector<DeviceInfo> infos;
    for (device::Part& part : found->parts) infos.push_back(std::move(part.info));
    for (DeviceInfo& slice : unseen_slices(infos)) infos.push_back(std::move(slice));
    return infos;
  }

  Result<std::shared_ptr<Device>> open(const DeviceId& id) override {
    Result<Found> found = look();
    if (!found) return std::move(found).error();
    bool is_cut = false;
    for (device::Part& part : found->parts) {
      is_cut = is_cut || (part.place && part.info.parent == id);
      if (part.info.id != id) continue;
      std::vector<Resource> groups;
      if (part.place) groups = found->cuts.at(part.whole).groups_of(*part.place);
      Result<std::shared_ptr<CudaContext>> context = CudaContext::open(*found->driver, found->numbers[part.whole],
                                                                       std::move(part.info), clock_, std::move(groups));
      if (!context) return std::move(context).error();
      return std::shared_ptr<Device>(std::make_shared<CudaDevice>(*std::move(context)));
    }
    for (const DeviceInfo& slice : unseen_slices({})) {
      if (slice.id != id) continue;
      return Error{ErrorCode::not_supported, "CUDA shows only one MIG slice to a process, and this process has another",
                   "start the program with CUDA_VISIBLE_DEVICES=" + id.text(), id.text()};
    }
    return Error{ErrorCode::not_found,
                 is_cut ? "the device is cut into parts" : "there is no CUDA device called '" + id.text() + "'",
                 is_cut ? "open its parts, or remove the partition"
                        : "see `berth devices` for the ids; CUDA_VISIBLE_DEVICES may hide some",
                 id.text()};
  }

  Result<Telemetry> observe(const DeviceId& id) override {
    std::shared_ptr<nvml::Watch> watch;
    {
      const std::lock_guard lock(mutex_);
      std::shared_ptr<nvml::Watch>& known = watches_[id];
      if (!known) known = std::make_shared<nvml::Watch>(id, clock_);
      watch = known;
    }
    Result<Telemetry> seen = watch->observe();
    const bool no_nvml = !seen && (seen.error().code == ErrorCode::not_initialized ||  //
                                   seen.error().code == ErrorCode::not_found);
    return no_nvml ? Backend::observe(id) : seen;
  }

  Result<std::vector<Link>> links() override {
    Result<std::vector<DeviceInfo>> infos = list();
    if (!infos) return std::move(infos).error();
    std::vector<DeviceId> ids;
    for (const DeviceInfo& info : *infos) ids.push_back(info.id);
    Result<std::vector<Link>> links = nvml::links(ids);
    // Without NVML, links are not known.
    if (!links) return std::vector<Link>{};
    const bool complete =
        std::all_of(links->begin(), links->end(), [](const Link& link) { return link.peer_access.has_value(); });
    if (!starts_to_list_ && complete) return links;
    Result<Found> found = look();
    if (!found) return std::move(found).error();
    std::map<DeviceId, DeviceNumber> numbers;
    for (const device::Part& part : found->parts) numbers[part.info.id] = found->numbers[part.whole];
    for (Link& link : *links) {
      const auto a = numbers.find(link.a), b = numbers.find(link.b);
      if (a == numbers.end() || b == numbers.end()) continue;
      link.peer_access = a->second == b->second ? true : reaches(*found->driver, a->second, b->second);
    }
    return links;
  }

 private:
  // Whether each GPU can read the other's memory.
  static std::optional<bool> reaches(const Driver& driver, DeviceNumber a, DeviceNumber b) {
    int there = 0, back = 0;
    if (driver.cuDeviceCanAccessPeer(&there, a, b) != code_success ||
        driver.cuDeviceCanAccessPeer(&back, b, a) != code_success)
      return std::nullopt;
    return there != 0 && back != 0;
  }

  // MIG slices of this machine that CUDA does not list; none if CUDA_VISIBLE_DEVICES selects devices.
  static std::vector<DeviceInfo> unseen_slices(std::span<const DeviceInfo> seen) {
    std::vector<DeviceInfo> unseen;
    if (std::getenv("CUDA_VISIBLE_DEVICES") != nullptr) return unseen;
    int ordinal = 0;
    for (const DeviceInfo& info : seen) ordinal = std::max(ordinal, info.ordinal + 1);
    for (DeviceInfo& slice : nvml::slices()) {
      if (std::any_of(seen.begin(), seen.end(), [&](const DeviceInfo& info) { return info.id == slice.id; })) continue;
      slice.ordinal = ordinal++;
      unseen.push_back(std::move(slice));
    }
    return unseen;
  }

  struct Found {
    const Driver* driver = nullptr;
    std::vector<DeviceNumber> numbers;  // of the whole devices
    std::vector<device::Part> parts;
    std::map<std::size_t, Cut> cuts;  // by the position of the whole device
  };

  // Lists the devices as they are now, and cuts them.
  Result<Found> look() {
    Result<StartedDriver> started = start();
    if (!started) return std::move(started).error();
    Found found;
    found.driver = started->driver;
    std::vector<DeviceInfo> wholes;
    for (int ordinal = 0; ordinal < started->devices; ++ordinal) {
      DeviceNumber number = 0;
      // A device that cannot be opened must not hide the others.
      if (found.driver->cuDeviceGet(&number, ordinal) != code_success) continue;
      found.numbers.push_back(number);
      wholes.push_back(describe(*found.driver, number, ordinal));
    }
    Result<std::vector<device::Part>> parts = device::divide("cuda", "sm", wholes, requests_);
    if (!parts) return std::move(parts).error();
    found.parts = *std::move(parts);
    std::map<std::size_t, std::vector<std::uint32_t>> sizes;
    for (const device::Part& part : found.parts) {
      if (part.place) sizes[part.whole].push_back(*part.info.compute_units);
    }
    for (const auto& [whole, units] : sizes) {
      Result<Cut> cut = cut_once(*found.driver, found.numbers[whole], wholes[whole], units);
      if (!cut) return std::move(cut).error();
      found.cuts.emplace(whole, *std::move(cut));
    }
    return found;
  }

  // Cuts a GPU only once, because parts are disjoint only if their groups come from the same split.
  Result<Cut> cut_once(const Driver& driver, DeviceNumber number, const DeviceInfo& gpu,
                       std::span<const std::uint32_t> parts) {
    const std::lock_guard lock(mutex_);
    const auto known = cuts_.find(gpu.id);
    if (known != cuts_.end()) return known->second;
    Result<Cut> cut = cut_gpu(driver, number, gpu, parts);
    if (cut) cuts_.emplace(gpu.id, *cut);
    return cut;
  }

  const std::vector<PartitionRequest> requests_;
  const bool starts_to_list_;
  Clock& clock_;
  std::mutex mutex_;  // guards everything below
  std::map<DeviceId, Cut> cuts_;
  std::map<DeviceId, std::shared_ptr<nvml::Watch>> watches_;  // kept for observe(), so that each event is reported once
};

}  // namespace
}  // namespace cuda

std::unique_ptr<Backend> device::make_cuda_backend(const BackendOptions& options) {
  return std::make_unique<cuda::CudaBackend>(options);
}

}  // namespace berth
