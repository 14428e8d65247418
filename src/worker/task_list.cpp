#include "worker/task_list.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace berth {
namespace {

// Ordered by name. Never destroyed: other static objects may define tasks after it is created.
std::vector<detail::TaskDefinition>& tasks() {
  static auto& all = *new std::vector<detail::TaskDefinition>;
  return all;
}

auto place_of(std::string_view name) {
  return std::lower_bound(tasks().begin(), tasks().end(), name,
                          [](const detail::TaskDefinition& task, std::string_view other) { return task.name < other; });
}

}  // namespace

bool worker::add_task(detail::TaskDefinition definition) {
  const auto place = place_of(definition.name);
  if (place != tasks().end() && place->name == definition.name) return place->source == definition.source;
  tasks().insert(place, std::move(definition));
  return true;
}

void detail::define_task(TaskDefinition definition) {
  const std::string name = definition.name, source = definition.source;
  if (name.size() <= task_name_bytes_max && worker::add_task(std::move(definition))) return;
  const TaskDefinition* const other = worker::task_named(name);
  std::fprintf(stderr, "berth: %s: %s %s%s\n", source.c_str(),
               other ? "another task is named" : "this task name is too long:", name.c_str(),
               other ? (", at " + other->source).c_str() : "");
  std::abort();
}

const std::vector<detail::TaskDefinition>& worker::all_tasks() { return tasks(); }

const detail::TaskDefinition* worker::task_named(std::string_view name) {
  const auto place = place_of(name);
  return place != tasks().end() && place->name == name ? &*place : nullptr;
}

}  // namespace berth

extern "C" __attribute__((visibility("default"))) const std::vector<berth::detail::TaskDefinition>* berth_tasks_2() {
  return &berth::worker::all_tasks();
}
