// Store: the state that the servers of a fleet have agreed on, in terms of the fleet, on any Engine. It holds desired
// state, nodes, assignments, credentials and events; it does not decide anything. One server leads at a time. Every
// commit carries the epoch of its leadership and the state it was based on, and changes nothing if either has moved:
// the caller then loads and decides again. Reading needs no leadership.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "berth/clock.hpp"
#include "berth/result.hpp"
#include "store/engine.hpp"
#include "store/records.hpp"
#include "store/state.hpp"
#include "store/state_reader.hpp"

namespace berth::store {

// Thread-safe.
class Store {
 public:
  // Initialises an empty store and migrates an older one. not_supported: a newer version wrote it;
  // unavailable: it is older, and another server leads in it; io: it cannot be read.
  static Result<std::unique_ptr<Store>> open(std::shared_ptr<Engine> engine);

  Result<State> load();
  // The events in the order of their ids, starting after `after`. Entries that cannot be read are left out.
  Result<std::vector<fleet::Event>> events(std::uint64_t after, std::size_t limit);
  // Only actions of people; the newest `limit` of them.
  Result<std::vector<fleet::Event>> actions(std::size_t limit);

  // Makes the server leader; the epoch is higher than any before. It lasts for `duration` from now and from every
  // renewal, unless the engine can tell by itself whether this server is alive (SQLite). unavailable names the server
  // that leads.
  Result<std::uint64_t> lead(const std::string& server, Duration duration);
  // unavailable: another server leads by now. Commits of this one no longer change anything.
  Result<void> renew();
  void give_up();

  // A change that one transaction cannot hold is split into several. If a later one fails, the earlier ones stay;
  // each is safe by itself:
  // - Desired state changes as a whole: records of deployments count from the transaction that writes the root.
  // - What ends comes before what begins: a token is revoked and an incarnation is marked as stopping or removed before
  //   anything is granted or assigned. In between, a replica may lack a place, which the next decision gives it.
  // - In the list of a node, what ends or changes comes before what begins, so no device is promised twice.
  //   Generations are taken out of the counter before they are used.
  // - Events come last, so that what they report has happened.
  // invalid_argument: a record is larger than a store keeps, or the change contradicts itself; nothing was changed.
  // After any other error, load again: whether the last transaction was committed is not known.
  Result<Committed> commit(const Change& change);

 private:
  // A leader's knowledge of the keys that only it writes. Their versions are conditions of its transactions.
  struct OwnEntries {
    ProjectRoot root;
    Counters counters;
    std::deque<std::uint64_t> actions;                           // ids of the actions that are kept
    std::map<std::string, std::uint64_t, std::less<>> versions;  // of the keys of leader, project and counters
  };

  explicit Store(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}
  Result<std::uint64_t> begin_epoch(const std::string& server);
  Result<OwnEntries> read_known(const Listing& listing);
  Result<bool> still_leads();
  Result<std::string> who_leads();
  Result<void> remove_leftovers(const Listing& listing);
  Result<Committed> what_moved(const Change& change);

  const std::shared_ptr<Engine> engine_;

  std::mutex reading_;  // guards `reader_`
  StateReader reader_;

  std::mutex leading_;  // guards all below
  std::string server_;
  Duration duration_{};
  std::uint64_t epoch_ = 0;  // 0: does not lead
  OwnEntries known_;
  bool is_known_ = false;  // false: `known_` is read again before it is used
};

}  // namespace berth::store
