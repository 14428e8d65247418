#include "http/wire.hpp"

#include <utility>

namespace berth::http {
namespace {

class PlainWire final : public Wire {
 public:
  explicit PlainWire(Socket socket) : socket_(std::move(socket)) {}
  Socket& socket() override { return socket_; }
  void handshake(bool, Done done) override {
    asio::post(socket_.get_executor(), [done = std::move(done)] { done({}, 0); });
  }
  void read_some(asio::mutable_buffer into, Done done) override { socket_.async_read_some(into, std::move(done)); }
  void write_some(asio::const_buffer from, Done done) override { socket_.async_write_some(from, std::move(done)); }
  SSL* tls() override { return nullptr; }

 private:
  Socket socket_;
};

class TlsWire final : public Wire {
 public:
  TlsWire(Socket socket, asio::ssl::context& context) : stream_(std::move(socket), context) {}
  Socket& socket() override { return stream_.next_layer(); }
  void handshake(bool as_server, Done done) override {
    stream_.async_handshake(as_server ? asio::ssl::stream_base::server : asio::ssl::stream_base::client,
                            [done = std::move(done)](ErrorValue error) { done(error, 0); });
  }
  void read_some(asio::mutable_buffer into, Done done) override {
    stream_.async_read_some(into, [done = std::move(done)](ErrorValue error, std::size_t bytes) {
      // The peer closed its socket without saying so in TLS. HTTP has lengths of its own to notice a cut answer.
      done(error == asio::ssl::error::stream_truncated ? ErrorValue(asio::error::eof) : error, bytes);
    });
  }
  void write_some(asio::const_buffer from, Done done) override { stream_.async_write_some(from, std::move(done)); }
  SSL* tls() override { return stream_.native_handle(); }

 private:
  asio::ssl::stream<Socket> stream_;
};

}  // namespace

void Wire::close() {
  ErrorValue ignored;
  socket().close(ignored);
}

std::unique_ptr<Wire> plain_wire(Socket socket) { return std::make_unique<PlainWire>(std::move(socket)); }

std::unique_ptr<Wire> tls_wire(Socket socket, asio::ssl::context& context) {
  return std::make_unique<TlsWire>(std::move(socket), context);
}

}  // namespace berth::http
