// Processes, as /proc shows them.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include "berth/ledger.hpp"

namespace berth {
namespace {

std::uint64_t pid_namespace() {
  struct stat found{};
  return stat("/proc/self/ns/pid", &found) == 0 ? found.st_ino : 0;
}

}  // namespace

std::optional<Holder> find_process(std::uint32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  // The name, in parentheses, may hold anything.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::string state, skipped;
  fields >> state;
  constexpr int threads_field = 20, start_field = 22;
  std::uint64_t threads = 0, start = 0;
  for (int field = 4; field <= start_field && fields; ++field) {
    if (field == threads_field)
      fields >> threads;
    else if (field == start_field)
      fields >> start;
    else
      fields >> skipped;
  }
  if (!fields) return std::nullopt;
  // The first thread may have ended before the others.
  if ((state == "Z" || state == "X") && threads < 2) return std::nullopt;
  return Holder{pid, start, pid_namespace()};
}

Holder this_process() {
  const auto pid = static_cast<std::uint32_t>(getpid());
  return find_process(pid).value_or(Holder{pid, 0, pid_namespace()});
}

bool is_gone(const Holder& holder) {
  if (holder.pid == 0 || holder.pid_namespace != pid_namespace()) return false;
  if (const std::optional<Holder> found = find_process(holder.pid)) return found->start_time != holder.start_time;
  if (kill(static_cast<pid_t>(holder.pid), 0) != 0 && errno == ESRCH) return true;
  // A zombie is still listed; a process that is hidden from us is not, and lives.
  std::ifstream file("/proc/" + std::to_string(holder.pid) + "/stat");
  return file.good();
}

}  // namespace berth
