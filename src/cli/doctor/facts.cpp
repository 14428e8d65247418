// Gathers the facts for the checks of `berth doctor`. Reads files and calls drivers on
// threads with deadlines. Changes nothing; a trial entry in the ledger is removed again.
// Facts that cannot be determined are absent.
#include <dlfcn.h>
#include <grp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>

#include "agent/server_link.hpp"
#include "berth/ledger.hpp"
#include "cli/doctor/doctor.hpp"
#include "device/cuda/nvml_api.hpp"
#include "device/deadline_call.hpp"
#include "device/host/limits.hpp"
#include "device/query.hpp"
#include "ledger/limits.hpp"
#include "machine/mps.hpp"
#include "world/files.hpp"
#include "world/runtime_folder.hpp"

namespace berth::cli {

using namespace machine;
using namespace world;
namespace {

namespace fs = std::filesystem;

// Empty where the file cannot be read.
std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Sorted; empty where the folder does not exist.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed))
    found.push_back(entry->path());
  std::sort(found.begin(), found.end());
  return found;
}

// Display controllers (class 03: VGA, 3D, other) of NVIDIA, vendor 10de.
std::vector<std::string> nvidia_on_pci() {
  std::vector<std::string> found;
  for (const fs::path& device : entries("/sys/bus/pci/devices")) {
    if (first_line(device / "vendor") == "0x10de" && first_line(device / "class").starts_with("0x03"))
      found.push_back(device.filename());
  }
  return found;
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  ..."
std::optional<std::string> kernel_driver() {
  std::istringstream line(first_line("/proc/driver/nvidia/version"));
  for (std::string word; line >> word;) {
    const bool is_version =
        word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos;
    if (is_version) return word;
  }
  return std::nullopt;
}

std::string group_name(const fs::path& path) {
  struct stat about{};
  if (stat(path.c_str(), &about) != 0) return {};
  const group* const found = getgrgid(about.st_gid);
  return found != nullptr ? found->gr_name : std::to_string(about.st_gid);
}

bool is_number_after(std::string_view prefix, std::string_view name) {
  return name.size() > prefix.size() && name.starts_with(prefix) &&
         name.find_first_not_of("0123456789", prefix.size()) == std::string_view::npos;
}

std::vector<FileFacts> files_in(const fs::path& folder, bool (*wanted)(std::string_view name)) {
  std::vector<FileFacts> found;
  for (const fs::path& path : entries(folder)) {
    if (wanted(path.filename().string()))
      found.push_back({path, group_name(path), access(path.c_str(), R_OK | W_OK) == 0});
  }
  return found;
}

// Every file of the folder names one library.
std::vector<VendorFacts> opencl_vendors() {
  const char* const folder = std::getenv("OCL_ICD_VENDORS");
  std::vector<VendorFacts> found;
  for (const fs::path& path : entries(folder != nullptr ? folder : "/etc/OpenCL/vendors")) {
    if (path.extension() != ".icd") continue;
    VendorFacts vendor{path, first_line(path), {}};
    if (void* const library = dlopen(vendor.library.c_str(), RTLD_LAZY | RTLD_LOCAL)) {
      dlclose(library);
    } else {
      const char* const reason = dlerror();
      vendor.failure = reason != nullptr ? reason : "no reason given";
      // "libx.so: cannot open ...": the message names the library already.
      if (vendor.failure.starts_with(vendor.library + ": ")) vendor.failure.erase(0, vendor.library.size() + 2);
    }
    found.push_back(std::move(vendor));
  }
  return found;
}

struct NvmlFacts {
  std::optional<std::string> driver_version;
  std::vector<GpuFacts> gpus;
};

Result<NvmlFacts> ask_nvml() {
  const auto library = nvml::Library::load();
  if (!library) return library.error();
  const nvml::Library& calls = **library;
  NvmlFacts facts;
  std::array<char, nvml::uuid_bytes> text{};
  if (calls.nvmlSystemGetDriverVersion && calls.nvmlSystemGetDriverVersion(text.data(), text.size()) == nvml::success)
    facts.driver_version = text.data();
  unsigned count = 0;
  if (const nvml::Code code = calls.nvmlDeviceGetCount_v2(&count); code != nvml::success)
    return nvml::error_of(code, "counting the GPUs", "");
  for (unsigned i = 0; i < count; ++i) {
    nvml::DeviceHandle device = nullptr;
    GpuFacts gpu;
    if (calls.nvmlDeviceGetHandleByIndex_v2(i, &device) != nvml::success ||
        calls.nvmlDeviceGetUUID(device, text.data(), text.size()) != nvml::success)
      continue;
    gpu.uuid = text.data();
    int mode = 0;
    if (calls.nvmlDeviceGetPersistenceMode && calls.nvmlDeviceGetPersistenceMode(device, &mode) == nvml::success)
      gpu.persistent = mode != 0;
    if (calls.nvmlDeviceGetComputeMode && calls.nvmlDeviceGetComputeMode(device, &mode) == nvml::success) {
      // nvmlComputeMode_t: default, exclusive thread (withdrawn), prohibited, exclusive process.
      gpu.compute_mode = mode == 0   ? GpuFacts::ComputeMode::shared
                         : mode == 2 ? GpuFacts::ComputeMode::prohibited
                                     : GpuFacts::ComputeMode::exclusive;
    }
    unsigned current = 0, pending = 0;
    if (calls.nvmlDeviceGetMigMode && calls.nvmlDeviceGetMigMode(device, &current, &pending) == nvml::success)
      gpu.sliced = current != 0;
    facts.gpus.push_back(std::move(gpu));
  }
  return facts;
}

// The initial PID namespace has this number on every Linux system.
bool in_own_pid_namespace() {
  std::error_code failed;
  const fs::path name = fs::read_symlink("/proc/self/ns/pid", failed);
  return !failed && name != "pid:[4026531836]";
}

// Docker and Podman create a file; systemd-nspawn and LXC set a variable of the first
// process, which only root can read.
bool in_container() {
  std::error_code failed;
  for (const char* mark : {"/.dockerenv", "/run/.containerenv", "/run/systemd/container"}) {
    if (fs::exists(mark, failed)) return true;
  }
  std::ifstream first("/proc/1/environ", std::ios::binary);
  for (std::string variable; std::getline(first, variable, '\0');) {
    if (variable.starts_with("container=")) return true;
  }
  return in_own_pid_namespace();
}

// In a container a folder of the host is a mount point; the container's own folders are
// not.
bool is_mounted(const std::string& path) {
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string id, parent, device, root, point;
    words >> id >> parent >> device >> root >> point;
    // A bind mount shows a folder below the root of its file system.
    if (point == path && root != "/") return true;
  }
  return false;
}

