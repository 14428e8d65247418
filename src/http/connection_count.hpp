// Counts the open connections of a server, in all and by address, and decides whether one more is taken. Clients on
// this machine share one address, so that only the limit of all applies to them.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "http/message.hpp"
#include "http/server.hpp"

namespace berth::http {

class ConnectionCount {
 public:
  explicit ConnectionCount(const Limits& limits)
      : all_max_(limits.connections), each_max_(limits.connections_of_address) {}

  // False: too many, and it is not counted.
  bool add(const Peer& peer) {
    if (all_ >= all_max_) return false;
    if (!peer.is_loopback) {
      const auto found = of_address_.find(peer.address);
      if ((found == of_address_.end() ? 0 : found->second) >= each_max_) return false;
      ++of_address_[peer.address];
    }
    ++all_;
    return true;
  }

  void remove(const Peer& peer) {
    --all_;
    if (peer.is_loopback) return;
    const auto found = of_address_.find(peer.address);
    if (--found->second == 0) of_address_.erase(found);
  }

  std::size_t all() const { return all_; }
  std::size_t addresses() const { return of_address_.size(); }

 private:
  std::size_t all_max_;
  std::size_t each_max_;
  std::size_t all_ = 0;
  std::map<std::string, std::size_t> of_address_;
};

}  // namespace berth::http
