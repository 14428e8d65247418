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
namespace {

LiveChoice choose_quickly(const LiveWords& words, Ticket, std::size_t work_class, bool) {
  const WholeDevices all(words, work_class);
  if (all.says(LiveSummary::weights_differ)) return {};
  if (all.all_measured()) return lowest_of_all(all, [](const auto& view) { return load_ns(view); });
  // Those with room may all be measured where not all devices are.
  if (!all.none_measured()) return {};
  if (all.count() < 16) return lowest_of_all(all, [](const auto& view) { return in_flight(view); });
  const std::uint32_t best = fewest_in_flight(words.charge, all.count());
  const std::uint64_t charge = load_word(words.charge[best & 0xffff]);
  return {best & 0xffff, (charge & LiveWords::in_flight_mask) == best >> 16 ? charge : LiveChoice::changed};
}

}  // namespace

Policy least_loaded() {
  Policy policy =
      cost_policy("least work in flight for its speed", [](const Hints&, const auto& eligible, Ticket, auto use) {
        switch (speed_source(eligible)) {
          case SpeedSource::configured:
            return use([](const auto& view) { return Ratio<std::uint32_t, std::uint64_t>{load(view), weight(view)}; });
          case SpeedSource::learnt: return use([](const auto& view) { return load_ns(view); });
          case SpeedSource::none: break;
        }
        return use([](const auto& view) { return load(view); });
      });
  policy.choose_quickly = choose_quickly;
  policy.judges_singly = true;
  return policy;
}

}  // namespace berth::policy
