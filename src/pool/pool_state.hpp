// PoolState: shared by the handles of one pool: Pool itself, and every scheduler on it. It is
// destroyed with the last of them and the last lease.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "pool/board.hpp"
#include "pool/poller.hpp"

namespace berth::pool {

struct PoolState {
  PoolState(PoolOptions given, const Policy* named);

  // Starts the poller; every device has joined.
  void start();
  // Waits for the first poll to end. False if it was known to have ended before, so that
  // deciding again would make no difference.
  bool await_first_poll();

  const PoolOptions options;
  const Policy* const policy;
  BackendOptions backends;  // of open_all
  std::optional<Error> ledger_error;
  std::vector<Listing::FailedBackend> failed_backends;
  Board board;
  std::unique_ptr<Poller> poller;
  std::atomic<Ticket> turn{0};
  std::atomic<bool> first_poll_ended{false};  // of every device that has joined
};

}  // namespace berth::pool
