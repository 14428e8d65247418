// The engine on one SQLite file: write-ahead log, synchronous=FULL, so that what commit() has acknowledged survives
// kill -9 and a power cut. The file has mode 0600, and its folder must be writable by this user alone.
//
// hold() locks the file PATH.leader, so the kernel says whether the owner lives: its duration is ignored, a server that
// was killed is replaced at once, and a stopped one (SIGSTOP) keeps its place. Changes that other processes make do not
// end wait_for_change().
#pragma once

#include <memory>
#include <string>

#include "berth/result.hpp"
#include "store/engine.hpp"

namespace berth::store {

// Makes the file, and the last folder of `path`, where they are missing. io: it is damaged, of another program, written
// by a newer version, or cannot be used; not_supported: this build has no SQLite.
Result<std::shared_ptr<Engine>> open_sqlite_engine(const std::string& path);

}  // namespace berth::store
