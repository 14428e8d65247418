// What this process inherited from its parent, recorded before main(): open file
// descriptors, and ignored or blocked signals. A started command gets exactly these,
// and nothing that Berth or a driver opened later.
#pragma once

namespace berth::machine {

// Marks every descriptor that did not come from the parent close-on-exec. Not
// async-signal-safe: in a program with threads, call it before fork().
void close_own_descriptors_on_exec();

// Closes all but the standard ones, for a process that outlives its parent. Call it before any thread is started.
void close_inherited_descriptors();

// Signal dispositions and mask as they were at the start. Async-signal-safe.
void restore_inherited_signals() noexcept;

}  // namespace berth::machine
