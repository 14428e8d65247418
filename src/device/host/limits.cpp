#include "device/host/limits.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "device/host/cores.hpp"

namespace berth::device {
namespace {

using std::filesystem::path;

std::optional<std::uint64_t> parse_number(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) return {};
  return value;
}

// The number after `key` in a file of "key value" or "key: value" lines.
std::optional<std::uint64_t> number_after(const path& file, const std::string& key) {
  std::ifstream in(file);
  for (std::string word; in >> word;) {
    if (word == key && in >> word) return parse_number(word);
    in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return {};
}

// The words on the first line. A missing file has none, and "max" is not a number.
std::vector<std::string> words(const path& file) {
  std::vector<std::string> found;
  std::ifstream in(file);
  for (std::string word; found.size() < 2 && in >> word;) found.push_back(word);
  return found;
}

template <class T>
void lower(std::optional<T>& limit, std::optional<T> other) {
  if (other && (!limit || *other < *limit)) limit = other;
}

// Applies the limits of one control group (version 2).
void apply_group(const path& group, HostLimits& limits) {
  const std::vector<std::string> cpu = words(group / "cpu.max");
  if (cpu.size() == 2) {
    const auto quota = parse_number(cpu[0]), period = parse_number(cpu[1]);
    if (quota && period && *period > 0) {
      const std::uint64_t cores = std::max<std::uint64_t>(1, (*quota + *period - 1) / *period);
      limits.cores = static_cast<unsigned>(std::min<std::uint64_t>(limits.cores, cores));
    }
  }
  const std::vector<std::string> memory = words(group / "memory.max");
  if (memory.empty()) return;
  const auto max = parse_number(memory[0]);
  if (!max) return;
  lower(limits.memory_bytes_total, max);
  const std::vector<std::string> current = words(group / "memory.current");
  if (current.empty()) return;
  // Inactive file pages count as used but are reclaimed on demand.
  const std::uint64_t used = parse_number(current[0]).value_or(0);
  const std::uint64_t reclaimable = number_after(group / "memory.stat", "inactive_file").value_or(0);
  const std::uint64_t held = used > reclaimable ? used - reclaimable : 0;
  lower(limits.memory_bytes_free, std::optional<std::uint64_t>(*max > held ? *max - held : 0));
}

unsigned affinity_cores() {
  const std::size_t allowed = allowed_cores().size();
  return allowed > 0 ? static_cast<unsigned>(allowed) : std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace

HostLimits read_host_limits(const path& root, unsigned affinity_cores) {
  HostLimits limits;
  limits.cores = affinity_cores;
  const auto kib = [&](const char* key) -> std::optional<std::uint64_t> {
    const auto value = number_after(root / "proc/meminfo", key);
    if (!value) return {};
    return *value * 1024;
  };
  limits.memory_bytes_total = kib("MemTotal:");
  limits.memory_bytes_free = kib("MemAvailable:");

  // "0::/a/b" names the group, and the limits of its ancestors apply too.
  const path groups = root / "sys/fs/cgroup";
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("0::/")) continue;
    path group = groups;
    apply_group(group, limits);
    for (const path& part : path(line.substr(4))) apply_group(group /= part, limits);
  }
  return limits;
}

HostLimits read_host_limits() { return read_host_limits("/", affinity_cores()); }

}  // namespace berth::device