std::vector<LedgerFolderFacts> folders_of(Ledger& ledger) {
  std::vector<LedgerFolderFacts> out;
  const bool named = std::getenv("BERTH_RUNTIME_DIR") != nullptr;
  for (const LedgerFolder& folder : ledger.folders()) {
    LedgerFolderFacts facts;
    facts.path = folder.path;
    facts.usable = folder.problem.empty();
    facts.reason = folder.problem;
    facts.in_use = folder.written;
    struct stat about{};
    facts.for_all = !named || (stat(folder.path.c_str(), &about) == 0 && (about.st_mode & S_IWOTH) != 0);
    facts.shared_with_host = is_mounted(folder.path);
    for (const LedgerFolder::File& file : folder.files)
      facts.files.push_back({file.path, file.user, file.entries, file.problem});
    out.push_back(std::move(facts));
  }
  return out;
}

// The permissions of a folder do not show a full disk or a read-only file system. The
// entry is removed before the lock is released, so no other process sees it.
Result<void> try_to_write(Ledger& ledger) {
  Result<Ledger::Lock> lock = ledger.lock();
  if (!lock) return std::move(lock).error();
  Ledger::Request trial;
  trial.kind = EntryKind::waiting;
  trial.name = "berth doctor";
  const Result<LedgerLease> lease = lock->add(trial);
  if (!lease && lease.error().code == ErrorCode::no_eligible_device) return {};  // a limit on this user
  if (!lease) return lease.error();
  return lock->release(lease->reference());
}

