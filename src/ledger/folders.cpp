#include "ledger/folders.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "world/runtime_folder.hpp"

namespace berth::ledger {
namespace {

std::string problem_of(const std::string& path, FileIdentity& identity) {
  struct stat about{};
  if (::lstat(path.c_str(), &about) != 0) return errno == ENOENT ? "does not exist" : std::strerror(errno);
  if (!S_ISDIR(about.st_mode)) return "is not a folder";
  identity = {about.st_dev, about.st_ino};
  if (about.st_uid != 0 && about.st_uid != unmapped_user()) return "does not belong to root";
  if ((about.st_mode & S_IWOTH) == 0) return "is not shared by all users: its mode is not 1777";
  if ((about.st_mode & S_ISVTX) == 0) return "lets users remove each other's files: its mode is not 1777";
  return {};
}

bool is_writable(const std::string& path) { return ::access(path.c_str(), W_OK | X_OK) == 0; }

}  // namespace

std::uint32_t unmapped_user() {
  std::ifstream map("/proc/self/uid_map");
  std::uint64_t inside = 0, outside = 0, count = 0;
  map >> inside >> outside >> count;
  if (!map || (outside == 0 && count > 1)) return 0;
  std::ifstream file("/proc/sys/kernel/overflowuid");
  std::uint32_t user = 65534;
  file >> user;
  return user;
}

Result<Folder> single_folder(const std::string& given) {
  std::string path = given;
  if (path.empty() || path.front() != '/') {
    return Error{ErrorCode::invalid_argument, "the runtime folder \"" + path + "\" is not an absolute path",
                 "begin BERTH_RUNTIME_DIR with a slash"};
  }
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  FileIdentity identity;
  if (!problem_of(path, identity).empty()) {
    if (const Result<std::string> own = world::private_folder(path); !own) return own.error();
  }
  // The folder exists now, so this sets its identity.
  static_cast<void>(problem_of(path, identity));
  return Folder{path, {}, is_writable(path), identity};
}

std::vector<std::string> default_candidates() { return {"/run/berth", "/run/lock", "/dev/shm", "/tmp"}; }

std::vector<Folder> inspect_folders(const std::vector<std::string>& candidates) {
  std::vector<Folder> folders;
  for (const std::string& path : candidates) {
    Folder folder{path, {}};
    folder.problem = problem_of(path, folder.identity);
    for (const Folder& earlier : folders) {
      if (folder.problem.empty() && earlier.problem.empty() && earlier.identity == folder.identity)
        folder.problem = "is the same folder as " + earlier.path;
    }
    folder.writable = folder.problem.empty() && is_writable(path);
    folders.push_back(std::move(folder));
  }
  return folders;
}

namespace {

// flock is not fair: a process that releases the lock and requests it again at once gets it before the waiting
// processes have woken up. On a busy machine they could wait for seconds. So a process pauses before it takes the
// lock again.
constexpr Duration between_turns = std::chrono::microseconds(100);
std::atomic<Duration::rep> last_release{};

void let_others_in() {
  const TimePoint again_at = TimePoint(Duration(last_release.load(std::memory_order_relaxed))) + between_turns;
  if (const TimePoint now = real_clock().now(); now < again_at) real_clock().sleep_for(again_at - now);
}

}  // namespace

FolderLock::~FolderLock() {
  if (!descriptor_) return;
  // A forked child may have a copy of the descriptor, so closing is not enough.
  flock(descriptor_.get(), LOCK_UN);
  last_release.store(real_clock().now().time_since_epoch().count(), std::memory_order_relaxed);
}

namespace {

// Waits in flock on a separate thread, because flock has no deadline. A caller that gives up leaves the thread waiting,
// and the next attempt of this process reuses it, so that a lock held for hours costs one thread and one descriptor in
// total, not per attempt. A thread that gets the lock when no caller waits for it releases it.
class QueuedLock {
 public:
  explicit QueuedLock(world::Descriptor folder) {
    const std::lock_guard lock(mutex());
    const auto left = std::find_if(left_behind().begin(), left_behind().end(), [&](const auto& entry) {
      return entry->process == ::getpid() && identity_of(entry->folder) == identity_of(folder);
    });
    if (left != left_behind().end()) {
      state_ = *left;
      left_behind().erase(left);
      return;
    }
    state_ = std::make_shared<State>(std::move(folder));
    std::thread([state = state_] { queue(*state); }).detach();
  }
  // Returns the lock, or an empty descriptor if the deadline passed.
  world::Descriptor wait(TimePoint deadline) {
    std::unique_lock lock(mutex());
    while (!state_->is_done) {
      if (real_clock().now() >= deadline) {
        left_behind().push_back(state_);
        return world::Descriptor();
      }
      real_clock().wait_until(state_->changed, lock, deadline);
    }
    return std::move(state_->folder);
  }

 private:
  struct State {
    explicit State(world::Descriptor opened) : folder(std::move(opened)) {}
    world::Descriptor folder;
    pid_t process = ::getpid();  // a forked child inherits the list, but not the threads
    std::condition_variable changed;
    bool is_done = false;
  };
  // Guards the state shared by all threads and waiting callers.
  static std::mutex& mutex() {
    static std::mutex& all = *new std::mutex;
    return all;
  }
  static std::vector<std::shared_ptr<State>>& left_behind() {
    static auto& all = *new std::vector<std::shared_ptr<State>>;
    return all;
  }
  static FileIdentity identity_of(const world::Descriptor& folder) {
    struct stat about{};
    return ::fstat(folder.get(), &about) == 0 ? FileIdentity{about.st_dev, about.st_ino} : FileIdentity{};
  }
  static void queue(State& state) {
    int result = 0;
    do {
      result = flock(state.folder.get(), LOCK_EX);
    } while (result != 0 && errno == EINTR);
    const std::lock_guard lock(mutex());
    state.is_done = true;
    if (std::erase_if(left_behind(), [&](const auto& entry) { return entry.get() == &state; }) > 0 && result == 0)
      flock(state.folder.get(), LOCK_UN);
    state.changed.notify_all();
  }
  std::shared_ptr<State> state_;
};

}  // namespace

Result<FolderLock> FolderLock::take(const std::string& folder, TimePoint deadline) {
  world::Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!opened) return Error{ErrorCode::io, "cannot open " + folder + ": " + std::strerror(errno)};
  let_others_in();
  if (flock(opened.get(), LOCK_EX | LOCK_NB) == 0) return FolderLock(std::move(opened));
  const Error held{ErrorCode::unavailable, "another process holds the lock of " + folder};
  if (real_clock().now() >= deadline) return held;
  try {
    if (world::Descriptor taken = QueuedLock(std::move(opened)).wait(deadline)) return FolderLock(std::move(taken));
    return held;
  } catch (const std::system_error&) {
    // No thread could be started, so poll instead.
    opened = world::Descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    while (!opened || flock(opened.get(), LOCK_EX | LOCK_NB) != 0) {
      if (real_clock().now() >= deadline) return held;
      real_clock().sleep_for(std::chrono::milliseconds(1));
    }
    return FolderLock(std::move(opened));
  }
}

}  // namespace berth::ledger
