#include "http/wire.hpp"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace berth::http {
namespace {

// A peer that always has more, such as one that sends request after request, must not monopolise the loop, nor evade
// its deadline, which is checked only in waits.
constexpr int turns_max = 32;

// OpenSSL's own BIO of a socket uses write(), which raises SIGPIPE when the other side is gone.
int bio_write(BIO* bio, const char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const int socket = static_cast<Wire*>(BIO_get_data(bio))->socket().native_handle();
  const auto sent = send(socket, bytes, static_cast<std::size_t>(count), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

long bio_control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

const BIO_METHOD* bio_method(int (*read)(BIO*, char*, int)) {
  static const BIO_METHOD* const method = [read] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "berth socket");
    BIO_meth_set_write(made, bio_write);
    BIO_meth_set_read(made, read);
    BIO_meth_set_ctrl(made, bio_control);
    return made;
  }();
  return method;
}

// The kernel's ETIMEDOUT, for unanswered probes, must not look like one of our deadlines.
ErrorValue system_error(int number) {
  return number == ETIMEDOUT ? host_down() : ErrorValue(number, boost::system::system_category());
}

// Called before each operation, because SSL_get_error() examines all errors of the thread. Finding none is cheap.
void clear_errors() {
  if (ERR_peek_error() != 0) ERR_clear_error();
}

// A TLS record, which the kernel usually accepts at once.
constexpr std::size_t write_bytes = 16 * 1024;

constexpr std::chrono::seconds look_every{1};
// Keep-alive: half of the time for the peer to send something by itself, the rest for this many probes.
constexpr int probes = 3;

}  // namespace

struct Wire::Ready {
  Socket& socket;
  Socket::wait_type kind;
  ErrorValue error = {};
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> handle) {
    socket.async_wait(kind, [this, handle](ErrorValue result) {
      error = result;
      handle.resume();
    });
  }
  ErrorValue await_resume() const { return error; }
};

Wire::Wire(Loop& loop, Socket socket) : loop_(loop), socket_(std::move(socket)) {
  ErrorValue ignored;
  socket_.non_blocking(true, ignored);
  loop_.add(*this);
}

Wire::~Wire() { loop_.remove(*this); }

struct Wire::Connecting {
  Socket& socket;
  const asio::generic::stream_protocol::endpoint& endpoint;
  ErrorValue error = {};
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> handle) {
    socket.async_connect(endpoint, [this, handle](ErrorValue result) {
      error = result;
      handle.resume();
    });
  }
  ErrorValue await_resume() const { return error; }
};

Async<ErrorValue> Wire::connect(const asio::generic::stream_protocol::endpoint& endpoint) {
  is_waiting_to_write_ = true;
  const ErrorValue error = co_await Connecting{socket_, endpoint};
  is_waiting_to_write_ = false;
  co_return error == asio::error::operation_aborted&& real_clock().now() >= write_by_ ? asio::error::timed_out : error;
}

