// Copies of a whole store: into a file and back, and from one engine to another (SQLite to etcd, for example). A
// backup is consistent and may be made while a server runs. It is a text file: a header line, one line per entry, and
// a line with a checksum, which only detects a truncated or edited file. It contains no secrets.
//
// A restored store is older than what the agents have seen. An agent ignores lower epochs, and a generation must
// never be given out twice; so a restore raises the epoch, the generations, the project version and the ids of events
// by a large step, as the revision does when etcd is restored (etcdutl snapshot restore --bump-revision). An event
// records the restore.
#pragma once

#include <cstdint>
#include <string>

#include "berth/result.hpp"
#include "store/engine.hpp"

namespace berth::store {

// More than a fleet uses between a backup and its restore.
inline constexpr std::uint64_t restore_leap = 1'000'000;

enum class IfNotEmpty : std::uint8_t { refuse, replace };

// already_exists: there is a file of that name, which is not touched. The new one has mode 0600.
Result<void> backup(Engine& engine, const std::string& file);

// invalid_argument: the file is truncated, edited or not a backup; not_supported: a newer version wrote it.
Result<void> check_backup(const std::string& file);

// The file is checked before the store is touched. Errors as above, and already_exists: the store is not empty;
// unavailable: a server leads in it. If interrupted, it leaves a store that is refused until the restore is run
// again.
Result<void> restore(Engine& engine, const std::string& file, IfNotEmpty if_not_empty = IfNotEmpty::refuse);
// Whether a restore into it was interrupted.
Result<bool> is_half_restored(Engine& engine);

// Copies all entries unchanged. Must hold both stores, so stop the server first. Errors as above.
Result<void> copy(Engine& from, Engine& to, IfNotEmpty if_not_empty = IfNotEmpty::refuse);

}  // namespace berth::store
