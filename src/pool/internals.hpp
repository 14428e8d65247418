// The board of a pool, for the scheduler, the router and tests.
#pragma once

#include "berth/pool.hpp"
#include "pool/board.hpp"

struct berth::detail::PoolInternals {
  static pool::Board& board(Pool& pool) noexcept { return *pool.board_; }
  // Whether a decision is worth another try: the first poll has just ended.
  static bool await_first_poll(Pool& pool) { return pool.await_first_poll(); }
};

namespace berth::pool {

inline Board& board_of(Pool& pool) noexcept { return detail::PoolInternals::board(pool); }

}  // namespace berth::pool
