#include "device/cuda/nvml_processes.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace berth::nvml {
namespace {

using ListProcesses = Code(DeviceHandle, unsigned*, Process*);

// Returns false if the driver does not list processes.
bool list_processes(ListProcesses* call, DeviceHandle device, std::vector<Process>& into) {
  if (call == nullptr) return false;
  unsigned count = 32;
  // Repeated, because more processes may start between two calls.
  for (int tries = 0; tries < 8; ++tries) {
    into.resize(count);
    const Code code = call(device, &count, into.data());
    if (code == success) {
      into.resize(count);
      return true;
    }
    if (code != insufficient_size) break;
    count += 8;
  }
  into.clear();
  return false;
}

}  // namespace

// The driver lists a process that both computes and draws twice, with the same memory, and a process on several slices
// once per slice, with its memory there.
std::optional<std::vector<DeviceProcess>> read_processes(const Library& library, DeviceHandle device) {
  constexpr std::uint64_t unknown = ~0ULL;
  std::map<std::uint32_t, DeviceProcess> by_pid;
  bool listed = false;
  for (const bool graphics : {false, true}) {
    std::vector<Process> found;
    listed = list_processes(graphics ? library.nvmlDeviceGetGraphicsRunningProcesses_v3
                                     : library.nvmlDeviceGetComputeRunningProcesses_v3,
                            device, found) ||
             listed;
    std::map<std::uint32_t, std::optional<std::uint64_t>> bytes;
    for (const Process& process : found) {
      std::optional<std::uint64_t>& sum = bytes[process.pid];
      if (process.used_bytes != unknown) sum = sum.value_or(0) + process.used_bytes;
    }
    for (const auto& [pid, sum] : bytes) {
      const auto [at, is_new] = by_pid.try_emplace(pid);
      DeviceProcess& process = at->second;
      process.pid = pid;
      if (is_new) process.graphics = graphics;
      process.memory_bytes = std::max(process.memory_bytes, sum);
    }
  }
  if (!listed) return std::nullopt;
  std::vector<DeviceProcess> processes;
  for (auto& [pid, process] : by_pid) processes.push_back(std::move(process));
  return processes;
}

void use_smaller(std::span<const DeviceProcess> before, std::vector<DeviceProcess>& now) {
  for (DeviceProcess& process : now) {
    const auto known = std::lower_bound(before.begin(), before.end(), process.pid,
                                        [](const DeviceProcess& at, std::uint32_t pid) { return at.pid < pid; });
    if (!process.memory_bytes) continue;
    const bool was_there = known != before.end() && known->pid == process.pid;
    process.memory_bytes = was_there ? std::min(process.memory_bytes, known->memory_bytes) : 0;
  }
}

}  // namespace berth::nvml
