// The checks of `berth doctor`, each a pure function of the facts.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "berth/bytes.hpp"
#include "berth/xid.hpp"
#include "cli/doctor/findings.hpp"
#include "cli/text/devices_text.hpp"

namespace berth::cli {

using namespace inventory;
using namespace world;
namespace {

std::string joined(std::span<const std::string> words, std::string_view between = ", ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : std::string(between)) + word;
  return text;
}

std::string brief(const std::string& uuid) { return short_id(DeviceId(uuid)); }

// "cuda:1 (GPU-d0d96032)".
std::string label_of(const DeviceInfo& info) { return device_label(info) + " (" + short_id(info.id) + ")"; }

// The GPU of a device: the device itself, or its parent.
const std::string& gpu_of(const DeviceInfo& info) { return info.parent ? info.parent->text() : info.id.text(); }

// The GPUs that CUDA lists, each once, in its order.
std::vector<std::string> cuda_gpus(const Facts& facts) {
  std::vector<std::string> gpus;
  const BackendAnswer* const cuda = facts.answer("cuda");
  if (cuda == nullptr || !cuda->devices) return gpus;
  for (const DeviceInfo& info : *cuda->devices) {
    if (std::find(gpus.begin(), gpus.end(), gpu_of(info)) == gpus.end()) gpus.push_back(gpu_of(info));
  }
  return gpus;
}

bool has_nvidia(const Facts& facts) {
  return !facts.nvidia_pci.empty() || !facts.gpus.empty() || facts.kernel_driver_version.has_value();
}

// The error of a back end that refused the value of `variable`.
const Error* refusal(const Facts& facts, std::string_view backend, std::string_view variable) {
  const BackendAnswer* const answer = facts.answer(backend);
  if (answer == nullptr || answer->devices || answer->devices.error().code != ErrorCode::invalid_argument)
    return nullptr;
  const Error& failure = answer->devices.error();
  return failure.message.find(variable) == std::string::npos ? nullptr : &failure;
}

Findings agent_server(const Facts& facts) {
  Findings found;
  for (const auto& [node, since, reason] : facts.agents_without_server)
    found.push_back(
        error("since " + since + " the agent of node " + node + " has no server that it may follow: " + reason,
              "its replicas keep running, but none is started or stopped on this machine", "berth status"));
  return found;
}

Findings nvidia_driver(const Facts& facts) {
  if (facts.kernel_driver_version && facts.library_driver_version &&
      *facts.kernel_driver_version != *facts.library_driver_version)
    return {error("the NVIDIA kernel module is version " + *facts.kernel_driver_version +
                      ", but its libraries are version " + *facts.library_driver_version,
                  "the driver was updated while it was loaded, and no GPU works until both are the same",
                  "sudo reboot")};
  if (facts.nvml_error && facts.nvml_error->driver && facts.nvml_error->driver->name.ends_with("VERSION_MISMATCH"))
    return {error(facts.nvml_error->message, "no GPU works until both are the same", "sudo reboot")};
  if (!facts.nvidia_pci.empty() && !facts.kernel_driver_version && facts.gpus.empty())
    return {error(counted(facts.nvidia_pci.size(), "NVIDIA device") + " in this machine (" + joined(facts.nvidia_pci) +
                      "), but the NVIDIA driver is not loaded",
                  "without it no program can use them", "sudo modprobe nvidia || sudo apt install nvidia-driver")};
  if (!has_nvidia(facts)) return {ok("this machine has no NVIDIA GPU")};
  const auto version = facts.library_driver_version ? facts.library_driver_version : facts.kernel_driver_version;
  return {ok("the NVIDIA driver" + (version ? " " + *version : std::string()) + " is loaded")};
}

Findings cuda_library(const Facts& facts) {
  const BackendAnswer* const cuda = facts.answer("cuda");
  if (cuda == nullptr) return {};
  if (cuda->devices) {
    if (cuda->devices->empty()) return {};
    return {ok("CUDA shows " + counted(cuda->devices->size(), "device"))};
  }
  const Error& failure = cuda->devices.error();
  // Other checks report these.
  if (failure.code == ErrorCode::invalid_argument) return {};
  if (failure.code == ErrorCode::not_initialized && !has_nvidia(facts))
    return {note(failure.message, "no NVIDIA GPU needs it")};
  return {error(failure.message, "CUDA shows no device", failure.advice)};
}

Findings management_library(const Facts& facts) {
  if (!facts.nvml_error) return {};
  if (cuda_gpus(facts).empty()) return {};
  return {warning(facts.nvml_error->message,
                  "without it, memory use of other processes, temperature, power, links and events are unknown",
                  facts.nvml_error->advice)};
}

Findings opencl_library(const Facts& facts) {
  const BackendAnswer* const opencl = facts.answer("opencl");
  if (opencl == nullptr || (!opencl->devices && opencl->devices.error().code == ErrorCode::invalid_argument)) return {};
  if (opencl->devices && !opencl->devices->empty())
    return {ok("OpenCL shows " + counted(opencl->devices->size(), "device"))};
  if (opencl->devices)
    return {note("OpenCL is installed, but shows no device", "no vendor library provides one",
                 "sudo apt install pocl-opencl-icd")};
  const Error& failure = opencl->devices.error();
  if (failure.code == ErrorCode::not_initialized)
    return {note(failure.message, "devices that are reachable only through OpenCL are not found",
                 "sudo apt install ocl-icd-libopencl1")};
  return {error(failure.message, "OpenCL shows no device", failure.advice)};
}

Findings opencl_vendors(const Facts& facts) {
  Findings found;
  for (const VendorFacts& vendor : facts.opencl_vendors) {
    if (vendor.failure.empty()) continue;
    found.push_back(warning(vendor.path + " names " + vendor.library + ", which cannot be loaded: " + vendor.failure,
                            "this vendor's OpenCL devices are missing", "sudo rm " + vendor.path));
  }
  return found;
}

Findings other_back_ends(const Facts& facts) {
  Findings found;
  for (const BackendAnswer& answer : facts.answers) {
    if (answer.devices || answer.backend == "cuda" || answer.backend == "opencl") continue;
    const Error& failure = answer.devices.error();
    if (failure.code == ErrorCode::not_initialized || (answer.backend == "host" && refusal(facts, "host", "")))
      continue;
    found.push_back(error(failure.message, "the " + answer.backend + " back end finds no device", failure.advice));
  }
  return found;
}

Findings hidden_hardware(const Facts& facts) {
  const BackendAnswer* const cuda = facts.answer("cuda");
  if (cuda == nullptr || !cuda->devices || facts.variable("CUDA_VISIBLE_DEVICES")) return {};
  const std::size_t shown = cuda_gpus(facts).size(), there = std::max(facts.nvidia_pci.size(), facts.gpus.size());
  if (shown >= there || !facts.kernel_driver_version) return {};
  // A warning: a GPU may be withheld from this container on purpose.
  return {{shown == 0 ? Severity::error : Severity::warning,
           {},
           "this machine has " + counted(there, "NVIDIA GPU") + ", but CUDA shows " + std::to_string(shown),
           "the missing GPU failed, is held by another driver, or is not available in this container",
           "sudo dmesg | grep -iE 'nvrm|xid'; lspci -k -d 10de:"}};
}

Findings visible_devices(const Facts& facts) {
  const std::string* const value = facts.variable("CUDA_VISIBLE_DEVICES");
  if (value == nullptr) return {};
  const BackendAnswer* const cuda = facts.answer("cuda");
  if (const Error* const wrong = refusal(facts, "cuda", "CUDA_VISIBLE_DEVICES"))
    return {error(wrong->message, "CUDA silently hides all devices from that entry on", "unset CUDA_VISIBLE_DEVICES")};
  if (cuda == nullptr || !cuda->devices) return {};
  Findings found;
  const std::vector<std::string> shown = cuda_gpus(facts);
  if (shown.size() < facts.gpus.size())
    found.push_back(
        note("CUDA_VISIBLE_DEVICES='" + *value + "' hides " + std::to_string(facts.gpus.size() - shown.size()) +
                 " of " + counted(facts.gpus.size(), "GPU"),
             "this program and every program that it starts see only the other GPUs", "unset CUDA_VISIBLE_DEVICES"));
  const bool by_index = !value->empty() && value->find_first_not_of("0123456789, ") == std::string::npos;
  if (by_index && facts.gpus.size() > 1)
    found.push_back(warning("CUDA_VISIBLE_DEVICES='" + *value + "' names GPUs by their position",
                            "positions change with the order of devices, with repairs and between tools; UUIDs do not",
                            "export CUDA_VISIBLE_DEVICES=" + joined(shown, ",")));
  return found;
}

Findings device_order(const Facts& facts) {
  if (facts.variable("CUDA_VISIBLE_DEVICES")) return {};
  std::vector<std::string> by_cuda = cuda_gpus(facts), by_nvml;
  for (const GpuFacts& gpu : facts.gpus) {
    if (std::find(by_cuda.begin(), by_cuda.end(), gpu.uuid) != by_cuda.end()) by_nvml.push_back(gpu.uuid);
  }
  if (by_cuda == by_nvml || by_cuda.size() != by_nvml.size()) return {};
  return {warning("CUDA orders the GPUs differently from nvidia-smi: its first is " + brief(by_cuda.front()) +
                      ", that of nvidia-smi is " + brief(by_nvml.front()),
                  "the same number means different GPUs in the two; Berth uses UUIDs",
                  "export CUDA_DEVICE_ORDER=PCI_BUS_ID")};
}

Findings pocl_devices(const Facts& facts) {
  const Error* const wrong = refusal(facts, "opencl", "POCL_DEVICES");
  if (wrong == nullptr) return {};
  return {error(wrong->message, "OpenCL shows no device", "unset POCL_DEVICES")};
}

// A back end refuses either a variable or a partition.
Findings partitions(const Facts& facts) {
  Findings found;
  for (const std::string_view backend : {"cuda", "opencl", "host"}) {
    const Error* const wrong = refusal(facts, backend, "");
    if (wrong == nullptr || refusal(facts, backend, "_DEVICES") != nullptr) continue;
    found.push_back(error(wrong->message, "the " + std::string(backend) + " back end finds no device", wrong->advice));
  }
  return found;
}

Findings mps(const Facts& facts) {
  if (!facts.mps_pipe) return {};
  return {note("CUDA's multi-process service (MPS) is running with the pipe " + *facts.mps_pipe,
               "processes run side by side on a GPU, but a fault in one can end all of them",
               "echo quit | nvidia-cuda-mps-control")};
}

Findings device_files(const Facts& facts) {
  Findings found;
  const auto look = [&](std::span<const FileFacts> files, Severity severity, std::string what) {
    std::vector<std::string> closed;
    std::string group;
    for (const FileFacts& file : files) {
      if (file.may_open) continue;
      closed.push_back(file.path);
      group = file.group;
    }
    if (closed.empty()) return;
    const std::string files_text =
        closed.size() > 1 ? closed.front() + " and " + counted(closed.size() - 1, "other") : closed.front();
    // Membership in the group root is not a fix; the driver's own rules open the file.
    const bool by_group = !group.empty() && group != "root";
    found.push_back({severity,
                     {},
                     "this user has no permission to open " + files_text,
                     std::move(what),
                     by_group ? "sudo usermod -aG " + group + " $USER, then log in again"
                              : "sudo nvidia-modprobe -u -c=0, or sudo chmod a+rw " + closed.front()});
  };
  look(facts.nvidia_files, Severity::error, "no GPU can be used without them");
  look(facts.render_files, Severity::warning, "OpenCL and other drivers that go through them find no GPU");
  return found;
}

Findings silent_devices(const Facts& facts) {
  Findings found;
  for (const DeviceRow& row : facts.rows) {
    if (row.error)
      found.push_back(error(label_of(row.info) + " cannot be read: " + row.error->message,
                            "it gets no work until it can be read", row.error->advice));
  }
  return found;
}

Findings driver_reports(const Facts& facts) {
  Findings found;
  for (const DeviceRow& row : facts.rows) {
    if (!row.seen) continue;
    const std::string reset = reset_advice(gpu_of(row.info));
    if (row.seen->recovery_action && *row.seen->recovery_action != RecoveryAction::none) {
      const DeviceEvent wish{
          DeviceEvent::Kind::recovery_action, static_cast<std::uint32_t>(*row.seen->recovery_action), {}};
      const Error problem = error_of(wish, row.info.id.text());
      found.push_back(
          error(label_of(row.info) + ": " + problem.message, "the GPU must not be used until then", problem.advice));
    }
    if (row.seen->ecc_uncorrected.value_or(0) > 0)
      found.push_back(
          warning(label_of(row.info) + " had " + counted(*row.seen->ecc_uncorrected, "uncorrectable memory error") +
                      " since its driver was loaded",
                  "results that it has computed since then may be wrong, and the GPU may be failing", reset));
    if (row.seen->remapped_rows.value_or(0) > 0)
      found.push_back(
          note(label_of(row.info) + " has replaced " + counted(*row.seen->remapped_rows, "failed memory row"),
               "a few are normal over the years, but the GPU must be replaced when no spare rows are left",
               "nvidia-smi -q -d ROW_REMAPPER -i " + gpu_of(row.info)));
    for (const DeviceEvent& event : row.seen->load.events) {
      if (event.kind == DeviceEvent::Kind::recovery_action || blame_of(event) == Blame::none) continue;
      const Error problem = error_of(event, row.info.id.text());
      found.push_back({blame_of(event) == Blame::device ? Severity::error : Severity::warning,
                       {},
                       label_of(row.info) + ": " + problem.message,
                       {},
                       problem.advice});
    }
  }
  return found;
}

Findings throttling(const Facts& facts) {
  Findings found;
  for (const DeviceRow& row : facts.rows) {
    if (!row.seen || !row.seen->throttle_reasons || row.seen->throttle_reasons->empty()) continue;
    std::string why = "it runs slower than it could";
    if (row.seen->clock_mhz) why += ", at " + std::to_string(*row.seen->clock_mhz) + " MHz";
    if (row.seen->temperature_celsius) why += " and " + std::to_string(*row.seen->temperature_celsius) + " C";
    found.push_back(warning(label_of(row.info) + " is slowed down: " + joined(*row.seen->throttle_reasons), why,
                            "nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE -i " + gpu_of(row.info)));
  }
  return found;
}

Findings foreign_processes(const Facts& facts) {
  std::map<std::uint32_t, std::string> holds;  // by process id: the end of a sentence about the process
  std::set<std::string> seen;                  // partitions of a GPU share its processes
  for (const DeviceRow& row : facts.rows) {
    if (!row.seen || !row.seen->processes || !seen.insert(row.info.memory_home()).second) continue;
    for (const DeviceProcess& process : *row.seen->processes) {
      if (process.kind != ProcessKind::foreign || process.memory_bytes.value_or(0) == 0) continue;
      std::string& text = holds[process.pid];
      if (text.empty()) text = (process.name ? " (" + printable(*process.name) + ")" : std::string()) + " holds ";
      if (!text.ends_with(' ')) text += " and ";
      text += bytes_text(*process.memory_bytes) + " of " + label_of(row.info);
    }
  }
  Findings found;
  for (const auto& [pid, text] : holds)
    found.push_back(note("process " + std::to_string(pid) + text, "Berth counts this memory as in use",
                         "ps -o pid,user,lstart,cmd -p " + std::to_string(pid)));
  return found;
}

Findings hidden_processes(const Facts& facts) {
  if (!facts.own_pid_namespace) return {};
  // The driver itself uses less GPU memory than this.
  constexpr std::uint64_t notable = std::uint64_t{2} << 30;
  for (const DeviceRow& row : facts.rows) {
    if (!row.seen) continue;
    const auto& processes = row.seen->processes;
    const bool nameless = processes && std::any_of(processes->begin(), processes->end(),
                                                   [](const DeviceProcess& process) { return !process.name; });
    if (!nameless && row.seen->memory_use.unattributed.value_or(0) < notable) continue;
    return {note("this process has its own PID namespace, and memory of " + label_of(row.info) +
                     " is in use by processes that are not visible to it",
                 "the owner of that memory cannot be determined from here", "docker run --pid=host ...")};
  }
  return {};
}

Findings processor_limit(const Facts& facts) {
  if (facts.cores_allowed >= facts.cores_machine) return {};
  return {note(
      "this process may use " + std::to_string(facts.cores_allowed) + " of " + counted(facts.cores_machine, "core"),
      "the host device and the threads that feed GPUs share them", "cat /sys/fs/cgroup/cpu.max; taskset -cp $$")};
}

Findings memory_limit(const Facts& facts) {
  if (!facts.memory_machine || !facts.memory_allowed || *facts.memory_allowed >= *facts.memory_machine) return {};
  return {note("this process may use " + bytes_text(*facts.memory_allowed) + " of the machine's " +
                   bytes_text(*facts.memory_machine) + " of memory",
               "the kernel ends processes that use more, pinned memory included", "cat /sys/fs/cgroup/memory.max")};
}

Findings locked_memory(const Facts& facts) {
  // Enough for the staging buffers of a few streams.
  constexpr std::uint64_t enough = std::uint64_t{1} << 30;
  if (cuda_gpus(facts).empty() || !facts.locked_bytes_most || *facts.locked_bytes_most >= enough) return {};
  return {note("this process may lock " + bytes_text(*facts.locked_bytes_most) + " of memory",
               "drivers that count pinned memory against this limit refuse to allocate more", "ulimit -l unlimited")};
}

Findings persistence(const Facts& facts) {
  std::vector<std::string> off;
  for (const GpuFacts& gpu : facts.gpus) {
    if (gpu.persistent == false) off.push_back(gpu.uuid);
  }
  if (off.empty()) return {};
  return {note("persistence mode is off on " + (off.size() == 1 ? brief(off.front()) : counted(off.size(), "GPU")),
               "the driver unloads when no program uses the GPU, and the next start takes seconds",
               "sudo nvidia-smi -pm 1")};
}

Findings compute_mode(const Facts& facts) {
  Findings found;
  for (const GpuFacts& gpu : facts.gpus) {
    const std::string fix = "sudo nvidia-smi -c DEFAULT -i " + gpu.uuid;
    if (gpu.compute_mode == GpuFacts::ComputeMode::exclusive)
      found.push_back(note(brief(gpu.uuid) + " admits one process at a time (compute mode EXCLUSIVE_PROCESS)",
                           "a second process cannot open it, however much memory is free", fix));
    if (gpu.compute_mode == GpuFacts::ComputeMode::prohibited)
      found.push_back(
          error(brief(gpu.uuid) + " admits no process (compute mode PROHIBITED)", "no program can use it", fix));
  }
  return found;
}

Findings slices(const Facts& facts) {
  Findings found;
  for (const GpuFacts& gpu : facts.gpus) {
    if (gpu.sliced != true) continue;
    const auto count = std::count_if(facts.rows.begin(), facts.rows.end(), [&](const DeviceRow& row) {
      return row.info.parent && row.info.parent->text() == gpu.uuid;
    });
    if (count == 0 && !facts.variable("CUDA_VISIBLE_DEVICES")) {
      found.push_back(
          warning(brief(gpu.uuid) + " is in MIG mode and has no slice", "without a slice, it cannot compute",
                  "sudo nvidia-smi mig -lgip -i " + gpu.uuid + "; sudo nvidia-smi mig -cgi PROFILE -C -i " + gpu.uuid));
    } else if (count > 0) {
      found.push_back(
          note(brief(gpu.uuid) + " is in MIG mode with " + counted(static_cast<std::size_t>(count), "slice"),
               "each has its own memory and compute units; a process uses one of them"));
    }
  }
  return found;
}

Findings seen_twice(const Facts& facts) {
  Findings found;
  const BackendAnswer *const cuda = facts.answer("cuda"), *const opencl = facts.answer("opencl");
  if (cuda == nullptr || opencl == nullptr || !cuda->devices || !opencl->devices) return found;
  std::vector<std::string> twice;
  for (const DeviceInfo& device : *cuda->devices) {
    for (const DeviceInfo& other : *opencl->devices) {
      if (device.pci_address && device.pci_address == other.pci_address) twice.push_back(other.id.text());
    }
  }
  if (twice.empty()) return found;
  return {note(counted(twice.size(), "GPU") + " can be reached through CUDA and through OpenCL",
               "each is listed once, as a CUDA device, so that its memory is not promised twice",
               "berth devices --backend opencl")};
}

constexpr std::array all_checks{
    Check{"nvidia_driver", nvidia_driver},
    Check{"device_files", device_files},
    Check{"cuda_library", cuda_library},
    Check{"hidden_hardware", hidden_hardware},
    Check{"visible_devices", visible_devices},
    Check{"device_order", device_order},
    Check{"management_library", management_library},
    Check{"opencl_library", opencl_library},
    Check{"opencl_vendors", opencl_vendors},
    Check{"pocl_devices", pocl_devices},
    Check{"partitions", partitions},
    Check{"back_ends", other_back_ends},
    Check{"silent_devices", silent_devices},
    Check{"driver_reports", driver_reports},
    Check{"throttling", throttling},
    Check{"compute_mode", compute_mode},
    Check{"slices", slices},
    Check{"mps", mps},
    Check{"ledger", ledger},
    Check{"ledger_seen", ledger_seen},
    Check{"ledger_files", ledger_files},
    Check{"ledger_scope", ledger_scope},
    Check{"user_limits", user_limits},
    Check{"agent_server", agent_server},
    Check{"foreign_processes", foreign_processes},
    Check{"hidden_processes", hidden_processes},
    Check{"persistence", persistence},
    Check{"seen_twice", seen_twice},
    Check{"processor_limit", processor_limit},
    Check{"memory_limit", memory_limit},
    Check{"locked_memory", locked_memory},
};

}  // namespace

std::span<const Check> checks() { return all_checks; }

}  // namespace berth::cli
