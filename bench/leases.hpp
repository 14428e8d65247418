// What benches of acquire() share.
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>

#include "berth/pool.hpp"
#include "report.hpp"

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

// Beside the times of two threads: a charge writes one line, with learnt times or
// bytes two.
inline void note_counting(Report& report) {
  char text[160];
  std::snprintf(text, sizeof text,
                "two threads that only add to shared words take %.0f ns with one cache line, %.0f ns with two",
                counting_ns(1), counting_ns(2));
  report.note(text);
}

}  // namespace berth::bench
