// reference_adaptive_throughput: the reference scheduler's adaptive strategy,
// exactly (S3-14): learnt rate / (in flight + 1) in double precision, highest
// first; a device nobody measured has rate 0.
// Prefers: the fastest device measured so far.
// Assumes: every device was measured somehow else; once one is, no other is ever
// tried.
// Ties: highest position, so without any measurement the last device.
// Loses to adaptive_throughput, which tries every device.
#include <bit>

#include "placement/load.hpp"

namespace berth::policy {

Policy reference_adaptive_throughput() {
  return cost_policy<Ties::last>(
      "reference: learnt rate over queue, last position", [](const Hints&, Views, Ticket, auto use) {
        return use([](const DeviceView& view) -> std::uint64_t {
          const double rate = view.unit_cost_ns ? 1e9 / static_cast<double>(unit_ns(view)) : 0.0;
          const double score = rate / static_cast<double>(std::uint64_t{view.in_flight} + 1);
          // The bits of doubles that are not negative are ordered as the doubles are.
          return ~std::bit_cast<std::uint64_t>(score);
        });
      });
}

}  // namespace berth::policy
