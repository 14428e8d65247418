#include "agent/last_epoch.hpp"

#include <unistd.h>

#include <charconv>

#include "world/files.hpp"

namespace berth::agent {
namespace {

std::string file_in(const std::string& folder) { return folder + "/epoch"; }

}  // namespace

std::uint64_t last_epoch(const std::string& folder) {
  const std::string text = world::read_text(file_in(folder)).value_or("");
  std::uint64_t epoch = 0;
  std::from_chars(text.data(), text.data() + text.size(), epoch);
  return epoch;
}

Result<void> keep_epoch(const std::string& folder, std::uint64_t epoch) {
  return world::write_private_text(file_in(folder), std::to_string(epoch) + "\n");
}

void forget_epoch(const std::string& folder) { ::unlink(file_in(folder).c_str()); }

}  // namespace berth::agent
