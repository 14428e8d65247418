// How a starting gateway takes over from the running one, so that there is always one that accepts connections: it
// gets the listening sockets from the old one, over a Unix socket in the folder of the gateway, and reports when it
// is ready to use them. Then the old one stops accepting connections, releases its lock and finishes its requests. If
// the new one fails before it is ready, or the old one is too busy, nothing changes. It is always clear which of the
// two is the gateway: the one with the lock.
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

// The side of the starting gateway.
class TakeOver {
 public:
  // unavailable: no gateway of that folder answers.
  static Result<TakeOver> begin(const std::string& folder);

  // Gives the listeners the old gateway's sockets for their addresses.
  void give_to(std::vector<http::ListenOn>& listeners);
  // Reports that this one is ready, and returns when the old one has released its lock or decided to continue;
  // whether the lock is free shows which.
  void finish();

 private:
  world::Descriptor connection_;
  std::map<std::string, world::Descriptor> sockets_;  // by address as requested
};

// The side of the running gateway, on its own thread.
class TakeOverOffer {
 public:
  // The listening sockets, by address as requested.
  using Sockets = std::function<std::map<std::string, int>()>;
  // Releases the lock, unless the other side has given up first. False: this gateway continues and will not release
  // it for this offer.
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
