// The promises of a Pool in the ledger: an entry whose bytes change without the
// lock. Thread-safe. Ends with the object or with the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "berth/ledger.hpp"
#include "pool/atomics.hpp"

namespace berth {

class Ledger::Row {
 public:
  ~Row();
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;
  // The claim's number: one per memory domain, and the same for its other devices.
  Result<std::size_t> add_claim(const DeviceId& device, const std::string& memory_domain);
  // Promises `bytes` more of claim number `claim` unless the sum of all
  // promises in its memory domain would exceed `limit`; `others`: it would not but
  // for those of others.
  bool promise(std::size_t claim, std::uint64_t bytes, std::uint64_t limit, bool* others = nullptr) noexcept {
    std::uint64_t* const own = promised_at(claim);
    fetch_to_write(own);
    std::uint64_t before = __atomic_load_n(own, __ATOMIC_RELAXED);
    // What cannot be is not announced: others would take it for promised.
    do {
      if (before > limit || bytes > limit - before) return false;
    } while (!exchange(*own, before, before + bytes));
    // Whoever is alone in the ledger need not look for others.
    if (is_only_entry() || fits_beside_others(claim, bytes, limit - before - bytes)) return true;
    if (others) *others = true;
    return false;
  }
  void give_back(std::size_t claim, std::uint64_t bytes) noexcept;
  // The word in which the claim's bytes are counted, for who reads them often.
  std::uint64_t* promised_at(std::size_t claim) const noexcept { return first_promise_ + 2 * claim; }
  // What others have promised in the claim's memory domain. The lease this
  // program runs under (BERTH_LEASE) is its own.
  std::uint64_t promised_by_others(std::size_t claim) const noexcept;
  // Entries of others that hold the device, and whether one holds it alone.
  std::pair<std::uint32_t, bool> other_holders(const Book& book, const DeviceId& device) const;

 private:
  friend class Ledger;
  Row(std::shared_ptr<Ledger> ledger, std::uint64_t id, std::size_t entry) noexcept;
  bool is_only_entry() const noexcept { return entry_ == 0 && __atomic_load_n(entries_used_, __ATOMIC_SEQ_CST) == 1; }
  // Otherwise the bytes, announced already, are given back.
  bool fits_beside_others(std::size_t claim, std::uint64_t bytes, std::uint64_t left) noexcept;
  std::shared_ptr<Ledger> ledger_;
  const std::uint64_t id_;
  const std::size_t entry_;
  const std::uint64_t lease_;  // 0: none
  // Both in the file; every second word from the first is a promise.
  std::uint64_t* const first_promise_;
  const std::uint64_t* const entries_used_;
};

}  // namespace berth
