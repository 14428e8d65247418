#include <berth/scheduler.hpp>

#include <cstdio>
#include <vector>

int main() {
  auto pool = berth::Pool::open_all();  // every device of this machine
  if (!pool) return std::puts(pool.error().to_text().c_str()), 1;
  auto scheduler = berth::Scheduler::start(**pool);
  if (!scheduler) return std::puts(scheduler.error().to_text().c_str()), 1;
  const std::vector<int> numbers(1000, 7);
  auto squares = (*scheduler)->map(numbers, [](berth::TaskContext&, int n) { return n * n; });
  std::printf("%d, first computed on %s\n", squares[0]->value, squares[0]->device.text().c_str());
}
