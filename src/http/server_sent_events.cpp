#include "http/server_sent_events.hpp"

#include "http/server.hpp"

namespace berth::http {
namespace {

constexpr std::size_t bytes_max = 1024 * 1024;

std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text)
    if (c != '\n' && c != '\r' && c != '\0') line += c;
  return line;
}

}  // namespace

std::string to_text(const Event& event) {
  std::string text;
  if (event.name != "message" && !event.name.empty()) text += "event: " + one_line(event.name) + '\n';
  if (!event.id.empty()) text += "id: " + one_line(event.id) + '\n';
  text += "data: ";
  for (std::size_t i = 0; i < event.data.size(); ++i) {
    const char c = event.data[i];
    if (c == '\r' && i + 1 < event.data.size() && event.data[i + 1] == '\n') continue;
    if (c == '\n' || c == '\r')
      text += "\ndata: ";
    else
      text += c;
  }
  text += "\n\n";
  return text;
}

StreamHead event_stream_head() {
  // A proxy such as nginx would otherwise collect the events in its buffer.
  return {.headers = {{"content-type", "text/event-stream"}, {"x-accel-buffering", "no"}}, .keep_alive = ": \n\n"};
}

std::optional<std::string> last_event_id(const Request& request) {
  const auto id = request.headers.get("last-event-id");
  if (!id || id->empty()) return std::nullopt;
  return std::string(*id);
}

bool EventParser::put(std::string_view bytes, const std::function<bool(const Event&)>& on_event) {
  if (failed_) return false;
  while (!bytes.empty()) {
    if (skip_newline_) {
      skip_newline_ = false;
      if (bytes.front() == '\n') {
        bytes.remove_prefix(1);
        continue;
      }
    }
    const std::size_t end = bytes.find_first_of("\r\n");
    if (partial_.size() + std::min(end, bytes.size()) + event_.data.size() > bytes_max) return failed_ = true, false;
    if (end == bytes.npos) {
      partial_ += bytes;
      return true;
    }
    partial_ += bytes.substr(0, end);
    skip_newline_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    std::string complete;
    complete.swap(partial_);
    if (!line(complete, on_event)) return false;
  }
  return true;
}

bool EventParser::line(std::string_view text, const std::function<bool(const Event&)>& on_event) {
  if (first_ && text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  first_ = false;
  if (text.empty()) {
    Event event;
    std::swap(event, event_);
    const bool complete = std::exchange(has_data_, false);
    event.id = last_id_;
    return !complete || on_event(event);
  }
  const std::size_t colon = text.find(':');
  const std::string_view field = text.substr(0, colon);
  std::string_view value = colon == text.npos ? std::string_view() : text.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "event") {
    event_.name = value.empty() ? "message" : value;
  } else if (field == "id") {
    if (value.find('\0') == value.npos) last_id_ = value;
  } else if (field == "data") {
    if (has_data_) event_.data += '\n';
    event_.data += value;
    has_data_ = true;
  }
  return true;
}

}  // namespace berth::http
