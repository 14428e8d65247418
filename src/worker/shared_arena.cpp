#include "worker/shared_arena.hpp"

#include <algorithm>
#include <iterator>

namespace berth::worker {
namespace {

// Drivers pin whole pages, which are up to 64 KiB on some machines.
constexpr std::uint64_t alignment = 64 << 10;

std::uint64_t rounded_up(std::uint64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

}  // namespace

Result<std::shared_ptr<SharedArena>> SharedArena::make(std::uint64_t bytes) {
  if (bytes == 0 || bytes > std::uint64_t{1} << 46)
    return Error{ErrorCode::invalid_argument, "shared_bytes must be between 1 byte and 64 TiB"};
  return std::shared_ptr<SharedArena>(
      new SharedArena(BERTH_TRY(SealedMemory::make("berth-shared", rounded_up(bytes)))));
}

SharedArena::SharedArena(SealedMemory memory) : memory_(std::move(memory)) { free_[0] = memory_.bytes().size(); }

Result<SharedMemory> SharedArena::allocate(std::uint64_t bytes) {
  if (bytes == 0) return Error{ErrorCode::invalid_argument, "shared memory has at least one byte"};
  const std::uint64_t whole = rounded_up(std::min(bytes, memory_.bytes().size() + alignment));
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(free_.begin(), free_.end(), [&](const auto& block) { return block.second >= whole; });
  if (found == free_.end())
    return Error{ErrorCode::out_of_memory, "too little shared memory is left for " + bytes_text(bytes),
                 "raise WorkerOptions::shared_bytes, or release some"};
  const auto [begin, size] = *found;
  free_.erase(found);
  if (size > whole) free_[begin + whole] = size - whole;
  std::shared_ptr<void> owner(
      nullptr, [self = shared_from_this(), begin = begin, whole](void*) { self->give_back(begin, whole); });
  return SharedMemory(memory_.bytes().subspan(begin, bytes), begin, std::move(owner));
}

void SharedArena::give_back(std::uint64_t begin, std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  auto added = free_.emplace(begin, bytes).first;
  if (const auto next = std::next(added); next != free_.end() && begin + bytes == next->first) {
    added->second += next->second;
    free_.erase(next);
  }
  if (added == free_.begin()) return;
  if (const auto before = std::prev(added); before->first + before->second == begin) {
    before->second += added->second;
    free_.erase(added);
  }
}

}  // namespace berth::worker
