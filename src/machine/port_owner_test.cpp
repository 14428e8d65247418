#include "machine/port_owner.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "ledger/test_folder.hpp"
#include "machine/job_processes.hpp"
#include "world/descriptor.hpp"

namespace berth::machine {
namespace {

// A socket that listens on a port of the loopback address; 0: any.
world::Descriptor listener(std::uint16_t& port, int family = AF_INET, bool is_ipv6_only = false) {
  world::Descriptor socket(::socket(family, SOCK_STREAM, 0));  // a child keeps it
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
  if (is_ipv6_only) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  v4.sin_port = htons(port);
  v6.sin6_family = AF_INET6;  // any address
  v6.sin6_port = htons(port);
  auto* const address = family == AF_INET ? reinterpret_cast<sockaddr*>(&v4) : reinterpret_cast<sockaddr*>(&v6);
  socklen_t size = family == AF_INET ? sizeof v4 : sizeof v6;
  EXPECT_EQ(::bind(socket.get(), address, size), 0);
  EXPECT_EQ(::listen(socket.get(), 1), 0);
  ::getsockname(socket.get(), address, &size);
  port = ntohs(family == AF_INET ? v4.sin_port : v6.sin6_port);
  return socket;
}

// A process with a job's mark that has every inheritable descriptor of this one, until the end of the test.
class Holder {
 public:
  explicit Holder(std::string variable) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    char* const environment[] = {variable.data(), nullptr};
    pid_ = ::fork();
    if (pid_ == 0) {
      ::execle("/bin/sleep", "sleep", "600", nullptr, environment);
      ::_exit(1);
    }
    ::close(ends[1]);
    char byte = 0;
    static_cast<void>(!::read(ends[0], &byte, 1));  // closed by its exec
    ::close(ends[0]);
  }
  ~Holder() { end(); }
  void end() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

 private:
  pid_t pid_ = -1;
};

struct PortOwnersTest : testing::Test {
  const ledger::TestFolder folder;
  Job job = make_job();
  PortOwners owners;
  std::uint16_t port = 0;

  Job make_job() const {
    JobRequest request;
    request.command = {"x"};
    request.machine = machine_name();
    request.boot = boot_id();
    request.mark = "0123456789abcdef";
    return create_job(folder.path.string(), request).value();
  }
  std::string mark() const { return std::string(job_folder_variable) + "=" + job_mark(job); }
  std::string problem() {
    const Result<void> checked = owners.check(port, job.folder, "chat/0#17");
    return checked ? "" : checked.error().message;
  }
  std::string text(const std::string& rest) const { return "port " + std::to_string(port) + rest; }
};

TEST_F(PortOwnersTest, APortBelongsToTheJobWhoseProcessListens) {
  world::Descriptor socket = listener(port);
  Holder process(mark());
  socket.close();
  EXPECT_EQ(problem(), "");
  EXPECT_EQ(problem(), "") << "the result is remembered";
  process.end();
  EXPECT_EQ(problem(), "nothing listens on " + text(", the port of chat/0#17"));
}

TEST_F(PortOwnersTest, APortThatAnotherProcessTookDoesNot) {
  world::Descriptor socket = listener(port);
  Holder process(mark());
  socket.close();
  EXPECT_EQ(problem(), "");
  process.end();
  const world::Descriptor taken = listener(port);
  EXPECT_EQ(problem(), text(" belongs to another process (pid " + std::to_string(::getpid()) + "), not to chat/0#17"));
}

TEST_F(PortOwnersTest, TheCommandOfTheJobAndWhatItStartedAreKnownWithoutAMark) {
  world::Descriptor socket = listener(port);
  EXPECT_NE(problem(), "");
  JobProgress progress;
  progress.state = JobState::running;
  progress.command = this_process();
  ASSERT_TRUE(write_progress(job, progress));
  PortOwners others;
  EXPECT_TRUE(others.check(port, job.folder, "chat/0#17"));
  const Holder child("A=b");
  socket.close();
  EXPECT_TRUE(PortOwners().check(port, job.folder, "chat/0#17"));
}

TEST_F(PortOwnersTest, AProcessThatSharesThePortIsSeen) {
  world::Descriptor socket = listener(port);
  Holder process(mark());
  socket.close();
  EXPECT_EQ(problem(), "");
  const world::Descriptor shares = listener(port);
  EXPECT_EQ(problem(), text(" belongs to another process (pid " + std::to_string(::getpid()) + "), not to chat/0#17"));
}

TEST_F(PortOwnersTest, ASocketForIpv6AloneTakesNoneOfItsConnections) {
  const world::Descriptor probe(::socket(AF_INET6, SOCK_STREAM, 0));
  if (!probe) GTEST_SKIP() << "this machine has no IPv6";
  world::Descriptor socket = listener(port);
  const Holder process(mark());
  socket.close();
  world::Descriptor beside = listener(port, AF_INET6, true);
  fcntl(beside.get(), F_SETFD, FD_CLOEXEC);
  EXPECT_EQ(problem(), "") << "any user may open such a socket";
}

TEST_F(PortOwnersTest, AnIpv6SocketTakesItsConnectionsToo) {
  const world::Descriptor probe(::socket(AF_INET6, SOCK_STREAM, 0));
  if (!probe) GTEST_SKIP() << "this machine has no IPv6";
  world::Descriptor socket = listener(port, AF_INET6);
  EXPECT_EQ(problem(), text(" belongs to another process (pid " + std::to_string(::getpid()) + "), not to chat/0#17"));
  const Holder process(mark());
  EXPECT_TRUE(PortOwners().check(port, job.folder, "chat/0#17"));
}

TEST_F(PortOwnersTest, AnotherJobsProcessDoesNotCount) {
  world::Descriptor socket = listener(port);
  const Holder process(std::string(job_folder_variable) + "=" + job.folder + ":another mark");
  socket.close();
  EXPECT_NE(problem().find("belongs to another process"), std::string::npos) << problem();
}

}  // namespace
}  // namespace berth::machine
