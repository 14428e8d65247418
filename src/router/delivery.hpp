// Delivery: a piece of work submitted with Router::submit. It waits behind the earlier work of its key, then in the
// queue of the key's device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "berth/router.hpp"
#include "scheduler/job.hpp"

namespace berth::router {

struct EntityState;

class Delivery : public scheduler::Job {
 public:
  // Ends it with this error before the router gets it. Takes the router's reference.
  void refuse(Error error) noexcept;
  void begin() noexcept;

 protected:
  // `router` is null for one that will be refused.
  Delivery(std::uint32_t references, std::shared_ptr<RouterState> router, std::string_view key, TaskOptions options);

 private:
  friend struct RouterState;
  void before_end() noexcept final;

  const std::shared_ptr<RouterState> router_;
  const std::string key_;
  TaskOptions options_;
  EntityState* entity_ = nullptr;  // guarded by the router's lock; stays while its work is in progress
  std::uint32_t shard_ = 0;        // like the next: written before the scheduler gets it
  bool submitted_ = false;
  std::optional<TimePoint> began_at_;  // written by the lane that runs it, read after its end
};

}  // namespace berth::router
