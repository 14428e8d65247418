// The bytes of one connection, plain or TLS, so that the code of HTTP is written once. OpenSSL works on the socket
// itself and releases its buffers while nothing arrives, so that an idle connection costs a few kilobytes. One read
// and one write may be in progress at a time, on the loop's thread.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "berth/clock.hpp"
#include "http/asio.hpp"
#include "http/async.hpp"
#include "http/loop.hpp"

namespace berth::http {

// Bytes that a socket may hold unsent. With the default of several megabytes, a slow reader would look like one
// that does not read, because the kernel reports a socket as writable only when a third of it is free.
inline constexpr int unsent_bytes_max = 128 * 1024;
// A machine that carries requests to a replica counts as lost after this time without a sign of life.
inline constexpr std::chrono::seconds peer_lost_time{12};

class Wire {
 public:
  Wire(Loop& loop, Socket socket);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  Async<ErrorValue> connect(const asio::generic::stream_protocol::endpoint& endpoint);
  // Everything from here on is encrypted, after a handshake. `context` is kept.
  void use_tls(std::shared_ptr<asio::ssl::context> context);
  Async<ErrorValue> handshake(bool as_server);

  // Waits until there is something to read, without a buffer for it.
  Async<ErrorValue> wait_readable();
  struct Read {
    ErrorValue error;  // eof: the other side will send nothing more
    std::size_t bytes = 0;
  };
  Async<Read> read_some(std::span<char> into);
  Async<ErrorValue> write(std::string_view bytes);

  // Pending and later operations end with an error.
  void close();
  // The same, and drops unsent data: the other side may not read it, and would notice the end only after it.
  void abort();
  // Pending operations end with operation_aborted; the connection can still be used.
  void cancel();
  // A read or a write still pending at this time is cancelled and ends with timed_out. max: none.
  void read_by(TimePoint time) { read_by_ = time; }
  void write_by(TimePoint time) { write_by_ = time; }
  // For TCP: the connection ends with host_down() when the kernel of the other machine has acknowledged nothing for
  // this time: neither sent bytes nor, if there were none, a probe. A machine whose program merely pauses still
  // answers.
  void notice_loss(std::chrono::seconds within);
  void sweep(TimePoint now);

  Loop& loop() { return loop_; }
  Socket& socket() { return socket_; }
  bool is_open() const { return socket_.is_open(); }
  // Whether there is unread input, or the connection has ended.
  bool has_input();
  // Whether the other side has ended or broken the connection, even if input still waits to be read.
  bool has_hung_up();
  // Returns null on a plain connection.
  SSL* tls() { return tls_.get(); }

 private:
  struct Free {
    void operator()(SSL* tls) const { SSL_free(tls); }
  };
  struct Ready;
  struct Connecting;

  Async<ErrorValue> wait(bool for_read);
  void look_at_peer(TimePoint now);
  // The error for a socket that was closed on this side.
  ErrorValue why_closed() const;
  // Receives bytes from the socket, for OpenSSL or without it; -1 with errno if there are none.
  ssize_t receive(char* into, std::size_t count);
  static int receive_for_tls(BIO* bio, char* into, int count);
  // Whether OpenSSL has bytes from the socket that have not been read yet.
  bool has_pending() const { return tls_ && SSL_has_pending(tls_.get()) == 1; }
  // Determines whether OpenSSL must read or write next after an incomplete `result`. False: it has failed with
  // `error`.
  bool wants(int result, bool& read, ErrorValue& error);

  Loop& loop_;
  Socket socket_;
  std::shared_ptr<asio::ssl::context> context_;
  std::unique_ptr<SSL, Free> tls_;
  TimePoint read_by_ = TimePoint::max(), write_by_ = TimePoint::max();
  bool is_waiting_to_read_ = false, is_waiting_to_write_ = false;
  // The last read emptied the socket, so the next one waits first.
  bool is_drained_ = false;
  // Consecutive reads and writes that did not wait; after some, others get their turn on the loop.
  int without_waiting_ = 0;
  std::size_t cancellations_ = 0;
  // Bytes have been sent since the last check that found everything acknowledged.
  bool may_be_unacknowledged_ = false;
  bool is_lost_ = false;
  // The number of checks, once a second, that found bytes or a probe unacknowledged and nothing received since the
  // previous one, and the number after which the peer is lost (0: never). Checks are counted, because time also
  // passes while this process is stopped.
  int silent_looks_ = 0, silent_looks_max_ = 0;
  TimePoint looked_at_{};
  friend struct Loop;
  std::size_t place_ = 0;  // in the loop's list
};

// The error of a connection whose peer machine is lost, no matter how the loss was detected.
inline ErrorValue host_down() { return {EHOSTDOWN, boost::system::system_category()}; }

}  // namespace berth::http
