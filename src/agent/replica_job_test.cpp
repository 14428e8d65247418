#include "agent/replica_job.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <filesystem>

#include "agent/test_step.hpp"
#include "ledger/test_folder.hpp"
#include "world/files.hpp"

namespace berth::agent {
namespace {

TEST(ReplicaJob, IsToldItsSocketAndIsFoundByIt) {
  ReplicaOrder chat = order("chat", 0, 17);
  chat.spec.command = {"serve", "--uds", "{socket}"};
  chat.spec.environment = {{"AT", "unix:{socket}"}};
  const Result<machine::JobOrder> made = job_order({chat, false, true, {}}, {{}, "/jobs/j1/run/socket"}, {}, {}, {});
  ASSERT_TRUE(made) << made.error().to_text();
  EXPECT_EQ(made->command, (Words{"serve", "--uds", "/jobs/j1/run/socket"}));
  EXPECT_EQ(made->environment.at("AT"), "unix:/jobs/j1/run/socket");
  EXPECT_EQ(made->environment.at("BERTH_SOCKET"), "/jobs/j1/run/socket");
  EXPECT_FALSE(made->environment.contains("BERTH_PORT"));
  machine::Job job;
  job.request.labels = made->labels;
  const std::optional<FoundJob> found = found_job(job, TimePoint{});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->socket, "/jobs/j1/run/socket");
  EXPECT_FALSE(found->port);
  EXPECT_EQ(probing_of(chat, job, {}, {}, {}).socket, "/jobs/j1/run/socket");
}

TEST(ReplicaJob, IsToldWhichAddressToListenOnAndIsFoundByIt) {
  ReplicaOrder chat = order("chat", 0, 17);
  chat.spec.command = {"serve", "{address}", "{port}"};
  EXPECT_EQ(direct_address(chat.spec, "10.0.0.5"), "") << "gateways reach it through the relay";
  EXPECT_EQ(job_order({chat, true, false, {}}, {40001}, {}, {}, {})->command, (Words{"serve", "127.0.0.1", "40001"}));
  chat.spec.serving.reach = Reach::direct;
  for (const std::string here : {"127.0.0.1", "127.0.0.2", "::1"}) EXPECT_EQ(direct_address(chat.spec, here), here);
  EXPECT_EQ(direct_address(chat.spec, "10.0.0.5"), "0.0.0.0");
  EXPECT_EQ(direct_address(chat.spec, ""), "0.0.0.0");
  EXPECT_EQ(direct_address(chat.spec, "2001:db8::5"), "::");
  const Result<machine::JobOrder> made = job_order({chat, true, false, {}}, {40001, "", "::"}, {}, {}, {});
  ASSERT_TRUE(made) << made.error().to_text();
  EXPECT_EQ(made->command, (Words{"serve", "::", "40001"}));
  machine::Job job;
  job.request.labels = made->labels;
  EXPECT_EQ(found_job(job, TimePoint{})->direct, "::");
  EXPECT_EQ(probing_of(chat, job, {}, {}, {}).host, "::1") << "some programs accept no IPv4 connections on ::";
}

TEST(ReplicaJob, ItsSocketIsInAPrivateFolderWhosePathIsShortEnough) {
  const ledger::TestFolder folder;
  const std::string near = make_socket_folder(folder.path, "").value();
  EXPECT_EQ(near, (folder.path / "run/socket").string());
  const std::filesystem::path deep = folder.path / std::string(100, 'x');
  ASSERT_TRUE(std::filesystem::create_directory(deep));
  const std::string elsewhere = make_socket_folder(deep, "").value();
  EXPECT_LT(elsewhere.size(), sizeof(sockaddr_un::sun_path));
  for (const std::string& path : {near, elsewhere}) {
    struct stat about{};
    ASSERT_EQ(::stat(std::filesystem::path(path).parent_path().c_str(), &about), 0) << path;
    EXPECT_EQ(about.st_mode & 0777, 0700u) << path;
  }
  ASSERT_TRUE(world::write_text(elsewhere, ""));
  remove_socket(elsewhere);
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(elsewhere).parent_path()));
}

TEST(ReplicaJob, ALinkInThePlaceOfItsSocketFolderIsNotFollowed) {
  const ledger::TestFolder folder;
  std::filesystem::create_directory(folder.path / "other");
  ASSERT_TRUE(world::write_text((folder.path / "other/socket").string(), "keep"));
  std::filesystem::create_directory_symlink(folder.path / "other", folder.path / "link");
  remove_socket(folder.path / "link/socket");
  EXPECT_TRUE(std::filesystem::exists(folder.path / "other/socket"));
}

}  // namespace
}  // namespace berth::agent
