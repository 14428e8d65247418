#include "agent/folder_lock.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "world/test_folder.hpp"

namespace berth::agent {
namespace {

// Whether another process gets the lock; that process exits at once.
bool another_process_gets(const std::string& folder) {
  const pid_t child = fork();
  if (child == 0) _exit(lock_folder(folder) ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(FolderLock, OneProcessAtATime) {
  const world::TestFolder folder;
  {
    const auto lock = lock_folder(folder.path);
    ASSERT_TRUE(lock) << lock.error().to_text();
    EXPECT_FALSE(another_process_gets(folder.path));
  }
  EXPECT_TRUE(another_process_gets(folder.path));
}

TEST(FolderLock, EndsWithItsProcessAndIsNotInherited) {
  const world::TestFolder folder;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t holder = fork();
  if (holder == 0) {
    const auto lock = lock_folder(folder.path);
    const pid_t supervisor = fork();  // outlives the holder
    if (supervisor == 0) {
      close(ready[0]);
      pause();
      _exit(0);
    }
    if (write(ready[1], &supervisor, sizeof supervisor) != sizeof supervisor) _exit(1);
    pause();
    _exit(lock ? 0 : 1);
  }
  pid_t supervisor = 0;
  ASSERT_EQ(read(ready[0], &supervisor, sizeof supervisor), static_cast<ssize_t>(sizeof supervisor));
  EXPECT_FALSE(another_process_gets(folder.path));
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
  EXPECT_TRUE(another_process_gets(folder.path));
  kill(supervisor, SIGKILL);
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace berth::agent
