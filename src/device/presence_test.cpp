#include "device/presence.hpp"

#include <gtest/gtest.h>

#include "device/test_process.hpp"

namespace berth::device {
namespace {

// A child process that has a GPU open through Berth.
class Copy {
 public:
  Copy() {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
      const Presence presence("GPU-1");
      const bool ready_sent = write(ready[1], "x", 1) == 1;
      while (ready_sent) pause();
      _exit(1);
    }
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
  }
  ~Copy() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;
  pid_t pid = -1;
};

DeviceProcess on_gpu(pid_t pid) { return {static_cast<std::uint32_t>(pid), ProcessKind::foreign, {}, 1}; }

TEST(Presence, ProcessesAreOwnBerthOrForeignAndHaveNames) {
  const test::ChildProcess foreign({"sleep", "60"});
  const Copy berth;
  std::vector<DeviceProcess> processes{on_gpu(foreign.pid()), on_gpu(berth.pid), on_gpu(getpid())};
  EXPECT_TRUE(identify("GPU-1", processes));
  EXPECT_EQ(processes[0].kind, ProcessKind::foreign);
  EXPECT_EQ(processes[0].name, "sleep");
  EXPECT_EQ(processes[1].kind, ProcessKind::berth);
  EXPECT_EQ(processes[2].kind, ProcessKind::own);
  EXPECT_EQ(processes[1].name, processes[2].name);
}

TEST(Presence, AProcessThatDoesNotExistIsForeignWithoutAName) {
  // Above every PID of the kernel.
  std::vector<DeviceProcess> processes{on_gpu((1 << 22) + 1)};
  EXPECT_TRUE(identify("GPU-1", processes));
  EXPECT_EQ(processes[0].kind, ProcessKind::foreign);
  EXPECT_FALSE(processes[0].name);
}

TEST(Presence, PidsOfAnotherNamespaceIdentifyNoProcess) {
  const test::ChildProcess other({"sleep", "60"});
  std::vector<DeviceProcess> processes{on_gpu(other.pid())};
  {
    const Presence presence("GPU-1"), another("GPU-2");
    EXPECT_FALSE(identify("GPU-1", processes)) << "this process has the GPU open and is not in the list";
    EXPECT_EQ(processes[0].kind, ProcessKind::foreign);
    EXPECT_FALSE(processes[0].name);
    EXPECT_TRUE(identify("GPU-3", processes)) << "this process has not opened GPU-3";
  }
  EXPECT_TRUE(identify("GPU-1", processes)) << "closed again";
}

}  // namespace
}  // namespace berth::device
