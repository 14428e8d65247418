#include "ledger/folder_listing.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>
#include <tuple>
#include <unordered_map>

#include "ledger/folders.hpp"
#include "ledger/lines.hpp"
#include "ledger/user_file.hpp"

namespace berth::ledger {
namespace {

constexpr std::string_view of_namespace = "ns";
constexpr std::size_t suffix_digits = 16;

std::tuple<std::time_t, long> order_of(const timespec& time) { return {time.tv_sec, time.tv_nsec}; }

}  // namespace

std::string file_name(std::uint32_t user, std::optional<std::uint64_t> suffix) {
  std::string name =
      std::string(file_prefix) + (unmapped_user() == 0 ? std::to_string(user) : std::string(of_namespace));
  if (!suffix) return name;
  char ending[suffix_digits + 2];
  std::snprintf(ending, sizeof ending, "-%016llx", static_cast<unsigned long long>(*suffix));
  return name + ending;
}

std::optional<std::uint64_t> user_in_name(std::string_view name) {
  if (!name.starts_with(file_prefix)) return std::nullopt;
  name.remove_prefix(file_prefix.size());
  const std::size_t dash = name.find('-');
  if (dash != std::string_view::npos) {
    const std::string_view suffix = name.substr(dash + 1);
    const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
    if (suffix.size() != suffix_digits || !std::all_of(suffix.begin(), suffix.end(), is_digit)) return std::nullopt;
    name = name.substr(0, dash);
  }
  if (name == of_namespace) return any_user;
  if (name.size() > 1 && name.starts_with('0')) return std::nullopt;
  return number(name, any_user - 1);
}

// The listed files of each owner.
struct FolderListing::Owned {
  std::vector<File> files;
  bool has(const FileIdentity& identity) const {
    return std::any_of(files.begin(), files.end(), [&](const File& file) { return file.identity == identity; });
  }
};

// If more names contain one user's number than a user may have files, they are checked until that user's own limit is
// reached. So a flood of names costs little if they contain the number of the user who created them. If they contain
// another user's number, the owner of each file must be checked, because that user's own file may be among them.
Result<FolderListing> FolderListing::read(const std::string& folder) {
  FolderListing listing;
  listing.folder_ = folder;
  clock_gettime(CLOCK_REALTIME_COARSE, &listing.began_);
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), closedir);
  const auto failed = [&](int error) {
    return Error{ErrorCode::io, "cannot read " + folder + ": " + std::generic_category().message(error),
                 error == EMFILE ? "raise the limit on open files: ulimit -n" : ""};
  };
  struct stat about{};
  if (!open || fstat(dirfd(open.get()), &about) != 0) return failed(errno);
  listing.changed_ = about.st_mtim;
  listing.identity_ = {about.st_dev, about.st_ino};

  std::unordered_map<std::uint64_t, std::vector<std::string>> names;  // by the user in the name
  for (;;) {
    errno = 0;
    const dirent* const entry = readdir(open.get());
    if (!entry && errno != 0) return failed(errno);
    if (!entry) break;
    if (entry->d_type != DT_REG && entry->d_type != DT_UNKNOWN) continue;
    if (const std::optional<std::uint64_t> user = user_in_name(entry->d_name)) names[*user].push_back(entry->d_name);
  }

  const std::uint32_t unmapped = unmapped_user();
  std::unordered_map<std::uint32_t, Owned> owned;
  std::vector<std::uint64_t> users;
  for (const auto& [user, group] : names) users.push_back(user);
  std::sort(users.begin(), users.end());  // so that every program lists the same files
  for (const std::uint64_t user : users) {
    std::vector<std::string>& group = names[user];
    std::size_t skipped = 0;
    if (group.size() <= files_per_user_max)
      std::sort(group.begin(), group.end());
    else  // the name without a suffix first
      std::iter_swap(group.begin(), std::min_element(group.begin(), group.end()));
    for (const std::string& name : group) {
      if (user != any_user && owned[static_cast<std::uint32_t>(user)].files.size() >= files_per_user_max) {
        ++skipped;
        continue;
      }
      if (fstatat(dirfd(open.get()), name.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(about.st_mode))
        continue;
      Owned& of_owner = owned[about.st_uid];
      const FileIdentity identity{about.st_dev, about.st_ino};
      if (is_shared_number(about.st_uid, unmapped))
        of_owner.files.push_back({folder + "/" + name, about.st_uid, identity});
      else if (of_owner.files.size() >= files_per_user_max)
        ++listing.unlisted_[about.st_uid];
      else if (!of_owner.has(identity))  // skip another name of a listed file
        of_owner.files.push_back({folder + "/" + name, about.st_uid, identity});
    }
    if (skipped > 0) listing.unlisted_[static_cast<std::uint32_t>(user)] += skipped;
  }
  for (auto& [user, of_owner] : owned) {
    for (File& file : of_owner.files) listing.files_.push_back(std::move(file));
  }
  std::sort(listing.files_.begin(), listing.files_.end(), [](const File& a, const File& b) { return a.path < b.path; });
  return listing;
}

bool FolderListing::is_current() const {
  struct stat about{};
  if (::stat(folder_.c_str(), &about) != 0 || FileIdentity{about.st_dev, about.st_ino} != identity_) return false;
  // The kernel's clock for files ticks every few milliseconds: a change in the same tick as the listing cannot be
  // distinguished from an earlier one. With a file system that counts whole seconds, the folder is always read again.
  return order_of(about.st_mtim) == order_of(changed_) && order_of(changed_) < order_of(began_) &&
         changed_.tv_nsec != 0;
}

}  // namespace berth::ledger
