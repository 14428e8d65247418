// One program that uses all five parts of Berth on the devices of this machine: the pool opens the devices, deployment
// planning decides where a service belongs, a lease holds that device, the scheduler runs work on all devices, and the
// router keeps each session on one device. The program ends with status 1 if any part does not do what it promises.
#include <berth/deployment.hpp>
#include <berth/router.hpp>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <set>
#include <vector>

namespace {

namespace deployment = berth::deployment;

// Returns the value, or ends the program with the reason.
template <class T>
T need(berth::Result<T> result) {
  if (result) return std::move(result).value();
  std::fprintf(stderr, "five: %s\n", result.error().to_text().c_str());
  std::exit(1);
}

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "five: %s\n", what);
  std::exit(1);
}

}  // namespace

int main() {
  // 1. The pool: every device of the machine, each with its state.
  const auto pool = need(berth::Pool::open_all());
  for (const auto& device : pool.status())
    std::printf("device   %s (%s)\n", device.info.id.text().c_str(), device.info.name.c_str());

  // 2. Deployment: two replicas of a service that needs no GPU, planned onto this
  // machine as a fleet of one node.
  deployment::NodeView node;
  node.id = berth::NodeId("here");
  node.memory_bytes = std::uint64_t{1} << 30;
  for (const auto& device : pool.status())
    node.devices.push_back({.info = device.info, .intent = device.view.intent, .health = device.view.health});
  deployment::DeploymentSpec service;
  service.name = berth::DeploymentId("thumbnails");
  service.model = "resize";
  service.cpu = true;
  service.replicas = 2;
  const deployment::Plan plan = deployment::plan({&service, 1}, deployment::Fleet{{node}});
  std::printf("%s", deployment::plan_to_text(plan).c_str());
  check(plan.pending.empty() && plan.assignments.size() == 2, "the plan does not place both replicas");

  // 3. Acquire: 64 MiB on whichever device the policy prefers, and why.
  berth::Requirements requirements;
  requirements.memory_bytes_min = 64 << 20;
  const berth::Deadline soon = berth::Deadline::after(pool.clock(), std::chrono::seconds(10));
  need(pool.wait_ready(soon).and_then([]() -> berth::Result<int> { return 0; }));
  {
    const berth::Lease lease = need(pool.acquire(requirements));
    std::printf("lease    64 MiB on %s\n", lease.id().text().c_str());
    check(lease.memory_bytes() == requirements.memory_bytes_min, "the lease does not hold its bytes");
  }
  std::printf("%s", pool.explain(requirements).to_text().c_str());

  // 4. The scheduler: squares of 200 numbers over all devices, results in order.
  const auto scheduler = need(berth::Scheduler::start(pool));
  std::vector<int> numbers(200);
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto squares = scheduler.map(numbers, [](berth::TaskContext&, int n) { return n * n; });
  for (int n : numbers) check(squares[n] && squares[n]->value == n * n, "a square is wrong or out of order");
  const auto total = scheduler.statistics().total();
  std::printf("mapped   %zu items, %llu completed\n", squares.size(), static_cast<unsigned long long>(total.completed));
  check(total.dispatched == total.completed + total.failed + total.cancelled + total.in_flight,
        "the sum does not hold");

  // 5. The router: each session's requests all reach one device.
  const auto router = need(berth::Router::start(scheduler));
  for (int session = 0; session < 8; ++session) {
    const std::string key = "session-" + std::to_string(session);
    std::set<berth::DeviceId> seen;
    for (int request = 0; request < 5; ++request)
      seen.insert(need(router.submit(key, [](berth::TaskContext&) { return 1; }).get(soon)).device);
    check(seen.size() == 1, "a session was served by two devices");
    std::printf("%s on %s\n", key.c_str(), seen.begin()->text().c_str());
  }
}
