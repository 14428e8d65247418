#include "http/client.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "berth/clock.hpp"
#include "http/dialer.hpp"

namespace berth::http {
namespace {

namespace beast = boost::beast::http;

// Text that goes unchanged into the header must not be able to start another header.
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

}  // namespace

struct Client::State {
  explicit State(Dialer of) : dialer(std::move(of)) {}

  Dialer dialer;
  Loop loop;
  std::unique_ptr<Link> link;  // null: not connected

  // Deadline of the call in progress.
  TimePoint deadline = TimePoint::max();
  std::chrono::milliseconds timeout{0};
  std::stop_token stop;
  bool streaming = false;  // the timeout is for each piece of data
  bool is_over = false;    // the call has failed and everything it waits for has been closed; it must not connect again

  const std::string& url() const { return dialer.options().url; }
  void arm() { deadline = timeout.count() == 0 ? TimePoint::max() : real_clock().now() + timeout; }

  Error timed_out() const {
    return {ErrorCode::timeout, url() + " did not answer within " + std::to_string(timeout.count()) + " ms"};
  }
  static Error stopped() { return {ErrorCode::cancelled, "the call was stopped"}; }

  // Runs the loop until the work is done, or until the deadline or a stop, which are errors.
  Result<Response> run(Async<Result<Response>> work) {
    std::optional<Result<Response>> outcome;
    std::optional<Error> failure;
    {
      const Running running(collect(std::move(work), outcome));
      const std::stop_callback wake(stop, [this] { asio::post(loop.context, [] {}); });
      loop.context.restart();
      while (!running.is_done() && !failure) {
        const Duration left = deadline - real_clock().now();
        if (stop.stop_requested()) failure = stopped();
        // Data that arrived on a stream while this process was suspended counts as in time.
        else if (left <= Duration::zero() && !(streaming && loop.context.poll() > 0))
          failure = timed_out();
        // Bounded, because Asio adds it to the time of its own clock, which could overflow.
        else if (left > Duration::zero())
          loop.context.run_one_for(std::min<Duration>(left, std::chrono::hours(1)));
      }
      if (failure) {
        is_over = true;
        // Also closes connections that the work opens in the meantime. What is left then waits for the resolver, and is
        // abandoned.
        do loop.close_all();
        while (loop.context.poll() > 0);
      }
    }
    if (failure || !*outcome) link.reset();
    if (failure) return *failure;
    return *std::move(outcome);
  }
  static Async<void> collect(Async<Result<Response>> work, std::optional<Result<Response>>& outcome) {
    outcome.emplace(co_await std::move(work));
  }

  Error bad_answer(Link::Outcome outcome) const {
    if (outcome == Link::Outcome::malformed || outcome == Link::Outcome::too_long)
      return {ErrorCode::io, url() + " sent an answer that is not HTTP: " + link->error().message()};
    return {ErrorCode::unavailable,
            url() + " closed the connection before its answer was complete" +
                (outcome == Link::Outcome::ended ? "" : ": " + link->error().message()),
            "try again"};
  }

  Result<std::string> head_of(const std::string& method, const std::string& target, std::size_t body_bytes,
                              const Headers& headers) const {
    if (!is_token(method)) return Error{ErrorCode::invalid_argument, "the method of a request is malformed"};
    if (!is_target(target))
      return Error{ErrorCode::invalid_argument, "the path of a request must begin with '/' and be encoded"};
    const Url& to = dialer.url();
    std::string head = method + ' ' + target + " HTTP/1.1\r\nhost: " + to.authority + "\r\n";
    if (!dialer.options().token.empty() && to.kind != Url::Kind::http)
      head += "authorization: Bearer " + dialer.options().token + "\r\n";
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
    streaming = is_over = false;
    arm();
  }

