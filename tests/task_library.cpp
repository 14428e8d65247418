// Tasks for berth-worker, in a library of their own.
#include "berth/worker.hpp"

namespace {

struct Pair {
  int a = 0, b = 0;
};

}  // namespace

BERTH_TASK(multiply, [](berth::WorkerContext&, const Pair& in) { return in.a * in.b; });
