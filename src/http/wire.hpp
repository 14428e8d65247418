// The bytes of one connection, plain or TLS, behind one interface, so that the code of HTTP is compiled once. One read
// and one write may be under way at a time; their buffers must stay valid until the callback.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "http/asio.hpp"

namespace berth::http {

class Wire {
 public:
  using Done = std::function<void(ErrorValue, std::size_t)>;

  virtual ~Wire() = default;
  virtual Socket& socket() = 0;
  // The TLS handshake; at once on a plain connection.
  virtual void handshake(bool as_server, Done done) = 0;
  virtual void read_some(asio::mutable_buffer into, Done done) = 0;
  virtual void write_some(asio::const_buffer from, Done done) = 0;
  // Null on a plain connection.
  virtual SSL* tls() = 0;

  // What is under way ends with an error.
  void close();
};

std::unique_ptr<Wire> plain_wire(Socket socket);
std::unique_ptr<Wire> tls_wire(Socket socket, asio::ssl::context& context);

}  // namespace berth::http
