#include "http/connection.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <utility>

#include "http/beast.hpp"
#include "http/request_checks.hpp"
#include "http/tls.hpp"
#include "world/wall_time.hpp"

namespace berth::http {
namespace {

namespace beast = boost::beast::http;

// What is written within Limits::write_time: at least 2 KiB/s, so that a client that reads a byte now and then
// holds no connection.
constexpr std::size_t piece_bytes = 64 * 1024;
constexpr std::chrono::milliseconds linger_time{2'000};
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

// A line end in a value would begin a header of its own.
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

// On every answer that does not set them itself. The page may load from its own server and nowhere else, is shown in no
// frame, and sends its address to no other site.
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

struct Connection::Parser {
  Parser() { http.on_chunk_header(on_chunk); }

  // Feeds `in` and removes what was used of it. Beast limits the piece of a header that it sees at one time, not the
  // sum of the pieces, so that the bytes of header and trailer are counted here.
  ErrorValue put(std::string& in, std::size_t fields_bytes_max) {
    const bool is_fields = !http.is_header_done() || in_trailer;
    ErrorValue error;
    const std::size_t used = http.put(asio::buffer(in), error);
    in.erase(0, used);
    if (is_fields) fields_bytes += used;
    if (fields_bytes > fields_bytes_max && (!error || error == beast::error::need_more))
      error = beast::error::header_limit;
    return error;
  }

  bool in_trailer = false;  // after the last chunk
  std::size_t fields_bytes = 0;
  std::function<void(std::uint64_t, boost::beast::string_view, ErrorValue&)> on_chunk =
      [this](std::uint64_t size, boost::beast::string_view, ErrorValue&) { in_trailer = size == 0; };
  beast::request_parser<beast::string_body> http;
};

Connection::Connection(Serving& serving, std::unique_ptr<Wire> wire, std::shared_ptr<asio::ssl::context> tls, Peer peer,
                       std::string local_address)
    : serving_(serving),
      tls_(std::move(tls)),
      wire_(std::move(wire)),
      peer_(std::move(peer)),
      local_address_(std::move(local_address)) {}

Connection::~Connection() = default;

void Connection::set_phase(Phase phase, std::chrono::milliseconds time) {
  phase_ = phase;
  deadline_ = real_clock().now() + time;
}

void Connection::start() {
  set_phase(Phase::handshake, serving_.options.limits.header_time);
  if (tls_ || !serving_.proving || peer_.unix_uid) return shake_hands();
  // The first byte tells a handshake of TLS, which is a proof here, from a request in plain text.
  wire_->socket().async_wait(Socket::wait_read, [self = shared_from_this()](ErrorValue error) {
    if (self->phase_ == Phase::closed) return;
    char first = 0;
    if (error || recv(self->wire_->socket().native_handle(), &first, 1, MSG_PEEK | MSG_DONTWAIT) <= 0)
      return self->close(false);
    constexpr char handshake_record = 0x16;
    if (first == handshake_record) {
      self->tls_ = self->serving_.proving;
      self->wire_ = tls_wire(std::move(self->wire_->socket()), *self->tls_);
    }
    self->shake_hands();
  });
}

void Connection::shake_hands() {
  wire_->handshake(true, [self = shared_from_this()](ErrorValue error, std::size_t) {
    if (self->phase_ == Phase::closed) return;
    if (error) return self->close(false);
    if (self->wire_->tls() && self->tls_ == self->serving_.proving) {
      self->peer_.credential = proven_credential(self->wire_->tls());
      if (self->peer_.credential.empty()) return self->close(false);
    } else if (self->wire_->tls()) {
      self->peer_.certificate = peer_certificate(self->wire_->tls());
    }
    self->set_phase(Phase::waiting, self->serving_.options.limits.header_time);
    self->parse();
  });
}

void Connection::close(bool call_gone) {
  if (phase_ == Phase::closed) return;
  const auto self = shared_from_this();  // on_closed() may drop the last other reference
  phase_ = Phase::closed;
  wire_->close();
  serving_.on_closed(*this);
  if (const auto channel = std::exchange(channel_, nullptr)) channel->set_gone(call_gone);
}

void Connection::drain() {
  switch (phase_) {
    case Phase::handshake:
    case Phase::waiting: return close(false);
    case Phase::streaming: {
      {
        const std::lock_guard lock(channel_->mutex);
        channel_->open = false;
        channel_->ended = true;
      }
      return write();
    }
    default: return;
  }
}

void Connection::sweep(TimePoint now) {
  if (phase_ == Phase::streaming && !writing_ && now >= next_keep_alive_) {
    char size[24];
    std::snprintf(size, sizeof size, "%zx\r\n", stream_keep_alive_.size());
    out_ = size + stream_keep_alive_ + "\r\n";
    return write();
  }
  if (now < deadline_) return;
  switch (phase_) {
    case Phase::header: return refuse(408, "timeout", "the header of the request took too long");
    case Phase::body: return refuse(408, "timeout", "the body of the request took too long");
    default: return close(true);
  }
}

void Connection::read() {
  // More than a header's length of requests that wait for their turn stays in the kernel.
  if (reading_ || end_of_input_ || phase_ == Phase::closed || in_.size() >= serving_.options.limits.header_bytes)
    return;
  reading_ = true;
  wire_->read_some(asio::buffer(read_buffer_),
                   [self = shared_from_this()](ErrorValue error, std::size_t bytes) { self->on_read(error, bytes); });
}

void Connection::on_read(ErrorValue error, std::size_t bytes) {
  reading_ = false;
  if (phase_ == Phase::closed) return;
  if (error) {
    end_of_input_ = true;
    const bool is_answering = phase_ == Phase::handling || phase_ == Phase::writing;
    if (!is_answering || error != asio::error::eof) return close(true);
    // A client may close its half and still wait for the answer; it looks the same as one that is gone.
    if (phase_ == Phase::handling) channel_->set_gone(true);
    return;
  }
  if (phase_ == Phase::lingering) {
    discarded_bytes_ += bytes;
    if (discarded_bytes_ > linger_bytes) return close(false);
    return read();
  }
  in_.append(read_buffer_.data(), bytes);
  if (phase_ == Phase::waiting || phase_ == Phase::header || phase_ == Phase::body) return parse();
  read();
}

void Connection::parse() {
  if (phase_ == Phase::waiting) {
    while (in_.starts_with("\r\n")) in_.erase(0, 2);  // RFC 9112, 2.2: tolerated before a request
    if (in_.empty()) return read();
    set_phase(Phase::header, serving_.options.limits.header_time);
    parser_ = std::make_unique<Parser>();
    parser_->http.header_limit(static_cast<std::uint32_t>(serving_.options.limits.header_bytes));
    parser_->http.body_limit(boost::none);  // set when the path is known
    parser_->http.eager(false);
    request_ = {};
    is_head_ = refused_ = false;
  }
  if (phase_ == Phase::header && !parse_header()) return;
  if (phase_ == Phase::body && !parse_body()) return;
  handle();
}

// False: more must be read, or the request was refused.
bool Connection::parse_header() {
  while (!parser_->http.is_header_done()) {
    const ErrorValue error = parser_->put(in_, serving_.options.limits.header_bytes);
    if (error == beast::error::need_more && in_.size() < serving_.options.limits.header_bytes) return read(), false;
    if (error == beast::error::need_more || error == beast::error::header_limit)
      return refuse(431, "invalid_argument", "the header of the request is too long"), false;
    if (error) return refuse(400, "invalid_argument", "the request is not valid HTTP/1.1: " + error.message()), false;
  }
  return check_header();
}

bool Connection::check_header() {
  const auto& message = parser_->http.get();
  const auto invalid = [&](std::string_view text) { return refuse(400, "invalid_argument", text), false; };
  is_head_ = message.method() == beast::verb::head;
  if (message.version() != 11)
    return refuse(505, "not_supported", "the request is not HTTP/1.1, which is all that is spoken here"), false;
  // Two readings of where a request ends would let one hide in another. Beast refuses most of these, not all.
  if (message.count(beast::field::content_length) > 1 || message.count(beast::field::transfer_encoding) > 1)
    return invalid("the request gives its length twice");
  if (message.count(beast::field::transfer_encoding) == 1 &&
      !boost::beast::iequals(message[beast::field::transfer_encoding], "chunked"))
    return invalid("the request has a transfer encoding other than chunked");
  if (const auto length = view(message[beast::field::content_length]);
      length.find_first_not_of("0123456789") != length.npos)
    return invalid("the Content-Length of the request is not a number");
  if (message.count(beast::field::host) != 1) return invalid("the request must have one Host header");
  if (!set_target(request_, view(message.target()))) return invalid("the path of the request is malformed");

  request_.method = view(message.method_string());
  for (const auto& header : message)
    request_.headers.add(view(header.name_string()), std::string(view(header.value())));
  request_.peer = peer_;

  const std::string_view host = view(message[beast::field::host]);
  if (!peer_.unix_uid && !is_own_host(host, local_address_, serving_.options.names))
    return refuse(421, "invalid_argument", "the Host of the request is not a name of this server"), false;
  if (const auto origin = request_.headers.get("origin"); origin && !is_own_origin(*origin, host, peer_.is_tls))
    return refuse(403, "invalid_argument", "the request comes from a page of another site"), false;

  const std::size_t body_bytes =
      serving_.options.body_bytes ? serving_.options.body_bytes(request_) : serving_.options.limits.body_bytes;
  const auto length = parser_->http.content_length();
  if (length && *length > body_bytes)
    return refuse(413, "invalid_argument",
                  "the body of the request is longer than " + std::to_string(body_bytes) + " bytes"),
           false;
  parser_->http.body_limit(body_bytes);
  parser_->http.eager(true);
  keep_alive_ = message.keep_alive();

  const bool has_body = parser_->http.chunked() || (length && *length > 0);
  if (has_body && in_.empty() && boost::beast::iequals(message[beast::field::expect], "100-continue")) {
    out_ += "HTTP/1.1 100 Continue\r\n\r\n";
    write();
  }
  if (phase_ == Phase::closed) return false;
  set_phase(Phase::body, serving_.options.limits.body_time);
  return true;
}

bool Connection::parse_body() {
  while (!parser_->http.is_done()) {
    if (in_.empty()) return read(), false;
    const ErrorValue error = parser_->put(in_, 2 * serving_.options.limits.header_bytes);  // header and trailer
    // Only the line of a chunk and the trailer are waited for as a whole.
    if (error == beast::error::need_more && in_.size() < serving_.options.limits.header_bytes) return read(), false;
    if (error == beast::error::body_limit)
      return refuse(413, "invalid_argument", "the body of the request is too long"), false;
    if (error)
      return refuse(400, "invalid_argument", "the body of the request is malformed: " + error.message()), false;
  }
  return true;
}

void Connection::handle() {
  phase_ = Phase::handling;
  deadline_ = TimePoint::max();
  request_.body = std::move(parser_->http.get().body());
  parser_.reset();
  channel_ = std::make_shared<Channel>();
  channel_->loop = serving_.loop;
  channel_->connection = weak_from_this();
  channel_->stream_bytes_max = serving_.options.limits.stream_bytes;
  channel_->is_head = is_head_;
  const Responder responder(std::make_shared<Exchange>(channel_));
  read();  // to notice that the client is gone
  try {
    serving_.handler(std::move(request_), responder);
  } catch (...) {
    responder.send(error_response(500, "internal", "the server failed to handle this request"));
  }
}

void Connection::refuse(int status, std::string_view code, std::string_view message) {
  refused_ = true;
  keep_alive_ = false;
  parser_.reset();
  const Response response = error_response(status, code, message);
  write_head(response.status, response.headers, "content-length: " + std::to_string(response.body.size()) + "\r\n");
  if (!is_head_) out_ += response.body;
  set_phase(Phase::writing, serving_.options.limits.write_time);
  write();
}

void Connection::write_head(int status, const Headers& headers, std::string_view length_header) {
  out_ += "HTTP/1.1 " + std::to_string(status) + ' ';
  out_ += reason_phrase(status);
  out_ += "\r\n";
  for (const auto& [name, value] : headers) append_header(out_, name, value);
  for (const auto& [name, value] : security_headers)
    if (!headers.get(name)) append_header(out_, name, value);
  append_header(out_, "date", date());
  if (!keep_alive_) out_ += "connection: close\r\n";
  out_ += length_header;
  out_ += "\r\n";
}

void Connection::answer(const std::shared_ptr<Channel>& channel, Response response) {
  if (phase_ != Phase::handling || channel != channel_) return;
  if (serving_.draining || end_of_input_) keep_alive_ = false;
  const bool has_no_body = response.status == 204 || response.status == 304;
  write_head(response.status, response.headers,
             has_no_body ? std::string() : "content-length: " + std::to_string(response.body.size()) + "\r\n");
  if (!is_head_ && !has_no_body) out_ += response.body;
  set_phase(Phase::writing, serving_.options.limits.write_time);
  write();
}

void Connection::begin(const std::shared_ptr<Channel>& channel, StreamHead head) {
  if (phase_ != Phase::handling || channel != channel_) return;
  if (end_of_input_) return close(true);
  if (serving_.draining) keep_alive_ = false;
  write_head(head.status, head.headers, "transfer-encoding: chunked\r\n");
  last_chunk_written_ = is_head_;
  reader_may_pause_ = head.reader_may_pause;
  stream_keep_alive_ = std::move(head.keep_alive);
  stream_keep_alive_every_ = head.keep_alive_every;
  next_keep_alive_ = stream_keep_alive_.empty() ? TimePoint::max() : real_clock().now() + stream_keep_alive_every_;
  phase_ = Phase::streaming;
  if (is_head_ || serving_.draining) {
    const std::lock_guard lock(channel->mutex);
    channel->open = false;
    channel->ended = true;
  }
  write();
}

void Connection::flush(const std::shared_ptr<Channel>& channel) {
  if (phase_ == Phase::streaming && channel == channel_) write();
}

void Connection::drop(const std::shared_ptr<Channel>& channel) {
  if (channel == channel_) close(true);
}

// Moves what was written to the stream into out_. False: there is nothing.
bool Connection::take_stream_data() {
  const std::lock_guard lock(channel_->mutex);
  channel_->flush_posted = false;
  out_.swap(channel_->pending);
  channel_->pending.clear();
  if (is_head_) out_.clear();
  channel_->in_flight = out_.size();
  if (channel_->ended && !std::exchange(last_chunk_written_, true)) out_ += "0\r\n\r\n";
  return !out_.empty();
}

void Connection::write() {
  if (writing_ || phase_ == Phase::closed) return;
  if (out_offset_ == out_.size()) {
    out_.clear();
    out_offset_ = piece_end_ = 0;
    if (phase_ == Phase::writing) return complete();
    if (phase_ != Phase::streaming) return;  // "100 Continue" is written
    if (!take_stream_data()) {
      deadline_ = TimePoint::max();
      if (last_chunk_written_) return complete();
      return;
    }
  }
  if (out_offset_ >= piece_end_) {
    piece_end_ = std::min(out_.size(), out_offset_ + piece_bytes);
    if (phase_ == Phase::writing || (phase_ == Phase::streaming && !reader_may_pause_))
      deadline_ = real_clock().now() + serving_.options.limits.write_time;
  }
  writing_ = true;
  wire_->write_some(
      asio::buffer(out_.data() + out_offset_, piece_end_ - out_offset_),
      [self = shared_from_this()](ErrorValue error, std::size_t bytes) { self->on_written(error, bytes); });
}

void Connection::on_written(ErrorValue error, std::size_t bytes) {
  writing_ = false;
  if (phase_ == Phase::closed) return;
  if (error) return close(true);
  out_offset_ += bytes;
  std::function<void()> on_room;
  if (phase_ == Phase::streaming) {
    if (!stream_keep_alive_.empty()) next_keep_alive_ = real_clock().now() + stream_keep_alive_every_;
    const std::lock_guard lock(channel_->mutex);
    channel_->in_flight = std::min(channel_->in_flight, out_.size() - out_offset_);
    if (channel_->open && channel_->has_room()) on_room.swap(channel_->on_room);
  }
  write();
  if (on_room) on_room();
}

void Connection::complete() {
  if (const auto channel = std::exchange(channel_, nullptr)) channel->set_complete();
  if (keep_alive_ && !serving_.draining && !end_of_input_) {
    set_phase(Phase::waiting, serving_.options.limits.idle_time);
    return parse();
  }
  if (!refused_ || end_of_input_) return close(false);
  ErrorValue ignored;
  wire_->socket().shutdown(Socket::shutdown_send, ignored);
  set_phase(Phase::lingering, linger_time);
  in_.clear();
  read();
}

}  // namespace berth::http
