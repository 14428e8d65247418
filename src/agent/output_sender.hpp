// Sends the output of replicas to the server, for readers there (`berth logs`). Each request has its own thread,
// which is as slow as its reader: the server answers a piece when there is room for the next one.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "berth/ids.hpp"
#include "fleet/fleet.hpp"
#include "http/client.hpp"

namespace berth::agent {

struct OutputRequest {
  std::string id;  // identifies the request to the server
  fleet::ReplicaKey key;
  std::uint64_t tail = 0;  // lines; 0: all
  bool follows = false;    // continues with the next jobs of the replica, until it is gone
  bool previous = false;   // the output of the job before the newest one
};

class OutputSender {
 public:
  struct Source {
    NodeId node;
    std::string jobs;                                          // their folder
    std::function<bool(const fleet::ReplicaKey&)> is_ordered;  // assigned to this node? Called on any thread
  };
  OutputSender(http::ClientOptions server, Source source);
  // Stops all requests and waits until they have ended.
  ~OutputSender();
  OutputSender(const OutputSender&) = delete;
  OutputSender& operator=(const OutputSender&) = delete;

  // Starts to send. If there are too many readers, or no thread can be started, the reader gets a message. Not
  // thread-safe.
  void start(OutputRequest request);

 private:
  struct Sending {
    std::shared_ptr<std::atomic<bool>> has_ended;
    std::jthread thread;
  };
  http::ClientOptions server_;
  Source source_;
  std::list<Sending> sendings_;
};

}  // namespace berth::agent
