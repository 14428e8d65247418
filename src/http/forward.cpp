#include "http/forward.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

namespace berth::http {
namespace {

// Limit for interim answers, such as 103, before the final one.
constexpr int interim_max = 16;

constexpr std::array<std::string_view, 10> of_one_connection = {
    "connection", "content-length",    "expect",  "keep-alive", "proxy-authorization", "proxy-connection",
    "te",         "transfer-encoding", "trailer", "upgrade"};

// Typical size of a head with a short body.
constexpr std::size_t usual_head_bytes = 1024;

constexpr std::chrono::milliseconds hang_up_look_every{250};
// A longer beginning of a body is not copied behind the head: it is written in several pieces in any case.
constexpr std::size_t copied_bytes_max = 16 * 1024;
// How much a socket accepts at once, even if its reader is busy.
constexpr std::size_t taken_at_once_bytes = 32 * 1024;

// The words of all Connection headers. A set, because both the words and the headers may number thousands.
std::set<std::string> connection_options(const Headers& headers) {
  std::set<std::string> words;
  for (const auto& [name, value] : headers) {
    if (name != "connection") continue;
    for (std::string_view list = value; !list.empty();) {
      const std::size_t comma = list.find(',');
      std::string_view item = list.substr(0, comma);
      while (!item.empty() && (item.front() == ' ' || item.front() == '\t')) item.remove_prefix(1);
      while (!item.empty() && (item.back() == ' ' || item.back() == '\t')) item.remove_suffix(1);
      if (!item.empty()) words.insert(lower_case(item));
      list = comma == list.npos ? std::string_view() : list.substr(comma + 1);
    }
  }
  return words;
}

void append_headers(std::string& out, const Headers& headers) {
  for (const auto& [name, value] : headers) out.append(name).append(": ").append(value).append("\r\n");
}

void append_length(std::string& out, const Link::Body& body) {
  if (body.is_left_out && !body.is_chunked && !body.length) return;
  if (body.is_chunked || !body.length)
    out += "transfer-encoding: chunked\r\n";
  else
    out += "content-length: " + std::to_string(*body.length) + "\r\n";
}

std::string in_words(Link::Outcome outcome, const ErrorValue& error) {
  if (error == host_down()) return "its machine does not answer";
  switch (outcome) {
    case Link::Outcome::ended: return "it closed the connection";
    case Link::Outcome::timed_out: return "it sent nothing for too long";
    case Link::Outcome::too_long: return "it sent a header that is too long";
    case Link::Outcome::malformed: return "it sent data that is not HTTP/1.1: " + error.message();
    default: return error.message();
  }
}

}  // namespace

// The state that both directions share.
struct Forwarding {
  Link& client;
  Link& server;
  const ForwardOptions& options;
  Link::Body request_body;
  Signal go_on;  // set when the server wants the body, or has answered without it
  Signal ended;  // set when the answer has ended
  Forwarded result = {};
  bool is_wanted = false;
  bool is_body_begin_sent = false;
  bool is_request_sent = false;
  bool is_answered = false;
  bool is_accepted = false;  // on_answer has accepted the answer
  bool is_over = false;      // the answer has ended or failed
  std::optional<Running> watching = {};

