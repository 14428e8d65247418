// The messages from the agent of a node to its relay, and the answers: all replicas that can be called here, all
// gateways, and the requests in flight. Each message is the whole state, so that a restarted relay or agent needs
// no history. Sent as JSON over a Unix socket of their user, because it contains the keys of gateways.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "berth/result.hpp"
#include "relay/admission.hpp"

namespace berth::relay {

// The folder of the relays of an agent. If the agent is root, it belongs to the user that relays run as.
std::string relay_folder(const std::string& agent_folder);
// A relay listens on a socket there, and holds a lock next to it while it runs. Both names begin with this one, or
// with the name of a replaced relay.
inline constexpr std::string_view current_relay = "control";
std::string name_of_replaced(std::int64_t process);
std::string control_url(const std::string& folder, std::string_view name = current_relay);
std::string lock_file(const std::string& folder, std::string_view name = current_relay);
// The names of relays that were replaced; some may have ended.
std::vector<std::string> replaced_relays(const std::string& folder);

// Its requests: PUT a Control; POST /leave makes it hand its name to another relay and continue meanwhile; POST /end
// ends it after the requests in flight. PUT and end are answered with a ControlAnswer.
inline constexpr const char *targets_path = "/targets", *leave_path = "/leave", *end_path = "/end";

struct GatewayAddress {
  std::string name;
  std::string url;  // "http://10.0.0.5:8081"
  std::string key;  // a secret that only this relay and that gateway know
  friend bool operator==(const GatewayAddress&, const GatewayAddress&) = default;
};

struct Control {
  std::vector<Target> targets;
  std::vector<GatewayAddress> gateways;
  friend bool operator==(const Control&, const Control&) = default;
};

struct ControlAnswer {
  std::map<std::string, std::uint32_t> in_flight;  // by target, including those no longer listed
  std::string version;                             // of the relay's berth
  std::string problem = {};                        // why a gateway cannot use it; empty: each can
  friend bool operator==(const ControlAnswer&, const ControlAnswer&) = default;
};

// JSON. invalid_argument: the text is not valid; the error never contains a key.
std::string to_text(const Control& control);
std::string to_text(const ControlAnswer& answer);
Result<Control> read_control(std::string_view text);
Result<ControlAnswer> read_control_answer(std::string_view text);

}  // namespace berth::relay
