// Counts the open connections of a server and decides whether to accept one more. Unix sockets have their own places,
// so that no crowd on a port locks out the user who runs the server; those from this machine leave places for other
// machines.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "http/message.hpp"
#include "http/server.hpp"

namespace berth::http {

class ConnectionCount {
 public:
  explicit ConnectionCount(const Limits& limits) : limits_(limits) {}

  // False: too many, and it is not counted.
  bool add(const Peer& peer) {
    if (peer.unix_uid) {
      if (unix_ >= limits_.connections_of_unix) return false;
      ++unix_;
      return true;
    }
    if (tcp_ >= limits_.connections) return false;
    const std::string key = key_of(peer);
    const auto found = of_address_.find(key);
    const std::size_t most = peer.is_loopback ? limits_.connections_of_loopback : limits_.connections_of_address;
    if ((found == of_address_.end() ? 0 : found->second) >= most) return false;
    ++of_address_[key];
    ++tcp_;
    return true;
  }

  void remove(const Peer& peer) {
    if (peer.unix_uid) {
      --unix_;
      return;
    }
    --tcp_;
    const auto found = of_address_.find(key_of(peer));
    if (--found->second == 0) of_address_.erase(found);
  }

  std::size_t all() const { return tcp_ + unix_; }
  std::size_t addresses() const { return of_address_.size(); }

 private:
  // 127.0.0.1, 127.0.0.2 and ::1 are one machine.
  static std::string key_of(const Peer& peer) { return peer.is_loopback ? "loopback" : peer.address; }

  Limits limits_;
  std::size_t tcp_ = 0, unix_ = 0;
  std::map<std::string, std::size_t> of_address_;
};

}  // namespace berth::http
