// A ledger in a temporary folder, common requests, and processes of other users.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "berth/ledger.hpp"
#include "ledger/test_folder.hpp"

namespace berth::ledger {

// Other users write, so the folder must belong to root.
#define NEEDS_ROOT() \
  if (geteuid() != 0) GTEST_SKIP() << "only root can act as several users"

// Runs `work` in a separate process, as another user if one is given; returns what
// `work` returns.
inline int in_child(const std::function<int()>& work, uid_t user = 0) {
  const pid_t child = fork();
  if (child == 0) {
    if (user != 0 && (setgid(user) != 0 || setuid(user) != 0)) _exit(99);
    _exit(work());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A process that runs until this object is destroyed.
class Child {
 public:
  explicit Child(const std::function<void()>& first, uid_t user = 0) {
    int ready[2], stay[2];
    EXPECT_EQ(pipe(ready), 0);
    EXPECT_EQ(pipe(stay), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(stay[1]);
      if (user != 0 && (setgid(user) != 0 || setuid(user) != 0)) _exit(99);
      first();
      char byte = 'x';
      static_cast<void>(!write(ready[1], &byte, 1));
      static_cast<void>(!read(stay[0], &byte, 1));
      _exit(0);
    }
    close(stay[0]);
    close(ready[1]);
    stay_ = stay[1];
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1) << "the child failed";
    close(ready[0]);
  }
  ~Child() { end(SIGKILL); }
  void end(int signal) {
    if (pid_ <= 0) return;
    kill(pid_, signal);
    waitpid(pid_, nullptr, 0);
    close(stay_);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  int stay_ = -1;
};

// Polls until the condition holds, for at most ten seconds.
template <class Condition>
void wait_until_true(Condition&& condition) {
  const TimePoint end = real_clock().now() + std::chrono::seconds(10);
  while (!condition() && real_clock().now() < end) sched_yield();
}

class LedgerCase : public testing::Test {
 protected:
  LedgerCase() {
    if (geteuid() == 0) chmod(folder_.path.c_str(), 01777);
    unsetenv("BERTH_LEASE");
  }
  std::shared_ptr<Ledger> open() const { return Ledger::open({folder_.path, nullptr}).value(); }
  static Ledger::Request request(const std::string& device, std::uint64_t bytes) {
    Ledger::Request wanted;
    wanted.name = "engine";
    wanted.claims = {{DeviceId(device), device, bytes, 0, false}};
    return wanted;
  }
  static LedgerLease take(Ledger& ledger, const std::string& device, std::uint64_t bytes) {
    return std::move(ledger.lock().value().add(request(device, bytes)).value());
  }

  std::filesystem::path only_file() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path)) return entry.path();
    return {};
  }

  TestFolder folder_;
};

}  // namespace berth::ledger
