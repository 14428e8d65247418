#include "machine/inherited.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <set>
#include <string>

namespace berth::machine {
namespace {

constexpr int signals_end = 65;  // Linux has signals 1 to 64

std::set<int> open_descriptors() {
  std::set<int> found;
  std::error_code failed;
  for (std::filesystem::directory_iterator at("/proc/self/fd", failed), end; !failed && at != end;
       at.increment(failed)) {
    const std::string name = at->path().filename();
    int descriptor = -1;
    std::from_chars(name.data(), name.data() + name.size(), descriptor);
    if (descriptor >= 0) found.insert(descriptor);
  }
  // Without /proc, check all descriptors up to the default limit.
  if (found.empty()) {
    for (int descriptor = 0; descriptor < 1024; ++descriptor) found.insert(descriptor);
  }
  // The descriptor through which /proc was read is closed by now.
  std::erase_if(found, [](int descriptor) { return fcntl(descriptor, F_GETFD) < 0; });
  return found;
}

struct Inherited {
  Inherited() : descriptors(open_descriptors()) {
    for (int signal = 1; signal < signals_end; ++signal) {
      struct sigaction now{};
      ignored[static_cast<std::size_t>(signal)] =
          sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_IGN;
    }
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  }
  std::set<int> descriptors;
  std::array<bool, signals_end> ignored{};
  sigset_t blocked{};
};
Inherited inherited;

}  // namespace

void close_own_descriptors_on_exec() {
  for (const int descriptor : open_descriptors()) {
    if (!inherited.descriptors.contains(descriptor)) fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  }
}

void close_inherited_descriptors() {
  for (const int descriptor : inherited.descriptors)
    if (descriptor > STDERR_FILENO) close(descriptor);
  inherited.descriptors = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
}

void restore_inherited_signals() noexcept {
  for (int signal = 1; signal < signals_end; ++signal) {
    struct sigaction wanted{};
    wanted.sa_handler = inherited.ignored[static_cast<std::size_t>(signal)] ? SIG_IGN : SIG_DFL;
    // This fails for signals that cannot be changed, which is harmless.
    sigaction(signal, &wanted, nullptr);
  }
  pthread_sigmask(SIG_SETMASK, &inherited.blocked, nullptr);
}

}  // namespace berth::machine
