// For tests that need a separate process without threads of other tests: it runs this program again.
#pragma once

#include <string_view>

namespace berth::agent {

inline constexpr const char* test_process_verb = "test-process";
// Runs in the new process and returns its exit status.
int run_test_process(std::string_view name);

// A replica: serves HTTP at the address in its environment until it is killed
// (node_relay_test.cpp).
inline constexpr const char* test_replica_verb = "test-replica";
[[noreturn]] void run_test_replica();

// The environment variable with the version of a relay that tests start.
inline constexpr const char* relay_version_variable = "TEST_RELAY_VERSION";

}  // namespace berth::agent
