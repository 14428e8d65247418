// TableFile: a router's shard table in a file, so that a restart finds the previous owners. The
// file is replaced by rename, so it is always complete. Of the routers that use one file at the
// same time, the first writes it and the others only read it. Files that are not a shard table of
// this version are never overwritten, except damaged ones. Not thread-safe.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "berth/result.hpp"
#include "berth/shard_table.hpp"
#include "world/process_lock.hpp"

namespace berth::router {

// The path for a router of this name; empty: the name of the program.
Result<std::string> default_table_file(std::string name);

class TableFile {
 public:
  // An empty path: nothing is read or written.
  explicit TableFile(std::string path = {}) : path_(std::move(path)) {}
  TableFile(const TableFile&) = delete;
  TableFile& operator=(const TableFile&) = delete;

  // For the errors of all three see RouterStatistics::table_warning. A file that is
  // locked elsewhere can be read; write() tries again to lock it.
  Result<void> lock();
  // Returns nullopt if there is no file yet.
  Result<std::optional<ShardTable>> read();
  // Writes nothing if read() found something that must not be replaced.
  Result<void> write(const ShardTable& table);
  // Unlocks the file; nothing is written after it.
  void close();

 private:
  std::string path_;
  std::optional<world::ProcessLock> lock_;
};

}  // namespace berth::router
