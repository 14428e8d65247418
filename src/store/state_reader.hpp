// Makes a State of the entries below "state/". Unchanged entries are not parsed again, because a server loads its
// state after every commit, and a commit changes few entries. Not thread-safe.
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
  // io: one of the entries that everything depends on was not written by a Store; others are listed in
  // State::damaged.
  Result<State> read(const Listing& listing);

 private:
  // Values by key, with the version of the entry.
  template <class Value>
  using Parsed = std::map<std::string, std::pair<std::uint64_t, Value>, std::less<>>;

  Parsed<fleet::DesiredDeployment> wanted_;
  Parsed<fleet::Assigned> assigned_;
  Parsed<fleet::NodeRecord> nodes_;
  Parsed<fleet::Credential> credentials_;
};

}  // namespace berth::store
