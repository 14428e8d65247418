// round_robin: devices in turn, by a ticket from a sequence. Prefers: no device; every eligible
// device gets the same number of pieces. Assumes: pieces of equal cost and devices of equal speed.
// Suspect devices get their turn: the share of a device that fails fast does not grow here. Ties:
// none, the ticket decides. When the number of eligible devices changes, so does the order of
// turns. Loses to least_loaded wherever cost or speed differ (14.9 times the tail latency of a
// central queue on recorded traffic), and to weighted_capacity where only speed differs.
#include "berth/policy.hpp"

namespace berth::policy {

Policy round_robin() {
  // The number of turns until it is this device's turn.
  Policy policy = by_cost("every eligible device in turn", [](const Candidates& all) {
    return [n = all.size(), first = all.ticket() % all.size()](Candidate device) -> std::uint64_t {
      return device.position() >= first ? device.position() - first : device.position() + n - first;
    };
  });
  policy.ticket = TicketKind::sequence;
  policy.keeps_rotation = true;
  return policy;
}

}  // namespace berth::policy
