// The contract of every device: kernels and closures.
#include "device/contract_fixture.hpp"

#include <numeric>
#include <stdexcept>

namespace berth::contract {
namespace {

TEST_P(DeviceContract, OccupancyIsPlausibleOrNotSupported) {
  const auto kernel = loaded(add_source());
  ASSERT_NE(kernel, nullptr);
  const auto occupancy = kernel->occupancy(128);
  ASSERT_TRUE(works_or_fails_with(occupancy, ErrorCode::not_supported));
  if (!occupancy) return;
  EXPECT_GE(occupancy->groups_per_unit, 1U);
  EXPECT_GE(occupancy->best_group_size, 1U);
  EXPECT_GT(occupancy->share, 0.0);
  EXPECT_LE(occupancy->share, 1.0);
  EXPECT_TRUE(is_refused(kernel->occupancy(0)));
}

TEST_P(DeviceContract, AKernelComputes) {
  constexpr std::uint32_t n = 10'001;
  std::vector<float> a(n), b(n), sum(n);
  std::iota(a.begin(), a.end(), 0.0F);
  std::iota(b.begin(), b.end(), 0.5F);
  const auto kernel = loaded(add_source());
  ASSERT_NE(kernel, nullptr);
  const Buffer x = filled(a), y = filled(b), out = filled(sum);
  const std::vector<Argument> arguments{x, y, out, n};
  ASSERT_TRUE(works(stream_->launch(*kernel, {{n, 1, 1}, {}}, arguments)));
  ASSERT_TRUE(works(stream_->copy_out(out, 0, bytes_of(sum))));
  ASSERT_TRUE(works(stream_->wait(soon())));
  for (std::uint32_t i = 0; i < n; ++i) ASSERT_EQ(sum[i], a[i] + b[i]) << "at " << i;
}

TEST_P(DeviceContract, ArgumentsOfEverySizeArriveIntact) {
  const auto kernel = loaded(kinds_source());
  ASSERT_NE(kernel, nullptr);
  std::vector<std::uint64_t> words(5);
  const Buffer out = filled(words);
  const float number = 1.5F;
  const std::vector<Argument> arguments{out, std::uint32_t{0xfffffffeU}, std::uint64_t{0x1122334455667788U}, number,
                                        Wide{0xaaaaaaaaaaaaaaaaU, 0xbbbbbbbbbbbbbbbbU}};
  ASSERT_TRUE(works(stream_->launch(*kernel, {}, arguments)));
  ASSERT_TRUE(works(stream_->copy_out(out, 0, bytes_of(words))));
  ASSERT_TRUE(works(stream_->wait(soon())));
  EXPECT_EQ(words, (std::vector<std::uint64_t>{0xfffffffeU, 0x1122334455667788U, 0x3fc00000U, 0xaaaaaaaaaaaaaaaaU,
                                               0xbbbbbbbbbbbbbbbbU}));
}

TEST_P(DeviceContract, ATwoDimensionalLaunchCoversEveryCellOnce) {
  const auto kernel = loaded(grid_source());
  ASSERT_NE(kernel, nullptr);
  const LaunchShape shapes[] = {{{16, 8, 1}, {4, 2, 1}}, {{13, 7, 1}, {}}};
  for (const LaunchShape& shape : shapes) {
    const std::uint32_t width = shape.global[0], height = shape.global[1];
    std::vector<std::uint32_t> cells(width * height, ~0U);
    const Buffer out = filled(cells);
    const std::vector<Argument> arguments{out, width, height};
    ASSERT_TRUE(works(stream_->launch(*kernel, shape, arguments)));
    ASSERT_TRUE(works(stream_->copy_out(out, 0, bytes_of(cells))));
    ASSERT_TRUE(works(stream_->wait(soon())));
    for (std::uint32_t i = 0; i < width * height; ++i) ASSERT_EQ(cells[i], 1000 * (i / width) + i % width);
  }
}

TEST_P(DeviceContract, ALaunchOfZeroWorkItemsIsRefused) {
  const auto kernel = loaded(add_source());
  ASSERT_NE(kernel, nullptr);
  const Buffer buffer = filled(std::vector<float>(4));
  const std::vector<Argument> arguments{buffer, buffer, buffer, std::uint32_t{4}};
  EXPECT_TRUE(fails_with(stream_->launch(*kernel, {{0, 1, 1}, {}}, arguments), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(stream_->launch(*kernel, {{4, 1, 0}, {}}, arguments), ErrorCode::invalid_argument));
}

TEST_P(DeviceContract, AStreamKeepsItsOrder) {
  const auto kernel = loaded(add_source());
  ASSERT_NE(kernel, nullptr);
  constexpr std::uint32_t n = 1000;
  constexpr int rounds = 100;
  const Buffer counter = filled(std::vector<float>(n, 0.0F)), ones = filled(std::vector<float>(n, 1.0F));
  const std::vector<Argument> arguments{counter, ones, counter, n};
  std::vector<std::vector<float>> seen(rounds, std::vector<float>(n));
  for (int i = 0; i < rounds; ++i) {
    ASSERT_TRUE(works(stream_->launch(*kernel, {{n, 1, 1}, {}}, arguments)));
    ASSERT_TRUE(works(stream_->copy_out(counter, 0, bytes_of(seen[static_cast<std::size_t>(i)]))));
  }
  ASSERT_TRUE(works(stream_->wait(soon())));
  for (int i = 0; i < rounds; ++i) {
    EXPECT_EQ(seen[static_cast<std::size_t>(i)], std::vector<float>(n, static_cast<float>(i + 1)));
  }
}

TEST_P(DeviceContract, ASourceInNoLanguageOfTheDeviceIsNotSupported) {
  KernelSource nothing;
  nothing.entry = "add";
  EXPECT_TRUE(fails_with(device_->load(nothing), ErrorCode::not_supported));
  KernelSource other = add_source();
  if (is("host")) {
    other.host = nullptr;
  } else if (is("opencl")) {
    other.opencl_c.clear();
  } else if (is("cuda")) {
    other.ptx.clear();
  } else {
    EXPECT_TRUE(works(device_->load(other))) << "a simulated device accepts every language";
    return;
  }
  const auto refused = device_->load(other);
  ASSERT_TRUE(fails_with(refused, ErrorCode::not_supported));
  EXPECT_EQ(refused.error().where, device_->id().text());
}

TEST_P(DeviceContract, ASourceThatDoesNotCompileIsRefusedWithTheCompilersLog) {
  KernelSource bad;
  bad.entry = "add";
  bad.opencl_c = "kernel void add(global float* out) { out[0] = no_such_name; }";
  bad.ptx = ".version 6.0\n.target sm_52\n.address_size 64\n.visible .entry add() { no_such_instruction; }\n";
  const auto refused = device_->load(bad);
  if (is("simulated")) {
    EXPECT_TRUE(works(refused)) << "a simulated device does not compile";
    return;
  }
  ASSERT_TRUE(is_refused(refused));
  if (is("host")) return;  // it has no compiler
  EXPECT_NE(refused.error().message.find("no_such_"), std::string::npos) << refused.error().to_text();
}

TEST_P(DeviceContract, AnEntryThatIsNotInTheSourceIsRefused) {
  KernelSource source = add_source();
  source.entry = "subtract";
  const auto kernel = device_->load(source);
  if (is("host") || is("simulated")) {
    EXPECT_TRUE(works(kernel)) << "a host function has no name to compare";
  } else {
    EXPECT_TRUE(is_refused(kernel));
  }
}

TEST_P(DeviceContract, AClosureGetsItsStreamAndItsErrorIsReturned) {
  const Buffer buffer = filled(std::vector<std::uint8_t>(8, 1));
  std::vector<std::uint8_t> bytes(8);
  int calls = 0;
  EXPECT_TRUE(works(stream_->run([&](Stream& inner) -> Result<void> {
    ++calls;
    EXPECT_EQ(&inner.device(), device_.get());
    EXPECT_EQ(&inner, stream_.get());
    return inner.copy_out(buffer, 0, bytes_of(bytes));
  })));
  EXPECT_TRUE(works(stream_->wait(soon())));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(bytes, std::vector<std::uint8_t>(8, 1));

  const Error mine{ErrorCode::unavailable, "not today"};
  const auto failed = stream_->run([&](Stream&) -> Result<void> { return mine; });
  ASSERT_TRUE(fails_with(failed, ErrorCode::unavailable));
  EXPECT_EQ(failed.error().message, "not today");
  EXPECT_TRUE(works(stream_->wait(soon()))) << "the error of a closure does not affect the stream";
}

TEST_P(DeviceContract, AnExceptionOfAClosureIsAnErrorOfTheStream) {
  const auto thrown = stream_->run([](Stream&) -> Result<void> { throw std::runtime_error("failed"); });
  ASSERT_TRUE(fails_with(thrown, ErrorCode::work_failed));
  EXPECT_NE(thrown.error().message.find("failed"), std::string::npos);
  EXPECT_TRUE(works(stream_->wait(soon())));
}

}  // namespace
}  // namespace berth::contract
