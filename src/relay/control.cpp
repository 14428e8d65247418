#include "relay/control.hpp"

#include <filesystem>
#include <system_error>

#include "fleet_format/described_json.hpp"
#include "relay/control_description.hpp"

namespace berth::relay {
namespace {

// The sender may have a neighbouring version, so unknown members are ignored.
template <class Noun>
Result<Noun> read(std::string_view text, const std::string& what) {
  return format::read_document(text, what, [](const boost::json::value& value, const std::string& where) {
    return format::noun_of<Noun>(value, where, format::From::record);
  });
}

}  // namespace

std::string relay_folder(const std::string& agent_folder) { return agent_folder + "/relay"; }

std::string control_url(const std::string& folder, std::string_view name) {
  return "unix:" + folder + '/' + std::string(name);
}
std::string lock_file(const std::string& folder, std::string_view name) {
  return folder + '/' + std::string(name) + ".lock";
}

// The name must not be longer than `current_relay`, so that the path of its socket fits into an address.
std::string name_of_replaced(std::int64_t process) { return std::to_string(process); }

std::vector<std::string> replaced_relays(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    std::string name = entry->path().filename();
    if (name.find_first_not_of("0123456789") == name.npos) names.push_back(std::move(name));
  }
  return names;
}

std::string to_text(const Control& control) { return format::document(format::noun_to_json(control)); }
std::string to_text(const ControlAnswer& answer) { return format::document(format::noun_to_json(answer)); }
Result<Control> read_control(std::string_view text) { return read<Control>(text, "the relay's targets"); }
Result<ControlAnswer> read_control_answer(std::string_view text) {
  return read<ControlAnswer>(text, "the relay's answer");
}

}  // namespace berth::relay
