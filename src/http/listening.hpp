// Sockets that listen: from an address as text to a file descriptor.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "berth/result.hpp"

namespace berth::http {

struct ListenAddress {
  std::string host;  // an IP address; empty: a Unix socket
  std::uint16_t port = 0;
  std::string path;  // of a Unix socket
  friend bool operator==(const ListenAddress&, const ListenAddress&) = default;
};
// invalid_argument: not a form that Server::listen() accepts.
Result<ListenAddress> parse_listen_address(std::string_view text);
std::string to_text(const ListenAddress& address);

struct Listening {
  int descriptor = -1;
  int family = AF_UNSPEC;
  std::string address;  // as given, with the port that was chosen
};
// unavailable: in use; io: any other failure.
Result<Listening> open_listening(const ListenAddress& address);
// Whether open_listening() could succeed at a TCP address now, without listening there.
Result<void> check_is_free(const ListenAddress& address);
// For a socket that already listens there.
Listening taken_listening(const ListenAddress& address, int descriptor);

// The address of a socket's end as text, without the port: "127.0.0.1", "::1", "unix". IPv4 in IPv6 as IPv4.
std::string address_text(const sockaddr_storage& address);
// The addresses of this machine's network interfaces that are up, without ports; at most 64.
std::vector<std::string> own_addresses();

// The name of this machine; empty: it is not valid in a certificate.
std::string own_host_name();

bool is_loopback_address(const sockaddr_storage& address);

}  // namespace berth::http
