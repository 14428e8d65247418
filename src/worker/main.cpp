// berth-worker: a worker for tasks that are defined in libraries (WorkerOptions::program).
#include <cstdio>

#include "berth/worker.hpp"

int main(int argc, char** argv) {
  berth::worker_entry(argc, argv);
  std::fprintf(
      stderr,
      "berth-worker: do not start it by hand; a program that uses Berth starts it, see docs/guide/workers.md\n");
  return 2;
}
