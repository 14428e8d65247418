#include "http/wire.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "http/loop.hpp"

namespace berth::http {
namespace {

Async<void> write_and_cancel(Wire& wire, bool& is_written) {
  const ErrorValue error = co_await wire.write("x");
  is_written = !error;
  wire.cancel();
}

Async<void> read(Wire& wire, ErrorValue& error) { error = co_await wire.wait_readable(); }

TEST(Wire, AReadThatWasCancelledByAWriteThatBecameReadyWithItIsCancelled) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  Loop loop;
  Socket socket(loop.context);
  socket.assign(asio::generic::stream_protocol(AF_UNIX, 0), ends[0]);
  Wire wire(loop, std::move(socket));
  std::array<char, 4096> piece{};
  while (::send(ends[0], piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  bool is_written = false;
  ErrorValue error;
  Running writing(write_and_cancel(wire, is_written));
  Running reading(read(wire, error));
  loop.context.poll();
  EXPECT_FALSE(writing.is_done() || reading.is_done());
  // Now both are ready, in one event.
  while (::recv(ends[1], piece.data(), piece.size(), MSG_DONTWAIT) > 0) {
  }
  ASSERT_EQ(::send(ends[1], "y", 1, MSG_NOSIGNAL), 1);
  while (!writing.is_done() || !reading.is_done()) loop.context.run_one();
  EXPECT_TRUE(is_written);
  EXPECT_EQ(error, asio::error::operation_aborted);
  ::close(ends[1]);
}

}  // namespace
}  // namespace berth::http
