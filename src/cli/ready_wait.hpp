// How long --wait of `berth apply`, `berth scale` and `berth rollout` waits: until all replicas of a project, or of the
// one deployment that was changed, are ready, or until none of those that are not can become ready. Its inputs are the
// answers of the API and the time.
#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <vector>

#include "berth/clock.hpp"
#include "cli/project_change.hpp"
#include "deployment/names.hpp"

namespace berth::cli {

// "chat/0 on gpu-1 starting: GET /: connection refused" for each replica of the project that is not ready, and
// "chat/2-3 pending: no node has 8 GPUs" for those without a place, from /replicas.
std::vector<std::string> unready_lines(const Project& project, const boost::json::object& replicas);

class ReadyWait {
 public:
  // `fits`: according to the plan.
  ReadyWait(const Project& project, bool fits);

  // The current answers of /status and /replicas. Once the state is final, waiting is over. Empty `replicas`: not
  // known.
  struct Look {
    ReadyProgress progress;
    bool is_final = false;
  };
  Look look(const boost::json::object& status, const boost::json::object& replicas, TimePoint now);

 private:
  enum class Hope : std::uint8_t { some, little, none };
  Hope hope(const boost::json::object& replicas) const;
  int polls_needed(const ReadyProgress& progress, Hope hope) const;

  const Project& project_;
  const bool fits_;
  Duration stalled_after_{};
  ReadyProgress::State state_ = ReadyProgress::State::goes_on;
  int polls_ = 0;  // consecutive polls that found this state
  std::string seen_;
  TimePoint seen_since_{};  // nothing has changed since then
};

}  // namespace berth::cli
