// least_loaded: the device with the least work in flight for its speed, the new
// piece included: (in flight + 1) / speed. The default.
// Prefers: idle before busy, fast before slow. Speed is the configured weight
// where weights differ; otherwise the learnt time per unit once every candidate
// has one; otherwise equal for all. A suspect device counts four times its load.
// Assumes: pieces of similar cost; in flight is counted at once, so that
// callers between two polls do not herd.
// Ties: lowest id.
// Loses to expected_finish when pieces differ much in cost and their size is
// known, to adaptive_throughput while devices are still unmeasured.
#include "placement/load.hpp"

namespace berth::policy {

Policy least_loaded() {
  return cost_policy("least work in flight for its speed", [](const Hints&, const auto& eligible, Ticket, auto use) {
    switch (speed_source(eligible)) {
      case SpeedSource::configured:
        return use([](const auto& view) { return Ratio<std::uint32_t, std::uint64_t>{load(view), weight(view)}; });
      case SpeedSource::learnt: return use([](const auto& view) { return load_ns(view); });
      case SpeedSource::none: break;
    }
    if (nobody_suspect(eligible)) return use(InFlight{});
    return use([](const auto& view) { return load(view); });
  });
}

}  // namespace berth::policy
