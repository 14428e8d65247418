#include "relay/control.hpp"

#include "fleet_format/described_json.hpp"
#include "relay/control_description.hpp"

namespace berth::relay {
namespace {

// Of a neighbouring version, perhaps: members that are not known are ignored.
template <class Noun>
Result<Noun> read(std::string_view text, const std::string& what) {
  return format::read_document(text, what, [](const boost::json::value& value, const std::string& where) {
    return format::noun_of<Noun>(value, where, format::From::record);
  });
}

}  // namespace

std::string control_url(const std::string& folder) { return "unix:" + folder + "/relay.socket"; }

std::string to_text(const Control& control) { return format::document(format::noun_to_json(control)); }
std::string to_text(const ControlAnswer& answer) { return format::document(format::noun_to_json(answer)); }
Result<Control> read_control(std::string_view text) { return read<Control>(text, "the relay's targets"); }
Result<ControlAnswer> read_control_answer(std::string_view text) {
  return read<ControlAnswer>(text, "the relay's answer");
}

}  // namespace berth::relay
