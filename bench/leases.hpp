// What benches of acquire() share.
#pragma once

#include <cstddef>
#include <memory>

#include "berth/pool.hpp"

namespace berth::bench {

// Room for what acquire() gives: made where it stays, as in a caller that writes
// `Result<Lease> lease = pool.acquire();`, and not moved from there.
class Leases {
 public:
  explicit Leases(std::size_t count) : room_(std::make_unique<Room[]>(count)) {}
  struct alignas(Result<Lease>) Room {
    std::byte bytes[sizeof(Result<Lease>)];
  };
  Room* room() { return room_.get(); }
  void settle(std::size_t i) {
    auto* const lease = reinterpret_cast<Result<Lease>*>(room() + i);
    (*lease)->settle({});
    std::destroy_at(lease);
  }

 private:
  std::unique_ptr<Room[]> room_;
};

}  // namespace berth::bench