  TimePoint client_by() const { return real_clock().now() + options.client_time; }
  void answer_by(TimePoint time) const {
    if (!is_answered) server.wire().read_by(time);
  }
  void free_body_begin() const {
    if (is_body_begin_sent && is_accepted && options.on_body_begin_free) options.on_body_begin_free();
  }
  void expect_answer() const { answer_by(real_clock().now() + options.first_byte_time); }
  void client_is_gone(std::string why) {
    result.end = Forwarded::End::client_gone;
    result.problem = std::move(why);
    server.wire().abort();
  }
  void server_has_failed(Link::Outcome outcome) {
    server_has_failed(in_words(outcome, server.error()));
    result.is_late = outcome == Link::Outcome::timed_out;
  }
  void server_has_failed(std::string why) {
    if (result.end == Forwarded::End::client_gone) return;
    result.end = Forwarded::End::server_failed;
    result.problem = std::move(why);
  }
};

namespace {

bool is_cancelled(const Link& link, Link::Outcome outcome) {
  return outcome == Link::Outcome::failed && link.is_cancelled();
}

// Watches the client's connection, whose end would go unnoticed while nothing is read from it.
Async<void> watch_hang_up(Forwarding& all) {
  const bool is_gone = co_await wait_for_hang_up(all.client, all.ended);
  if (is_gone) all.client_is_gone("the client is gone");
}

// Sends the whole request. Returns false if the server does not want the rest, or the client did not send it.
Async<bool> send_request(Forwarding& all) {
  const bool is_chunked = all.request_body.is_chunked;
  const std::string_view begin = all.options.body_begin;
  std::string out = all.options.text;
  ErrorValue error;
  if (begin.size() > copied_bytes_max) {
    if (is_chunked) append_chunk_size(out, begin.size());
    error = co_await all.server.write(out);
    if (!error) error = co_await all.server.write(begin);
    out = is_chunked ? end_of_chunk : "";
  } else if (is_chunked && !begin.empty()) {
    append_chunk(out, begin);
  } else {
    out += begin;
  }
  while (true) {
    const bool is_last = all.client.is_read();
    if (is_last && is_chunked) out += last_chunk;
    // A server that refuses a request may answer before it has read all of it: read its answer in any case.
    if (!error) error = co_await all.server.write(out);
    all.is_body_begin_sent = true;
    all.free_body_begin();
    if (error) co_return false;
    all.expect_answer();
    if (is_last) co_return true;
    if (all.options.waits_for_continue && !all.is_wanted) co_await all.go_on.wait();
    if ((all.options.waits_for_continue && !all.is_wanted) || all.is_over) co_return false;
    all.answer_by(TimePoint::max());
    all.client.wire().read_by(all.client_by());
    const Link::Piece piece = co_await all.client.read_piece();
    if (is_cancelled(all.client, piece.outcome)) co_return false;
    if (piece.outcome != Link::Outcome::done) {
      all.client_is_gone("the body of the request is not complete: " + in_words(piece.outcome, all.client.error()));
      co_return false;
    }
    out.clear();
    if (is_chunked && !piece.bytes.empty())
      append_chunk(out, piece.bytes);
    else
      out = piece.bytes;
  }
}

// Sends the request, and watches the client from then on.
Async<void> send_and_watch(Forwarding& all) {
  const bool is_sent = co_await send_request(all);  // its memory is freed here: the answer may take hours
  if (!is_sent) co_return;
  all.is_request_sent = true;
  all.client.wire().read_by(TimePoint::max());
  const Link::Outcome outcome = co_await all.client.read_ahead();
  if (outcome != Link::Outcome::done) {
    if (!is_cancelled(all.client, outcome)) all.client_is_gone("the client is gone");
  } else if (!all.watching) {
    all.watching.emplace(watch_hang_up(all));
  }
}

Async<void> copy_raw(Link& from, Link& to) {
  while (true) {
    const Link::Piece piece = co_await from.read_raw();
    if (piece.outcome != Link::Outcome::done) break;
    const ErrorValue error = co_await to.write(piece.bytes);
    if (error) break;
  }
  from.wire().close();
  to.wire().close();
}

// Receives the answer, up to its end. The rest of `all.result` is set by the caller.
Async<void> receive_answer(Forwarding& all, const Head& request) {
  Forwarded& result = all.result;
  Head answer;
  all.expect_answer();
  int interim = 0;
  do {
    if (interim++ > interim_max) co_return all.server_has_failed("it sends too many interim answers");
    const Link::Outcome outcome =
        co_await all.server.read_response(answer, Link::head_bytes_max, request.method == "HEAD");
    if (outcome != Link::Outcome::done) co_return all.server_has_failed(outcome);
    if (answer.status < 100) co_return all.server_has_failed("the status of its answer is not valid");
    if (answer.status != 100) continue;
    all.is_wanted = true;
    all.go_on.notify();
  } while (answer.status / 100 == 1 && answer.status != 101);
  if (answer.status == 101 && !asks_for_upgrade(request.headers))
    co_return all.server_has_failed("it changes the protocol without being asked to");
  all.is_answered = true;
  const auto coding = answer.headers.get("transfer-encoding");
  if (coding && lower_case(*coding) != "chunked")
    co_return all.server_has_failed("its answer has a transfer encoding other than chunked");
  result.status = answer.status;
  if (all.options.on_answer && !all.options.on_answer(answer)) {
    result.end = Forwarded::End::withheld;
    co_return;
  }
  all.is_accepted = true;
  all.free_body_begin();
  const Link::Body body = all.server.body();
  const bool is_upgrade = answer.status == 101 && asks_for_upgrade(request.headers);
  const std::string protocol = is_upgrade ? std::string(answer.headers.get("upgrade").value_or("")) : std::string();
  Headers headers = end_to_end(std::move(answer.headers));
  std::string out;
  if (is_upgrade) {
    headers.set("connection", "upgrade");
    headers.set("upgrade", protocol);
    out = response_text(answer.status, headers, {.is_chunked = false, .length = 0}, true);
  } else {
    result.is_client_kept = all.options.keeps_client && all.client.body().keeps_connection;
    out = response_text(answer.status, headers, body, result.is_client_kept);
  }
  bool has_ended = is_upgrade || all.server.is_read();
  const auto add = [&](std::string_view piece) {
    if (body.length)
      out += piece;
    else if (!piece.empty())
      append_chunk(out, piece);
    has_ended = all.server.is_read();
    if (has_ended && !body.length) out += last_chunk;
  };
  while (true) {
    // Data that arrived together is forwarded together.
    while (!has_ended) {
      const std::optional<Link::Piece> piece = all.server.waiting_piece();
      if (!piece) break;
      if (piece->outcome != Link::Outcome::done) co_return all.server_has_failed(piece->outcome);
      add(piece->bytes);
    }
    if (!is_upgrade && has_ended && all.options.on_server_free) all.options.on_server_free();
    all.client.wire().write_by(all.client_by());
    result.reached_client = true;
    const ErrorValue error = co_await all.client.write(out);
    if (error) co_return all.client_is_gone("the client does not read the answer: " + error.message());
    if (has_ended) co_return;
    all.server.wire().read_by(real_clock().now() + all.options.silence_time);
    const Link::Piece piece = co_await all.server.read_piece();
    if (piece.outcome != Link::Outcome::done) co_return all.server_has_failed(piece.outcome);
    out.clear();
    add(piece.bytes);
  }
}

}  // namespace

Async<bool> wait_for_hang_up(Link& link, Signal& ended) {
  while (true) {
    const bool has_ended = co_await ended.wait(real_clock().now() + hang_up_look_every);
    if (has_ended) co_return false;
    if (link.wire().has_hung_up()) co_return true;
  }
}

Headers end_to_end(Headers headers) {
  const std::set<std::string> listed = connection_options(headers);
  headers.remove_if([&](const std::string& name, const std::string&) {
    return std::find(of_one_connection.begin(), of_one_connection.end(), name) != of_one_connection.end() ||
           listed.contains(name);
  });
  return headers;
}

bool asks_for_upgrade(const Headers& headers) {
  return lower_case(headers.get("upgrade").value_or("")) == "websocket" &&
         connection_options(headers).contains("upgrade");
}

std::string request_text(const Head& request, const Headers& headers, const Link::Body& body) {
  std::string out;
  out.reserve(usual_head_bytes);
  out.append(request.method).append(" ").append(request.target).append(" HTTP/1.1\r\n");
  append_headers(out, headers);
  if (!body.is_empty()) append_length(out, body);
  if (asks_for_upgrade(request.headers))
    out.append("connection: upgrade\r\nupgrade: ").append(*request.headers.get("upgrade")).append("\r\n");
  return out += "\r\n";
}

std::string response_text(int status, const Headers& headers, const Link::Body& body, bool keeps_connection) {
  std::string out;
  out.reserve(usual_head_bytes);
  out.append("HTTP/1.1 ").append(std::to_string(status)).append(" ").append(reason_phrase(status)).append("\r\n");
  append_headers(out, headers);
  if (status / 100 != 1 && status != 204 && status != 304) append_length(out, body);
  if (!keeps_connection) out += "connection: close\r\n";
  return out += "\r\n";
}

Async<Forwarded> forward(Link& client, const Head& request, Link& server, const ForwardOptions& options) {
  Loop& loop = client.wire().loop();
  Forwarding all{client, server, options, client.body(), Signal(loop), Signal(loop)};
  if (!client.is_read() || options.body_begin.size() > taken_at_once_bytes) all.watching.emplace(watch_hang_up(all));
  Running sending(send_and_watch(all));
  co_await receive_answer(all, request);
  all.is_over = true;
  Forwarded& result = all.result;
  client.wire().cancel();
  all.go_on.notify();
  if (!all.is_request_sent) server.wire().abort();  // the rest of the request would be taken for the next one
  co_await sending.join();
  all.ended.notify();
  if (all.watching) co_await all.watching->join();
  client.wire().read_by(TimePoint::max());
  client.wire().write_by(TimePoint::max());
  server.wire().read_by(TimePoint::max());
  if (result.end == Forwarded::End::done && result.status == 101) {
    Running up(copy_raw(client, server));
    co_await copy_raw(server, client);
    co_await up.join();
  }
  result.is_client_kept = result.is_client_kept && result.end == Forwarded::End::done && all.is_request_sent;
  result.is_server_kept = result.end == Forwarded::End::done && all.is_request_sent && result.status != 101 &&
                          server.is_read() && server.body().keeps_connection && server.waiting().empty() &&
                          server.wire().is_open();
  co_return std::move(result);
}

}  // namespace berth::http
