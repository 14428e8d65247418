#include <berth/pool.hpp>
#include <berth/scheduler.hpp>

#include <cstdio>
#include <vector>

int main() {
  auto pool = berth::Pool::open_all();
  if (!pool) return std::fprintf(stderr, "%s\n", pool.error().to_text().c_str()), 1;
  auto scheduler = berth::Scheduler::start(**pool);
  if (!scheduler) return std::fprintf(stderr, "%s\n", scheduler.error().to_text().c_str()), 1;
  const std::vector<int> numbers{1, 2, 3, 4};
  int sum = 0;
  for (auto& result : (*scheduler)->map(numbers, [](berth::TaskContext&, int x) { return x * x; }))
    sum += result->value;
  std::printf("%d\n", sum);
  return sum == 30 ? 0 : 1;
}
