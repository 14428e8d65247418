#include "worker/channel.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <random>

namespace berth::worker {
namespace {

constexpr std::uint32_t code_of(ErrorCode code) { return static_cast<std::uint32_t>(code) + 1; }

TEST(ErrorText, CarriesAnErrorWhole) {
  Error error{ErrorCode::out_of_memory, "no memory is left", "free some", ""};
  error.driver = DriverError{2, "CUDA_ERROR_OUT_OF_MEMORY"};
  EXPECT_EQ(ErrorText(error).error(code_of(error.code)), error);
  error.driver.reset();
  error.message = std::string(5000, 'x');
  const auto cut = ErrorText(error).error(code_of(error.code));
  EXPECT_EQ(cut->message, std::string(1024, 'x'));
  EXPECT_FALSE(cut->driver);
}

TEST(ErrorText, AnyBytesAreReadWithoutHarm) {
  std::mt19937_64 random(20261116);
  std::size_t meaningless = 0;
  for (int round = 0; round < 20'000; ++round) {
    ErrorText text;
    auto* const words = reinterpret_cast<std::uint32_t*>(&text);
    for (std::size_t i = 0; i < sizeof text / sizeof *words; i += 1 + random() % 40)
      words[i] = static_cast<std::uint32_t>(random()) % (round % 2 ? 32 : ~0U);
    const std::optional<Error> error = text.error(static_cast<std::uint32_t>(random() % 40));
    meaningless += !error;
    if (!error) continue;
    EXPECT_LE(error->code, ErrorCode::internal);
    EXPECT_LE(error->message.size(), 1024U);
  }
  EXPECT_GT(meaningless, 100U);
  EXPECT_LT(meaningless, 19'900U);
}

TEST(Checksum, ChangesWithEveryBitOfARequestAndOfAnAnswer) {
  std::array<std::byte, 48> data{};
  const auto expect_every_bit_counts = [&](auto header) {
    const std::uint64_t sum = checksum_of(header, data);
    std::array<std::byte, sizeof header + sizeof data> all{};
    for (std::size_t bit = 0; bit < 8 * all.size(); ++bit) {
      if (bit / 8 >= sizeof header - sizeof sum && bit / 8 < sizeof header) continue;  // the checksum itself
      std::memcpy(all.data(), &header, sizeof header);
      std::memcpy(all.data() + sizeof header, data.data(), sizeof data);
      all[bit / 8] ^= std::byte{1} << bit % 8;
      auto other = header;
      std::memcpy(&other, all.data(), sizeof other);
      EXPECT_NE(checksum_of(other, std::span(all).subspan(sizeof header)), sum) << bit;
    }
  };
  expect_every_bit_counts(RequestHeader{});
  expect_every_bit_counts(AnswerHeader{});
}

TEST(Channel, IsReadOnlyByTheSameVersion) {
  worker::Setup setup;
  setup.mailboxes = 3;
  setup.device = "GPU-1";
  const Channel made = Channel::make(setup).value();
  const Channel opened = Channel::open(world::Descriptor(dup(made.descriptor()))).value();
  EXPECT_EQ(opened.mailboxes(), 3U);
  EXPECT_EQ(opened.setup().device.text(), "GPU-1");
  opened.mailbox(2).state.store(Mailbox::answered);
  EXPECT_EQ(made.mailbox(2).state.load(), Mailbox::answered);

  setup.layout += 1;
  const Channel other = Channel::make(setup).value();
  const auto refused = Channel::open(world::Descriptor(dup(other.descriptor())));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::not_supported);
  const SealedMemory small = SealedMemory::make("test", 16).value();
  EXPECT_FALSE(Channel::open(world::Descriptor(dup(small.descriptor()))));
}

}  // namespace
}  // namespace berth::worker
