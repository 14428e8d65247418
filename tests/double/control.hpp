// How a test steers the double: symbols of the object itself, beside those it
// imitates. Thread-safe.
#pragma once

extern "C" {

// Releases every call that is held, waits for them, and restarts with the
// machine of `script` (README.md). Returns null, or what is wrong with the script; the
// text is valid until the next call of the same thread. What the process had of
// the old machine is void.
const char* berth_double_reset(const char* script);
// More lines for the machine as it is: `lost gpu=3`, `set 0 temperature=90`.
const char* berth_double_add(const char* script);
// Releases every call, kernel and copy that a rule holds.
void berth_double_release();
// The number of contexts, allocations, bytes, streams, events, modules,
// greens, pinned, registered, event_sets; abandoned (still there when their
// context went); hung (calls, kernels and copies that a rule holds now); or how often a symbol was
// called since the reset. `gpu`: of this GPU, or -1 for all. Returns -1 for an unknown name.
long long berth_double_count(const char* what, int gpu);
}
