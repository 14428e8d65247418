// The contract of every device: memory and copies.
#include "device/contract_fixture.hpp"

#include <numeric>

namespace berth::contract {
namespace {

TEST_P(DeviceContract, BuffersHaveTheRequestedSize) {
  const auto buffer = device_->allocate(1000);
  ASSERT_TRUE(works(buffer));
  EXPECT_EQ(buffer->bytes(), 1000U);
  EXPECT_NE(buffer->native(), nullptr);
  EXPECT_EQ(buffer->memory()->device, device_.get());
}

TEST_P(DeviceContract, ZeroBytesAreInvalidAndTooManyAreOutOfMemory) {
  EXPECT_TRUE(fails_with(device_->allocate(0), ErrorCode::invalid_argument));
  for (const std::uint64_t bytes : {std::uint64_t{1} << 60, ~std::uint64_t{0}}) {
    const auto huge = device_->allocate(bytes);
    ASSERT_TRUE(fails_with(huge, ErrorCode::out_of_memory));
    EXPECT_EQ(huge.error().where, device_->id().text());
  }
  EXPECT_TRUE(works(device_->allocate(64))) << "a refusal leaves the device usable";
}

TEST_P(DeviceContract, CopiesComeBackUnchanged) {
  std::vector<std::uint32_t> sent(2 << 20), received(2 << 20);
  std::iota(sent.begin(), sent.end(), 1);
  const Buffer buffer = filled(sent);
  ASSERT_TRUE(works(stream_->copy_out(buffer, 0, bytes_of(received))));
  ASSERT_TRUE(works(stream_->wait(soon())));
  EXPECT_EQ(received, sent);
}

TEST_P(DeviceContract, CopiesChangeOnlyTheirRange) {
  const Buffer buffer = filled(std::vector<std::uint8_t>(100, 1));
  const std::vector<std::uint8_t> part(10, 2);
  ASSERT_TRUE(works(stream_->copy_in(buffer, 37, bytes_of(part))));
  std::vector<std::uint8_t> tail(63), all(100);
  ASSERT_TRUE(works(stream_->copy_out(buffer, 37, bytes_of(tail))));
  ASSERT_TRUE(works(stream_->copy_out(buffer, 0, bytes_of(all))));
  ASSERT_TRUE(works(stream_->wait(soon())));
  std::vector<std::uint8_t> wanted(100, 1);
  std::fill_n(wanted.begin() + 37, 10, 2);
  EXPECT_EQ(all, wanted);
  EXPECT_EQ(tail, std::vector<std::uint8_t>(wanted.begin() + 37, wanted.end()));
}

TEST_P(DeviceContract, CopiesOutsideOfTheBufferAreRefused) {
  const Buffer buffer = filled(std::vector<std::uint8_t>(64, 1));
  std::vector<std::uint8_t> bytes(65), byte(1);
  EXPECT_TRUE(fails_with(stream_->copy_in(buffer, 0, bytes_of(std::as_const(bytes))), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(stream_->copy_out(buffer, 0, bytes_of(bytes)), ErrorCode::invalid_argument));
  for (const std::uint64_t offset : {std::uint64_t{64}, ~std::uint64_t{0}}) {
    EXPECT_TRUE(
        fails_with(stream_->copy_in(buffer, offset, bytes_of(std::as_const(byte))), ErrorCode::invalid_argument));
    EXPECT_TRUE(fails_with(stream_->copy_out(buffer, offset, bytes_of(byte)), ErrorCode::invalid_argument));
  }
  EXPECT_TRUE(works(stream_->copy_out(buffer, 63, bytes_of(byte))));
  EXPECT_TRUE(works(stream_->wait(soon()))) << "a refusal leaves the stream usable";
}

TEST_P(DeviceContract, ACopyOfZeroBytesSucceeds) {
  const Buffer buffer = filled(std::vector<std::uint8_t>(64, 1));
  EXPECT_TRUE(works(stream_->copy_in(buffer, 64, {})));
  EXPECT_TRUE(works(stream_->copy_out(buffer, 0, {})));
  EXPECT_TRUE(works(stream_->wait(soon())));
}

TEST_P(DeviceContract, CopiesBetweenBuffersChangeOnlyTheirRange) {
  const Buffer from = filled(std::vector<std::uint8_t>(100, 1)), to = filled(std::vector<std::uint8_t>(100, 2));
  std::vector<std::uint8_t> part(10, 3), all(100), source(100);
  ASSERT_TRUE(works(stream_->copy_in(from, 20, bytes_of(std::as_const(part)))));
  ASSERT_TRUE(works(stream_->copy(to, 37, from, 15, 20)));
  ASSERT_TRUE(works(stream_->copy(to, 90, to, 40, 10))) << "within one buffer";
  ASSERT_TRUE(works(stream_->copy(to, 100, from, 0, 0))) << "zero bytes";
  ASSERT_TRUE(works(stream_->copy_out(to, 0, bytes_of(all))));
  ASSERT_TRUE(works(stream_->copy_out(from, 0, bytes_of(source))));
  ASSERT_TRUE(works(stream_->wait(soon())));
  std::vector<std::uint8_t> wanted(100, 2), unchanged(100, 1);
  std::fill_n(unchanged.begin() + 20, 10, 3);
  std::copy_n(unchanged.begin() + 15, 20, wanted.begin() + 37);
  std::copy_n(wanted.begin() + 40, 10, wanted.begin() + 90);
  EXPECT_EQ(all, wanted);
  EXPECT_EQ(source, unchanged);
}

TEST_P(DeviceContract, CopiesBetweenBuffersKeepTheOrderOfTheStream) {
  const auto kernel = loaded(add_source());
  ASSERT_NE(kernel, nullptr);
  constexpr std::uint32_t n = 100'000;
  const Buffer counter = filled(std::vector<float>(n, 0.0F)), ones = filled(std::vector<float>(n, 1.0F));
  const Buffer copy = filled(std::vector<float>(n, 9.0F));
  const std::vector<Argument> arguments{counter, ones, counter, n};
  std::vector<float> out(n);
  ASSERT_TRUE(works(stream_->launch(*kernel, {{n, 1, 1}, {}}, arguments)));
  ASSERT_TRUE(works(stream_->copy(copy, 0, counter, 0, n * sizeof(float))));
  ASSERT_TRUE(works(stream_->launch(*kernel, {{n, 1, 1}, {}}, arguments)));
  ASSERT_TRUE(works(stream_->copy_out(copy, 0, bytes_of(out))));
  ASSERT_TRUE(works(stream_->wait(soon())));
  EXPECT_EQ(out, std::vector<float>(n, 1.0F));
}

TEST_P(DeviceContract, CopiesBetweenBuffersAreCheckedAtSourceAndTarget) {
  const Buffer a = filled(std::vector<std::uint8_t>(64, 1)), b = filled(std::vector<std::uint8_t>(64, 2));
  const auto refused = [&](const Buffer& to, std::uint64_t to_offset, const Buffer& from, std::uint64_t from_offset,
                           std::uint64_t bytes) {
    return fails_with(stream_->copy(to, to_offset, from, from_offset, bytes), ErrorCode::invalid_argument);
  };
  EXPECT_TRUE(refused(a, 1, b, 0, 64));
  EXPECT_TRUE(refused(a, 0, b, 1, 64));
  EXPECT_TRUE(refused(a, ~std::uint64_t{0}, b, 0, 2));
  EXPECT_TRUE(refused(a, 0, b, ~std::uint64_t{0}, 2));
  EXPECT_TRUE(refused(a, 0, b, 0, ~std::uint64_t{0}));
  EXPECT_TRUE(refused(Buffer(), 0, b, 0, 1));
  EXPECT_TRUE(refused(a, 0, Buffer(), 0, 1));
  EXPECT_TRUE(refused(a, 0, a, 0, 64)) << "onto itself";
  EXPECT_TRUE(refused(a, 0, a, 31, 32)) << "one byte in common";
  EXPECT_TRUE(refused(a, 31, a, 0, 32)) << "one byte in common";
  EXPECT_TRUE(works(stream_->copy(a, 0, a, 32, 32)));
  EXPECT_TRUE(works(stream_->wait(soon()))) << "refusals leave the stream usable";
}

TEST_P(DeviceContract, CopiesFromAnotherDeviceSucceedOrAreNotSupported) {
  const Buffer own = filled(std::vector<std::uint8_t>(64, 1));
  for (const auto& other : others()) {
    SCOPED_TRACE(other->id().text());
    const auto theirs = other->allocate(64);
    ASSERT_TRUE(works(theirs));
    EXPECT_TRUE(is_refused(stream_->copy(*theirs, 0, own, 0, 64))) << "into another device";
    if (other->info().backend != GetParam().backend) {
      EXPECT_TRUE(fails_with(stream_->copy(own, 0, *theirs, 0, 64), ErrorCode::invalid_argument));
      continue;
    }
    const auto stream = other->open_stream();
    ASSERT_TRUE(works(stream));
    const std::vector<std::uint8_t> sent(64, 7);
    ASSERT_TRUE(works((*stream)->copy_in(*theirs, 0, bytes_of(sent))));
    ASSERT_TRUE(works((*stream)->wait(soon())));
    const Result<void> copied = stream_->copy(own, 8, *theirs, 0, 32);
    const bool siblings = other->info().parent && other->info().parent == device_->info().parent;
    ASSERT_TRUE(siblings ? works(copied) : works_or_fails_with(copied, ErrorCode::not_supported))
        << "parts of one device share its memory";
    if (!copied) continue;
    std::vector<std::uint8_t> out(64);
    ASSERT_TRUE(works(stream_->copy_out(own, 0, bytes_of(out))));
    ASSERT_TRUE(works(stream_->wait(soon())));
    std::vector<std::uint8_t> wanted(64, 1);
    std::fill_n(wanted.begin() + 8, 32, 7);
    EXPECT_EQ(out, wanted);
    EXPECT_TRUE(fails_with(stream_->copy(own, 0, *theirs, 33, 32), ErrorCode::invalid_argument));
    other->close();
    EXPECT_TRUE(is_refused(stream_->copy(own, 0, *theirs, 0, 32))) << "its device is closed";
  }
  EXPECT_TRUE(works(stream_->wait(soon())));
}

TEST_P(DeviceContract, StreamOrderedMemoryServesTheWorkEnqueuedAfterIt) {
  const auto kernel = loaded(add_source());
  ASSERT_NE(kernel, nullptr);
  constexpr std::uint32_t n = 10'000;
  const std::vector<float> ones(n, 1.0F);
  std::vector<float> out(n);
  auto buffer = stream_->allocate(n * sizeof(float));
  ASSERT_TRUE(works(buffer));
  EXPECT_EQ(buffer->bytes(), n * sizeof(float));
  EXPECT_EQ(buffer->memory()->device, device_.get());
  const Buffer result = filled(std::vector<float>(n));
  ASSERT_TRUE(works(stream_->copy_in(*buffer, 0, bytes_of(ones))));
  for (int i = 0; i < 10; ++i) {
    auto scratch = stream_->allocate(n * sizeof(float));
    ASSERT_TRUE(works(scratch));
    ASSERT_TRUE(works(stream_->launch(*kernel, {{n, 1, 1}, {}}, std::vector<Argument>{*buffer, *buffer, *scratch, n})));
    ASSERT_TRUE(works(stream_->launch(*kernel, {{n, 1, 1}, {}}, std::vector<Argument>{*scratch, result, result, n})));
    // Freed here, while the work that uses it may still run.
  }
  *buffer = Buffer();
  ASSERT_TRUE(works(stream_->copy_out(result, 0, bytes_of(out))));
  ASSERT_TRUE(works(stream_->wait(soon())));
  EXPECT_EQ(out, std::vector<float>(n, 20.0F));
  EXPECT_TRUE(fails_with(stream_->allocate(0), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(stream_->allocate(std::uint64_t{1} << 60), ErrorCode::out_of_memory));
}

TEST_P(DeviceContract, PinnedMemoryCanBeCopiedToAndFrom) {
  std::vector<std::byte> mine(10'000);
  auto fresh = device_->pin(10'000);
  ASSERT_TRUE(works(fresh));
  auto registered = device_->pin(std::span(mine));
  ASSERT_TRUE(works(registered));
  ASSERT_EQ(fresh->bytes().size(), 10'000U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(fresh->bytes().data()) % 4096, 0U) << "aligned to a page";
  EXPECT_EQ(registered->bytes().data(), mine.data());
  EXPECT_EQ(registered->bytes().size(), mine.size());
  for (std::size_t i = 0; i < 10'000; ++i) fresh->bytes()[i] = static_cast<std::byte>(i % 251);
  const auto buffer = device_->allocate(10'000);
  ASSERT_TRUE(works(buffer));
  ASSERT_TRUE(works(stream_->copy_in(*buffer, 0, fresh->bytes())));
  ASSERT_TRUE(works(stream_->copy_out(*buffer, 0, registered->bytes())));
  ASSERT_TRUE(works(stream_->wait(soon())));
  EXPECT_TRUE(std::equal(mine.begin(), mine.end(), fresh->bytes().begin()));

  std::fill(mine.begin(), mine.end(), std::byte{9});
  ASSERT_TRUE(works(stream_->copy_in(*buffer, 0, registered->bytes())));
  ASSERT_TRUE(works(stream_->copy_out(*buffer, 0, fresh->bytes())));
  ASSERT_TRUE(works(stream_->wait(soon())));
  EXPECT_TRUE(std::equal(mine.begin(), mine.end(), fresh->bytes().begin()));
}

TEST_P(DeviceContract, PinningZeroBytesIsRefused) {
  EXPECT_TRUE(fails_with(device_->pin(0), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(device_->pin(std::span<std::byte>()), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(device_->pin(~std::uint64_t{0}), ErrorCode::out_of_memory));
}

TEST_P(DeviceContract, PinnedMemoryMayOutliveItsDevice) {
  std::vector<std::byte> mine(5000, std::byte{1});
  auto fresh = device_->pin(5000);
  ASSERT_TRUE(works(fresh));
  auto registered = device_->pin(std::span(mine));
  ASSERT_TRUE(works(registered));
  stream_.reset();
  device_->close();
  device_.reset();
  backend_.reset();
  std::fill(fresh->bytes().begin(), fresh->bytes().end(), std::byte{2});
  std::fill(registered->bytes().begin(), registered->bytes().end(), std::byte{3});
  EXPECT_EQ(fresh->bytes()[4999], std::byte{2});
  EXPECT_EQ(mine[4999], std::byte{3});
}

}  // namespace
}  // namespace berth::contract
