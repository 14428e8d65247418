// The tasks that BERTH_TASK has defined in this process.
#pragma once

#include <string_view>
#include <vector>

#include "berth/worker.hpp"

namespace berth::worker {

// False: another task has this name.
bool add_task(detail::TaskDefinition definition);
// Returns null if no task has this name.
const detail::TaskDefinition* task_named(std::string_view name);
const std::vector<detail::TaskDefinition>& all_tasks();

// A library that a worker loads has its own list, which this exported function returns. The name
// changes with TaskDefinition and with the arguments of tasks.
inline constexpr const char* list_function = "berth_tasks_2";
using ListFunction = const std::vector<detail::TaskDefinition>*();

}  // namespace berth::worker
