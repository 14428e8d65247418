#include "machine/find_machine.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "device/opencl/pocl_devices.hpp"
#include "device/query.hpp"
#include "machine/accelerator.hpp"

namespace berth::machine {
namespace {

// Whether the command line names the back end, so that its absence must be reported.
bool is_named(const std::string& backend, const BackendOptions& options) {
  return std::any_of(options.partitions.begin(), options.partitions.end(),
                     [&](const PartitionRequest& request) { return request.device.starts_with(backend + ":"); });
}

bool has_accelerator(std::span<const DeviceInfo> devices) {
  return std::any_of(devices.begin(), devices.end(), [](const DeviceInfo& info) { return !info.is_fallback; });
}

// The libraries that the OpenCL loader would load. Empty if there are none or they cannot be determined.
std::vector<std::string> opencl_libraries() {
  if (std::getenv("OPENCL_VENDOR_PATH") != nullptr) return {};
  const char* const folder = std::getenv("OCL_ICD_VENDORS");
  std::vector<std::string> libraries = libraries_in(folder != nullptr ? folder : "/etc/OpenCL/vendors");
  if (const char* const named = std::getenv("OCL_ICD_FILENAMES")) {
    std::istringstream names(named);
    for (std::string name; std::getline(names, name, ':');) libraries.push_back(name);
  }
  return libraries;
}

// Queries OpenCL last, or not at all if it cannot add anything.
std::vector<BackendAnswer> ask(const Backends& backends, const MachineRequest& request) {
  const auto is_opencl = [](const std::shared_ptr<Backend>& backend) { return backend->name() == "opencl"; };
  const bool named =
      is_named("opencl", request.options) || std::any_of(request.names.begin(), request.names.end(), may_be_opencl);
  const bool repeats =
      std::getenv(opencl::pocl_devices_variable) == nullptr && opencl_repeats_others(opencl_libraries());
  const bool may_wait = !request.backend && !named && (!request.all_devices || repeats);
  if (!may_wait) return device::query_devices(backends);
  Backends first, later;
  std::partition_copy(backends.begin(), backends.end(), std::back_inserter(later), std::back_inserter(first),
                      is_opencl);
  std::vector<BackendAnswer> answers = device::query_devices(first);
  const bool enough = std::any_of(answers.begin(), answers.end(), [&](const BackendAnswer& answer) {
    const bool counts = !request.all_devices || answer.backend == "cuda";
    return counts && answer.devices && has_accelerator(*answer.devices);
  });
  if (enough) return answers;
  std::vector<BackendAnswer> more = device::query_devices(later);
  const auto after_cuda = std::find_if(answers.begin(), answers.end(),
                                       [](const BackendAnswer& answer) { return answer.backend != "cuda"; });
  answers.insert(after_cuda, std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  return answers;
}

const BackendAnswer* answer_of(std::string_view backend, std::span<const BackendAnswer> answers) {
  const auto found = std::find_if(answers.begin(), answers.end(),
                                  [&](const BackendAnswer& answer) { return answer.backend == backend; });
  return found == answers.end() ? nullptr : &*found;
}

}  // namespace

std::vector<std::string> libraries_in(const std::string& folder) {
  std::vector<std::string> libraries;
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    if (entry->path().extension() != ".icd") continue;
    std::ifstream file(entry->path());
    std::getline(file, libraries.emplace_back());
  }
  return libraries;
}

bool opencl_repeats_others(std::span<const std::string> libraries) {
  return !libraries.empty() && std::all_of(libraries.begin(), libraries.end(), [](const std::string& library) {
    return library.find("libnvidia-opencl") != std::string::npos || library.find("libpocl") != std::string::npos;
  });
}

bool may_be_opencl(std::string_view name) {
  constexpr std::string_view prefixes[] = {"cuda:", "GPU-", "MIG-", "host", "simulated:"};
  if (!name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos) return false;
  return std::none_of(std::begin(prefixes), std::end(prefixes),
                      [&](std::string_view prefix) { return name.starts_with(prefix); });
}

Result<Machine> find_machine(const MachineRequest& given) {
  Result<BackendOptions> completed = with_environment(given.options);
  if (!completed) return std::move(completed).error();
  MachineRequest request = given;
  request.options = *std::move(completed);
  request.options.listing_starts_driver = false;
  const std::optional<std::string>& backend = request.backend;
  const BackendOptions& options = request.options;
  Machine machine;
  if (backend) {
    auto made = make_backend(*backend, options);
    if (!made) return std::move(made).error();
    machine.backends.push_back(*std::move(made));
  } else {
    for (const BackendEntry& entry : backend_list()) machine.backends.push_back(entry.make(options));
  }
  std::vector<BackendAnswer> answers = ask(machine.backends, request);
  const BackendAnswer* const cuda = answer_of("cuda", answers);
  const std::optional<Error> cuda_failure =
      cuda != nullptr && !cuda->devices ? std::optional(cuda->devices.error()) : std::nullopt;
  const BackendAnswer* const opencl = answer_of("opencl", answers);
  const bool opencl_answered = opencl != nullptr && opencl->devices;
  Listing listing = merge_lists(std::move(answers));
  machine.devices = std::move(listing.devices);
  // Inside `berth run`, only the chosen devices are visible, so a missing accelerator is expected.
  const bool chosen_before = std::getenv("BERTH_VISIBLE_DEVICES") != nullptr;
  const bool wrong_input = cuda_failure && cuda_failure->code == ErrorCode::invalid_argument;
  if (!backend && !chosen_before && (wrong_input || !has_accelerator(machine.devices)))
    machine.accelerator_error = missing_accelerator(nvidia_facts(cuda_failure));
  for (Listing::FailedBackend& failed : listing.failed) {
    if (backend || (failed.backend == "simulated" && !options.simulated_file.empty())) return std::move(failed.error);
    const bool named = is_named(failed.backend, options);
    const bool expected = failed.backend == "cuda" && machine.accelerator_error;
    if (failed.error.code == ErrorCode::not_initialized && !named && !expected) continue;
    machine.problems.push_back({std::move(failed.error), named});
  }
  for (const std::string& name : listing.unknown) {
    // It may be the name of a device of a back end that was not queried.
    if (backend || (!opencl_answered && (!request.all_devices || name.find("opencl") != std::string::npos))) continue;
    machine.problems.push_back(
        {{ErrorCode::not_found, "BERTH_VISIBLE_DEVICES names '" + name + "', but no device of this machine has that id",
          "name devices that berth devices lists without this variable"},
         false});
  }
  // An invalid POCL_DEVICES is reported even if another OpenCL platform works.
  const char* const pocl = std::getenv(opencl::pocl_devices_variable);
  if (std::optional<Error> problem = pocl && opencl_answered ? opencl::pocl_devices_problem(pocl) : std::nullopt) {
    if (backend) return *std::move(problem);
    machine.problems.push_back({*std::move(problem), false});
  }
  return machine;
}

Result<Machine> find_machine(const std::optional<std::string>& backend, const BackendOptions& options) {
  return find_machine(MachineRequest{backend, options});
}

}  // namespace berth::machine
