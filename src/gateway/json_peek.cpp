#include "gateway/json_peek.hpp"

#include <boost/json/basic_parser_impl.hpp>

namespace berth::gateway {
namespace {

namespace json = boost::json;

// Follows the depth of objects and arrays, and keeps the text of the requested member.
struct PeekHandler {
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1), max_array_size = max_object_size,
                               max_key_size = max_object_size, max_string_size = max_object_size;
  using Error = json::error_code;

  bool on_document_begin(Error&) { return true; }
  bool on_document_end(Error&) { return true; }
  bool on_object_begin(Error&) { return open(); }
  bool on_object_end(std::size_t, Error&) { return close(); }
  bool on_array_begin(Error& error) {
    if (depth_ == 0) return error = json::error::not_object, false;
    return open();
  }
  bool on_array_end(std::size_t, Error&) { return close(); }
  bool on_key_part(json::string_view part, std::size_t, Error&) {
    if (depth_ == 1 && key_.size() <= wanted.size()) key_.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view part, std::size_t size, Error& error) {
    on_key_part(part, size, error);
    is_wanted_ = depth_ == 1 && key_ == wanted;
    key_.clear();
    if (is_wanted_) ++count;
    return true;
  }
  bool on_string_part(json::string_view part, std::size_t, Error& error) {
    if (depth_ == 0) return error = json::error::not_object, false;
    if (!is_wanted_) return true;
    is_found = true;
    if (text.size() + part.size() > peeked_bytes_max) return error = json::error::string_too_large, false;
    text.append(part.data(), part.size());
    return true;
  }
  bool on_string(json::string_view part, std::size_t size, Error& error) {
    const bool goes_on = on_string_part(part, size, error);
    is_wanted_ = false;
    return goes_on;
  }
  bool on_number_part(json::string_view, Error&) { return true; }
  bool on_int64(std::int64_t number, json::string_view, Error& error) { return whole(number, error); }
  bool on_uint64(std::uint64_t number, json::string_view, Error& error) { return whole(number, error); }
  bool on_double(double, json::string_view, Error& error) { return value(error); }
  bool on_bool(bool, Error& error) { return value(error); }
  bool on_null(Error& error) { return value(error); }
  bool on_comment_part(json::string_view, Error&) { return true; }
  bool on_comment(json::string_view, Error&) { return true; }

  std::string_view wanted;
  std::string text;
  int count = 0;
  bool is_found = false;

 private:
  bool open() {
    is_wanted_ = false;
    return ++depth_;
  }
  bool close() {
    --depth_;
    return true;
  }
  template <class Number>
  bool whole(Number number, Error& error) {
    if (is_wanted_) {
      is_found = true;
      text = std::to_string(number);
    }
    return value(error);
  }
  bool value(Error& error) {
    is_wanted_ = false;
    if (depth_ == 0) return error = json::error::not_object, false;
    return true;
  }

  std::size_t depth_ = 0;
  std::string key_;
  bool is_wanted_ = false;
};

}  // namespace

Peeked peek_member(std::string_view body, std::string_view name) {
  json::basic_parser<PeekHandler> parser(json::parse_options{});
  PeekHandler& seen = parser.handler();
  seen.wanted = name;
  json::error_code error;
  const std::size_t used = parser.write_some(false, body.data(), body.size(), error);
  if (error == json::error::string_too_large) return {Peeked::Outcome::too_long, {}};
  if (error || !parser.done()) return {Peeked::Outcome::not_json, {}};
  if (body.find_first_not_of(" \t\r\n", used) != body.npos) return {Peeked::Outcome::not_json, {}};
  if (seen.count > 1) return {Peeked::Outcome::ambiguous, {}};
  if (!seen.is_found) return {Peeked::Outcome::absent, {}};
  return {Peeked::Outcome::found, std::move(seen.text)};
}

}  // namespace berth::gateway
