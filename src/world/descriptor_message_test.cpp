#include "world/descriptor_message.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

namespace berth::world {
namespace {

struct Pair {
  Pair() {
    std::array<int, 2> both{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, both.data()), 0);
    first = Descriptor(both[0]);
    second = Descriptor(both[1]);
  }
  Descriptor first, second;
};

TEST(DescriptorMessage, CarriesTextAndDescriptorsThatWorkAtTheOtherEnd) {
  Pair between, carried;
  const std::array<int, 2> sent{carried.first.get(), carried.second.get()};
  ASSERT_TRUE(send_message(between.first.get(), "two ends", sent));
  auto received = receive_message(between.second.get(), 100);
  ASSERT_TRUE(received);
  EXPECT_EQ(received->text, "two ends");
  ASSERT_EQ(received->descriptors.size(), 2U);
  carried = Pair();  // the first two are closed here
  ASSERT_TRUE(send_message(received->descriptors[0].get(), "hello", {}));
  received = receive_message(received->descriptors[1].get(), 3);
  ASSERT_TRUE(received);
  EXPECT_EQ(received->text, "hel");
  EXPECT_TRUE(received->descriptors.empty());
}

TEST(DescriptorMessage, AClosedConnectionHasNone) {
  Pair between;
  between.first.close();
  EXPECT_FALSE(receive_message(between.second.get(), 100));
  EXPECT_FALSE(send_message(between.second.get(), "x", {}));
}

}  // namespace
}  // namespace berth::world
