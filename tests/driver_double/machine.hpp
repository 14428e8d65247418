// A scripted machine and what its management library says.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "driver_double/fixture.hpp"

namespace berth::test {

struct Machine {
  explicit Machine(const std::string& script) {
    start(script);
    const auto listed = backend->list();
    EXPECT_TRUE(works(listed));
    devices = listed.value_or(std::vector<DeviceInfo>());
  }
  const DeviceId& id(std::size_t i) const { return devices.at(i).id; }
  Telemetry observe(std::size_t i) const {
    const Result<Telemetry> seen = backend->observe(id(i));
    EXPECT_TRUE(works(seen));
    return seen.value_or(Telemetry{});
  }

  std::unique_ptr<Backend> backend = device::make_cuda_backend({});
  std::vector<DeviceInfo> devices;
};

}  // namespace berth::test
