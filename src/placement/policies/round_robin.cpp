// round_robin: devices in turn, by a ticket from a sequence.
// Prefers: nobody; every eligible device gets the same number of pieces.
// Assumes: pieces of equal cost and devices of equal speed. Suspect devices get
// their turn: the share of a device that fails fast does not grow here.
// Ties: none, the ticket decides. When the number of eligible devices changes,
// so does whose turn it is.
// Loses to least_loaded wherever cost or speed differ (14.9 times the tail
// latency of a central queue on recorded traffic), to weighted_capacity where
// only speed does.
#include "placement/in_turn.hpp"

#include "placement/cost_policy.hpp"

namespace berth::policy {

LiveChoice in_turn(const LiveWords& words, Ticket ticket, std::size_t, bool) { return in_turn_of_all(words, ticket); }

namespace {
LiveChoice choose_live(const Hints& hints, const LiveWords& words, Ticket ticket) {
  const LiveDevices eligible(words, hints);
  std::size_t n = 0;
  each(eligible, [&](const auto&) { ++n; });
  LiveChoice choice;
  if (n == 0) return choice;
  std::size_t turn = ticket % n;
  eligible.each([&](const auto& view, std::size_t i) {
    if (turn-- == 0) choice = {i, view.charge()};
  });
  return choice;
}
}  // namespace

Policy round_robin() {
  Policy policy;
  policy.summary = "every eligible device in turn";
  policy.ticket = TicketKind::sequence;
  policy.takes_turns = true;
  policy.choose = [](const Hints&, Views eligible, Ticket ticket) -> std::size_t { return ticket % eligible.size(); };
  policy.choose_live = choose_live;
  policy.choose_quickly = in_turn;
  // How many turns until it is a device's own.
  policy.costs = [](const Hints&, Views eligible, Ticket ticket) {
    const std::size_t n = eligible.size();
    std::vector<std::uint64_t> costs(n);
    for (std::size_t turns = 0; turns < n; ++turns) costs[(ticket % n + turns) % n] = turns;
    return costs;
  };
  return policy;
}

}  // namespace berth::policy
