#include "http/client.hpp"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "berth/clock.hpp"
#include "http/beast.hpp"
#include "http/tls.hpp"
#include "http/url.hpp"
#include "http/wire.hpp"

namespace berth::http {
namespace {

namespace beast = boost::beast::http;
using Parser = beast::response_parser<beast::string_body>;

constexpr std::uint32_t header_bytes_max = 64 * 1024;

// Lower case, without colons; absent: not 64 hexadecimal digits.
std::optional<std::string> plain_fingerprint(const std::string& text) {
  std::string plain;
  for (const char c : text) {
    if (c == ':') continue;
    plain += c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  if (plain.size() != 64 || plain.find_first_not_of("0123456789abcdef") != plain.npos) return std::nullopt;
  return plain;
}

// Text that goes into the header as it is must not begin a header of its own.
bool is_header_text(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return (c >= 0x20 && c != 0x7f) || c == '\t'; });
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
  });
}

bool is_target(std::string_view text) {
  return text.starts_with('/') &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f && c != '#'; });
}

// A machine that is gone, rather than silent, is noticed after 15 s and four unanswered probes.
void set_tcp_options(Socket& socket) {
  ErrorValue ignored;  // slower then, but not wrong
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  for (const auto& [option, value] : {std::pair(TCP_KEEPIDLE, 15), {TCP_KEEPINTVL, 5}, {TCP_KEEPCNT, 4}})
    ::setsockopt(socket.native_handle(), IPPROTO_TCP, option, &value, sizeof value);
}

}  // namespace

struct Client::State {
  ClientOptions options;
  Url url;
  std::shared_ptr<asio::ssl::context> tls;
  asio::io_context context{1};
  std::unique_ptr<Wire> wire;  // null: not connected
  std::string in;              // read and not yet parsed
  std::array<char, 16 * 1024> buffer;

  // Of the call in progress.
  TimePoint deadline = TimePoint::max();
  std::chrono::milliseconds timeout{0};
  std::stop_token stop;
  bool streaming = false;  // the timeout is for each piece of data

  void arm() { deadline = timeout.count() == 0 ? TimePoint::max() : real_clock().now() + timeout; }

  Error unavailable(const std::string& what, const ErrorValue& error) const {
    return {ErrorCode::unavailable, what + ' ' + options.url + ": " + error.message()};
  }
  Error timed_out() const {
    return {ErrorCode::timeout, options.url + " did not answer within " + std::to_string(timeout.count()) + " ms"};
  }
  static Error stopped() { return {ErrorCode::cancelled, "the call was stopped"}; }

  void disconnect() {
    wire.reset();
    in.clear();
  }

  struct Outcome {
    bool done = false;
    ErrorValue error;
    std::size_t bytes = 0;
  };

  // Starts one operation and runs the loop until it is done, the deadline, or a stop. In the last two cases the error
  // says so, and the socket is closed. Without a socket the operation owns what it uses and is left behind.
  template <class Start>
  Result<Outcome> await(Start start, Socket* socket) {
    const auto outcome = std::make_shared<Outcome>();
    start([outcome](ErrorValue error, std::size_t bytes) { *outcome = {true, error, bytes}; });
    const std::stop_callback wake(stop, [this] { asio::post(context, [] {}); });
    context.restart();
    std::optional<Error> failure;
    while (!outcome->done) {
      if (!failure) {
        const Duration left = deadline - real_clock().now();
        if (stop.stop_requested()) failure = stopped();
        // What has come on a stream while this process was suspended has come in time.
        if (!failure && left <= Duration::zero() && !(streaming && context.poll() > 0)) failure = timed_out();
        if (failure) {
          if (socket == nullptr) return *failure;
          ErrorValue ignored;
          socket->close(ignored);
        } else {
          // Bounded, because the library adds it to the time of its own clock.
          context.run_one_for(std::min<Duration>(left, std::chrono::hours(1)));
          continue;
        }
      }
      context.run_one();  // the operation ends, since its socket is closed
    }
    if (failure) return *failure;
    return *outcome;
  }

  Result<Outcome> read() {
    return await([&](Wire::Done done) { wire->read_some(asio::buffer(buffer), std::move(done)); }, &wire->socket());
  }

