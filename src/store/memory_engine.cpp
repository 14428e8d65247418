#include "store/memory_engine.hpp"

#include <condition_variable>
#include <map>
#include <mutex>

namespace berth::store {
namespace {

class MemoryEngine final : public Engine {
 public:
  explicit MemoryEngine(Clock& clock) : clock_(clock) {}

  std::string name() const override { return "memory"; }

  Result<Listing> list(std::string_view prefix, std::string_view after, std::size_t limit) override {
    const std::lock_guard lock(mutex_);
    Listing listing{{}, change_number_};
    auto at = after < prefix ? entries_.lower_bound(prefix) : entries_.upper_bound(after);
    for (; at != entries_.end() && at->first.starts_with(prefix) && listing.entries.size() < limit; ++at)
      listing.entries.push_back({at->first, at->second.value, at->second.version});
    return listing;
  }

  Result<std::optional<std::uint64_t>> commit(const Transaction& transaction) override {
    BERTH_TRY(check_bounds(transaction));
    const std::lock_guard lock(mutex_);
    for (const Condition& condition : transaction.conditions) {
      const auto at = entries_.find(condition.key);
      if ((at == entries_.end() ? 0 : at->second.version) != condition.version) return std::optional<std::uint64_t>();
    }
    bool is_changed = false;
    for (const Write& write : transaction.writes) {
      if (write.value) {
        entries_.insert_or_assign(write.key, Stored{*write.value, change_number_ + 1});
        is_changed = true;
      } else if (entries_.erase(write.key) > 0) {
        is_changed = true;
      }
    }
    if (is_changed) {
      ++change_number_;
      changed_.notify_all();
    }
    return std::optional(change_number_);
  }

  void wait_for_change(std::uint64_t change_number, Duration timeout) override {
    const Deadline deadline = Deadline::after(clock_, timeout);
    std::unique_lock lock(mutex_);
    while (change_number_ <= change_number && clock_.wait_until(changed_, lock, deadline.at)) {
    }
  }

  Result<void> hold(const std::string& owner, Duration duration) override {
    const std::lock_guard lock(mutex_);
    if (owner_ && *owner_ != owner && !held_until_.passed(clock_.now())) {
      return Error{ErrorCode::unavailable, *owner_ + " is using this store",
                   "stop it first, or wait until it has ended"};
    }
    owner_ = owner;
    held_until_ = Deadline::after(clock_, duration);
    return {};
  }

  void release(const std::string& owner) override {
    const std::lock_guard lock(mutex_);
    if (owner_ == owner) owner_.reset();
  }

 private:
  struct Stored {
    std::string value;
    std::uint64_t version = 0;
  };
  Clock& clock_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::map<std::string, Stored, std::less<>> entries_;
  std::uint64_t change_number_ = 0;
  std::optional<std::string> owner_;
  Deadline held_until_;
};

}  // namespace

std::shared_ptr<Engine> make_memory_engine(Clock& clock) { return std::make_shared<MemoryEngine>(clock); }

}  // namespace berth::store
