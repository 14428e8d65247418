#include "http/connection_limits.hpp"

#include <sys/resource.h>

#include <algorithm>

namespace berth::http {

namespace {
constexpr std::size_t usual_files = 1024;
}

Limits limits_within(std::size_t files, const ConnectionLimits& asked, Limits limits) {
  const std::size_t all = asked.all == 0 ? files : std::min(asked.all, files);
  limits.connections = all;
  limits.connections_of_loopback = all - all / 8;
  limits.connections_of_address = asked.of_address == 0 ? all / 2 : asked.of_address;
  return limits;
}

std::size_t allow_open_files(std::size_t wanted) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return usual_files;
  const rlim_t asked = std::min<rlim_t>(wanted, files.rlim_max);
  if (asked > files.rlim_cur) {
    files.rlim_cur = asked;
    setrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_NOFILE, &files);
  }
  return files.rlim_cur;
}

}  // namespace berth::http
