// Requests that wait for a replica, in an order that is fair between callers: each caller's requests wait in their
// own line, and the next request comes from the caller that has been served least, by weight. A caller gets no credit
// for time without waiting requests. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

namespace berth::gateway {

template <class Request>
class FairQueue {
 public:
  void push(const std::string& caller, std::uint32_t weight, Request& request) {
    Line& line = lines_[caller];
    if (line.requests.empty()) line.served = std::max(line.served, served_);
    line.weight = std::max<std::uint32_t>(weight, 1);
    line.requests.push_back(&request);
    ++size_;
  }

  // Puts a request that was next but could not be served before the others of its caller.
  void push_front(const std::string& caller, std::uint32_t weight, Request& request) {
    push(caller, weight, request);
    Line& line = lines_.at(caller);
    line.requests.pop_back();
    line.requests.push_front(&request);
    line.served -= std::min(line.served, share / line.weight);
  }

  // Removes and returns the next request; null if the queue is empty.
  Request* pop() {
    auto next = lines_.end();
    for (auto line = lines_.begin(); line != lines_.end(); ++line) {
      const bool is_next = next == lines_.end() || line->second.served < next->second.served;
      if (!line->second.requests.empty() && is_next) next = line;
    }
    if (next == lines_.end()) return nullptr;
    Request* const request = next->second.requests.front();
    next->second.requests.pop_front();
    --size_;
    served_ = next->second.served;
    next->second.served += share / next->second.weight;
    forget();
    return request;
  }

  // Removes a request that gives up. False: it had already left the queue.
  bool remove(const std::string& caller, const Request& request) {
    const auto line = lines_.find(caller);
    if (line == lines_.end()) return false;
    auto& requests = line->second.requests;
    for (auto entry = requests.begin(); entry != requests.end(); ++entry) {
      if (*entry != &request) continue;
      requests.erase(entry);
      --size_;
      forget();
      return true;
    }
    return false;
  }

  std::size_t size() const { return size_; }
  std::size_t size_of(const std::string& caller) const {
    const auto line = lines_.find(caller);
    return line == lines_.end() ? 0 : line->second.requests.size();
  }

 private:
  static constexpr std::uint64_t share = 1'000'000;  // share of one request for a caller of weight 1
  struct Line {
    std::deque<Request*> requests;
    std::uint64_t served = 0;
    std::uint32_t weight = 1;
  };
  // Forgets callers without waiting requests once the others have been served as much.
  void forget() {
    std::erase_if(lines_, [&](const auto& item) {
      return item.second.requests.empty() && (size_ == 0 || item.second.served <= served_);
    });
  }

  std::map<std::string, Line> lines_;
  std::uint64_t served_ = 0;  // share of the last request's caller
  std::size_t size_ = 0;
};

}  // namespace berth::gateway
