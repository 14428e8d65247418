// Work on streams: each stream does one thing after the other, all streams of
// the machine side by side. Work begins when what was before it is done, and
// has its effect on the way: a kernel when it begins, a copy when it ends.
#include <algorithm>

#include "machine.hpp"

namespace berth::standin {

void Machine::enqueue(Stream& stream, Work work) {
  work.enqueued = now();
  stream.work.push_back(std::move(work));
  advance(now());
}

bool Machine::is_busy(const Unit& unit) const {
  return std::any_of(state->running.begin(), state->running.end(),
                     [&](const auto& stream) { return &stream->context->unit == &unit && !stream->work.empty(); });
}

namespace {

// When the stream's first work begins or ends.
Time next_of(const Stream& stream) {
  if (stream.work.empty()) return never;
  const Work& work = stream.work.front();
  return work.begun ? work.until : std::max(work.enqueued, stream.idle_since);
}

}  // namespace

Time Machine::next_change() const {
  Time next = never;
  for (const auto& stream : state->running) next = std::min(next, next_of(*stream));
  return next;
}

void Machine::advance(Time until) {
  for (;;) {
    std::shared_ptr<Stream> first;
    for (const auto& stream : state->running) {
      if (first == nullptr || next_of(*stream) < next_of(*first)) first = stream;
    }
    if (first == nullptr) return;
    const Time at = next_of(*first);
    if (at == never || at > until) break;
    Work& work = first->work.front();
    if (!work.begun) {
      work.begun = true;
      work.until = work.begin ? work.begin(at, work.code) : at;
      if (work.kind != Work::Kind::other) {
        const WorkOrders orders =
            orders_for(*state, work.kind == Work::Kind::kernel ? "kernel" : "copy", first->context->unit.gpu);
        if (orders.code != 0) work.code = orders.code;
        work.until = orders.hang || work.until == never ? never : work.until + orders.delay;
      }
      continue;
    }
    if (work.code == 0 && work.end) work.code = work.end(at);
    first->idle_since = at;
    if (work.code != 0) {
      // Nothing of this process runs any more, on whichever GPU.
      state->sticky = work.code;
      for (const auto& stream : state->running) stream->work.clear();
      break;
    }
    first->work.pop_front();
  }
  state->running.remove_if([](const auto& stream) { return stream->destroyed && stream->work.empty(); });
}

}  // namespace berth::standin
