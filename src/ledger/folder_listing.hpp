// The ledger files in one folder, found without opening any of them. Every user can create any name in a shared
// folder: the name only decides whether a file is checked, and the ledger belongs to the owner of the file. A limited
// number of files per owner is listed, however many exist.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/result.hpp"
#include "ledger/process.hpp"

namespace berth::ledger {

// A user has one file; more are created only if another user's lock blocks the first.
inline constexpr std::size_t files_per_user_max = 64;

// The name of a new file: berth-ledger-USER, or with `suffix` berth-ledger-USER-SUFFIX. Inside a user namespace,
// user numbers differ, and the name is berth-ledger-ns-SUFFIX.
std::string file_name(std::uint32_t user, std::optional<std::uint64_t> suffix);
// The user in a name that file_name makes; absent: the name has another form. For all files from user namespaces,
// `any_user`.
inline constexpr std::uint64_t any_user = std::uint64_t{1} << 32;
std::optional<std::uint64_t> user_in_name(std::string_view name);

class FolderListing {
 public:
  struct File {
    std::string path;
    std::uint32_t user = 0;  // its owner
    FileIdentity identity;
  };
  // io: the folder cannot be read.
  static Result<FolderListing> read(const std::string& folder);

  // Whether no name was added, changed or removed since the listing began.
  bool is_current() const;
  const std::vector<File>& files() const noexcept { return files_; }  // by path
  // Users with more files than are listed, with the number of unlisted files.
  const std::map<std::uint32_t, std::size_t>& unlisted() const noexcept { return unlisted_; }

 private:
  struct Owned;
  std::string folder_;
  timespec began_{}, changed_{};
  FileIdentity identity_;
  std::vector<File> files_;
  std::map<std::uint32_t, std::size_t> unlisted_;
};

}  // namespace berth::ledger
