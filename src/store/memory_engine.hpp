// The engine that forgets: for tests, simulations, machines without SQLite and servers that need not survive a
// restart. Several servers in one process can share it; `hold` then expires by `clock`.
#pragma once

#include <memory>

#include "berth/clock.hpp"
#include "store/engine.hpp"

namespace berth::store {

// `clock` must outlive the engine.
std::shared_ptr<Engine> make_memory_engine(Clock& clock = real_clock());

}  // namespace berth::store