void Wire::use_tls(std::shared_ptr<asio::ssl::context> context) {
  context_ = std::move(context);
  tls_.reset(SSL_new(context_->native_handle()));
  SSL_set_mode(tls_.get(),
               SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  // The peer may close its socket without a TLS close message. HTTP detects truncated answers by its own lengths.
  SSL_set_options(tls_.get(), SSL_OP_IGNORE_UNEXPECTED_EOF);
  // A record and its header are read at once.
  SSL_set_read_ahead(tls_.get(), 1);
  BIO* const bio = BIO_new(bio_method(receive_for_tls));
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(tls_.get(), bio, bio);
}

ssize_t Wire::receive(char* into, std::size_t count) {
  const ssize_t got = recv(socket_.native_handle(), into, count, MSG_DONTWAIT);
  is_drained_ = got < 0 || (got > 0 && static_cast<std::size_t>(got) < count);
  return got;
}

int Wire::receive_for_tls(BIO* bio, char* into, int count) {
  BIO_clear_retry_flags(bio);
  const ssize_t got = static_cast<Wire*>(BIO_get_data(bio))->receive(into, static_cast<std::size_t>(count));
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(got);
}

bool Wire::has_hung_up() {
  pollfd socket{socket_.native_handle(), POLLRDHUP, 0};
  return poll(&socket, 1, 0) != 0;
}

bool Wire::has_input() {
  if (has_pending()) return true;
  char byte = 0;
  const auto got = recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

Async<ErrorValue> Wire::wait(bool for_read) {
  const TimePoint& by = for_read ? read_by_ : write_by_;
  bool& is_waiting = for_read ? is_waiting_to_read_ : is_waiting_to_write_;
  const std::size_t cancellations = cancellations_;
  while (true) {
    if (!socket_.is_open()) co_return why_closed();
    if (real_clock().now() >= by) co_return asio::error::timed_out;
    is_waiting = true;
    without_waiting_ = 0;
    const ErrorValue error = co_await Ready{socket_, for_read ? Socket::wait_read : Socket::wait_write};
    is_waiting = false;
    if (for_read && !error) is_drained_ = false;
    // If both directions became ready together, the code that ran first may have cancelled this wait after it had
    // ended.
    if (cancellations != cancellations_) co_return asio::error::operation_aborted;
    // The operation is also aborted when only the other direction is out of time.
    if (error != asio::error::operation_aborted) co_return error;
  }
}

bool Wire::wants(int result, bool& read, ErrorValue& error) {
  const int system = errno;
  switch (SSL_get_error(tls_.get(), result)) {
    case SSL_ERROR_WANT_READ: return read = true;
    case SSL_ERROR_WANT_WRITE: return read = false, true;
    case SSL_ERROR_ZERO_RETURN: return error = asio::error::eof, false;
    case SSL_ERROR_SYSCALL: return error = system != 0 ? system_error(system) : ErrorValue(asio::error::eof), false;
    default: return error = ErrorValue(static_cast<int>(ERR_get_error()), asio::error::get_ssl_category()), false;
  }
}

Async<ErrorValue> Wire::handshake(bool as_server) {
  if (!tls_) co_return ErrorValue();
  while (true) {
    if (!socket_.is_open()) co_return why_closed();
    clear_errors();
    const int result = as_server ? SSL_accept(tls_.get()) : SSL_connect(tls_.get());
    if (result == 1) co_return ErrorValue();
    bool read = true;
    ErrorValue error;
    if (!wants(result, read, error)) co_return error;
    // All of a handshake is bounded by the time for reading.
    if (!read) write_by_ = read_by_;
    if (error = co_await wait(read); error) co_return error;
  }
}

Async<ErrorValue> Wire::wait_readable() {
  if (has_pending()) co_return ErrorValue();
  co_return co_await wait(true);
}

Async<Wire::Read> Wire::read_some(std::span<char> into) {
  bool for_read = true, waits = (is_drained_ || ++without_waiting_ > turns_max) && !has_pending();
  while (true) {
    if (waits)
      if (const ErrorValue error = co_await wait(for_read); error) co_return Read{error};
    if (!socket_.is_open()) co_return Read{why_closed()};
    for_read = waits = true;
    if (tls_) {
      clear_errors();
      const int got = SSL_read(tls_.get(), into.data(), static_cast<int>(into.size()));
      if (got > 0) co_return Read{{}, static_cast<std::size_t>(got)};
      Read ended;
      if (!wants(got, for_read, ended.error)) co_return ended;
    } else {
      const ssize_t got = receive(into.data(), into.size());
      if (got > 0) co_return Read{{}, static_cast<std::size_t>(got)};
      if (got == 0) co_return Read{asio::error::eof};
      waits = errno == EAGAIN;
      if (!waits && errno != EINTR) co_return Read{system_error(errno)};
    }
  }
}

Async<ErrorValue> Wire::write(std::string_view bytes) {
  may_be_unacknowledged_ = true;
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), write_bytes);
    bool for_read = false;
    if (++without_waiting_ > turns_max)
      if (const ErrorValue error = co_await wait(for_read); error) co_return error;
    if (!socket_.is_open()) co_return why_closed();
    if (tls_) {
      clear_errors();
      const int sent = SSL_write(tls_.get(), bytes.data(), static_cast<int>(count));
      if (sent > 0) {
        bytes.remove_prefix(static_cast<std::size_t>(sent));
        continue;
      }
      ErrorValue error;
      if (!wants(sent, for_read, error)) co_return error;
    } else {
      const auto sent = send(socket_.native_handle(), bytes.data(), count, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent >= 0) {
        bytes.remove_prefix(static_cast<std::size_t>(sent));
        continue;
      }
      if (errno == EINTR) continue;
      if (errno != EAGAIN) co_return system_error(errno);
    }
    if (const ErrorValue error = co_await wait(for_read); error) co_return error;
  }
  co_return ErrorValue();
}

void Wire::close() {
  ErrorValue ignored;
  socket_.close(ignored);
}

void Wire::abort() {
  int unsent = 0;
  ErrorValue ignored;
  if (ioctl(socket_.native_handle(), SIOCOUTQNSD, &unsent) == 0 && unsent > 0)
    socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  close();
}

void Wire::cancel() {
  ++cancellations_;
  ErrorValue ignored;
  socket_.cancel(ignored);
}

ErrorValue Wire::why_closed() const { return is_lost_ ? host_down() : ErrorValue(asio::error::operation_aborted); }

void Wire::notice_loss(std::chrono::seconds within) {
  const auto set = [this](int level, int option, auto value) {
    const auto number = static_cast<int>(value);
    setsockopt(socket_.native_handle(), level, option, &number, sizeof number);  // without it, slower but still correct
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, within.count() / 2);
  set(IPPROTO_TCP, TCP_KEEPINTVL, within.count() / 2 / probes);
  set(IPPROTO_TCP, TCP_KEEPCNT, probes);
  silent_looks_max_ = static_cast<int>(within / look_every);
}

// The kernel itself gives up unacknowledged bytes after a quarter of an hour. TCP_USER_TIMEOUT would shorten this, but
// also end connections to programs that pause: while a peer accepts no more bytes, all that were sent are acknowledged,
// and so are the probes that ask for room, up to two minutes apart.
void Wire::look_at_peer(TimePoint now) {
  const Duration since = now - std::exchange(looked_at_, now);
  int queued = 0;
  if (ioctl(socket_.native_handle(), SIOCOUTQ, &queued) == 0 && queued == 0) may_be_unacknowledged_ = false;
  tcp_info info{};
  socklen_t size = sizeof info;
  const bool is_owed = may_be_unacknowledged_ &&
                       getsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
                       (info.tcpi_unacked > 0 || info.tcpi_probes > 0);
  const bool is_silent = is_owed && std::chrono::milliseconds(info.tcpi_last_ack_recv) >= since;
  silent_looks_ = is_silent ? silent_looks_ + 1 : 0;
  if (silent_looks_ < silent_looks_max_) return;
  is_lost_ = true;
  close();
}

void Wire::sweep(TimePoint now) {
  if (may_be_unacknowledged_ && silent_looks_max_ > 0 && now - looked_at_ >= look_every && socket_.is_open())
    look_at_peer(now);
  ErrorValue ignored;
  if ((is_waiting_to_read_ && now >= read_by_) || (is_waiting_to_write_ && now >= write_by_)) socket_.cancel(ignored);
}

}  // namespace berth::http
