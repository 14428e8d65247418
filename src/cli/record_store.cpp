// Records in a folder: a file each, bounded, and believed only where it is this
// user's own.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "cli/files.hpp"
#include "cli/record.hpp"
#include "deployment/words.hpp"
#include "world/runtime_folder.hpp"

namespace berth::cli {
namespace {

constexpr std::string_view suffix = ".json";

Error none(std::string what, std::string advice) {
  return {ErrorCode::not_found, std::move(what), std::move(advice), {}, {}};
}

// Temporary files of processes that were killed while they wrote: those older
// than the oldest record kept.
void remove_leftovers(const std::string& folder, std::string_view oldest) {
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with('.') && std::string_view(name).substr(1) < oldest) ::unlink(entry->path().c_str());
  }
}

}  // namespace

Result<std::string> decisions_folder() {
  // The runtime folder may be one for all users.
  return runtime_folder().and_then(
      [](const std::string& folder) { return private_folder(folder + "/decisions-" + std::to_string(::geteuid())); });
}

std::vector<std::string> record_ids(const std::string& folder) {
  std::vector<std::string> ids;
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    std::string name = entry->path().filename().string();
    if (!name.ends_with(suffix) || name.starts_with('.')) continue;
    name.resize(name.size() - suffix.size());
    if (is_name(name)) ids.push_back(std::move(name));
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

Result<void> store_record(const std::string& folder, const DecisionRecord& record) {
  if (!is_name(record.id)) {
    return Error{ErrorCode::invalid_argument, "\"" + record.id + "\" is no name for a record", "use letters", {}, {}};
  }
  const auto own = private_folder(folder);
  if (!own) return own.error();
  const auto written = write_private_text(folder + "/" + record.id + std::string(suffix),
                                          boost::json::serialize(record_to_json(record)) + "\n");
  if (!written) return written;
  // Others may be doing the same: whatever is gone already is fine.
  const std::vector<std::string> ids = record_ids(folder);
  for (std::size_t i = 0; i + records_max < ids.size(); ++i)
    ::unlink((folder + "/" + ids[i] + std::string(suffix)).c_str());
  if (ids.size() > records_max) remove_leftovers(folder, ids[ids.size() - records_max]);
  return {};
}

Result<DecisionRecord> load_record(const std::string& folder, std::string_view id) {
  const std::vector<std::string> ids = record_ids(folder);
  if (ids.empty()) {
    return Error{
        ErrorCode::unavailable, "no decision has been recorded", "decide something first, as with berth pick", {}, {}};
  }
  std::string found;
  if (id.empty()) {
    found = ids.back();
  } else {
    std::size_t matches = 0;
    for (const std::string& known : ids) {
      if (!known.starts_with(id)) continue;
      ++matches;
      found = known;
      if (known == id) {
        matches = 1;
        break;
      }
    }
    if (matches == 0)
      return none("there is no record of a decision " + std::string(id), "list them with berth why --list");
    if (matches > 1) {
      return Error{ErrorCode::invalid_argument,
                   std::to_string(matches) + " decisions begin with " + std::string(id),
                   "give more of the id; berth why --list shows them",
                   {},
                   {}};
    }
  }
  const std::string path = folder + "/" + found + std::string(suffix);
  return read_text(path).and_then([&](const std::string& text) { return read_record(text, path); });
}

}  // namespace berth::cli
