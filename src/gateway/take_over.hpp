// How a gateway that starts takes the place of the one that runs, so that there is always one that takes connections:
// it gets the sockets that listen from the old one, over a Unix socket in the folder of the gateway, and says when it
// is ready to use them. Then the old one takes no new connections, gives up its lock and finishes the requests that it
// has. One that fails before it is ready, or for which the old one has no time, changes nothing. Which of the two is
// the gateway is never in doubt: it is the one that has the lock.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "berth/result.hpp"
#include "http/server.hpp"
#include "world/descriptor.hpp"

namespace berth::gateway {

// The side of the gateway that starts.
class TakeOver {
 public:
  // unavailable: no gateway of that folder answers.
  static Result<TakeOver> begin(const std::string& folder);

  // The sockets of these addresses that the old one had are put into them.
  void give_to(std::vector<http::ListenOn>& listeners);
  // Says that this one is ready, and returns when the old one has given up its lock or goes on: whether the lock is
  // free then, shows which.
  void finish();

 private:
  world::Descriptor connection_;
  std::map<std::string, world::Descriptor> sockets_;  // by address as it was asked for
};

// The side of the one that runs; on a thread of its own.
class TakeOverOffer {
 public:
  // What listens, by address as it was asked for.
  using Sockets = std::function<std::map<std::string, int>()>;
  // Gives up the lock, unless the other side has given up first. False: it goes on, and will not give it up for this.
  using Take = std::function<bool(const std::function<bool()>& is_there)>;
  static Result<std::unique_ptr<TakeOverOffer>> make(const std::string& folder, Sockets sockets, Take taken);
  ~TakeOverOffer();

  // The next gateway may make its offer when this returns.
  void end();

 private:
  TakeOverOffer(world::Descriptor listening, world::Descriptor end, Sockets sockets, Take taken);
  void run();
  void serve(int connection);

  const world::Descriptor listening_, end_;
  const Sockets sockets_;
  const Take taken_;
  bool has_ended_ = false;
  std::thread thread_;
};

}  // namespace berth::gateway