  Result<void> connect_to(const asio::generic::stream_protocol::endpoint& endpoint, std::optional<Error>& refused) {
    Socket socket(context);
    ErrorValue error;
    socket.open(endpoint.protocol(), error);
    if (error) return Error{ErrorCode::io, "cannot open a socket: " + error.message()};
    const auto connected = BERTH_TRY(await(
        [&](Wire::Done done) {
          socket.async_connect(endpoint, [done = std::move(done)](ErrorValue result) { done(result, 0); });
        },
        &socket));
    if (connected.error) {
      refused = unavailable("cannot connect to", connected.error);
      return {};
    }
    if (url.kind != Url::Kind::unix_socket) set_tcp_options(socket);
    if (!tls) {
      wire = plain_wire(std::move(socket));
      return {};
    }
    if (!options.certificate_file.empty() && url.kind == Url::Kind::https) tls = BERTH_TRY(client_tls(options));
    auto secured = tls_wire(std::move(socket), *tls);
    if (url.kind == Url::Kind::https && !expect_host(secured->tls(), url.host))
      return Error{ErrorCode::invalid_argument, "'" + url.host + "' is not a valid server name for TLS"};
    const auto shaken =
        BERTH_TRY(await([&](Wire::Done done) { secured->handshake(false, std::move(done)); }, &secured->socket()));
    if (url.kind == Url::Kind::http) {
      if (shaken.error || !has_proven_key(secured->tls())) return unproven_error(options.url, shaken.error);
      wire = std::move(secured);
      return {};
    }
    if (shaken.error) return handshake_error(secured->tls(), url.host, shaken.error);
    wire = std::move(secured);
    return {};
  }

  Result<void> connect() {
    disconnect();
    std::vector<asio::generic::stream_protocol::endpoint> endpoints;
    ErrorValue not_numeric;
    if (url.kind == Url::Kind::unix_socket) {
      endpoints.emplace_back(asio::local::stream_protocol::endpoint(url.path));
    } else if (const auto address = asio::ip::make_address(url.host, not_numeric); !not_numeric) {
      std::uint16_t port = 0;
      std::from_chars(url.port.data(), url.port.data() + url.port.size(), port);
      endpoints.emplace_back(asio::ip::tcp::endpoint(address, port));
    } else {
      // Shared with the operation, which a deadline leaves behind: the system's resolver cannot be interrupted.
      const auto resolver = std::make_shared<asio::ip::tcp::resolver>(context);
      const auto found = std::make_shared<asio::ip::tcp::resolver::results_type>();
      const auto resolved = BERTH_TRY(await(
          [&](Wire::Done done) {
            try {
              resolver->async_resolve(
                  url.host, url.port,
                  [resolver, found, done](ErrorValue error, const asio::ip::tcp::resolver::results_type& results) {
                    *found = results;
                    done(error, 0);
                  });
            } catch (const boost::system::system_error& shortage) {  // it needs a thread
              done(shortage.code(), 0);
            }
          },
          nullptr));
      if (resolved.error) return unavailable("cannot find the address of", resolved.error);
      for (const auto& entry : *found) endpoints.emplace_back(entry.endpoint());
    }
    std::optional<Error> refused;
    for (const auto& endpoint : endpoints) {
      BERTH_TRY(connect_to(endpoint, refused));
      if (wire) return {};
    }
    return refused ? *refused : Error{ErrorCode::unavailable, "no address is known for " + options.url};
  }

