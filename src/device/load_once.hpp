// A driver library that is loaded once in a process. A failed load is repeated by a
// later call, because a driver may be installed or repaired while the process runs, but
// at most once a second, because a failing start can be slow.
#pragma once

#include <mutex>
#include <optional>

#include "berth/clock.hpp"
#include "berth/result.hpp"

namespace berth::device {

template <class Library>
class LoadOnce {
 public:
  using Load = Result<const Library*> (*)();
  explicit LoadOnce(Load load) : load_(load) {}

  // Thread-safe.
  Result<const Library*> get(Clock& clock = real_clock()) {
    const std::lock_guard lock(mutex_);
    const bool again = !result_ || (!*result_ && clock.now() - tried_at_ >= std::chrono::seconds(1));
    if (again) {
      result_ = load_();
      tried_at_ = clock.now();
    }
    return *result_;
  }

 private:
  const Load load_;
  std::mutex mutex_;  // guards everything below; held while the library is loaded
  std::optional<Result<const Library*>> result_;
  TimePoint tried_at_{};
};

}  // namespace berth::device
