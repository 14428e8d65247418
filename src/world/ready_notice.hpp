// Notifies systemd that a service is ready (Type=notify). Without systemd it does nothing.
#pragma once

#include <string>

namespace berth::world {

class ReadyNotice {
 public:
  // Takes NOTIFY_SOCKET out of the environment, so that commands started here cannot notify on behalf of the
  // service. Construct it before any other thread.
  ReadyNotice();
  // Failure is ignored: systemd then ends the service after its own timeout, and reports that.
  void send() const;

 private:
  std::string socket_;  // empty: there is none
};

}  // namespace berth::world
