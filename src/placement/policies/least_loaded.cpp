// least_loaded: the device with the least work in flight for its speed, the new piece included: (in
// flight + 1) / speed. The default. Prefers: idle before busy, fast before slow. Speed is the
// configured weight where weights differ; otherwise the learnt time per unit once every candidate
// has one; otherwise equal for all. A suspect device counts four times its load. Assumes: pieces of
// similar cost; in flight is counted at once, so that callers between two polls do not herd. Ties:
// lowest id. Loses to expected_finish when pieces differ much in cost and their size is known, and
// to adaptive_throughput while devices are still unmeasured.
#include "placement/load.hpp"

namespace berth::policy {

Policy least_loaded() {
  return by_cost("least work in flight for its speed", [](const Candidates& all) { return load_for_speed(all); });
}

}  // namespace berth::policy
