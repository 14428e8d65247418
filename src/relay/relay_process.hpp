// A relay as a process of its own, which outlives the agent that started it: an agent that is killed or restarted
// disturbs no request. The agent tells it what to do over a Unix socket in its folder (control.hpp); one relay runs per
// folder, beside those that it has replaced and that finish their requests. It ends by POST /end or SIGTERM, when its
// socket is gone, or when no agent has told it anything for long and it has no targets; requests in flight then have
// some time left.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "berth/result.hpp"
#include "format/log_line.hpp"
#include "relay/relay.hpp"

namespace berth::relay {

struct RelayProcessOptions {
  std::string folder;     // of the relays of an agent; private and absolute
  std::string node;       // its name
  std::string version;    // of this berth
  bool replaces = false;  // a relay that runs in the folder leaves its place to this one
  format::Log log = nullptr;
  RelayOptions relay = {};                      // but for the node
  std::function<void()> on_ready = nullptr;     // it can be told from now on
  std::chrono::milliseconds drain_max{30'000};  // for requests in flight at its end
  // The same for one that was replaced. As long as a gateway that was replaced has.
  std::chrono::milliseconds replaced_drain_max{3'600'000};
  std::chrono::milliseconds silence_max{3'600'000};  // of the agent, while there are no targets
  std::chrono::milliseconds look_every{1'000};       // at its socket and the time
};

// Until its end. already_exists: another relay runs in this folder; other errors: it cannot listen there.
Result<void> run_relay_process(const RelayProcessOptions& options);

}  // namespace berth::relay
