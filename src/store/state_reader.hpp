// Makes a State of the entries below "state/". What was read before and has not changed since is not parsed again:
// a server loads its state after every commit, and few entries change with one. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "berth/result.hpp"
#include "store/engine.hpp"
#include "store/state.hpp"

namespace berth::store {

class StateReader {
 public:
  // io: one of the entries that all else depends on is not what a Store has written; others are named in
  // State::damaged.
  Result<State> read(const Listing& listing);

 private:
  // By key, with the version of the entry.
  template <class Value>
  using Parsed = std::map<std::string, std::pair<std::uint64_t, Value>, std::less<>>;

  Parsed<fleet::DesiredDeployment> wanted_;
  Parsed<fleet::Assigned> assigned_;
  Parsed<fleet::NodeRecord> nodes_;
  Parsed<fleet::Credential> credentials_;
};

}  // namespace berth::store
