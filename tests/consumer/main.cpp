// A program outside of the project: builds against the installed package and uses what a first
// program would.
#include <berth/berth.hpp>

#include <cstdio>
#include <numeric>
#include <vector>

namespace {

using namespace berth::literals;
using namespace std::chrono_literals;

berth::Result<int> sum_of_squares() {
  berth::PoolOptions options;
  options.policy = "spread";
  const auto pool = BERTH_TRY(berth::Pool::open_all({}, options));
  berth::Requirements requirements;
  requirements.memory_bytes_min = 1_MiB;
  berth::Lease lease = BERTH_TRY(pool.acquire(requirements, 10s));
  if (lease.memory_bytes() != 1_MiB) return -1;
  lease.release();

  // More than any device has: the refusal says why as data.
  requirements.memory_bytes_min = 1024 * 1024 * 1_GiB;
  const auto refused = pool.acquire(requirements);
  if (refused || !refused.error().explanation || !refused.error().explanation->cause) return -2;

  const auto scheduler = BERTH_TRY(berth::Scheduler::start(pool));
  const std::vector<int> numbers{1, 2, 3, 4};
  int sum = 0;
  for (auto& result : scheduler.map(numbers, [](berth::TaskContext&, int x) { return x * x; })) sum += result->value;
  return sum;
}

}  // namespace

int main() {
  const auto sum = sum_of_squares();
  if (!sum) return std::fprintf(stderr, "%s\n", sum.error().to_text().c_str()), 1;
  std::printf("%d\n", *sum);
  return *sum == 30 ? 0 : 1;
}