  // Whether the server has closed a kept connection, or sent what no request asked for.
  bool is_stale() {
    char byte = 0;
    const auto got = recv(wire->socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }

  Result<ErrorValue> write_all(const std::string& text) {
    std::size_t offset = 0;
    while (offset < text.size()) {
      const auto written = BERTH_TRY(await(
          [&](Wire::Done done) {
            wire->write_some(asio::buffer(text.data() + offset, text.size() - offset), std::move(done));
          },
          &wire->socket()));
      if (written.error) return written.error;
      offset += written.bytes;
    }
    return ErrorValue();
  }

  // Reads into the parser until its header, or all of it, is there, or `on_piece` returns false.
  struct Reading {
    bool any = false;  // a byte of the answer has come
    ErrorValue error;  // of the connection or the parser
  };
  template <class Until, class OnPiece>
  Result<Reading> read_until(Parser& parser, Until is_done, OnPiece on_piece) {
    Reading reading{.any = !in.empty(), .error = {}};
    while (true) {
      while (!in.empty() && !is_done(parser)) {
        ErrorValue error;
        const std::size_t used = parser.put(asio::buffer(in), error);
        in.erase(0, used);
        if ((!error || error == beast::error::need_more) && !on_piece()) return reading;
        if (error == beast::error::need_more) {
          if (in.size() > header_bytes_max) return reading.error = beast::error::header_limit, reading;
          break;
        }
        if (error) return reading.error = error, reading;
      }
      if (is_done(parser)) return reading;
      // Not the time that the receiver of the last piece took.
      if (streaming) arm();
      const Outcome got = BERTH_TRY(read());
      if (got.error == asio::error::eof && parser.got_some()) {
        // An answer without a length ends with the connection.
        ErrorValue error;
        parser.put_eof(error);
        reading.error = error;
        if (!error && is_done(parser)) return reading;
        if (!error) reading.error = beast::error::partial_message;
        return reading;
      }
      if (got.error) return reading.error = got.error, reading;
      reading.any = true;
      in.append(buffer.data(), got.bytes);
    }
  }

  Error bad_answer(const ErrorValue& error) const {
    if (error == beast::error::body_limit)
      return {ErrorCode::io,
              "the answer of " + options.url + " is longer than " + std::to_string(options.body_bytes_max) + " bytes"};
    if (error.category() == beast::make_error_code(beast::error::need_more).category() &&
        error != beast::error::partial_message && error != beast::error::end_of_stream)
      return {ErrorCode::io, options.url + " sent an answer that is not HTTP: " + error.message()};
    const bool is_end =
        error == asio::error::eof || error == beast::error::partial_message || error == beast::error::end_of_stream;
    return {
        ErrorCode::unavailable,
        options.url + " closed the connection before its answer was complete" + (is_end ? "" : ": " + error.message()),
        "try again"};
  }

  Result<std::string> head_of(const std::string& method, const std::string& target, std::size_t body_bytes,
                              const Headers& headers) const {
    if (!is_token(method)) return Error{ErrorCode::invalid_argument, "the method of a request is malformed"};
    if (!is_target(target))
      return Error{ErrorCode::invalid_argument, "the path of a request must begin with '/' and be encoded"};
    std::string head = method + ' ' + target + " HTTP/1.1\r\nhost: " + url.authority + "\r\n";
    if (!options.token.empty() && url.kind != Url::Kind::http)
      head += "authorization: Bearer " + options.token + "\r\n";
    for (const auto& [name, value] : headers) {
      if (!is_token(name) || !is_header_text(value))
        return Error{ErrorCode::invalid_argument, "the header '" + name + "' of a request is malformed"};
      head += name + ": " + value + "\r\n";
    }
    if (body_bytes > 0 || method == "POST" || method == "PUT") {
      if (!headers.get("content-type")) head += "content-type: application/json\r\n";
      head += "content-length: " + std::to_string(body_bytes) + "\r\n";
    }
    return head + "\r\n";
  }

  void begin_call(const CallOptions& call) {
    timeout = call.timeout;
    stop = call.stop;
    streaming = false;
    arm();
  }

  // Reads a header; the parser is made anew for it.
  Result<Reading> read_header(const std::string& method, std::optional<Parser>& parser) {
    parser.emplace();
    parser->header_limit(header_bytes_max);
    parser->body_limit(boost::none);
    parser->eager(false);
    if (method == "HEAD") parser->skip(true);
    return read_until(*parser, [](const Parser& p) { return p.is_header_done(); }, [] { return true; });
  }

  // Sends the request and reads the header of its answer.
  Result<void> send(const std::string& text, const std::string& method, std::optional<Parser>& parser) {
    while (true) {
      if (stop.stop_requested()) return stopped();
      if (wire && is_stale()) disconnect();
      const bool kept = wire != nullptr;
      if (!kept) BERTH_TRY(connect());
      const ErrorValue written = BERTH_TRY(write_all(text));
      // A server that refuses a request may answer and close before it has read all of it: there may be an answer
      // although the writing failed.
      Reading reading = BERTH_TRY(read_header(method, parser));
      while (!reading.error && parser->get().result_int() / 100 == 1) {  // such as "100 Continue"
        reading = BERTH_TRY(read_header(method, parser));
        reading.any = true;
      }
      if (!reading.error) return {};
      Error failure = bad_answer(reading.error);
      if (written && !reading.any) {
        failure = unavailable("cannot send to", written);
        failure.advice = "try again";
      }
      if (!kept && !reading.any && url.kind == Url::Kind::http) failure.advice = "is it an https:// address?";
      disconnect();
      if (!kept || reading.any || method == "POST") return failure;
    }
  }

  Response response_of(const Parser& parser) const {
    Response response;
    response.status = static_cast<int>(parser.get().result_int());
    for (const auto& header : parser.get())
      response.headers.add(view(header.name_string()), std::string(view(header.value())));
    return response;
  }

  // The rest of an answer whose header is read.
  Result<Response> whole(Parser& parser) {
    Response response = response_of(parser);
    if (const auto length = parser.content_length(); length && *length > options.body_bytes_max) {
      disconnect();
      return bad_answer(beast::error::body_limit);
    }
    parser.body_limit(options.body_bytes_max);
    parser.eager(true);
    const auto reading = read_until(parser, [](const Parser& p) { return p.is_done(); }, [] { return true; });
    if (!reading || reading->error) {
      disconnect();
      return reading ? bad_answer(reading->error) : reading.error();
    }
    response.body = std::move(parser.get().body());
    if (!parser.keep_alive() || !in.empty()) disconnect();
    return response;
  }

  Result<Response> request(const std::string& method, const std::string& target, const std::string& body,
                           const CallOptions& call) {
    begin_call(call);
    std::string text = BERTH_TRY(head_of(method, target, body.size(), call.headers));
    text += body;
    std::optional<Parser> parser;
    if (auto sent = send(text, method, parser); !sent) return disconnect(), sent.error();
    return whole(*parser);
  }

  Result<Response> stream(const std::string& target, const CallOptions& call, const OnBytes& on_bytes) {
    begin_call(call);
    const std::string text = BERTH_TRY(head_of("GET", target, 0, call.headers));
    std::optional<Parser> parser;
    if (auto sent = send(text, "GET", parser); !sent) return disconnect(), sent.error();
    if (parser->get().result_int() != 200) return whole(*parser);
    const Response response = response_of(*parser);
    parser->eager(true);
    streaming = true;
    bool wanted = true;
    const auto give = [&] {
      std::string bytes = std::exchange(parser->get().body(), {});
      if (!bytes.empty()) wanted = on_bytes(bytes);
      return wanted;
    };
    const auto reading = read_until(*parser, [](const Parser& p) { return p.is_done(); }, give);
    streaming = false;
    if (!reading || reading->error || !wanted || !parser->keep_alive() || !in.empty()) disconnect();
    if (!reading) return reading.error();
    if (reading->error && wanted) return bad_answer(reading->error);
    return response;
  }
};

Client::Client(std::unique_ptr<State> state) : state_(std::move(state)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

Result<Client> Client::create(ClientOptions options) {
  auto state = std::make_unique<State>();
  state->url = BERTH_TRY(parse_url(options.url));
  if (!is_header_text(options.token))
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
  if (state->url.kind == Url::Kind::https) state->tls = BERTH_TRY(client_tls(options));
  if (state->url.kind == Url::Kind::http && !options.token.empty())
    state->tls = proving_client_tls(proof_of(sha256(options.token)));
  state->options = std::move(options);
  return Client(std::move(state));
}

Result<Response> Client::request(const std::string& method, const std::string& target, std::string body,
                                 CallOptions options) {
  return state_->request(method, target, body, options);
}

Result<Response> Client::stream_bytes(const std::string& target, const OnBytes& on_bytes, CallOptions options) {
  return state_->stream(target, options, on_bytes);
}

Result<Response> Client::stream_events(const std::string& target, const OnEvent& on_event, CallOptions options) {
  EventParser parser;
  auto response = state_->stream(target, options, [&](std::string_view bytes) { return parser.put(bytes, on_event); });
  if (parser.failed()) return Error{ErrorCode::io, state_->options.url + " sent an event that is too long"};
  return response;
}

const std::string& Client::url() const noexcept { return state_->options.url; }

std::string encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
                          c == '_' || c == '.' || c == '~';
    if (is_plain) {
      out += c;
      continue;
    }
    static constexpr char digits[] = "0123456789ABCDEF";
    const auto byte = static_cast<unsigned char>(c);
    out += '%';
    out += digits[byte >> 4];
    out += digits[byte & 15];
  }
  return out;
}

}  // namespace berth::http
