#include "control.hpp"

#include "machine.hpp"

namespace {

using namespace berth::standin;

const char* keep(std::optional<std::string> text) {
  thread_local std::string kept;
  if (!text) return nullptr;
  kept = *std::move(text);
  return kept.c_str();
}

}  // namespace

const char* berth_double_reset(const char* script) { return keep(Machine::instance().reset(script)); }

const char* berth_double_add(const char* script) { return keep(Machine::instance().add(script)); }

void berth_double_release() { Machine::instance().release(); }

long long berth_double_count(const char* name, int gpu) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  const State& state = *machine.state;
  const std::string_view what = name;
  const auto of = [&](const auto& things) {
    long long count = 0;
    for (const auto& [handle, thing] : things) count += gpu < 0 || thing->context->unit.gpu == gpu;
    return count;
  };
  if (what == "contexts") {
    long long count = 0;
    for (const auto& [handle, context] : state.contexts.all()) count += gpu < 0 || context->unit.gpu == gpu;
    return count;
  }
  if (what == "streams") return of(state.streams.all());
  if (what == "events") return of(state.events.all());
  if (what == "modules") return of(state.modules.all());
  if (what == "greens") return of(state.greens.all());
  if (what == "allocations" || what == "bytes") {
    long long count = 0, bytes = 0;
    for (const auto& [address, allocation] : state.allocations) {
      if (gpu >= 0 && allocation.context->unit.gpu != gpu) continue;
      ++count;
      bytes += static_cast<long long>(allocation.bytes);
    }
    return what == "bytes" ? bytes : count;
  }
  if (what == "pinned" || what == "registered") {
    long long count = 0;
    for (const auto& [address, range] : state.host_ranges)
      count += range.owned == (what == "pinned") && (gpu < 0 || range.context->unit.gpu == gpu);
    return count;
  }
  if (what == "event_sets") return static_cast<long long>(state.event_sets.all().size());
  if (what == "abandoned") return static_cast<long long>(state.abandoned);
  if (what == "hung") {
    auto count = static_cast<long long>(machine.hung);
    for (const auto& stream : state.running)
      count += !stream->work.empty() && stream->work.front().begun && stream->work.front().until == never;
    return count;
  }
  const auto called = state.calls.find(what);
  if (called != state.calls.end()) return static_cast<long long>(called->second);
  return what.starts_with("cu") || what.starts_with("nvml") ? 0 : -1;
}
