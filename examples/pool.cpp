// The devices of this machine through a pool, without a scheduler: docs/guide/pool.md explains it, and its blocks are parts
// of this program.
#include <berth/pool.hpp>

#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

// Stands for work: one buffer on the device.
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
