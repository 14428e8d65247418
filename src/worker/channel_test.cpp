#include "worker/channel.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <random>

namespace berth::worker {
namespace {

TEST(Answer, CarriesAnErrorWhole) {
  Error error{ErrorCode::out_of_memory, "no memory is left", "free some", ""};
  error.driver = DriverError{2, "CUDA_ERROR_OUT_OF_MEMORY"};
  Answer answer;
  answer.set(error);
  EXPECT_EQ(answer.error(), error);
  error.driver.reset();
  error.message = std::string(5000, 'x');
  answer.set(error);
  EXPECT_EQ(answer.error()->message, std::string(1024, 'x'));
  EXPECT_FALSE(answer.error()->driver);
}

TEST(Answer, AnyBytesAreReadWithoutHarm) {
  std::mt19937_64 random(20261116);
  std::size_t meaningless = 0;
  for (int round = 0; round < 20'000; ++round) {
    Answer answer;
    auto* const words = reinterpret_cast<std::uint32_t*>(&answer);
    for (std::size_t i = 0; i < sizeof answer / sizeof *words; i += 1 + random() % 40)
      words[i] = static_cast<std::uint32_t>(random()) % (round % 2 ? 32 : ~0U);
    const std::optional<Error> error = answer.error();
    meaningless += !error;
    if (!error) continue;
    EXPECT_LE(error->code, ErrorCode::internal);
    EXPECT_LE(error->message.size(), 1024U);
  }
  EXPECT_GT(meaningless, 100U);
  EXPECT_LT(meaningless, 19'900U);
}

TEST(Channel, IsReadOnlyByTheSameVersion) {
  worker::Setup setup;
  setup.mailboxes = 3;
  setup.device = "GPU-1";
  const Channel made = Channel::make(setup).value();
  const Channel opened = Channel::open(dup(made.descriptor())).value();
  EXPECT_EQ(opened.mailboxes(), 3U);
  EXPECT_EQ(opened.setup().device.text(), "GPU-1");
  opened.mailbox(2).state.store(Mailbox::answered);
  EXPECT_EQ(made.mailbox(2).state.load(), Mailbox::answered);

  setup.layout += 1;
  const Channel other = Channel::make(setup).value();
  const auto refused = Channel::open(dup(other.descriptor()));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::not_supported);
  const SealedMemory small = SealedMemory::make("test", 16).value();
  EXPECT_FALSE(Channel::open(dup(small.descriptor())));
}

}  // namespace
}  // namespace berth::worker
