// The state that a Responder and the connection share about one request and its answer. Responders may be used on any
// thread; the connection belongs to the server's thread. `mutex` guards everything in Channel except `connection`.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "http/server.hpp"

namespace berth::http {

class Connection;
struct Loop;

struct Channel {
  std::weak_ptr<Loop> loop;
  std::weak_ptr<Connection> connection;  // locked on the server's thread only
  std::size_t stream_bytes_max = 0;
  bool is_head = false;  // the request's method is HEAD

  std::mutex mutex;
  bool answered = false;      // by send() or stream()
  bool open = false;          // a stream that accepts data
  bool ended = false;         // a stream that close() was called on
  bool gone = false;          // the client
  bool complete = false;      // the answer is written
  bool flush_posted = false;  // the connection will take `pending` soon
  std::string pending;        // data of the stream, framed as chunks
  std::size_t in_flight = 0;  // taken from `pending` by the connection, not yet written
  std::vector<std::function<void()>> on_gone;
  std::function<void()> on_room;

  bool has_room() const { return pending.size() + in_flight <= stream_bytes_max / 4; }

  // Called on the server's thread when the client is gone; `call`: notify the handler.
  void set_gone(bool call);
  // Called on the server's thread when the whole answer is written.
  void set_complete();
};

// Owned by the copies of a Responder and its Stream.
struct Exchange {
  explicit Exchange(std::shared_ptr<Channel> shared) : channel(std::move(shared)) {}
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  std::shared_ptr<Channel> channel;
};

}  // namespace berth::http
