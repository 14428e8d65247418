// The engine on one SQLite file: write-ahead log, synchronous=FULL, so that everything that commit() has
// acknowledged survives kill -9 and a power cut. The file has mode 0600, and its folder must be writable only by
// this user.
//
// hold() locks the file PATH.leader, so the kernel shows whether the owner is alive: its duration is ignored, a
// killed server is replaced at once, and a stopped one (SIGSTOP) keeps its place. Changes that other processes make
// do not end wait_for_change().
#pragma once

#include <memory>
#include <string>

#include "berth/result.hpp"
#include "store/engine.hpp"

namespace berth::store {

// Creates the file, and the last folder of `path`, if they are missing. io: it is damaged, belongs to another
// program, written by a newer version, or cannot be used; not_supported: this build has no SQLite.
Result<std::shared_ptr<Engine>> open_sqlite_engine(const std::string& path);

}  // namespace berth::store
