// Starts the relay of this node, restarts it when it has died, and keeps it up to date, on a separate thread: a relay
// that does not answer does not delay anything else, and is killed after ten seconds. The relay is this program again
// (relay_program.hpp) and outlives the agent; a new agent finds it by its socket, and replaces it if it is of another
// version. A relay without gateways has nothing to do and is stopped.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "agent/agent.hpp"
#include "agent/signal.hpp"
#include "relay/control.hpp"

namespace berth::agent {

class RelayWatch {
 public:
  // Starts at once, and changes nothing before share(). `changed` is called on its thread when seen() has changed for
  // a draining target or for the relay.
  RelayWatch(const AgentOptions& options, std::function<void()> changed);
  ~RelayWatch();

  // Sets the complete state for the relay. Returns the number of this state.
  std::uint64_t share(relay::Control control);

  enum class State : std::uint8_t { unknown, up, down };
  struct Seen {
    State state = State::unknown;                    // down: it does not run, or has not answered for 2 s
    std::uint64_t number = 0;                        // number of the state that it last confirmed; 0: none
    std::map<std::string, std::uint32_t> in_flight;  // at that time or later, including replaced relays
    std::string problem;                             // why a gateway cannot use it; empty: each can
    // Whether the relay has confirmed the state with this number, which drains the target, and has finished its
    // requests.
    bool is_drained(const std::string& target, std::uint64_t state_number) const;
  };
  Seen seen() const;

 private:
  struct DesiredState {
    relay::Control control;
    std::uint64_t number = 0;  // 0: nothing was shared yet
  };
  void run(const std::stop_token& stop);
  // Sends one message to the relay. Returns the time when the next one is due.
  TimePoint send_state(const std::stop_token& stop);
  TimePoint take(const relay::ControlAnswer& answer, const DesiredState& wanted, const std::stop_token& stop);
  // Ends relays that were replaced, and notes what they still have in flight.
  void end_replaced(const std::stop_token& stop);
  // Kills a relay that has repeatedly failed to answer in time.
  void kill_silent(std::string_view name);
  bool start(bool replaces, const std::stop_token& stop);
  bool is_up() const;
  void set_state(State state);
  void log(format::LogLevel level, std::string message, format::LogFields fields = {}) const;

  const AgentOptions& options_;
  const std::function<void()> changed_;
  const std::string folder_, url_;  // folder of relays; URL of the running one
  Signal due_;

  // Used only by the thread.
  std::uint32_t starts_ = 0;  // in a row
  TimePoint next_start_{}, up_since_{}, answered_at_{};
  std::map<std::string, std::uint32_t, std::less<>> unanswered_;  // requests in a row, by the name of the relay
  // By name of a replaced relay: its requests in flight, by target.
  std::map<std::string, std::map<std::string, std::uint32_t>> replaced_;

  mutable std::mutex mutex_;  // guards the members up to the thread
  DesiredState wanted_;
  Seen seen_;

  std::jthread thread_;
};

}  // namespace berth::agent
