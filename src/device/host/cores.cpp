#include "device/host/cores.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

namespace berth::device {
namespace {

thread_local const CoreSet* pinned_to = nullptr;

bool read_mask(CoreSet& into) { return sched_getaffinity(0, sizeof into.bits, into.bits.data()) == 0; }
bool write_mask(const CoreSet& from) { return sched_setaffinity(0, sizeof from.bits, from.bits.data()) == 0; }

}  // namespace

CoreSet::CoreSet(std::span<const unsigned> cores) {
  for (const unsigned core : cores) CPU_SET_S(core, sizeof bits, bits.data());
}

std::vector<unsigned> allowed_cores() {
  std::vector<unsigned> cores;
  CoreSet mask;
  if (!read_mask(mask)) return cores;
  for (unsigned core = 0; core < 8 * sizeof mask.bits; ++core) {
    if (CPU_ISSET_S(core, sizeof mask.bits, mask.bits.data())) cores.push_back(core);
  }
  return cores;
}

CorePin::CorePin(const CoreSet* wanted) : outer_(pinned_to) {
  if (wanted == nullptr || wanted == outer_) return;
  CoreSet now;
  failed_ = !read_mask(now);
  if (!failed_ && std::memcmp(&now, wanted, sizeof now) != 0) {
    failed_ = !write_mask(*wanted);
    if (!failed_) before_ = now;
  }
  if (!failed_) pinned_to = wanted;
}

CorePin::~CorePin() {
  pinned_to = outer_;
  if (before_) write_mask(*before_);
}

// "cpu3 user nice system idle iowait irq softirq steal ..."; the fields after these are already counted in user and
// nice.
std::optional<CoreTimes> read_core_times(const std::filesystem::path& root, std::span<const unsigned> cores) {
  CoreTimes sum;
  std::size_t found = 0;
  std::ifstream in(root / "proc/stat");
  for (std::string line; std::getline(in, line);) {
    unsigned core = 0;
    if (!line.starts_with("cpu") || line.size() < 4) continue;
    const char* const end = line.data() + line.size();
    const auto [rest, error] = std::from_chars(line.data() + 3, end, core);
    if (error != std::errc{} || std::find(cores.begin(), cores.end(), core) == cores.end()) continue;
    std::istringstream numbers(std::string(rest, end));
    std::array<std::uint64_t, 8> ticks{};
    for (std::uint64_t& value : ticks) numbers >> value;
    if (!numbers) return {};
    ++found;
    for (const std::uint64_t value : ticks) sum.all += value;
    sum.busy += ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] + ticks[7];
  }
  if (found == 0 || found != cores.size()) return {};
  return sum;
}

std::optional<double> utilization_between(const CoreTimes& before, const CoreTimes& after) {
  if (after.all <= before.all) return {};
  const auto busy = static_cast<double>(after.busy > before.busy ? after.busy - before.busy : 0);
  return std::min(1.0, busy / static_cast<double>(after.all - before.all));
}

}  // namespace berth::device
