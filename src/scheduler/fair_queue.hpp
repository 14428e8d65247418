// FairQueue: which tenant of a device is served next, and which of its jobs (WaitingQueue).
// Start-time fair queueing: while several tenants have work waiting, each gets work in proportion
// to its weight, measured by the cost of the work. A tenant that had none waiting begins at the
// virtual time of the others, so idle time earns no credit.
//
// Not thread-safe; owns no job.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "scheduler/waiting_queue.hpp"

namespace berth::scheduler {

class FairQueue {
 public:
  // `weight` gives the weight of a tenant, which may change between two calls.
  explicit FairQueue(std::function<double(TenantId)> weight) : weight_(std::move(weight)) {}

  void push(Job& job);
  // Removes and returns the next job; nullptr if there is none.
  Job* pop() noexcept;
  // Precondition: the job is in the queue.
  void erase(Job& job) noexcept;
  bool empty() const noexcept { return backlogged_.empty(); }

 private:
  struct Line {
    WaitingQueue queue;
    double start = 0;  // virtual time at which its next job may begin: the end of its last one, or later
  };

  std::function<double(TenantId)> weight_;
  std::vector<Line> lines_;              // by tenant
  std::vector<std::size_t> backlogged_;  // tenants with work waiting
  double now_ = 0;                       // virtual: the start of the job that was taken last
};

}  // namespace berth::scheduler
