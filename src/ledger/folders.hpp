// Where the ledger is. All programs of a machine must find the same folders,
// whatever session, service or shell they were started from, so the place depends
// on nothing but the machine: the folders that root made for everybody.
#pragma once

#include <string>
#include <vector>

#include "berth/clock.hpp"
#include "berth/result.hpp"
#include "ledger/process.hpp"

namespace berth::ledger {

struct Folder {
  std::string path;
  std::string problem;  // why it is not used; empty: it is
  bool writable = false;
  FileIdentity identity = {};
  friend bool operator==(const Folder&, const Folder&) = default;
};

// Folders for everybody, in the order in which they are locked.
std::vector<std::string> default_candidates();
// What is to be said of each candidate now: it is used where root owns it, everybody
// may write and only owners may remove (mode 1777). The second name of a folder is
// not used.
std::vector<Folder> inspect_folders(const std::vector<std::string>& candidates);
// One folder alone, as BERTH_RUNTIME_DIR names it: made if it is not there (mode
// 0700), and either this user's own or one for everybody.
// invalid_argument: it is not an absolute path; io: it cannot be made or used.
Result<Folder> single_folder(const std::string& path);

// A flock on the folder itself, which no user can replace.
class FolderLock {
 public:
  FolderLock() = default;
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&& other) noexcept;
  ~FolderLock();
  // In the order in which processes ask for it. unavailable: it could not be had
  // until `deadline`. io: the folder cannot be opened.
  static Result<FolderLock> take(const std::string& folder, TimePoint deadline);

 private:
  int descriptor_ = -1;
};
FileIdentity identity_of(const std::string& folder);

}  // namespace berth::ledger
