// The folders of the ledger. All programs of a machine must use the same ones, from
// every session, service and shell, so the choice depends only on the machine: the
// folders that root made for all users.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "berth/clock.hpp"
#include "berth/result.hpp"
#include "ledger/process.hpp"
#include "world/descriptor.hpp"

namespace berth::ledger {

struct Folder {
  std::string path;
  std::string problem;  // why it is not used; empty: it is used
  bool writable = false;
  FileIdentity identity = {};
  friend bool operator==(const Folder&, const Folder&) = default;
};

// Folders shared by all users, in the order in which they are locked.
std::vector<std::string> default_candidates();
// The current state of each candidate. It is used if root owns it, all users may
// write and only owners may remove files (mode 1777). The second name of the same
// folder is not used.
std::vector<Folder> inspect_folders(const std::vector<std::string>& candidates);
// The single folder that BERTH_RUNTIME_DIR names: created if it does not exist (mode 0700), and
// either this user's own or one shared by all users. invalid_argument: it is not an absolute path;
// io: it cannot be created or used.
Result<Folder> single_folder(const std::string& path);

// In a user namespace, the number of all unmapped users, including the owner of root's folders; elsewhere 0.
std::uint32_t unmapped_user();
// Whether several users have this number here, so that no limit per user can tell them apart. `unmapped` is
// unmapped_user().
constexpr bool is_shared_number(std::uint32_t user, std::uint32_t unmapped) {
  return unmapped != 0 && user == unmapped;
}

// A flock on the folder itself, which no user can replace.
class FolderLock {
 public:
  FolderLock(FolderLock&&) = default;
  FolderLock& operator=(FolderLock&&) = default;
  ~FolderLock();
  // A process cannot starve others by taking it repeatedly. unavailable: another process held it until `deadline`;
  // io: the folder cannot be opened.
  static Result<FolderLock> take(const std::string& folder, TimePoint deadline);

 private:
  explicit FolderLock(world::Descriptor descriptor) : descriptor_(std::move(descriptor)) {}
  world::Descriptor descriptor_;
};

}  // namespace berth::ledger
