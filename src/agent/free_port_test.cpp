#include "agent/free_port.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "http/listening.hpp"
#include "http/request_checks.hpp"
#include "ledger/test_folder.hpp"

namespace berth::agent {
namespace {

TEST(FreePort, IsOneThatNoConnectionGets) {
  EXPECT_EQ(replica_ports("32768\t60999\n"), (PortRange{10'000, 32'767}));
  EXPECT_EQ(replica_ports("1024\t40000\n"), (PortRange{40'001, 65'535}));
  EXPECT_EQ(replica_ports(""), (PortRange{10'000, 32'767})) << "the defaults of the kernel";
}

TEST(FreePort, MayBeAnyWhereConnectionsGetNearlyAll) {
  EXPECT_EQ(replica_ports("1024\t65535\n"), (PortRange{10'000, 65'535}));
  EXPECT_EQ(replica_ports("1024\t65000\n"), (PortRange{10'000, 65'535}));
}

TEST(FreePort, IsNeitherTakenNorListenedOn) {
  const auto listening = http::open_listening({"127.0.0.1", 0, ""});
  ASSERT_TRUE(listening);
  const auto address = http::parse_listen_address(listening->address);
  ASSERT_TRUE(address);
  const std::uint16_t port = address->port;
  SeededRandom random(7);
  EXPECT_EQ(free_port({port, port}, random, [](std::uint16_t) { return false; }), std::nullopt);
  const auto next = static_cast<std::uint16_t>(port + 1);
  EXPECT_EQ(free_port({next, next}, random, [](std::uint16_t) { return true; }), std::nullopt);
  ::close(listening->descriptor);
}

TEST(UsedPorts, AreKnownForTenMinutesAlsoToTheNextAgent) {
  const ledger::TestFolder folder;
  const TimePoint start = real_clock().now();
  UsedPorts before(folder.path, start);
  before.note(40'001, start);
  before.note(40'002, start);
  EXPECT_TRUE(before.keep(start));
  before.note(40'002, start + std::chrono::minutes(9));
  EXPECT_TRUE(before.keep(start + std::chrono::minutes(10)));
  EXPECT_FALSE(before.contains(40'001));

  const TimePoint restart = start + std::chrono::minutes(100);
  UsedPorts after(folder.path, restart);
  EXPECT_FALSE(after.contains(40'001));
  EXPECT_TRUE(after.contains(40'002));
  EXPECT_TRUE(after.keep(restart + std::chrono::minutes(9)));
  EXPECT_TRUE(after.contains(40'002));
  EXPECT_TRUE(after.keep(restart + std::chrono::minutes(10)));
  EXPECT_FALSE(after.contains(40'002));
  EXPECT_FALSE(UsedPorts(folder.path, restart).contains(40'002));
}

}  // namespace
}  // namespace berth::agent
