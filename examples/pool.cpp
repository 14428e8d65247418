// The devices of this machine through a pool, and one long task on a scheduler: docs/guide/pool.md explains it, and its
// blocks are parts of this program.
#include <berth/scheduler.hpp>

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

// Simulates work: allocates one buffer on the device.
berth::Result<void> render(berth::Device& device, std::uint64_t bytes) {
  const berth::Buffer pixels = BERTH_TRY(device.allocate(bytes));
  return {};
}

berth::Result<void> render_once(const berth::Pool& pool) {
  constexpr std::uint64_t bytes = 16 << 20;
  berth::Lease lease = BERTH_TRY(pool.acquire({.memory_bytes_min = bytes}));
  const berth::TimePoint began = pool.clock().now();
  const berth::Result<void> rendered = render(lease.device(), bytes);
  const berth::Duration busy = pool.clock().now() - began;
  lease.settle({.error = rendered ? std::nullopt : std::optional(rendered.error().code), .busy = busy});
  return rendered;
}

berth::Result<void> render_alone(const berth::Pool& pool) {
  const berth::Result<berth::Lease> lease = pool.acquire({.exclusive = true}, 2s);
  if (!lease && lease.error().code == berth::ErrorCode::timeout) {
    std::puts("every device was busy for two seconds");
    return {};
  }
  if (!lease) return lease.error();
  return render(lease->device(), 4096);
}  // the lease ends here

berth::Result<void> render_on_a_thread(const berth::Pool& pool) {
  berth::Lease lease = BERTH_TRY(pool.acquire());
  std::jthread worker([lease = std::move(lease)] { static_cast<void>(render(lease.device(), 4096)); });
  return {};  // the thread is joined, and its lease ends with its closure
}

// As many tiles as the time allows.
berth::Result<int> render_until(const berth::Pool& pool, berth::Deadline deadline) {
  const berth::Lease lease = BERTH_TRY(pool.acquire({}, deadline));
  int tiles = 0;
  for (; tiles < 64 && !deadline.passed(pool.clock().now()); ++tiles) BERTH_TRY(render(lease.device(), 4096));
  return tiles;
}

// All tiles, unless the task is cancelled or its deadline passes.
berth::Result<void> render_tiles(berth::TaskContext& task) {
  for (int tile = 0; tile < 64; ++tile) {
    if (task.cancelled())
      return berth::Error{berth::ErrorCode::cancelled, "stopped after " + std::to_string(tile) + " of 64 tiles"};
    BERTH_TRY(render(task.device(), 4096));
  }
  return {};
}

berth::Result<void> render_in_a_task(const berth::Pool& pool) {
  const berth::Scheduler scheduler = BERTH_TRY(berth::Scheduler::start(pool));
  auto task = scheduler.submit(render_tiles, {.deadline = berth::Deadline::after(pool.clock(), 1min)});
  BERTH_TRY(task.get());  // task.cancel() would end it after the tile that it is rendering
  return {};
}

void print_refusal(const berth::Error& error) {
  std::printf("%s\n", error.to_text().c_str());
  if (!error.explanation) return;
  for (const auto& candidate : error.explanation->candidates)
    if (candidate.rejection)
      std::printf("  %s: %s\n", candidate.device.text().c_str(), std::string(to_string(*candidate.rejection)).c_str());
}

berth::Result<void> use_all(const berth::Pool& pool) {
  const std::size_t count = pool.devices().size();
  const std::vector<berth::Lease> leases = BERTH_TRY(pool.acquire_group({}, count));
  for (const berth::Lease& lease : leases) BERTH_TRY(render(lease.device(), 4096));
  return {};
}

berth::Result<void> run() {
  const berth::Pool pool = BERTH_TRY(berth::Pool::open_all());
  std::puts(pool.to_text().c_str());
  BERTH_TRY(render_once(pool));
  BERTH_TRY(render_alone(pool));
  BERTH_TRY(render_on_a_thread(pool));
  BERTH_TRY(use_all(pool));
  std::printf("%d tiles\n", BERTH_TRY(render_until(pool, berth::Deadline::after(pool.clock(), 1min))));
  BERTH_TRY(render_in_a_task(pool));
  const auto impossible = pool.acquire({.memory_bytes_min = std::uint64_t{1} << 50});
  if (!impossible) print_refusal(impossible.error());
  return {};
}

}  // namespace

int main() {
  const berth::Result<void> ran = run();
  if (!ran) std::puts(ran.error().to_text().c_str());
  return ran ? 0 : 1;
}
