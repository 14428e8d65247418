// What the agent of a node tells its relay, and what the relay answers: all replicas that can be called here, all
// gateways, and what is in flight. Each message is the whole state, so that a relay or an agent that was started anew
// needs no history. Sent as JSON over a Unix socket of their user, since it has the keys of gateways.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "berth/result.hpp"
#include "relay/admission.hpp"

namespace berth::relay {

// The socket of the relay in the folder of its agent, and its requests: PUT a Control, answered with a ControlAnswer;
// POST ends the relay after the requests in flight.
std::string control_url(const std::string& folder);
inline constexpr const char *targets_path = "/targets", *end_path = "/end";

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
  std::map<std::string, std::uint32_t> in_flight;  // by target, also of those that are not listed any more
  std::string version;                             // of the relay's berth
  friend bool operator==(const ControlAnswer&, const ControlAnswer&) = default;
};

// JSON. invalid_argument: the text is none; the error never contains a key.
std::string to_text(const Control& control);
std::string to_text(const ControlAnswer& answer);
Result<Control> read_control(std::string_view text);
Result<ControlAnswer> read_control_answer(std::string_view text);

}  // namespace berth::relay
