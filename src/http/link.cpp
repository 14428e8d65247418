#include "http/link.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

namespace berth::http {
namespace {

namespace beast = boost::beast::http;

constexpr std::string_view end_of_head = "\r\n\r\n";

}  // namespace

bool has_plain_lines(std::string_view head, std::size_t from) {
  // Examines the last character again, because the one after it is known only now.
  for (std::size_t i = from > 0 ? from - 1 : 0; i < head.size(); ++i) {
    const auto c = static_cast<unsigned char>(head[i]);
    if (c >= 0x20 || c == '\t') continue;
    const bool is_last = i + 1 == head.size();
    const bool begins_end = c == '\r' && (is_last || head[i + 1] == '\n');
    const bool is_end = c == '\n' && i > 0 && head[i - 1] == '\r';
    const bool is_continued = is_end && !is_last && (head[i + 1] == ' ' || head[i + 1] == '\t');
    if ((!begins_end && !is_end) || is_continued) return false;
  }
  return true;
}

void append_chunk_size(std::string& out, std::size_t bytes) {
  char size[24];
  const int digits = std::snprintf(size, sizeof size, "%zx\r\n", bytes);
  out.append(size, static_cast<std::size_t>(digits));
}

void append_chunk(std::string& out, std::string_view bytes) {
  append_chunk_size(out, bytes.size());
  out.append(bytes).append(end_of_chunk);
}

std::string_view Link::waiting() const {
  return buffer_ ? std::string_view(buffer_->data() + begin_, end_ - begin_) : std::string_view();
}

bool Link::is_stale() { return !waiting().empty() || wire_->has_input(); }

void Link::consume(std::size_t bytes) {
  begin_ += bytes;
  if (begin_ == end_) begin_ = end_ = 0;
}

void Link::release() {
  if (buffer_) wire_->loop().give_back(std::move(buffer_));
  begin_ = end_ = 0;
}

Link::Outcome Link::outcome_of(ErrorValue error) {
  error_ = error;
  if (error == asio::error::eof) return Outcome::ended;
  return error == asio::error::timed_out ? Outcome::timed_out : Outcome::failed;
}

// Reads more bytes and appends them to those in the buffer.
Async<Link::Outcome> Link::fill() {
  if (!buffer_) buffer_ = wire_->loop().take_buffer();
  if (begin_ > 0) {
    std::memmove(buffer_->data(), buffer_->data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  if (end_ == buffer_->size()) {
    error_ = beast::error::header_limit;
    co_return Outcome::too_long;
  }
  const Wire::Read read = co_await wire_->read_some(std::span(*buffer_).subspan(end_));
  end_ += read.bytes;
  co_return read.error ? outcome_of(read.error) : Outcome::done;
}

Async<Link::Outcome> Link::wait_for_message() {
  while (true) {
    while (waiting().starts_with("\r\n")) consume(2);  // RFC 9112, 2.2: tolerated before a request
    if (!waiting().empty() && waiting() != "\r") co_return Outcome::done;
    if (waiting().empty()) {
      release();
      if (const ErrorValue error = co_await wire_->wait_readable(); error) co_return outcome_of(error);
    }
    if (const Outcome outcome = co_await fill(); outcome != Outcome::done) co_return outcome;
  }
}

template <bool is_request>
Async<Link::Outcome> Link::read_head(std::optional<MessageParser<is_request>>& parser, Head& into,
                                     std::size_t bytes_max, bool to_head) {
  into = {};
  parser.emplace(into);
  parser->skip(to_head);
  parser->header_limit(static_cast<std::uint32_t>(bytes_max));
  parser->body_limit(boost::none);
  std::size_t seen = 0, size = std::string_view::npos;
  while (true) {
    const std::string_view text = waiting();
    const std::size_t end = text.find(end_of_head, seen < 3 ? 0 : seen - 3);
    if (end != std::string_view::npos) size = end + end_of_head.size();
    // Refuses data that cannot become a message before its end has arrived.
    error_ = beast::error::bad_line_ending;
    if (!has_plain_lines(text.substr(0, std::min(size, text.size())), seen)) co_return Outcome::malformed;
    error_ = beast::error::header_limit;
    if (size != std::string_view::npos ? size > bytes_max : text.size() >= bytes_max) co_return Outcome::too_long;
    if (size != std::string_view::npos) break;
    seen = text.size();
    if (const Outcome outcome = co_await fill(); outcome != Outcome::done) co_return outcome;
  }
  error_ = {};
  const std::size_t used = parser->put(asio::buffer(waiting().substr(0, size)), error_);
  if (error_) co_return Outcome::malformed;
  consume(used);
  co_return Outcome::done;
}

Async<Link::Outcome> Link::read_request(Head& into, std::size_t head_bytes_max) {
  response_.reset();
  return read_head(request_, into, head_bytes_max, false);
}

Async<Link::Outcome> Link::read_response(Head& into, std::size_t head_bytes_max, bool to_head) {
  request_.reset();
  is_to_head_ = to_head;
  return read_head(response_, into, head_bytes_max, to_head);
}

Link::Body Link::body() const {
  const auto of = [](const auto& parser) {
    Body body{.is_chunked = parser.chunked(), .length = {}, .keeps_connection = parser.keep_alive()};
    if (const auto length = parser.content_length()) body.length = *length;
    if (parser.is_done() && !body.is_chunked && !body.length) body.length = 0;
    return body;
  };
  if (request_) return of(*request_);
  Body body = of(*response_);
  body.is_left_out = is_to_head_;
  if (is_to_head_ && !response_->content_length()) body.length.reset();
  return body;
}

bool Link::is_read() const { return request_ ? request_->is_done() : response_->is_done(); }

template <bool is_request>
std::optional<Link::Piece> Link::waiting_piece_of(MessageParser<is_request>& parser) {
  parser.clear_piece();
  while (!parser.is_done()) {
    if (waiting().empty()) return std::nullopt;
    error_ = {};
    const std::string_view bytes = waiting();
    consume(parser.put(asio::buffer(bytes), error_));
    if (error_ && error_ != beast::error::need_more) return Piece{Outcome::malformed};
    if (!parser.piece().empty()) return Piece{Outcome::done, parser.piece()};
    if (error_) return std::nullopt;
  }
  return Piece{};
}

std::optional<Link::Piece> Link::waiting_piece() {
  return request_ ? waiting_piece_of(*request_) : waiting_piece_of(*response_);
}

template <bool is_request>
Async<Link::Piece> Link::read_piece_of(MessageParser<is_request>& parser) {
  while (true) {
    if (const auto piece = waiting_piece_of(parser)) co_return *piece;
    const Outcome outcome = co_await fill();
    if (outcome == Outcome::ended && !is_request && parser.need_eof()) {
      parser.put_eof(error_);  // an answer without a length ends with the connection
      if (!error_) co_return Piece{};
    }
    if (outcome != Outcome::done) co_return Piece{outcome};
  }
}

Async<Link::Piece> Link::read_piece() { return request_ ? read_piece_of(*request_) : read_piece_of(*response_); }

Async<Link::Piece> Link::read_raw() {
  if (waiting().empty())
    if (const Outcome outcome = co_await fill(); outcome != Outcome::done) co_return Piece{outcome};
  const std::string_view bytes = waiting();
  consume(bytes.size());
  co_return Piece{Outcome::done, bytes};
}

Async<Link::Outcome> Link::read_ahead() {
  while (!buffer_ || waiting().size() < buffer_->size()) {
    if (waiting().empty()) {
      release();
      if (const ErrorValue error = co_await wire_->wait_readable(); error) co_return outcome_of(error);
    }
    if (const Outcome outcome = co_await fill(); outcome != Outcome::done) co_return outcome;
  }
  co_return Outcome::done;
}

}  // namespace berth::http
