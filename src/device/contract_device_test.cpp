// The contract of every device: information, events, load and the end of a device.
#include "device/contract_fixture.hpp"

#include <thread>

namespace berth::contract {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

// "0000:8a:00.0": equal addresses must be equal texts, so the case counts.
bool is_pci_address(std::string_view text) {
  constexpr std::string_view pattern = "xxxx:xx:xx.x";
  return text.size() == pattern.size() && std::equal(text.begin(), text.end(), pattern.begin(), [](char c, char p) {
           return p == 'x' ? std::string_view("0123456789abcdef").find(c) != std::string_view::npos : c == p;
         });
}

TEST_P(DeviceContract, InformationIsPlausibleAndUnknownValuesAreAbsentNotZero) {
  const DeviceInfo& info = device_->info();
  const DeviceInfo& listed = GetParam().info;
  EXPECT_EQ(info.id, listed.id);
  EXPECT_EQ(info.backend, listed.backend);
  EXPECT_EQ(info.name, listed.name);
  EXPECT_EQ(info.memory_bytes_total, listed.memory_bytes_total);
  EXPECT_FALSE(info.id.empty());
  EXPECT_FALSE(info.name.empty());
  EXPECT_FALSE(info.memory_domain.empty());
  EXPECT_FALSE(info.fault_domain.empty());
  EXPECT_GE(info.concurrency, 1U);
  EXPECT_NE(info.memory_bytes_total, std::optional<std::uint64_t>(0));
  EXPECT_NE(info.compute_units, std::optional<std::uint32_t>(0));
  if (info.pci_address) {
    EXPECT_TRUE(is_pci_address(*info.pci_address)) << *info.pci_address;
  }
  EXPECT_GE(info.numa_node.value_or(0), 0);
  EXPECT_TRUE(!is("host") || info.is_fallback);
}

TEST_P(DeviceContract, TheGenerationIsConstantWhileTheDeviceIsOpen) {
  const std::uint64_t generation = device_->generation();
  const Buffer buffer = filled(std::vector<int>(16, 1));
  EXPECT_EQ(buffer.memory()->generation, generation);
  EXPECT_EQ(device_->generation(), generation);
}

TEST_P(DeviceContract, HandlesOfOtherDevicesAreRefused) {
  const auto kernel = loaded(add_source());
  ASSERT_NE(kernel, nullptr);
  std::vector<std::byte> bytes(64);
  EXPECT_TRUE(is_refused(stream_->copy_in(Buffer(), 0, bytes)));
  EXPECT_TRUE(is_refused(stream_->copy_out(Buffer(), 0, bytes)));
  const Buffer own = filled(std::vector<float>(16));
  for (const auto& other : others()) {
    SCOPED_TRACE(other->id().text());
    const auto foreign = other->allocate(64);
    ASSERT_TRUE(works(foreign));
    EXPECT_TRUE(is_refused(stream_->copy_in(*foreign, 0, bytes)));
    EXPECT_TRUE(is_refused(stream_->copy_out(*foreign, 0, bytes)));
    const std::vector<Argument> mixed{own, *foreign, own, std::uint32_t{16}};
    EXPECT_TRUE(is_refused(stream_->launch(*kernel, {{16, 1, 1}, {}}, mixed)));
    const auto foreign_kernel = other->load(add_source());
    ASSERT_TRUE(works(foreign_kernel));
    const std::vector<Argument> arguments{own, own, own, std::uint32_t{16}};
    EXPECT_TRUE(is_refused(stream_->launch(**foreign_kernel, {{16, 1, 1}, {}}, arguments)));
  }
  EXPECT_TRUE(works(stream_->wait(soon()))) << "refusals leave the stream usable";
}

TEST_P(DeviceContract, EventsBecomeDoneAndTheirTimesAscend) {
  const auto before = stream_->record();
  ASSERT_TRUE(works(before));
  const Buffer buffer = filled(std::vector<float>(1000, 1.0F));
  const auto after = stream_->record();
  ASSERT_TRUE(works(after));
  ASSERT_TRUE(works((*after)->wait(soon())));
  EXPECT_TRUE(*(*after)->done());
  EXPECT_TRUE(*(*before)->done()) << "an earlier event of the stream is done before a later one";
  const auto elapsed = (*after)->since(**before);
  ASSERT_TRUE(works(elapsed));
  EXPECT_GE(*elapsed, Duration::zero());
  EXPECT_LT(*elapsed, minutes(10));
  EXPECT_EQ(*(*after)->since(**after), Duration::zero());
}

TEST_P(DeviceContract, AWaitEndsSoonAfterItsDeadlineAndTheWorkContinues) {
  const Buffer buffer = filled(std::vector<float>(1000, 1.0F));
  std::vector<float> out(1000);
  ASSERT_TRUE(works(stream_->copy_out(buffer, 0, bytes_of(out))));
  const auto event = stream_->record();
  ASSERT_TRUE(works(event));
  // In virtual time the work cannot end between these two lines; elsewhere it can.
  const bool must_time_out = is("simulated") && !*(*event)->done();
  const TimePoint start = real_clock().now();
  const Result<void> waited = (*event)->wait(Deadline{clock_->now()});
  EXPECT_TRUE(must_time_out ? fails_with(waited, ErrorCode::timeout) : works_or_fails_with(waited, ErrorCode::timeout));
  EXPECT_LT(real_clock().now() - start, seconds(10));
  EXPECT_TRUE(works((*event)->wait(soon()))) << "the work continues after a timeout";
}

TEST_P(DeviceContract, EventsCanBeWaitedForOnOtherThreads) {
  const Buffer buffer = filled(std::vector<float>(1000, 1.0F));
  std::vector<float> out(1000);
  ASSERT_TRUE(works(stream_->copy_out(buffer, 0, bytes_of(out))));
  const auto event = stream_->record();
  ASSERT_TRUE(works(event));
  std::vector<Result<void>> waited(3);
  {
    std::vector<std::jthread> watchers;
    for (auto& result : waited) watchers.emplace_back([&] { result = (*event)->wait(soon()); });
  }
  for (const auto& result : waited) EXPECT_TRUE(works(result));
}

TEST_P(DeviceContract, ASampleIsPlausible) {
  const Buffer held = filled(std::vector<std::uint8_t>(1 << 20, 1));
  const auto sample = device_->sample();
  ASSERT_TRUE(works(sample));
  EXPECT_NE(sample->memory_bytes_total, std::optional<std::uint64_t>(0));
  if (sample->memory_bytes_free && sample->memory_bytes_total) {
    EXPECT_LE(*sample->memory_bytes_free, *sample->memory_bytes_total);
  }
  if (sample->memory_bytes_total && device_->info().memory_bytes_total) {
    EXPECT_EQ(*sample->memory_bytes_total, *device_->info().memory_bytes_total);
  }
  if (sample->utilization) {
    EXPECT_GE(*sample->utilization, 0.0);
    EXPECT_LE(*sample->utilization, 1.0);
  }
}

TEST_P(DeviceContract, AHealthyDeviceReportsNoEvents) {
  for (int i = 0; i < 3; ++i) {
    const auto sample = device_->sample();
    ASSERT_TRUE(works(sample));
    EXPECT_TRUE(sample->events.empty());
  }
}

TEST_P(DeviceContract, AnObservationIsPlausibleAndNeedsNoOpenDevice) {
  stream_.reset();
  device_->close();
  device_.reset();
  const TimePoint before = clock_->now();
  for (int i = 0; i < 2; ++i) {
    const auto seen = backend_->observe(GetParam().info.id);
    ASSERT_TRUE(works(seen));
    EXPECT_GE(seen->sampled_at, before);
    EXPECT_LE(seen->sampled_at, clock_->now());
    const auto share = [](std::optional<double> value) { return !value || (*value >= 0.0 && *value <= 1.0); };
    EXPECT_TRUE(share(seen->load.utilization)) << *seen->load.utilization;
    EXPECT_TRUE(share(seen->memory_utilization)) << *seen->memory_utilization;
    const auto total = seen->load.memory_bytes_total, free = seen->load.memory_bytes_free;
    EXPECT_EQ(total, GetParam().info.memory_bytes_total);
    EXPECT_TRUE(!total || !free || *free <= *total);
    const MemoryUse& use = seen->memory_use;
    if (use.own && use.berth && use.foreign && use.unattributed) {
      EXPECT_EQ(*use.own + *use.berth + *use.foreign + *use.unattributed, *total - *free);
    }
    EXPECT_TRUE(!seen->temperature_celsius || (*seen->temperature_celsius > -60 && *seen->temperature_celsius < 150));
    EXPECT_TRUE(!seen->power_watts || (*seen->power_watts >= 0 && *seen->power_watts < 5000));
    EXPECT_NE(seen->clock_mhz, std::optional<std::uint32_t>(0));
  }
}

TEST_P(DeviceContract, StreamsOfEveryPriorityOpenAndReportIt) {
  for (const Priority priority : {Priority::low, Priority::normal, Priority::high}) {
    const auto stream = device_->open_stream(priority);
    ASSERT_TRUE(works(stream));
    EXPECT_EQ((*stream)->priority(), priority);
    EXPECT_EQ(&(*stream)->device(), device_.get());
    EXPECT_TRUE(works((*stream)->wait(soon())));
  }
  EXPECT_EQ(stream_->priority(), Priority::normal);
}

TEST_P(DeviceContract, NativeHandlesExistWhereTheyAreDocumented) {
  const bool promised = is("cuda") || is("opencl");
  EXPECT_EQ(device_->native().context != nullptr, promised);
  EXPECT_EQ(stream_->native() != nullptr, promised);
}

TEST_P(DeviceContract, ThreadsWithSeparateStreamsDoNotInterfere) {
  const auto kernel = loaded(add_source());
  ASSERT_NE(kernel, nullptr);
  constexpr std::uint32_t n = 512;
  constexpr int threads = 4, rounds = 20;
  std::vector<int> wrong(threads, 0);
  {
    std::vector<std::jthread> workers;
    for (int t = 0; t < threads; ++t) {
      workers.emplace_back([&, t] {
        auto& mistakes = wrong[static_cast<std::size_t>(t)];
        const auto stream = device_->open_stream();
        const auto buffer = device_->allocate(n * sizeof(float));
        if (!stream || !buffer) {
          mistakes = rounds;
          return;
        }
        for (int i = 0; i < rounds; ++i) {
          const auto value = static_cast<float>(100 * t + i);
          const std::vector<float> in(n, value);
          std::vector<float> out(n);
          const std::vector<Argument> arguments{*buffer, *buffer, *buffer, n};
          const bool good = (*stream)->copy_in(*buffer, 0, bytes_of(in)) &&
                            (*stream)->launch(*kernel, {{n, 1, 1}, {}}, arguments) &&
                            (*stream)->copy_out(*buffer, 0, bytes_of(out)) && (*stream)->wait(soon());
          if (!good || out != std::vector<float>(n, 2 * value)) ++mistakes;
        }
      });
    }
  }
  EXPECT_EQ(wrong, std::vector<int>(threads, 0));
}

TEST_P(DeviceContract, AfterClosingEveryCallIsDeviceLostAndNothingHangs) {
  const auto kernel = loaded(add_source());
  ASSERT_NE(kernel, nullptr);
  const Buffer buffer = filled(std::vector<float>(16, 1.0F));
  std::vector<float> out(16);
  ASSERT_TRUE(works(stream_->copy_out(buffer, 0, bytes_of(out))));
  const auto event = stream_->record();
  ASSERT_TRUE(works(event));
  device_->close();
  device_->close();

  const std::vector<Argument> arguments{buffer, buffer, buffer, std::uint32_t{16}};
  EXPECT_TRUE(fails_with(device_->allocate(64), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(device_->open_stream(), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(device_->load(add_source()), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(device_->sample(), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(stream_->copy_in(buffer, 0, bytes_of(std::as_const(out))), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(stream_->copy_out(buffer, 0, bytes_of(out)), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(stream_->copy(buffer, 0, buffer, 8, 8), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(stream_->allocate(64), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(stream_->launch(*kernel, {{16, 1, 1}, {}}, arguments), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(stream_->record(), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(stream_->wait(soon()), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(stream_->run([](Stream&) { return Result<void>(); }), ErrorCode::device_lost));
  EXPECT_EQ(device_->id(), GetParam().info.id) << "the id stays available";

  const Result<void> waited = (*event)->wait(soon());
  EXPECT_TRUE(works_or_fails_with(waited, ErrorCode::device_lost));
  const Result<bool> done = (*event)->done();
  EXPECT_TRUE(!done || *done) << "an event of a closed device is no longer pending";
}

TEST_P(DeviceContract, ADeviceCanBeOpenedAgainAndOldHandlesAreStale) {
  const Buffer old = filled(std::vector<float>(16, 1.0F));
  const std::uint64_t generation = device_->generation();
  stream_.reset();
  device_->close();
  auto again = backend_->open(GetParam().info.id);
  ASSERT_TRUE(works(again));
  device_ = *again;
  auto stream = device_->open_stream();
  ASSERT_TRUE(works(stream));
  stream_ = *std::move(stream);
  EXPECT_NE(device_->generation(), generation);
  std::vector<float> out(16);
  EXPECT_TRUE(is_refused(stream_->copy_out(old, 0, bytes_of(out))));
  const Buffer fresh = filled(std::vector<float>(16, 2.0F));
  EXPECT_TRUE(is_refused(stream_->copy(fresh, 0, old, 0, 64)));
  EXPECT_TRUE(is_refused(stream_->copy(old, 0, fresh, 0, 64)));
  EXPECT_TRUE(works(stream_->copy_out(fresh, 0, bytes_of(out))));
  EXPECT_TRUE(works(stream_->wait(soon())));
  EXPECT_EQ(out, std::vector<float>(16, 2.0F));
}

TEST_P(DeviceContract, ClosingOneOpeningDoesNotAffectAnother) {
  auto second = backend_->open(GetParam().info.id);
  ASSERT_TRUE(works(second));
  (*second)->close();
  second->reset();
  std::vector<float> out(16);
  const Buffer buffer = filled(std::vector<float>(16, 3.0F));
  EXPECT_TRUE(works(stream_->copy_out(buffer, 0, bytes_of(out))));
  EXPECT_TRUE(works(stream_->wait(soon())));
  EXPECT_EQ(out, std::vector<float>(16, 3.0F));
}

TEST_P(DeviceContract, HandlesMayOutliveTheirDevice) {
  Buffer buffer = filled(std::vector<float>(16, 1.0F));
  auto kernel = loaded(add_source());
  auto event = stream_->record();
  ASSERT_TRUE(works(event));
  backend_.reset();
  device_->close();
  device_.reset();
  EXPECT_FALSE(stream_->record().has_value());
  stream_.reset();
  const Result<void> waited = (*event)->wait(soon());
  EXPECT_TRUE(works_or_fails_with(waited, ErrorCode::device_lost));
  kernel.reset();
  buffer = Buffer();
  EXPECT_FALSE(buffer);
}

}  // namespace
}  // namespace berth::contract
