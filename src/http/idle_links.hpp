// Connections to servers that wait for their next request. The client side closes them before a server would,
// because a request sent on a connection that is just being closed is lost. For the thread of a loop.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "berth/clock.hpp"
#include "http/link.hpp"

namespace berth::http {

class IdleLinks {
 public:
  // Shorter than that of common servers (uvicorn: 5 s), with a second for the time between two calls of close_old().
  static constexpr std::chrono::milliseconds keep_time{3'000};

  // The most recently used one that the server has not closed. Null: there is none.
  std::unique_ptr<Link> take(const std::string& server);
  void put(const std::string& server, std::unique_ptr<Link> link);
  // To be called at least once a second.
  void close_old(TimePoint now);
  void clear() { idle_.clear(); }
  std::size_t count() const;

 private:
  struct Idle {
    std::unique_ptr<Link> link;
    TimePoint since{};
  };
  std::map<std::string, std::vector<Idle>> idle_;  // the one used last is at the end
};

}  // namespace berth::http
