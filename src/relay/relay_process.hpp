// A relay as a separate process, which outlives the agent that started it: an agent that is killed or restarted
// disturbs no request. The agent controls it over a Unix socket in its folder (control.hpp); one relay runs per
// folder, in addition to replaced ones that finish their requests. It ends by POST /end or SIGTERM, when its socket
// is gone, or when no agent has contacted it for long and it has no targets; requests in flight then have some time
// to finish.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "berth/result.hpp"
#include "format/log_line.hpp"
#include "relay/relay.hpp"

namespace berth::relay {

struct RelayProcessOptions {
  std::string folder;     // folder of an agent's relays; private and absolute
  std::string node;       // its name
  std::string version;    // of this berth
  bool replaces = false;  // a relay running in the folder hands over to this one
  format::Log log = nullptr;
  RelayOptions relay = {};                      // except the node
  std::function<void()> on_ready = nullptr;     // it accepts messages from now on
  std::chrono::milliseconds drain_max{30'000};  // time for requests in flight at its end
  // The same for a replaced relay, as long as for a replaced gateway.
  std::chrono::milliseconds replaced_drain_max{3'600'000};
  std::chrono::milliseconds silence_max{3'600'000};  // longest silence of the agent while there are no targets
  std::chrono::milliseconds look_every{1'000};       // interval of checks of its socket and the time
};

// Runs until its end. already_exists: another relay runs in this folder; other errors: it cannot listen there.
Result<void> run_relay_process(const RelayProcessOptions& options);

}  // namespace berth::relay
