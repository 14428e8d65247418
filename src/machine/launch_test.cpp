#include "machine/launch.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>

namespace berth::machine {
namespace {

Launch shell(const std::string& script) {
  Launch command;
  command.program = "/bin/sh";
  command.arguments = {"sh", "-c", script};
  return command;
}

// What a child process that runs `body` writes to its standard output.
std::string output_of(const std::function<void()>& body) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    body();
    _exit(1);
  }
  close(ends[1]);
  std::string text;
  std::array<char, 512> piece{};
  for (ssize_t got = 0; (got = read(ends[0], piece.data(), piece.size())) > 0;)
    text.append(piece.data(), static_cast<std::size_t>(got));
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return text;
}

// A script that prints which of the two descriptors are open.
std::string open_descriptors_script(int first, int second) {
  const auto check = [](int descriptor) {
    return "test -e /proc/$$/fd/" + std::to_string(descriptor) + " && printf " + std::to_string(descriptor) + "; ";
  };
  return check(first) + check(second) + "true";
}

TEST(Launch, OnlyInheritedAndNamedDescriptorsReachTheCommand) {
  // As a driver opens them: without close-on-exec.
  const auto open_two = [](int& named, int& other) {
    named = fcntl(STDERR_FILENO, F_DUPFD, 100);
    other = fcntl(STDERR_FILENO, F_DUPFD, 200);
  };
  EXPECT_EQ(output_of([&] {
              int named = -1, other = -1;
              open_two(named, other);
              Launch command = shell(open_descriptors_script(100, 200));
              command.inherited = {named};
              static_cast<void>(exec_command(command));
            }),
            "100");
  EXPECT_EQ(output_of([&] {
              int named = -1, other = -1;
              open_two(named, other);
              Launch command = shell(open_descriptors_script(100, 200));
              command.inherited = {named};
              static_cast<void>(launch(command));
            }),
            "100");
}

TEST(Launch, TheCommandGetsTheChangedEnvironment) {
  setenv("BERTH_TEST_KEPT", "kept", 1);
  setenv("BERTH_TEST_CHANGED", "before", 1);
  setenv("BERTH_TEST_REMOVED", "before", 1);
  EXPECT_EQ(output_of([] {
              Launch command = shell("printf \"$BERTH_TEST_KEPT,$BERTH_TEST_CHANGED,${BERTH_TEST_REMOVED-none}\"");
              command.environment["BERTH_TEST_CHANGED"] = "after";
              command.removed.insert("BERTH_TEST_REMOVED");
              static_cast<void>(exec_command(command));
            }),
            "kept,after,none");
}

TEST(Launch, SignalsIgnoredByThisProcessAreRestoredForTheCommand) {
  EXPECT_EQ(output_of([] {
              signal(SIGPIPE, SIG_IGN);
              sigset_t all;
              sigfillset(&all);
              sigprocmask(SIG_BLOCK, &all, nullptr);
              static_cast<void>(exec_command(shell("(kill -PIPE $$); printf survived")));
            }),
            "");
}

TEST(Launch, BeforeStartGetsThePidOfTheCommand) {
  for (const bool in_place : {true, false}) {
    const std::string text = output_of([&] {
      Launch command = shell("echo $$");
      command.before_start = [](pid_t process) { dprintf(STDOUT_FILENO, "%d\n", static_cast<int>(process)); };
      if (in_place) static_cast<void>(exec_command(command));
      static_cast<void>(launch(command));
    });
    const std::size_t half = text.size() / 2;
    EXPECT_EQ(text.substr(0, half), text.substr(half)) << text;
    EXPECT_GT(half, 1U);
  }
}

TEST(Launch, ACommandThatCannotBeExecutedIsAnError) {
  Launch command = shell("true");
  command.program = "/no/such/program";
  EXPECT_EQ(exec_command(command).code, ErrorCode::not_found);
  const Result<CommandExit> ended = launch(command);
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace berth::machine
