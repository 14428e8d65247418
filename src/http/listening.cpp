#include "http/listening.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>

#include "world/descriptor.hpp"

namespace berth::http {
namespace {

// Connections that wait to be accepted; the kernel's own maximum is often 4096.
constexpr int backlog = 512;

struct Bound {
  sockaddr_storage storage{};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Error io_error(const std::string& what) { return {ErrorCode::io, what + ": " + std::strerror(errno)}; }

Result<Bound> unix_address(const std::string& path) {
  Bound bound;
  sockaddr_un address{};
  if (path.size() >= sizeof address.sun_path)
    return Error{ErrorCode::invalid_argument, "the path of the socket '" + path + "' is too long",
                 "use one of at most " + std::to_string(sizeof address.sun_path - 1) + " bytes"};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  std::memcpy(&bound.storage, &address, sizeof address);
  bound.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  return bound;
}

Bound ip_address(const std::string& host, std::uint16_t port) {
  Bound bound;
  if (sockaddr_in v4{}; inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&bound.storage, &v4, bound.size = sizeof v4);
  } else if (sockaddr_in6 v6{}; inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    std::memcpy(&bound.storage, &v6, bound.size = sizeof v6);
  }
  return bound;
}

// Removes a socket file that a server left behind when it was killed. Fails with `unavailable` if a process listens on
// it.
Result<void> remove_leftover(const std::string& path, Bound& address) {
  struct stat entry{};
  if (lstat(path.c_str(), &entry) != 0) return {};
  if (!S_ISSOCK(entry.st_mode))
    return Error{ErrorCode::io, "'" + path + "' exists and is not a socket", "remove it, or choose another path"};
  const world::Descriptor probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return io_error("cannot open a socket");
  // EAGAIN: the queue of the listening process is full.
  if (connect(probe.get(), address.get(), address.size) == 0 || errno == EAGAIN)
    return Error{ErrorCode::unavailable, "another process listens on the socket '" + path + "'",
                 "end it, or choose another path"};
  unlink(path.c_str());
  return {};
}

Error bind_error(const ListenAddress& address) {
  if (!address.path.empty()) return io_error("cannot create the socket '" + address.path + "'");
  const std::string where = "port " + std::to_string(address.port) + " of " + address.host;
  if (errno == EADDRINUSE)
    return {ErrorCode::unavailable, where + " is in use by another process",
            "end that process, or choose another port"};
  if (errno == EACCES)
    return {ErrorCode::io, "this user has no permission to use " + where, "choose a port above 1023"};
  if (errno == EADDRNOTAVAIL)
    return {ErrorCode::io, "this machine does not have the address " + address.host, "choose one that it has"};
  return io_error("cannot listen on " + where);
}

}  // namespace

Result<ListenAddress> parse_listen_address(std::string_view text) {
  const Error wrong{ErrorCode::invalid_argument, "'" + std::string(text) + "' is not an address to listen on",
                    "use ADDRESS:PORT such as 127.0.0.1:8080 or [::1]:8080, or unix:/path"};
  ListenAddress address;
  if (text.starts_with("unix:")) {
    address.path = text.substr(5);
    if (!address.path.starts_with('/') || address.path.find('\0') != std::string::npos) return wrong;
    return address;
  }
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos) return wrong;
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size()) return wrong;
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (bracketed != (host.find(':') != host.npos)) return wrong;
  address.host = host == "localhost" ? "127.0.0.1" : host;
  if (ip_address(address.host, 0).size == 0) return wrong;
  return address;
}

namespace {

// A socket that is bound to the address and does not listen yet.
Result<world::Descriptor> bound_socket(const ListenAddress& address) {
  Bound bound = address.path.empty() ? ip_address(address.host, address.port) : BERTH_TRY(unix_address(address.path));
  if (!address.path.empty()) BERTH_TRY(remove_leftover(address.path, bound));
  const int family = bound.storage.ss_family;
  world::Descriptor descriptor(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!descriptor) return io_error("cannot open a socket");
  const int on = 1;
  if (address.path.empty()) {
    // A restarted server gets its port back even if old connections linger.
    setsockopt(descriptor.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6) setsockopt(descriptor.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  } else {
    // On Linux, bind() creates the file with this mode, so that others can never connect.
    fchmod(descriptor.get(), 0600);
  }
  if (bind(descriptor.get(), bound.get(), bound.size) != 0) return bind_error(address);
  return descriptor;
}

}  // namespace

Result<Listening> open_listening(const ListenAddress& address) {
  world::Descriptor descriptor = BERTH_TRY(bound_socket(address));
  if (listen(descriptor.get(), backlog) != 0) return bind_error(address);
  return taken_listening(address, descriptor.release());
}

Result<void> check_is_free(const ListenAddress& address) {
  BERTH_TRY(bound_socket(address));
  return {};
}

Listening taken_listening(const ListenAddress& address, int descriptor) {
  if (!address.path.empty()) return {descriptor, AF_UNIX, to_text(address)};
  Bound bound;
  bound.size = sizeof bound.storage;
  getsockname(descriptor, bound.get(), &bound.size);
  const bool v6 = bound.storage.ss_family == AF_INET6;
  ListenAddress chosen = address;
  chosen.port = ntohs(v6 ? reinterpret_cast<sockaddr_in6*>(&bound.storage)->sin6_port
                         : reinterpret_cast<sockaddr_in*>(&bound.storage)->sin_port);
  return {descriptor, bound.storage.ss_family, to_text(chosen)};
}

std::string to_text(const ListenAddress& address) {
  if (!address.path.empty()) return "unix:" + address.path;
  const bool v6 = address.host.find(':') != address.host.npos;
  return (v6 ? '[' + address.host + ']' : address.host) + ':' + std::to_string(address.port);
}

std::string address_text(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&address)->sin_addr, text, sizeof text);
  } else if (address.ss_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&v6))
      inet_ntop(AF_INET, v6.s6_addr + 12, text, sizeof text);
    else
      inet_ntop(AF_INET6, &v6, text, sizeof text);
  } else {
    return "unix";
  }
  return text;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return addresses;
  for (const ifaddrs* interface = all; interface != nullptr && addresses.size() < 64; interface = interface->ifa_next) {
    if (interface->ifa_addr == nullptr) continue;
    const int family = interface->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    sockaddr_storage address{};
    std::memcpy(&address, interface->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    addresses.push_back(address_text(address));
  }
  freeifaddrs(all);
  return addresses;
}

std::string own_host_name() {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0) return {};
  const std::string_view allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.";
  return std::string_view(name).find_first_not_of(allowed) == std::string_view::npos ? name : std::string();
}

bool is_loopback_address(const sockaddr_storage& address) {
  const std::string text = address_text(address);
  return text == "unix" || text == "::1" || text.starts_with("127.");
}

}  // namespace berth::http
