#include "router/table_file.hpp"

#include <errno.h>
#include <sys/stat.h>

#include "world/files.hpp"
#include "world/runtime_folder.hpp"

namespace berth::router {
namespace {

constexpr std::string_view any_version = "berth-shards ";
constexpr std::string_view this_version = "berth-shards 1\n";

Error unusable(ErrorCode code, const std::string& path, const std::string& what) {
  return {code, path + " " + what, "remove the file, or give the router another table_file"};
}

}  // namespace

Result<std::string> default_table_file(std::string name) {
  if (name.empty()) name = program_invocation_short_name;
  if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos)
    return Error{ErrorCode::invalid_argument, "the router's name \"" + name + "\" is not a valid file name",
                 "use letters, digits and '-'"};
  return world::state_folder("shards").transform(
      [&](const std::string& folder) { return folder + "/" + name + ".table"; });
}

// Locks a separate file, because each write replaces the table itself.
Result<void> TableFile::lock() {
  if (path_.empty() || lock_) return {};
  std::string other;
  lock_ = BERTH_TRY(world::ProcessLock::take(path_ + ".lock", "another router", other));
  if (lock_) return {};
  return Error{ErrorCode::unavailable, "another router writes " + path_ + "; the moves of this one are not saved",
               "give each router its own name or table_file"};
}

Result<std::optional<ShardTable>> TableFile::read() {
  if (path_.empty()) return std::optional<ShardTable>();
  const std::string path = path_;
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    close();
    return unusable(ErrorCode::invalid_argument, path, "is not a regular file; the shard table is not saved");
  }
  const Result<std::string> text = world::read_text(path);
  if (!text && text.error().code == ErrorCode::not_found) return std::optional<ShardTable>();
  if (!text) return text.error();
  Result<ShardTable> table = ShardTable::parse(*text);
  if (table) return std::optional(std::move(table).value());
  // Only a damaged table may be replaced. After a power failure, some file systems leave an empty
  // file.
  if (text->empty() || text->starts_with(this_version))
    return unusable(ErrorCode::invalid_argument, path, "was ignored. " + table.error().message);
  close();
  if (text->starts_with(any_version))
    return unusable(ErrorCode::not_supported, path, "was written by a newer version; the shard table is not saved");
  return unusable(ErrorCode::invalid_argument, path, "is not a shard table; the shard table is not saved");
}

Result<void> TableFile::write(const ShardTable& table) {
  if (path_.empty()) return {};
  if (Result<void> locked = lock(); !locked) return locked;
  return world::write_private_text(path_, table.to_text());
}

void TableFile::close() {
  path_.clear();
  lock_.reset();
}

}  // namespace berth::router
