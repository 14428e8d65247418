#include "http/dialer.hpp"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "http/secret.hpp"
#include "http/tls.hpp"

namespace berth::http {
namespace {

// The fingerprint in lower case, without colons, or nothing if it is not 64 hexadecimal digits.
std::optional<std::string> plain_fingerprint(const std::string& text) {
  std::string plain;
  for (const char c : text) {
    if (c == ':') continue;
    plain += c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  if (plain.size() != 64 || plain.find_first_not_of("0123456789abcdef") != plain.npos) return std::nullopt;
  return plain;
}

constexpr std::chrono::seconds server_lost_time{36};

void set_tcp_options(Wire& wire) {
  ErrorValue ignored;  // without it, slower but still correct
  wire.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  ::setsockopt(wire.socket().native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_bytes_max,
               sizeof unsent_bytes_max);
  wire.notice_loss(server_lost_time);
}

}  // namespace

// The system's resolver cannot be interrupted: if the coroutine is destroyed meanwhile, the lookup is abandoned.
class Dialer::Resolving {
 public:
  using Results = asio::ip::tcp::resolver::results_type;

  Resolving(Loop& loop, const Url& url) : state_(std::make_shared<State>(loop.context)), url_(url) {}
  ~Resolving() { state_->waiting = nullptr; }
  Resolving(const Resolving&) = delete;
  Resolving& operator=(const Resolving&) = delete;

  bool await_ready() const { return false; }
  bool await_suspend(std::coroutine_handle<> handle) {
    state_->waiting = handle;
    try {
      state_->resolver.async_resolve(url_.host, url_.port, [state = state_](ErrorValue error, const Results& found) {
        state->error = error;
        state->found = found;
        if (state->waiting) state->waiting.resume();
      });
    } catch (const boost::system::system_error& shortage) {  // it needs a thread
      state_->error = shortage.code();
      return false;
    }
    return true;
  }
  std::pair<ErrorValue, Results> await_resume() const { return {state_->error, state_->found}; }

 private:
  struct State {
    explicit State(asio::io_context& context) : resolver(context) {}
    asio::ip::tcp::resolver resolver;
    std::coroutine_handle<> waiting = nullptr;
    ErrorValue error;
    Results found;
  };
  std::shared_ptr<State> state_;
  const Url& url_;
};

Result<Dialer> Dialer::create(ClientOptions options) {
  Dialer dialer;
  dialer.url_ = BERTH_TRY(parse_url(options.url));
  const auto is_control = [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; };
  if (std::any_of(options.token.begin(), options.token.end(), is_control))
    return Error{ErrorCode::invalid_argument, "the token contains characters that no token has",
                 "a token is one line, as berth token add prints it"};
  if (!options.fingerprint.empty()) {
    auto plain = plain_fingerprint(options.fingerprint);
    if (!plain)
      return Error{ErrorCode::invalid_argument, "'" + options.fingerprint + "' is not a SHA-256 fingerprint",
                   "it has 64 hexadecimal digits"};
    options.fingerprint = *std::move(plain);
  }
  options.token = parse_token(options.token).secret;
  if (dialer.url_.kind == Url::Kind::https) dialer.tls_ = BERTH_TRY(client_tls(options));
  if (dialer.url_.kind == Url::Kind::http && !options.token.empty())
    dialer.tls_ = proving_client_tls(proof_of(sha256(options.token)));
  dialer.options_ = std::move(options);
  return dialer;
}

Error Dialer::unavailable(const std::string& what, const ErrorValue& error) const {
  return {ErrorCode::unavailable, what + ' ' + options_.url + ": " + error.message()};
}

Async<Result<std::vector<Dialer::Endpoint>>> Dialer::resolve(Loop& loop) {
  std::vector<Endpoint> endpoints;
  ErrorValue not_numeric;
  if (url_.kind == Url::Kind::unix_socket) {
    endpoints.emplace_back(asio::local::stream_protocol::endpoint(url_.path));
  } else if (const auto address = asio::ip::make_address(url_.host, not_numeric); !not_numeric) {
    std::uint16_t port = 0;
    std::from_chars(url_.port.data(), url_.port.data() + url_.port.size(), port);
    endpoints.emplace_back(asio::ip::tcp::endpoint(address, port));
  } else {
    const auto [error, found] = co_await Resolving(loop, url_);
    if (error) co_return unavailable("cannot find the address of", error);
    for (const auto& entry : found) endpoints.emplace_back(entry.endpoint());
  }
  co_return endpoints;
}

Async<Result<void>> Dialer::secure(Wire& wire) {
  if (!options_.certificate_file.empty() && url_.kind == Url::Kind::https) {
    auto renewed = client_tls(options_);
    if (!renewed) co_return renewed.error();
    tls_ = *renewed;
  }
  wire.use_tls(tls_);
  if (url_.kind == Url::Kind::https && !expect_host(wire.tls(), url_.host))
    co_return Error{ErrorCode::invalid_argument, "'" + url_.host + "' is not a valid server name for TLS"};
  const ErrorValue error = co_await wire.handshake(false);
  if (url_.kind == Url::Kind::http && (error || !has_proven_key(wire.tls())))
    co_return unproven_error(options_.url, error);
  if (error) co_return handshake_error(wire.tls(), url_.host, error);
  co_return Result<void>();
}

Async<Result<std::unique_ptr<Link>>> Dialer::connect(Loop& loop, TimePoint by) {
  const auto endpoints = co_await resolve(loop);
  if (!endpoints) co_return endpoints.error();
  std::optional<Error> refused;
  for (const Endpoint& endpoint : *endpoints) {
    Socket socket(loop.context);
    ErrorValue error;
    socket.open(endpoint.protocol(), error);
    if (error) co_return Error{ErrorCode::io, "cannot open a socket: " + error.message()};
    auto wire = std::make_unique<Wire>(loop, std::move(socket));
    wire->read_by(by);
    wire->write_by(by);
    error = co_await wire->connect(endpoint);
    if (error) {
      refused = unavailable("cannot connect to", error);
      continue;
    }
    if (url_.kind != Url::Kind::unix_socket) set_tcp_options(*wire);
    if (tls_)
      if (auto secured = co_await secure(*wire); !secured) co_return secured.error();
    wire->read_by(TimePoint::max());
    wire->write_by(TimePoint::max());
    co_return std::make_unique<Link>(std::move(wire));
  }
  co_return refused ? *refused : Error{ErrorCode::unavailable, "no address is known for " + options_.url};
}

}  // namespace berth::http
