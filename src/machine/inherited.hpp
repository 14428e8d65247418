// What this process got from its parent, recorded before main(): which file
// descriptors were open, which signals were ignored or blocked. A command that is
// started gets exactly that, and nothing that Berth or a driver opened meanwhile.
#pragma once

namespace berth::machine {

// Marks every descriptor that did not come from the parent close-on-exec. Not
// async-signal-safe: in a program with threads, call it before fork().
void keep_own_descriptors();

// Signal dispositions and mask as they were at the start. Async-signal-safe.
void restore_inherited_signals() noexcept;

}  // namespace berth::machine
