// A child process that ends with its test.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace berth::test {

class ChildProcess {
 public:
  // The first word is the program. Returns once the child has the name of the program.
  explicit ChildProcess(std::vector<std::string> command) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    std::vector<char*> arguments;
    for (std::string& word : command) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const int failed = posix_spawnp(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
    EXPECT_EQ(failed, 0) << command.front();
    if (failed != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    output_ = ends[0];
    const std::string name = command.front().substr(command.front().rfind('/') + 1).substr(0, 15);
    while (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == 0 && name_of(pid_) != name) std::this_thread::yield();
  }
  ~ChildProcess() { end(); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // The next line of its output; shorter if the child ends first.
  std::string line() const {
    std::string text;
    char byte = 0;
    while (read(output_, &byte, 1) == 1 && byte != '\n') text += byte;
    return text;
  }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
    close(output_);
  }

 private:
  static std::string name_of(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
    std::string name;
    std::getline(file, name);
    return name;
  }
  pid_t pid_ = -1;
  int output_ = -1;
};

}  // namespace berth::test
