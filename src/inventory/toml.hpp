// toml++, configured once for the whole program. Its functions are inline: two
// files that include it with different settings would give a program two
// meanings of the same function. Include this, in as few files as possible (it
// is slow to compile), and nothing of toml++ directly.
#pragma once

// Some assertions of toml++ 3.3 hit wrong input ("[[["), which the code behind
// them refuses well; with NDEBUG they would turn into assumptions.
#undef NDEBUG
#define TOML_ASSERT(condition) static_cast<void>(0)
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>
