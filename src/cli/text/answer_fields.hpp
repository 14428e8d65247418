// The members of an object of the HTTP API as text for people. An answer may be from a newer or an older version:
// members that are absent or of an unexpected type are shown as "-". Texts are safe for a terminal.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/ids.hpp"
#include "cli/text/terminal.hpp"

namespace berth::cli {

// Any value: a text without quotes, anything else as JSON.
std::string value_text(const boost::json::value& value);

// A view: the answer must outlive it.
class Fields {
 public:
  explicit Fields(const boost::json::value& value) : object_(value.if_object()) {}
  explicit Fields(const boost::json::object& object) : object_(&object) {}

  // The text of a member; empty if it is absent.
  std::string raw(std::string_view key) const;
  std::string text(std::string_view key) const;
  // A name in the API as text for people: "in service" for "in_service", "not ready" for "unready".
  std::string word(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::string count(std::string_view key) const;
  std::string bytes(std::string_view key) const;
  // Ages: from seconds, and from the wall time of an event in milliseconds.
  std::string age(std::string_view key) const;
  std::string age_since(std::string_view key) const;
  // Short times ("1.2 ms", "350 us", "2.5 s"), from seconds and from microseconds. A rate: "0.25", "12".
  std::string seconds(std::string_view key) const;
  std::string microseconds(std::string_view key) const;
  std::string rate(std::string_view key) const;
  std::string time(std::string_view key) const;  // "2026-11-15 12:01:02" for wall time in milliseconds
  bool is(std::string_view key) const;           // present and true
  bool has(std::string_view key) const;
  Fields in(std::string_view key) const;  // an object; without members if it is absent
  const boost::json::array& list(std::string_view key) const;
  std::vector<DeviceId> devices() const;  // the member "devices", where it is a list of ids
  const boost::json::object& object() const;

 private:
  const boost::json::value* find(std::string_view key) const;
  const boost::json::object* object_;
};

}  // namespace berth::cli
