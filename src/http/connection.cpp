#include "http/connection.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <utility>

#include "http/beast.hpp"
#include "http/request_checks.hpp"
#include "http/tls.hpp"
#include "world/wall_time.hpp"

namespace berth::http {
namespace {

// How much must be written within Limits::write_time: at least 2 KiB/s, so that a client that reads a byte now
// and then cannot keep a connection.
constexpr std::size_t piece_bytes = 64 * 1024;
constexpr std::chrono::milliseconds linger_time{2'000}, last_request_time{1'000};
constexpr std::size_t linger_bytes = 1024 * 1024;

// "Sun, 06 Nov 1994 08:49:37 GMT"; made once per second.
const std::string& date() {
  static thread_local std::time_t of = 0;
  static thread_local std::string text;
  const auto now = static_cast<std::time_t>(world::wall_time_us() / 1'000'000);
  if (now != of) {
    static constexpr const char* days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static constexpr const char* months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                             "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    std::tm t{};
    gmtime_r(&now, &t);
    char line[64];
    std::snprintf(line, sizeof line, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[t.tm_wday], t.tm_mday,
                  months[t.tm_mon], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
    text = line;
    of = now;
  }
  return text;
}

// A line end in a value would start another header.
void append_value(std::string& out, std::string_view value) {
  for (const char c : value)
    if (static_cast<unsigned char>(c) >= 0x20 || c == '\t') out += c;
}

void append_header(std::string& out, std::string_view name, std::string_view value) {
  append_value(out, name);
  out += ": ";
  append_value(out, value);
  out += "\r\n";
}

// Sent with every answer that does not set them itself. The page may load only from its own server, cannot be framed,
// and does not send its address to other sites.
constexpr std::pair<std::string_view, std::string_view> security_headers[] = {
    {"content-security-policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
     "form-action 'none'; frame-ancestors 'none'"},
    {"x-content-type-options", "nosniff"},
    {"referrer-policy", "no-referrer"},
    {"cross-origin-opener-policy", "same-origin"},
    {"cross-origin-resource-policy", "same-origin"},
    {"cache-control", "no-store"},
};

}  // namespace

Connection::Connection(ServerContext& serving, std::unique_ptr<Wire> wire, std::shared_ptr<asio::ssl::context> tls,
                       Peer peer, std::string local_address)
    : serving_(serving),
      tls_(std::move(tls)),
      link_(std::move(wire)),
      peer_(std::move(peer)),
      local_address_(std::move(local_address)),
      wake_(*serving.loop) {}

void Connection::start() { run_.emplace(run()); }

Async<void> Connection::run() {
  bool goes_on = co_await shake_hands();
  while (goes_on) goes_on = co_await exchange();
  close(true);
  serving_.on_ended(*this);
}

Async<bool> Connection::shake_hands() {
  wire().read_by(real_clock().now() + serving_.options.limits.header_time);
  bool proves = false;
  if ((tls_ || serving_.proving) && !peer_.unix_uid) {
    // The first byte distinguishes a TLS handshake, which is a proof where no certificate is used, from a request in
    // plain text.
    constexpr char handshake_record = 0x16;
    char first = 0;
    ssize_t got = -1;
    while (got < 0) {
      const ErrorValue error = co_await wire().wait_readable();
      if (error) co_return false;
      got = recv(wire().socket().native_handle(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
      // Asio may report readiness too early, from an event of a connection that was closed at the same time.
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) co_return false;
    }
    proves = !tls_ && first == handshake_record;
    lacks_tls_ = tls_ && first >= 'A' && first <= 'Z';
    if (lacks_tls_) co_return true;  // check_head() refuses the request
  }
  if (tls_ || proves) wire().use_tls(proves ? serving_.proving : tls_);
  const ErrorValue error = co_await wire().handshake(true);
  if (error) co_return false;
  if (tls_ || proves) peer_.credential = proven_credential(wire().tls());
  if (tls_ && peer_.credential.empty()) peer_.certificate = peer_certificate(wire().tls());
  co_return !proves || !peer_.credential.empty();
}

void Connection::close(bool call_gone) {
  if (phase_ == Phase::closed) return;
  phase_ = Phase::closed;
  wire().close();
  wake_.notify();
  if (const auto channel = std::exchange(channel_, nullptr)) channel->set_gone(call_gone);
}

void Connection::drain() {
  if (phase_ == Phase::idle) {
    // A request on its way is still answered, and a client that has just connected is about to send one.
    char first = 0;
    const bool has_sent = recv(wire().socket().native_handle(), &first, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
    if (!is_first_ && !has_sent && serving_.last_idle_time.count() == 0) return close(false);
    return wire().read_by(real_clock().now() + (is_first_ || has_sent ? last_request_time : serving_.last_idle_time));
  }
  if (phase_ != Phase::streaming) return;
  {
    const std::lock_guard lock(channel_->mutex);
    channel_->open = false;
    channel_->ended = true;
  }
  wake_.notify();
}

Async<bool> Connection::exchange() {
  const Limits& limits = serving_.options.limits;
  phase_ = Phase::idle;
  if (!serving_.draining)
    wire().read_by(real_clock().now() + (is_first_ ? limits.header_time : limits.idle_time));
  else if (!is_first_)
    wire().read_by(real_clock().now() + serving_.last_idle_time);
  const Link::Outcome begun = co_await link_.wait_for_message();
  if (begun != Link::Outcome::done || phase_ == Phase::closed) co_return false;
  is_first_ = false;

  phase_ = Phase::reading;
  wire().read_by(real_clock().now() + limits.header_time);
  request_ = {};
  keep_alive_ = false;
  const Link::Outcome outcome = co_await link_.read_request(head_, limits.header_bytes);
  std::optional<Refusal> refusal;
  if (outcome == Link::Outcome::done)
    refusal = check_head();
  else
    refusal = refusal_of(outcome, "header");
  if (outcome == Link::Outcome::done && !refusal && serving_.proxy) {
    phase_ = Phase::proxying;
    wire().read_by(TimePoint::max());
    const bool goes_on = co_await serving_.proxy(link_, head_, peer_);
    if (!goes_on && !link_.is_read() && wire().is_open()) co_await linger();
    // A keep-alive answer that was partly sent before the shutdown has promised to accept another request.
    const bool is_last = serving_.draining && serving_.last_idle_time.count() == 0;
    if (is_last || phase_ == Phase::closed) co_return false;
    co_return goes_on;
  }
  if (outcome == Link::Outcome::done && !refusal) refusal = co_await read_body();
  if (refusal) co_return co_await refuse(*std::move(refusal));
  wire().read_by(TimePoint::max());
  if (phase_ == Phase::closed) co_return false;

  handle();
  if (answer_.index() == 0) watch_.emplace(watch());
  while (answer_.index() == 0 && phase_ != Phase::closed) co_await wake_.wait();
  bool is_written = false;
  if (phase_ != Phase::closed) is_written = co_await write_answer();
  if (watch_) {
    wire().cancel();
    co_await watch_->join();
    watch_.reset();
  }
  if (const auto channel = std::exchange(channel_, nullptr))
    is_written ? channel->set_complete() : channel->set_gone(true);
  answer_ = {};
  co_return is_written&& keep_alive_ && !serving_.draining && !end_of_input_;
}

// The refusal of a request that could not be read; its status is 0 if the client is gone.
std::optional<Connection::Refusal> Connection::refusal_of(Link::Outcome outcome, std::string_view part) const {
  const std::string of = "the " + std::string(part) + " of the request ";
  switch (outcome) {
    case Link::Outcome::timed_out: return Refusal{408, "timeout", of + "took too long"};
    case Link::Outcome::too_long:
      if (part == "header") return Refusal{431, "too_long", of + "is too long"};
      [[fallthrough]];
    case Link::Outcome::malformed:
      if (part == "body") return Refusal{400, "invalid_argument", of + "is malformed: " + link_.error().message()};
      return Refusal{400, "invalid_argument", "the request is not valid HTTP/1.1: " + link_.error().message()};
    default: return Refusal{};
  }
}

std::optional<Connection::Refusal> Connection::check_head() {
  const Headers& headers = head_.headers;
  const auto invalid = [](std::string text) { return Refusal{400, "invalid_argument", std::move(text)}; };
  if (lacks_tls_) return invalid("this port accepts only https: write https:// instead of http://");
  const std::string_view encoding = headers.get("transfer-encoding").value_or("");
  const std::string_view length = headers.get("content-length").value_or("");
  if (head_.version != 11)
    return Refusal{505, "not_supported", "the request is not HTTP/1.1, the only supported protocol"};
  // If the end of a request can be read in two ways, one request can hide in another. Beast refuses most such
  // requests, but not all.
  if (headers.count("content-length") + headers.count("transfer-encoding") > 1)
    return invalid("the request gives its length twice");
  if (!encoding.empty() && lower_case(encoding) != "chunked")
    return invalid("the request has a transfer encoding other than chunked");
  if (length.find_first_not_of("0123456789") != length.npos)
    return invalid("the Content-Length of the request is not a number");
  if (headers.count("host") != 1) return invalid("the request must have one Host header");
  if (!set_target(request_, head_.target)) return invalid("the path of the request is malformed");
  if (serving_.proxy) return std::nullopt;

  request_.method = head_.method;
  request_.headers = headers;
  request_.peer = peer_;
  return serving_.options.serves_page ? check_origin() : std::nullopt;
}

std::optional<Connection::Refusal> Connection::check_origin() const {
  const std::string_view host = head_.headers.get("host").value_or("");
  if (!peer_.unix_uid && !is_own_host(host, local_address_, serving_.options.names))
    return Refusal{421, "invalid_argument", "the Host of the request is not a name of this server"};
  if (const auto origin = head_.headers.get("origin"); origin && !is_own_origin(*origin, host, peer_.is_tls))
    return Refusal{403, "invalid_argument", "the request comes from a page of another site"};
  return std::nullopt;
}

Async<std::optional<Connection::Refusal>> Connection::read_body() {
  const Limits& limits = serving_.options.limits;
  const std::size_t bytes_max = serving_.options.body_bytes ? serving_.options.body_bytes(request_) : limits.body_bytes;
  const Link::Body body = link_.body();
  const Refusal too_long{413, "invalid_argument",
                         "the body of the request is longer than " + std::to_string(bytes_max) + " bytes"};
  if (body.length && *body.length > bytes_max) co_return too_long;
  keep_alive_ = body.keeps_connection;
  if (body.is_empty() || link_.is_read()) co_return std::nullopt;
  wire().read_by(real_clock().now() + limits.body_time);
  if (link_.waiting().empty() && lower_case(head_.headers.get("expect").value_or("")) == "100-continue") {
    const bool is_written = co_await write("HTTP/1.1 100 Continue\r\n\r\n");
    if (!is_written) co_return Refusal{};
  }
  while (true) {
    const Link::Piece piece = co_await link_.read_piece();
    if (piece.outcome != Link::Outcome::done) co_return refusal_of(piece.outcome, "body");
    if (piece.bytes.empty()) co_return std::nullopt;
    if (request_.body.size() + piece.bytes.size() > bytes_max) co_return too_long;
    request_.body += piece.bytes;
  }
}

void Connection::handle() {
  phase_ = Phase::handling;
  channel_ = std::make_shared<Channel>();
  channel_->loop = serving_.loop;
  channel_->connection = weak_from_this();
  channel_->stream_bytes_max = serving_.options.limits.stream_bytes;
  channel_->is_head = head_.method == "HEAD";
  const Responder responder(std::make_shared<Exchange>(channel_));
  try {
    serving_.handler(std::move(request_), responder);
  } catch (...) {
    responder.send(error_response(500, "internal", "the server failed to handle this request"));
  }
}

Async<void> Connection::watch() {
  const Link::Outcome outcome = co_await link_.read_ahead();
  if (phase_ == Phase::closed || outcome == Link::Outcome::done) co_return;
  if (outcome == Link::Outcome::failed && link_.is_cancelled()) co_return;
  end_of_input_ = true;
  const bool is_half_closed = outcome == Link::Outcome::ended && phase_ != Phase::streaming;
  if (!is_half_closed) co_return close(true);
  // A client may close its half and still wait for the answer; it looks the same as a client that is gone.
  if (phase_ == Phase::handling) channel_->set_gone(true);
}

std::string Connection::head_text(int status, const Headers& headers, std::string_view length_header) const {
  std::string out = "HTTP/1.1 " + std::to_string(status) + ' ';
  out += reason_phrase(status);
  out += "\r\n";
  for (const auto& [name, value] : headers) append_header(out, name, value);
  for (const auto& [name, value] : security_headers)
    if (serving_.options.serves_page && !headers.get(name)) append_header(out, name, value);
  append_header(out, "date", date());
  if (!keep_alive_) out += "connection: close\r\n";
  out += length_header;
  out += "\r\n";
  return out;
}

Async<bool> Connection::write(std::string_view bytes, bool reader_may_pause) {
  while (!bytes.empty()) {
    const std::string_view piece = bytes.substr(0, piece_bytes);
    wire().write_by(reader_may_pause ? TimePoint::max() : real_clock().now() + serving_.options.limits.write_time);
    const ErrorValue error = co_await link_.write(piece);
    if (error || phase_ == Phase::closed) co_return false;
    bytes.remove_prefix(piece.size());
  }
  co_return true;
}

Async<bool> Connection::refuse(Refusal refusal) {
  if (refusal.status == 0) co_return false;
  phase_ = Phase::writing;
  keep_alive_ = false;
  Response response = error_response(refusal.status, refusal.code, refusal.message);
  if (serving_.options.on_refused) serving_.options.on_refused(response);
  std::string out =
      head_text(response.status, response.headers, "content-length: " + std::to_string(response.body.size()) + "\r\n");
  if (head_.method != "HEAD") out += response.body;
  const bool is_written = co_await write(out);
  if (is_written) co_await linger();
  co_return false;
}

// Reads what the client still sends, so that it gets our answer and not a reset.
Async<void> Connection::linger() {
  ErrorValue ignored;
  wire().socket().shutdown(Socket::shutdown_send, ignored);
  wire().read_by(real_clock().now() + linger_time);
  for (std::size_t discarded = 0; discarded <= linger_bytes;) {
    const Link::Piece piece = co_await link_.read_raw();
    if (piece.outcome != Link::Outcome::done) break;
    discarded += piece.bytes.size();
  }
}

Async<bool> Connection::write_answer() {
  if (serving_.draining || end_of_input_) keep_alive_ = false;
  if (auto* const head = std::get_if<StreamHead>(&answer_)) co_return co_await write_stream(std::move(*head));
  phase_ = Phase::writing;
  const Response& response = std::get<Response>(answer_);
  const bool has_no_body = response.status == 204 || response.status == 304;
  std::string out = head_text(response.status, response.headers,
                              has_no_body ? "" : "content-length: " + std::to_string(response.body.size()) + "\r\n");
  if (!channel_->is_head && !has_no_body) out += response.body;
  co_return co_await write(out);
}

Async<bool> Connection::write_stream(StreamHead head) {
  if (end_of_input_) co_return false;
  phase_ = Phase::streaming;
  const auto channel = channel_;
  if (channel->is_head || serving_.draining) {
    const std::lock_guard lock(channel->mutex);
    channel->open = false;
    channel->ended = true;
  }
  if (!watch_) watch_.emplace(watch());
  std::string out = head_text(head.status, head.headers, "transfer-encoding: chunked\r\n");
  bool is_last = false;
  while (true) {
    for (std::string_view left = out; !left.empty();) {
      const std::string_view piece = left.substr(0, piece_bytes);
      const bool is_written = co_await write(piece, head.reader_may_pause);
      if (!is_written) co_return false;
      left.remove_prefix(piece.size());
      std::function<void()> on_room;
      {
        const std::lock_guard lock(channel->mutex);
        channel->in_flight = std::min(channel->in_flight, left.size());
        if (channel->open && channel->has_room()) on_room.swap(channel->on_room);
      }
      if (on_room) on_room();
    }
    if (is_last) co_return true;
    out = take_stream_data(is_last);
    if (!out.empty() || is_last) continue;
    const bool has_keep_alive = !head.keep_alive.empty();
    const bool woken =
        co_await wake_.wait(has_keep_alive ? real_clock().now() + head.keep_alive_every : TimePoint::max());
    if (phase_ == Phase::closed) co_return false;
    if (!woken) append_chunk(out, head.keep_alive);
  }
}

// Takes what has been written to the stream since the last call.
std::string Connection::take_stream_data(bool& is_last) {
  const std::lock_guard lock(channel_->mutex);
  channel_->flush_posted = false;
  std::string out = std::exchange(channel_->pending, {});
  if (channel_->is_head) out.clear();
  channel_->in_flight = out.size();
  is_last = channel_->ended;
  if (is_last && !channel_->is_head) out += last_chunk;
  return out;
}

void Connection::answer(const std::shared_ptr<Channel>& channel, Response response) {
  if (phase_ != Phase::handling || channel != channel_ || answer_.index() != 0) return;
  answer_ = std::move(response);
  wake_.notify();
}

void Connection::begin(const std::shared_ptr<Channel>& channel, StreamHead head) {
  if (phase_ != Phase::handling || channel != channel_ || answer_.index() != 0) return;
  answer_ = std::move(head);
  wake_.notify();
}

void Connection::flush(const std::shared_ptr<Channel>& channel) {
  if (channel == channel_) wake_.notify();
}

void Connection::drop(const std::shared_ptr<Channel>& channel) {
  if (channel == channel_) close(true);
}

}  // namespace berth::http
