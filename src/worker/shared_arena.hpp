// SharedArena: the memory of Workers::share, one piece that all workers map. Blocks are reused; their
// pages are never returned to the system, because a worker may have them pinned.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "worker/channel.hpp"

namespace berth::worker {

class SharedArena : public std::enable_shared_from_this<SharedArena> {
 public:
  static Result<std::shared_ptr<SharedArena>> make(std::uint64_t bytes);
  int descriptor() const noexcept { return memory_.descriptor(); }
  // The first free block that is large enough; it is freed with the last handle.
  Result<SharedMemory> allocate(std::uint64_t bytes);

 private:
  explicit SharedArena(SealedMemory memory);
  void give_back(std::uint64_t begin, std::uint64_t bytes) noexcept;

  const SealedMemory memory_;
  std::mutex mutex_;                             // guards free_
  std::map<std::uint64_t, std::uint64_t> free_;  // start and size; no two are adjacent
};

}  // namespace berth::worker
