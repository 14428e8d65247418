#include "device/presence.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <optional>
#include <set>

namespace berth::device {
namespace {

constexpr const char* mark = "berth";
constexpr std::string_view mark_in_proc = "/memfd:berth (deleted)";

struct Opened {
  std::mutex mutex;  // guards gpus
  std::multiset<std::string, std::less<>> gpus;

  static Opened& by_this_process() {
    static auto& opened = *new Opened;  // a device may exist until after the end of main
    return opened;
  }
};

std::string folder_of(std::uint32_t pid) { return "/proc/" + std::to_string(pid); }

// Not cached: a process may start to use Berth at any time.
bool uses_berth(std::uint32_t pid) {
  std::error_code failed;
  for (std::filesystem::directory_iterator at(folder_of(pid) + "/fd", failed), end; !failed && at != end;
       at.increment(failed)) {
    std::error_code gone;
    if (std::filesystem::read_symlink(at->path(), gone).native() == mark_in_proc && !gone) return true;
  }
  return false;
}

std::optional<std::string> name_of(std::uint32_t pid) {
  std::ifstream file(folder_of(pid) + "/comm");
  std::string name;
  if (!std::getline(file, name) || name.empty()) return std::nullopt;
  return name;
}

// The real user id. It is read from /proc/PID/status, because the folder /proc/PID belongs to root for processes that
// are not dumpable.
std::optional<std::uint32_t> user_of(std::uint32_t pid) {
  std::ifstream file(folder_of(pid) + "/status");
  for (std::string word; file >> word;) {
    std::uint32_t user = 0;
    if (word == "Uid:" && file >> user) return user;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

}  // namespace

Presence::Presence(std::string gpu) : gpu_(std::move(gpu)) {
  // Stays open until the process ends, and programs that it starts do not inherit it. If memfd is not supported, other
  // processes count this one as foreign.
  static const int held = memfd_create(mark, MFD_CLOEXEC);
  static_cast<void>(held);
  Opened& opened = Opened::by_this_process();
  const std::lock_guard lock(opened.mutex);
  opened.gpus.insert(gpu_);
}

Presence::~Presence() {
  Opened& opened = Opened::by_this_process();
  const std::lock_guard lock(opened.mutex);
  opened.gpus.erase(opened.gpus.find(gpu_));
}

bool identify(std::string_view gpu, std::vector<DeviceProcess>& processes) {
  const auto self = static_cast<std::uint32_t>(getpid());
  const auto is_self = [&](const DeviceProcess& process) { return process.pid == self; };
  if (std::none_of(processes.begin(), processes.end(), is_self)) {
    Opened& opened = Opened::by_this_process();
    const std::lock_guard lock(opened.mutex);
    if (opened.gpus.contains(gpu)) return false;
  }
  for (DeviceProcess& process : processes) {
    process.name = name_of(process.pid);
    process.user = user_of(process.pid);
    if (is_self(process))
      process.kind = ProcessKind::own;
    else if (uses_berth(process.pid))
      process.kind = ProcessKind::berth;
  }
  return true;
}

}  // namespace berth::device
