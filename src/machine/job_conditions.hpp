// What a job waits for before it requests devices: the ends of other jobs, and a time of day.
#pragma once

#include <functional>
#include <string>

#include "machine/job_store.hpp"

namespace berth::machine {

struct ConditionEvents {
  std::function<void(const std::string& reason)> waits;  // called with each change of what it waits for
  std::function<void(const std::string& reason)> skips;  // must not return
};

// Returns when all of them are met. The functions may be called on any thread, but `waits` only one call at a time.
void wait_for_conditions(const Job& job, const ConditionEvents& events);

}  // namespace berth::machine
