#include "agent/free_port.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <sstream>
#include <utility>

#include "world/descriptor.hpp"
#include "world/files.hpp"

namespace berth::agent {

namespace {

constexpr std::uint16_t first_port = 10'000;  // services usually have lower ports
constexpr int ports_min = 1'000;              // so that a used port can stay unused for a while
constexpr int tries_max = 100;
constexpr Duration port_rests = std::chrono::minutes(10);

bool can_be_listened_on(std::uint16_t port) {
  const world::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(port);
  return socket && ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace

PortRange replica_ports(std::string_view of_connections) {
  constexpr int port_max = std::numeric_limits<std::uint16_t>::max();
  const char* const end = of_connections.data() + of_connections.size();
  int first = 32'768, last = 60'999;  // the kernel's defaults
  const auto low = std::from_chars(of_connections.data(), end, first);
  if (low.ec == std::errc() && low.ptr != end) std::from_chars(low.ptr + 1, end, last);
  if (first - first_port >= ports_min) return {first_port, static_cast<std::uint16_t>(std::min(first - 1, port_max))};
  if (port_max - last >= ports_min && last >= first_port)
    return {static_cast<std::uint16_t>(last + 1), static_cast<std::uint16_t>(port_max)};
  return {first_port, static_cast<std::uint16_t>(port_max)};
}

PortRange replica_ports_of_this_machine() {
  const Result<std::string> of_connections = world::read_text("/proc/sys/net/ipv4/ip_local_port_range");
  return replica_ports(of_connections ? *of_connections : "");
}

UsedPorts::UsedPorts(std::string folder, TimePoint now) : file_(std::move(folder) + "/ports") {
  written_ = world::read_text(file_).value_or("");
  std::istringstream lines(written_);
  for (std::uint16_t port = 0; lines >> port;) used_[port] = now;
}

Result<void> UsedPorts::keep(TimePoint now) {
  std::erase_if(used_, [&](const auto& entry) { return now >= entry.second + port_rests; });
  std::string text;
  for (const auto& [port, at] : used_) text += std::to_string(port) + "\n";
  if (text == written_) return {};
  BERTH_TRY(world::write_private_text(file_, text));
  written_ = std::move(text);
  return {};
}

std::optional<std::uint16_t> free_port(PortRange range, Random& random,
                                       const std::function<bool(std::uint16_t)>& is_taken) {
  for (int tries = 0; tries < tries_max; ++tries) {
    const auto port = static_cast<std::uint16_t>(range.first + random.below(range.last - range.first + 1U));
    if (!is_taken(port) && can_be_listened_on(port)) return port;
  }
  return std::nullopt;
}

}  // namespace berth::agent