  // Sends the request and reads the head of its answer.
  Async<Result<void>> send(const std::string& text, const std::string& method, Head& head) {
    while (true) {
      if (link && link->is_stale()) link.reset();
      const bool kept = link != nullptr;
      if (!kept) {
        auto connected = co_await dialer.connect(loop);
        if (!connected) co_return connected.error();
        link = *std::move(connected);
      }
      const ErrorValue written = co_await link->write(text);
      // A server that refuses a request may answer and close before it has read all of it: so there may be an
      // answer although writing failed.
      Link::Outcome outcome = co_await link->wait_for_message();
      const bool is_answered = outcome == Link::Outcome::done;
      do {
        if (outcome == Link::Outcome::done)
          outcome = co_await link->read_response(head, Link::head_bytes_max, method == "HEAD");
      } while (outcome == Link::Outcome::done && head.status / 100 == 1);  // such as "100 Continue"
      if (outcome == Link::Outcome::done) co_return Result<void>();
      Error failure = bad_answer(outcome);
      if (written && !is_answered)
        failure = {ErrorCode::unavailable, "cannot send to " + url() + ": " + written.message(), "try again"};
      if (!kept && !is_answered && dialer.url().kind == Url::Kind::http) failure.advice = "is it an https:// address?";
      link.reset();
      if (!kept || is_answered || method == "POST" || is_over) co_return failure;
    }
  }

  // Reads the body of an answer, piece by piece, after its head, until the function returns false.
  Async<Result<Response>> receive(Head head, const OnBytes& on_bytes) {
    while (true) {
      // The timeout does not include the time that `on_bytes` took for the last piece.
      if (streaming) arm();
      const Link::Piece piece = co_await link->read_piece();
      if (piece.outcome != Link::Outcome::done) co_return bad_answer(piece.outcome);
      const bool is_over = piece.bytes.empty();
      if (!is_over && on_bytes(piece.bytes)) continue;
      if (!is_over || !link->body().keeps_connection || !link->waiting().empty()) link.reset();
      co_return Response{head.status, std::move(head.headers), {}};
    }
  }

  Async<Result<Response>> receive_whole(Head head) {
    std::string body;
    const std::size_t bytes_max = dialer.options().body_bytes_max;
    bool is_too_long = link->body().length.value_or(0) > bytes_max;
    const auto append = [&](std::string_view bytes) {
      is_too_long = body.size() + bytes.size() > bytes_max;
      if (!is_too_long) body += bytes;
      return !is_too_long;
    };
    if (!is_too_long) {
      auto response = co_await receive(std::move(head), append);
      if (response) response->body = std::move(body);
      if (!is_too_long) co_return response;
    }
    co_return Error{ErrorCode::io,
                    "the answer of " + url() + " is longer than " + std::to_string(bytes_max) + " bytes"};
  }

  Async<Result<Response>> request(const std::string& text, const std::string& method) {
    Head head;
    if (auto sent = co_await send(text, method, head); !sent) co_return sent.error();
    co_return co_await receive_whole(std::move(head));
  }

  Async<Result<Response>> stream(const std::string& text, const OnBytes& on_bytes) {
    Head head;
    if (auto sent = co_await send(text, "GET", head); !sent) co_return sent.error();
    if (head.status != 200) co_return co_await receive_whole(std::move(head));
    streaming = true;
    co_return co_await receive(std::move(head), on_bytes);
  }
};

Client::Client(std::unique_ptr<State> state) : state_(std::move(state)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

Result<Client> Client::create(ClientOptions options) {
  return Client(std::make_unique<State>(BERTH_TRY(Dialer::create(std::move(options)))));
}

Result<Response> Client::request(const std::string& method, const std::string& target, std::string body,
                                 CallOptions options) {
  state_->begin_call(options);
  const std::string text = BERTH_TRY(state_->head_of(method, target, body.size(), options.headers)) + body;
  return state_->run(state_->request(text, method));
}

Result<Response> Client::stream_bytes(const std::string& target, const OnBytes& on_bytes, CallOptions options) {
  state_->begin_call(options);
  const std::string text = BERTH_TRY(state_->head_of("GET", target, 0, options.headers));
  return state_->run(state_->stream(text, on_bytes));
}

Result<Response> Client::stream_events(const std::string& target, const OnEvent& on_event, CallOptions options) {
  EventParser parser;
  auto response =
      stream_bytes(target, [&](std::string_view bytes) { return parser.put(bytes, on_event); }, std::move(options));
  if (parser.failed()) return Error{ErrorCode::io, state_->url() + " sent an event that is too long"};
  return response;
}

const std::string& Client::url() const noexcept { return state_->url(); }

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
