#include "ledger/process.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ledger/test_folder.hpp"

namespace berth::ledger {
namespace {

constexpr LeaseReference lease{0xABC, 7, 1000};

TEST(ScopeOfALease, IsNamedByItsUserFileAndId) { EXPECT_EQ(scope_name(lease), "berth-1000-0000000000000abc-7.scope"); }

TEST(ScopeOfALease, OtherCgroupsAreNotAccepted) {
  EXPECT_TRUE(is_scope_of(lease, "/user.slice/user-1000.slice/" + scope_name(lease)));
  for (const std::string& other :
       {std::string(), std::string("/"), std::string("/init.scope"), std::string("/user.slice/user-1001.slice"),
        "/user.slice/" + scope_name({0xABC, 8, 1000}), "/user.slice/" + scope_name({0xABD, 7, 1000}),
        "/user.slice/" + scope_name({0xABC, 7, 0}), "/user.slice/x" + scope_name(lease),
        "/" + scope_name(lease) + "/inner", "/" + scope_name(lease) + "/../a", "/../" + scope_name(lease),
        scope_name(lease), "/init.scope/cgroup.events" + std::string(1, '\0') + "/" + scope_name(lease)})
    EXPECT_FALSE(is_scope_of(lease, other)) << other;
}

TEST(ScopeOfALease, AnotherCgroupInALineIsIgnored) {
  const TestFolder folder;
  const auto open = [&] { return Ledger::open({folder.path, nullptr}).value(); };
  const std::shared_ptr<Ledger> writer = open();
  Result<Ledger::Lock> lock = writer->lock();
  ASSERT_TRUE(lock);
  const LedgerLease taken = lock->add({}).value();
  const auto written = [&](const std::string& cgroup) {
    EXPECT_TRUE(lock->set_cgroup(taken, cgroup));
    return lock->snapshot().entries.at(0).cgroup;
  };
  const std::string scope = "/user.slice/" + scope_name(taken.reference());
  EXPECT_EQ(written("/init.scope"), "");
  EXPECT_EQ(written("/"), "");
  EXPECT_EQ(written("/user.slice/berth-1.scope"), "");
  EXPECT_EQ(written(scope), scope);
}

TEST(Cgroup, AnEmptyPathHasNoProcesses) {
  EXPECT_FALSE(cgroup_is_populated(""));
  EXPECT_FALSE(cgroup_is_populated("/no/such/cgroup"));
  EXPECT_TRUE(processes_in("/no/such/cgroup").empty());
}

TEST(Trace, AChildOfAUsersSystemdIsAnOrphan) {
  const auto is_orphan_below = [](const char* name) {
    const pid_t parent = fork();
    if (parent == 0) {
      prctl(PR_SET_NAME, name);
      const pid_t child = fork();
      if (child == 0) pause();
      const bool is_orphan = trace_process(static_cast<std::uint32_t>(child)).orphan;
      kill(child, SIGKILL);
      _exit(is_orphan ? 1 : 0);
    }
    int status = 0;
    waitpid(parent, &status, 0);
    return WEXITSTATUS(status) == 1;
  };
  EXPECT_TRUE(is_orphan_below("systemd"));
  EXPECT_FALSE(is_orphan_below("bash"));
}

}  // namespace
}  // namespace berth::ledger
