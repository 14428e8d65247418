// An engine that fails at a chosen commit, as a full disk, a lost connection or a killed process does.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "store/engine.hpp"

namespace berth::store {

class FailingEngine final : public Engine {
 public:
  // lost: nothing was committed. unacknowledged: it was committed, but the answer was lost.
  enum class Failure { lost, unacknowledged };

  explicit FailingEngine(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}

  // After `commits` more commits, all further ones fail.
  void fail_after(int commits, Failure failure) {
    commits_left_ = commits;
    failure_ = failure;
  }
  void recover() { commits_left_ = -1; }
  // Listings fail after the next `commits` commits.
  void fail_lists(bool fail, int commits = 0) { lists_fail_after_ = fail ? commits_ + commits : -1; }
  int commits() const { return commits_; }

  std::string name() const override { return engine_->name(); }
  Result<Listing> list(std::string_view prefix, std::string_view after, std::size_t limit) override {
    if (lists_fail_after_ >= 0 && commits_ >= lists_fail_after_) return Error{ErrorCode::io, "the planted failure"};
    return engine_->list(prefix, after, limit);
  }
  Result<std::optional<std::uint64_t>> commit(const Transaction& transaction) override {
    ++commits_;
    if (commits_left_ != 0) {
      if (commits_left_ > 0) --commits_left_;
      return engine_->commit(transaction);
    }
    if (std::exchange(failure_, Failure::lost) == Failure::unacknowledged)
      static_cast<void>(engine_->commit(transaction).has_value());
    return Error{ErrorCode::io, "the planted failure"};
  }
  void wait_for_change(std::uint64_t change_number, Duration timeout) override {
    engine_->wait_for_change(change_number, timeout);
  }
  Result<void> hold(const std::string& owner, Duration duration) override { return engine_->hold(owner, duration); }
  void release(const std::string& owner) override { engine_->release(owner); }

 private:
  std::shared_ptr<Engine> engine_;
  int commits_left_ = -1;  // -1: no commit fails
  int commits_ = 0;
  int lists_fail_after_ = -1;  // -1: no listing fails
  Failure failure_ = Failure::lost;
};

}  // namespace berth::store
