// One connection of HTTP/1.1, on either side of it: messages are read as a head and then a body in pieces, and a
// reader that does not ask for the next piece holds back the sender. Nothing here is longer than a buffer, whatever
// the other side sends. A message whose end, or whose line ends, can be read in two ways is malformed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "http/async.hpp"
#include "http/parser.hpp"
#include "http/wire.hpp"

namespace berth::http {

class Link {
 public:
  explicit Link(std::unique_ptr<Wire> wire) : wire_(std::move(wire)) {}
  ~Link() { release(); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  Wire& wire() { return *wire_; }

  // The head must fit into a buffer.
  static constexpr std::size_t head_bytes_max = sizeof(Buffer);

  enum class Outcome : std::uint8_t {
    done,
    ended,      // the other side has closed the connection
    timed_out,  // Wire::read_by()
    too_long,   // a head, or the line of a chunk
    malformed,
    failed,  // the connection is broken, closed or cancelled
  };

  // Waits for the first byte of a message; empty lines before it are skipped. Holds no buffer while it waits.
  Async<Outcome> wait_for_message();
  Async<Outcome> read_request(Head& into, std::size_t head_bytes_max);
  // `to_head`: the answer to a HEAD request, which has no body whatever its head says.
  Async<Outcome> read_response(Head& into, std::size_t head_bytes_max, bool to_head);

  // State of the message whose head was read last.
  struct Body {
    bool is_chunked = false;
    std::optional<std::uint64_t> length = {};
    bool keeps_connection = false;  // as far as its sender is concerned
    bool is_left_out = false;       // of the answer to a HEAD request, whose head need not give its length
    bool is_empty() const { return !is_chunked && length == 0; }
  };
  Body body() const;
  bool is_read() const;

  struct Piece {
    Outcome outcome = Outcome::done;
    std::string_view bytes = {};  // valid until the next read; empty: the body has ended
  };
  Async<Piece> read_piece();
  // The part of the next piece that has already been read. Absent: nothing has.
  std::optional<Piece> waiting_piece();
  // After a change of protocol: reads whatever comes. Ends with `ended`.
  Async<Piece> read_raw();

  // Reads on while a request is answered, to notice that its client is gone: until the connection ends, the
  // waiting bytes fill a buffer (`done`), or Wire::cancel() is called.
  Async<Outcome> read_ahead();
  std::string_view waiting() const;
  // Whether the other side has closed an idle connection, or sent unsolicited data.
  bool is_stale();

  Async<ErrorValue> write(std::string_view bytes) { return wire_->write(bytes); }

  // The error of the last outcome other than `done`, for messages.
  const ErrorValue& error() const { return error_; }
  // Whether `failed` was caused by Wire::cancel() or close().
  bool is_cancelled() const { return error_ == asio::error::operation_aborted; }

 private:
  template <bool is_request>
  Async<Outcome> read_head(std::optional<MessageParser<is_request>>& parser, Head& into, std::size_t bytes_max,
                           bool to_head);
  template <bool is_request>
  Async<Piece> read_piece_of(MessageParser<is_request>& parser);
  template <bool is_request>
  std::optional<Piece> waiting_piece_of(MessageParser<is_request>& parser);
  Async<Outcome> fill();
  Outcome outcome_of(ErrorValue error);
  void consume(std::size_t bytes);
  void release();

  std::unique_ptr<Wire> wire_;
  std::unique_ptr<Buffer> buffer_;  // null: nothing waits in it
  std::size_t begin_ = 0, end_ = 0;
  std::optional<MessageParser<true>> request_;
  std::optional<MessageParser<false>> response_;
  bool is_to_head_ = false;  // the response is
  ErrorValue error_;
};

// Whether the lines of a head from `from` on end correctly, do not continue the previous line, and contain no control
// characters. Other parsers read such lines differently from Beast.
bool has_plain_lines(std::string_view head, std::size_t from = 0);

// Appends a chunk of a body of unknown length.
void append_chunk(std::string& out, std::string_view bytes);
// The line before the bytes of a chunk, and what follows them.
void append_chunk_size(std::string& out, std::size_t bytes);
constexpr std::string_view end_of_chunk = "\r\n";
constexpr std::string_view last_chunk = "0\r\n\r\n";

}  // namespace berth::http
