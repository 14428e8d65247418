// Tells systemd that a service is ready (Type=notify). Without systemd it does nothing.
#pragma once

#include <string>

namespace berth::world {

class ReadyNotice {
 public:
  // Takes NOTIFY_SOCKET out of the environment, so that commands that are started here do not speak for the service.
  // Before any other thread.
  ReadyNotice();
  // Failure is ignored: then systemd ends the service after its own time, and says so.
  void send() const;

 private:
  std::string socket_;  // empty: there is none
};

}  // namespace berth::world
