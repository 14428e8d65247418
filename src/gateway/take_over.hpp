// How a gateway that starts takes the place of the one that runs, so that there is always one that takes connections:
// it gets the sockets that listen from the old one, over a Unix socket in the folder of the gateway, and says when it
// is ready to use them. Then the old one takes no new connections and finishes the requests that it has. One that fails
// before it is ready changes nothing.
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
  // The old one ends, and has given up its lock when this returns.
  Result<void> finish();

 private:
  world::Descriptor connection_;
  std::map<std::string, world::Descriptor> sockets_;  // by address as it was asked for
};

// The side of the one that runs; on a thread of its own.
class TakeOverOffer {
 public:
  // What listens, by address as it was asked for.
  using Sockets = std::function<std::map<std::string, int>()>;
  // `taken`: another has taken over; it returns when that may take the lock.
  static Result<std::unique_ptr<TakeOverOffer>> make(const std::string& folder, Sockets sockets,
                                                     std::function<void()> taken);
  ~TakeOverOffer();

 private:
  TakeOverOffer(world::Descriptor listening, world::Descriptor end, Sockets sockets, std::function<void()> taken);
  void run();
  bool serve(int connection);

  world::Descriptor listening_;
  const world::Descriptor end_;
  const Sockets sockets_;
  const std::function<void()> taken_;
  std::thread thread_;
};

}  // namespace berth::gateway
