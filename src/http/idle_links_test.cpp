#include "http/idle_links.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

namespace berth::http::test {
namespace {

// A connection and its other end.
struct Ends {
  explicit Ends(Loop& loop) {
    std::array<int, 2> both{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both.data()), 0);
    Socket socket(loop.context, asio::generic::stream_protocol(AF_UNIX, 0), both[0]);
    link = std::make_unique<Link>(std::make_unique<Wire>(loop, std::move(socket)));
    server = both[1];
  }
  ~Ends() { close_server(); }
  void close_server() {
    if (server >= 0) ::close(std::exchange(server, -1));
  }
  std::unique_ptr<Link> link;
  int server = -1;
};

TEST(IdleLinks, AConnectionIsOfItsServerAndIsUsedOnceAtATime) {
  Loop loop;
  Ends first(loop), second(loop);
  IdleLinks idle;
  const Link* const last = second.link.get();
  idle.put("a", std::move(first.link));
  idle.put("a", std::move(second.link));
  EXPECT_EQ(idle.take("b"), nullptr);
  EXPECT_EQ(idle.take("a").get(), last) << "the one that was used last";
  EXPECT_NE(idle.take("a"), nullptr);
  EXPECT_EQ(idle.take("a"), nullptr);
}

TEST(IdleLinks, OneThatTheServerHasClosedIsNotUsed) {
  Loop loop;
  Ends ends(loop);
  IdleLinks idle;
  idle.put("a", std::move(ends.link));
  ends.close_server();
  EXPECT_EQ(idle.take("a"), nullptr);
}

TEST(IdleLinks, EachIsClosedBeforeCommonServersWould) {
  Loop loop;
  Ends ends(loop);
  IdleLinks idle;
  idle.put("a", std::move(ends.link));
  idle.close_old(real_clock().now() + std::chrono::seconds(2));
  EXPECT_EQ(idle.count(), 1u);
  idle.close_old(real_clock().now() + std::chrono::seconds(4));
  EXPECT_EQ(idle.count(), 0u);
}

}  // namespace
}  // namespace berth::http::test