std::vector<Facts::AgentWithoutServer> agents_without_server() {
  std::vector<Facts::AgentWithoutServer> found;
  const Result<std::string> agents = state_folder("agent", IfMissing::accept);
  if (!agents) return found;
  std::error_code failed;
  for (const auto& folder : std::filesystem::directory_iterator(*agents, failed)) {
    const std::string text = read_text(agent::problem_file(folder.path().string())).value_or("");
    const std::size_t line = text.find('\n');
    if (line == text.npos) continue;
    std::string reason = text.substr(line + 1);
    reason.erase(reason.find_last_not_of('\n') + 1);
    found.push_back({folder.path().filename().string(), text.substr(0, line), std::move(reason)});
  }
  return found;
}

}  // namespace

Facts gather_facts(const BackendOptions& options) {
  Facts facts;
  device::DeadlineCall<NvmlFacts> nvml(
      ask_nvml,
      Error{ErrorCode::timeout, "the NVIDIA management library does not answer", "sudo dmesg | grep -iE 'nvrm|xid'"});
  device::DeadlineCall<std::vector<VendorFacts>> vendors(
      []() -> Result<std::vector<VendorFacts>> { return opencl_vendors(); }, {});
  const Deadline deadline = Deadline::after(real_clock(), driver_deadline);

  Backends backends;
  for (const BackendEntry& entry : backend_list()) backends.push_back(entry.make(options));
  facts.answers = device::query_devices(backends);
  facts.rows = TelemetryPoller(backends, merge_lists(facts.answers).devices).poll();

  facts.nvidia_pci = nvidia_on_pci();
  facts.kernel_driver_version = kernel_driver();
  facts.nvidia_files = files_in("/dev", [](std::string_view name) {
    return name == "nvidiactl" || name == "nvidia-uvm" || is_number_after("nvidia", name);
  });
  facts.render_files = files_in("/dev/dri", [](std::string_view name) { return is_number_after("renderD", name); });
  facts.mps_pipe = mps_control_socket();
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "POCL_DEVICES", "BERTH_RUNTIME_DIR"}) {
    if (const char* const value = std::getenv(name)) facts.environment.emplace(name, value);
  }
  const device::HostLimits limits = device::read_host_limits();
  facts.cores_allowed = limits.cores;
  facts.memory_allowed = limits.memory_bytes_total;
  const long cores = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  facts.cores_machine = static_cast<unsigned>(std::max(1L, cores));
  if (pages > 0 && page > 0)
    facts.memory_machine = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page);
  rlimit locked{};
  if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur != RLIM_INFINITY)
    facts.locked_bytes_most = locked.rlim_cur;
  facts.own_pid_namespace = in_own_pid_namespace();
  facts.in_container = in_container();
  facts.scope = scope_use();
  facts.agents_without_server = agents_without_server();
  const Result<ledger::UserLimits> user_limits = ledger::own_limits();
  if (!user_limits) facts.limits_error = user_limits.error();
  if (Result<std::shared_ptr<Ledger>> ledger = Ledger::open()) {
    facts.ledger_folders = folders_of(**ledger);
    if (const Result<LedgerSnapshot> snapshot = (*ledger)->snapshot(); snapshot && user_limits)
      facts.limits_in_use = ledger::limits_in_use(*user_limits, ledger::usage_of(*snapshot, geteuid()));
    if (Result<void> tried = try_to_write(**ledger); !tried) facts.ledger_error = std::move(tried).error();
  } else {
    facts.ledger_error = std::move(ledger).error();
  }

  if (auto answer = nvml.wait(deadline)) {
    facts.library_driver_version = std::move(answer->driver_version);
    facts.gpus = std::move(answer->gpus);
  } else {
    facts.nvml_error = std::move(answer).error();
  }
  if (auto answer = vendors.wait(deadline)) facts.opencl_vendors = *std::move(answer);
  return facts;
}

}  // namespace berth::cli
