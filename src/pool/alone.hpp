// Atomic steps that cost nothing while nobody can come between: as long as the
// process has one thread, a load and a store do what an atomic instruction does
// at a tenth of its price (5 to 8 ns on a Neoverse N1). The C library knows, and
// says otherwise from the first pthread_create on, before the new thread runs.
// For words of this process alone, not for memory shared with others.
#pragma once

#include <atomic>

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#endif

namespace berth {

inline bool alone() noexcept {
#if __has_include(<sys/single_threaded.h>)
  return __libc_single_threaded != 0;
#else
  return false;
#endif
}

// fetch_add; to subtract, add the negative. `word` is an atomic or an atomic_ref.
// Code that has asked already says so and is compiled for both cases.
template <class Word, class Value>
[[gnu::always_inline]] inline auto add(Word&& word, Value value, std::memory_order order,
                                       bool is_alone = alone()) noexcept {
  if (!is_alone) return word.fetch_add(value, order);
  const auto before = word.load(std::memory_order_relaxed);
  word.store(before + value, std::memory_order_relaxed);
  return before;
}

// compare_exchange_strong.
template <class Word, class Value>
[[gnu::always_inline]] inline bool replace(Word&& word, Value& seen, Value value, std::memory_order order,
                                           bool is_alone = alone()) noexcept {
  if (!is_alone) return word.compare_exchange_strong(seen, value, order, std::memory_order_relaxed);
  const Value now = word.load(std::memory_order_relaxed);
  if (now != seen) [[unlikely]] {
    seen = now;
    return false;
  }
  word.store(value, std::memory_order_relaxed);
  return true;
}

}  // namespace berth
