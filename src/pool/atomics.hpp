// Atomic steps for no more than they must cost.
#pragma once

#include <atomic>
#include <cstdint>

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#endif

// A compiler for every ARMv8 calls a function for each atomic step, since only
// ARMv8.1 has instructions for them. Saving what is held around the call takes
// longer than the step.
#if defined(__aarch64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__ARM_FEATURE_ATOMICS) && \
    !defined(__SANITIZE_THREAD__)
#define BERTH_ATOMICS_FOUND_AT_RUN_TIME
#include <sys/auxv.h>
#endif

namespace berth {

#ifdef BERTH_ATOMICS_FOUND_AT_RUN_TIME
[[gnu::visibility("hidden")]] inline const bool has_atomics = (getauxval(AT_HWCAP) & HWCAP_ATOMICS) != 0;
#else
inline constexpr bool has_atomics = true;
#endif

// Where others write too, a line that is first read and then written comes twice.
[[gnu::always_inline]] inline void fetch_to_write(const void* at) noexcept {
#ifdef __x86_64__
  // What the compiler would make of the next line is for reading.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(at)));
#else
  __builtin_prefetch(at, 1);
#endif
}

// Puts `value` where `seen` is; otherwise tells what is there. Sequentially
// consistent where it succeeds.
[[gnu::always_inline]] inline bool exchange(std::uint64_t& word, std::uint64_t& seen, std::uint64_t value,
                                            [[maybe_unused]] bool with_atomics = has_atomics) noexcept {
#ifdef BERTH_ATOMICS_FOUND_AT_RUN_TIME
  std::uint64_t was = seen;
  std::uint32_t failed = 0;
  asm volatile(
      ".arch_extension lse\n\t"
      "cbz %w[has], 1f\n\t"
      "casal %[was], %[value], %[word]\n\t"
      "b 2f\n"
      "1:\t"
      "ldaxr %[was], %[word]\n\t"
      "cmp %[was], %[seen]\n\t"
      "b.ne 2f\n\t"
      "stlxr %w[failed], %[value], %[word]\n\t"
      "cbnz %w[failed], 1b\n"
      "2:"
      : [was] "+&r"(was), [failed] "=&r"(failed), [word] "+Q"(word)
      : [seen] "r"(seen), [value] "r"(value), [has] "r"(std::uint32_t{with_atomics})
      : "cc", "memory");
  const bool done = was == seen;
  seen = was;
  return done;
#else
  return __atomic_compare_exchange_n(&word, &seen, value, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
#endif
}

// The rest is for words of this process alone, not for memory shared with others:
// as long as the process has one thread, a load and a store do what an atomic
// instruction does at a tenth of its price (5 to 8 ns on a Neoverse N1). The C
// library knows, and says otherwise from the first pthread_create on, before the
// new thread runs.

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

// exchange.
[[gnu::always_inline]] inline bool replace(std::uint64_t& word, std::uint64_t& seen, std::uint64_t value,
                                           bool is_alone = alone()) noexcept {
  if (!is_alone) return exchange(word, seen, value);
  const std::uint64_t was = word;
  if (was != seen) [[unlikely]] {
    seen = was;
    return false;
  }
  word = value;
  return true;
}

}  // namespace berth
