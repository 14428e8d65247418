// The board of a pool, for the scheduler, the router and tests.
#pragma once

#include "berth/pool.hpp"
#include "pool/pool_state.hpp"

struct berth::detail::PoolInternals {
  static pool::Board& board(const Pool& pool) noexcept { return pool.state_->board; }
  // The options with which another process can open its devices again.
  static const BackendOptions& backend_options(const Pool& pool) noexcept { return pool.state_->backends; }
  // The number of the next turn of next_device.
  static std::atomic<Ticket>& turn(const Pool& pool) noexcept { return pool.state_->turn; }
  // Whether a decision is worth another try: the first poll has just ended.
  static bool await_first_poll(const Pool& pool) { return pool.state_->await_first_poll(); }
};

namespace berth::pool {

inline Board& board_of(const Pool& pool) noexcept { return detail::PoolInternals::board(pool); }

}  // namespace berth::pool
