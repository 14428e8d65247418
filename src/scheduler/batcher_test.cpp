// Items that run together: when a batch is made, and that every item ends once with its own value.
#include "berth/batcher.hpp"

#include <atomic>
#include <thread>

#include "scheduler/fixture.hpp"

namespace berth::scheduler {
namespace {

using Squares = Batcher<int, int>;

std::vector<int> squares(std::span<int> items) {
  std::vector<int> out;
  for (const int item : items) out.push_back(item * item);
  return out;
}

class Batching : public testing::Test {
 protected:
  Squares start(BatchOptions options) {
    return *Squares::start(
        *bench.scheduler,
        [this](TaskContext&, std::span<int> items) {
          sizes.push_back(items.size());
          return squares(items);
        },
        std::move(options));
  }
  FakeClock clock{FakeClock::Sleepers::block};
  std::vector<std::size_t> sizes;  // of the batches; one lane, so one at a time
  Bench bench{1, with_policy("least_loaded", 1), clock};
};

TEST_F(Batching, A17_ABatchOfThreeIsHandedOverAtThree) {
  const Squares batcher = start({.max_batch = 3, .max_wait = seconds(3600)});
  std::vector<Task<int>> tasks;
  for (int i = 0; i < 6; ++i) tasks.push_back(batcher.submit(i));
  for (int i = 0; i < 6; ++i) {
    const auto result = tasks[static_cast<std::size_t>(i)].get(Deadline::after(clock, seconds(100)));
    ASSERT_TRUE(result) << result.error().to_text();
    EXPECT_EQ(result->value, i * i);
    EXPECT_EQ(result->device, sim(0));
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{3, 3}));
}

TEST_F(Batching, A17_OneItemIsHandedOverWhenItHasWaitedLongEnough) {
  const Squares batcher = start({.max_batch = 8, .max_wait = milliseconds(50)});
  auto first = batcher.submit(3);
  clock.advance(milliseconds(30));
  auto second = batcher.submit(4);
  clock.advance(milliseconds(19));
  EXPECT_FALSE(first.ready());
  clock.advance(milliseconds(1));
  EXPECT_EQ(first.get()->value, 9);
  EXPECT_EQ(second.get()->value, 16) << "the second item runs with the first";
  EXPECT_EQ(sizes, (std::vector<std::size_t>{2}));
}

TEST_F(Batching, TheTimeOfABatchThatWasFullDoesNotCutTheNextOneShort) {
  const Squares batcher = start({.max_batch = 2, .max_wait = milliseconds(50)});
  auto a = batcher.submit(1), b = batcher.submit(2);
  EXPECT_TRUE(a.get() && b.get());
  clock.advance(milliseconds(40));
  auto c = batcher.submit(3);
  clock.advance(milliseconds(40));
  EXPECT_FALSE(c.ready());
  clock.advance(milliseconds(10));
  EXPECT_EQ(c.get()->value, 9);
}

TEST_F(Batching, FlushHandsOverWhatWaitsAndNothingWhenNothingWaits) {
  const Squares batcher = start({.max_batch = 100, .max_wait = seconds(3600)});
  auto a = batcher.submit(5), b = batcher.submit(6);
  batcher.flush();
  batcher.flush();
  EXPECT_EQ(a.get()->value, 25);
  EXPECT_EQ(b.get()->value, 36);
  EXPECT_EQ(sizes, (std::vector<std::size_t>{2}));
}

TEST_F(Batching, A17_ItemsBeyondTheBoundAreRefusedAndRoomComesBack) {
  const Squares batcher = start({.max_batch = 100, .max_wait = seconds(3600), .max_items = 2});
  auto a = batcher.submit(1), b = batcher.submit(2), c = batcher.submit(3);
  EXPECT_EQ(c.get().error().code, ErrorCode::queue_full);
  batcher.flush();
  EXPECT_TRUE(a.get() && b.get());
  auto d = batcher.submit(4);
  batcher.flush();
  EXPECT_EQ(d.get()->value, 16);
}

TEST_F(Batching, ACancelledItemIsLeftOutAndItsBatchGoesOn) {
  const Squares batcher = start({.max_batch = 3, .max_wait = seconds(3600)});
  auto a = batcher.submit(1), b = batcher.submit(2);
  a.cancel();
  auto c = batcher.submit(3);
  EXPECT_EQ(a.get().error().code, ErrorCode::cancelled);
  EXPECT_EQ(b.get()->value, 4);
  EXPECT_EQ(c.get()->value, 9);
  EXPECT_EQ(sizes, (std::vector<std::size_t>{2}));
}

TEST_F(Batching, A17_OnShutdownWaitingItemsEndAndBatchesUnderWayGoOn) {
  Gate gate;
  std::optional<Squares> batcher = *Squares::start(*bench.scheduler,
                                                   [&](TaskContext&, std::span<int> items) {
                                                     gate.pass();
                                                     return squares(items);
                                                   },
                                                   {.max_batch = 2, .max_wait = seconds(3600)});
  auto a = batcher->submit(1), b = batcher->submit(2), c = batcher->submit(3);
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  batcher.reset();
  EXPECT_EQ(c.get().error().code, ErrorCode::cancelled);
  gate.open();
  EXPECT_EQ(a.get()->value, 1);
  EXPECT_EQ(b.get()->value, 4);
}

TEST_F(Batching, A17_AWrongNumberOfResultsAnErrorOrAnExceptionFailsEveryItem) {
  const auto all_fail = [&](auto f) {
    const Squares batcher = *Squares::start(*bench.scheduler, f, {.max_batch = 2});
    auto a = batcher.submit(1), b = batcher.submit(2);
    const auto first = a.get(), second = b.get();
    EXPECT_FALSE(first || second);
    return first.error();
  };
  const Error short_of_one = all_fail([](TaskContext&, std::span<int>) { return std::vector<int>{1}; });
  EXPECT_EQ(short_of_one.code, ErrorCode::work_failed);
  EXPECT_NE(short_of_one.message.find("2 items and gave 1"), std::string::npos) << short_of_one.message;
  EXPECT_EQ(all_fail([](TaskContext&, std::span<int>) -> Result<std::vector<int>> {
              return failure(ErrorCode::unavailable);
            }).code,
            ErrorCode::unavailable);
  EXPECT_EQ(all_fail([](TaskContext&, std::span<int>) -> std::vector<int> { throw 1; }).code, ErrorCode::work_failed);
}

TEST_F(Batching, OptionsThatMakeNoSenseAreRefused) {
  for (const BatchOptions& options :
       {BatchOptions{.max_batch = 0}, BatchOptions{.max_wait = milliseconds(-1)}, BatchOptions{.max_items = 0}}) {
    const auto started =
        Squares::start(*bench.scheduler, [](TaskContext&, std::span<int> items) { return squares(items); }, options);
    EXPECT_EQ(started.error().code, ErrorCode::invalid_argument);
  }
}

TEST(Batcher, SeveralProducersAndBatchesUnderWayLoseNothing) {
  Bench bench(3);
  std::atomic<std::size_t> batches{0};
  const Squares batcher =
      *Squares::start(*bench.scheduler,
                      [&](TaskContext&, std::span<int> items) {
                        ++batches;
                        return squares(items);
                      },
                      {.max_batch = 16, .max_wait = std::chrono::microseconds(200), .max_items = 100000});
  std::vector<std::thread> producers;
  for (int p = 0; p < 4; ++p) {
    producers.emplace_back([&, p] {
      std::vector<Task<int>> tasks;
      for (int i = 0; i < 1000; ++i) tasks.push_back(batcher.submit(p * 1000 + i));
      for (int i = 0; i < 1000; ++i) {
        const auto result = tasks[static_cast<std::size_t>(i)].get(soon());
        ASSERT_TRUE(result) << result.error().to_text();
        ASSERT_EQ(result->value, (p * 1000 + i) * (p * 1000 + i));
      }
    });
  }
  for (std::thread& producer : producers) producer.join();
  EXPECT_LT(batches, 2000U) << "items were run together";
  EXPECT_TRUE(adds_up(bench->statistics()));
}

}  // namespace
}  // namespace berth::scheduler
