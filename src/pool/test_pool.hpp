// Pools of test devices that are polled only on request of a test.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "berth/pool.hpp"
#include "pool/test_device.hpp"

namespace berth::test {

// Without threads: poll_now() is the only poll.
inline PoolOptions quiet(std::string policy = "least_loaded") {
  PoolOptions options;
  options.policy = std::move(policy);
  options.poll = false;
  return options;
}

inline Pool open_pool(std::vector<std::shared_ptr<TestDevice>> devices, PoolOptions options = quiet()) {
  Result<Pool> pool = Pool::open({devices.begin(), devices.end()}, std::move(options));
  EXPECT_TRUE(pool) << (pool ? "" : pool.error().to_text());
  return *std::move(pool);
}

inline Pool open_three(PoolOptions options = quiet()) {
  return open_pool({make_device("b", 100, 0), make_device("a", 300, 1), make_device("c", 200, 2)}, std::move(options));
}

inline std::vector<std::shared_ptr<Backend>> backends_of(std::unique_ptr<Backend> backend) {
  return {std::move(backend)};
}

}  // namespace berth::test
