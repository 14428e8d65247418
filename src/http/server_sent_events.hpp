// Server-sent events (WHATWG HTML, section 9.2): the text of an event for a stream of the server, and the parser for
// the client.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "http/message.hpp"

namespace berth::http {

struct StreamHead;

struct Event {
  std::string name = "message";  // the field "event"
  std::string id = {};           // empty: none; the client keeps the last one it has seen
  std::string data = {};         // may have several lines
  bool operator==(const Event&) const = default;
};

// The text of an event for a stream. Line ends within a name or an id are removed; a carriage return in the data
// becomes a line end.
std::string to_text(const Event& event);

// The head of a stream of events: content type, and a comment every 15 s to keep it alive.
StreamHead event_stream_head();

// The id of the last event that a reconnecting client has seen.
std::optional<std::string> last_event_id(const Request& request);

// Takes the bytes of a stream in pieces of any size.
class EventParser {
 public:
  // Calls `on_event` for each complete event; false from it ends the parsing. False: it returned false, or a line or
  // event is longer than 1 MiB (failed()).
  bool put(std::string_view bytes, const std::function<bool(const Event&)>& on_event);
  bool failed() const { return failed_; }

 private:
  bool line(std::string_view text, const std::function<bool(const Event&)>& on_event);

  std::string partial_;  // of a line
  Event event_{};
  std::string last_id_;
  bool has_data_ = false;
  bool skip_newline_ = false;  // after a carriage return
  bool first_ = true;          // for the byte order mark
  bool failed_ = false;
};

}  // namespace berth::http
