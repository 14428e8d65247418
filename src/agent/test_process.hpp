// For tests that need a process of their own, without threads of other tests: this program again.
#pragma once

#include <string_view>

namespace berth::agent {

inline constexpr const char* test_process_verb = "test-process";
// What the process does; its exit status.
int run_test_process(std::string_view name);

}  // namespace berth::agent
