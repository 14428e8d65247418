// Simulated devices with a stream, work and scripted faults.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/simulated/backend.hpp"

namespace berth::simulated {

inline SimulatedSpec spec_called(std::string id) {
  SimulatedSpec spec;
  spec.id = std::move(id);
  return spec;
}

inline std::unique_ptr<Stream> stream_on(Device& device) {
  Result<std::unique_ptr<Stream>> stream = device.open_stream();
  EXPECT_TRUE(stream.has_value());
  return std::move(stream).value();
}

inline std::shared_ptr<Event> event_on(Stream& stream) {
  Result<std::shared_ptr<Event>> event = stream.record();
  EXPECT_TRUE(event.has_value());
  return std::move(event).value();
}

inline std::shared_ptr<Event> event_after_work(Stream& stream, double cost) {
  EXPECT_TRUE(simulated_work(stream, cost).has_value());
  return event_on(stream);
}

struct OpenDevice {
  std::shared_ptr<Device> device;
  std::unique_ptr<Stream> stream;
};
inline OpenDevice open_with_stream(const SimulatedSpec& spec, Clock& clock) {
  OpenDevice opened{make_simulated_device(spec, clock), nullptr};
  opened.stream = stream_on(*opened.device);
  return opened;
}

using Kind = SimulatedFault::Kind;
using Trigger = SimulatedFault::Trigger;

inline SimulatedFault fault_at(Kind kind, Trigger trigger, std::uint64_t at) {
  SimulatedFault fault;
  fault.kind = kind;
  fault.trigger = trigger;
  fault.at = at;
  return fault;
}

// Two parts of one GPU, and another GPU.
inline std::vector<SimulatedSpec> cut_gpu() {
  SimulatedSpec first = spec_called("gpu/sm64.0"), second = spec_called("gpu/sm64.1"), other = spec_called("other");
  first.parent = second.parent = "gpu";
  first.memory_bytes_total = second.memory_bytes_total = other.memory_bytes_total = 1 << 20;
  return {first, second, other};
}

}  // namespace berth::simulated
