// The version of the library and of the project: CMakeLists.txt reads it from here. Every header includes this one
// first, so that a compiler for an older C++ prints one sentence and stops.
#pragma once

#if __cplusplus < 202002L
// A missing file stops the compiler. After an error directive it would continue and print hundreds of further errors.
#include "Berth needs C++20: compile with -std=c++20"
#endif

#define BERTH_VERSION_MAJOR 0
#define BERTH_VERSION_MINOR 2
#define BERTH_VERSION_PATCH 0
