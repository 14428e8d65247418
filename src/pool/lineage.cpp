// Whose child a process is, as /proc shows it.
#include <fstream>
#include <sstream>

#include "pool/reservation.hpp"

namespace berth {
namespace {

std::uint32_t parent_of(std::uint32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return 0;
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string state;
  std::uint32_t parent = 0;
  fields >> state >> parent;
  return fields ? parent : 0;
}

// Absent also where another user's environment is hidden.
std::optional<std::uint64_t> lease_of(std::uint32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  const std::string_view name = "BERTH_LEASE=";
  for (std::string entry; std::getline(file, entry, '\0');) {
    if (!entry.starts_with(name)) continue;
    std::istringstream number(entry.substr(name.size()));
    std::uint64_t lease = 0;
    if (number >> lease) return lease;
  }
  return std::nullopt;
}

}  // namespace

Lineage lineage_of(std::uint32_t pid) {
  Lineage lineage;
  lineage.lease = lease_of(pid);
  // Deeper than any tree of processes people make; a loop cannot be, but costs little to rule out.
  for (int depth = 0; pid > 1 && depth < 64; ++depth, pid = parent_of(pid)) {
    const std::optional<Holder> process = find_process(pid);
    if (!process) break;
    lineage.processes.push_back(*process);
  }
  return lineage;
}

}  // namespace berth
