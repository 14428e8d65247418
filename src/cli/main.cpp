// The `berth` command. A verb is verbs/<name>.cpp, which defines `void add_<name>(const
// Verb&)`, and a word in the list below.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "berth/worker.hpp"
#include "cli/command_line.hpp"
#include "cli/text/terminal.hpp"
#include "cli/version.hpp"
#include "device/deadline_call.hpp"
#include "machine/job_supervisor.hpp"

// In the order of --help.
// clang-format off
#define BERTH_VERBS(verb)  \
  verb(devices)            \
  verb(inventory)          \
  verb(doctor)             \
  verb(run)                \
  verb(pick)               \
  verb(ps)                 \
  verb(logs)               \
  verb(wait)               \
  verb(stop)               \
  verb(rerun)              \
  verb(rm)                 \
  verb(release)            \
  verb(cordon)             \
  verb(uncordon)           \
  verb(drain)              \
  verb(why)                \
  verb(replay)             \
  verb(plan)               \
  verb(validate)           \
  verb(init)               \
  verb(fleet)              \
  verb(serve)              \
  verb(agent)              \
  verb(relay)              \
  verb(gateway)            \
  verb(apply)              \
  verb(scale)              \
  verb(status)             \
  verb(nodes)              \
  verb(deployments)        \
  verb(replicas)           \
  verb(endpoints)          \
  verb(shards)             \
  verb(events)             \
  verb(rollout)            \
  verb(delete)             \
  verb(token)              \
  verb(login)              \
  verb(logout)             \
  verb(store)              \
  verb(simulate)           \
  verb(demo)
// clang-format on

namespace berth::cli {

#define BERTH_DECLARE(name) void add_##name(const Verb& command);
BERTH_VERBS(BERTH_DECLARE)
#undef BERTH_DECLARE
}  // namespace berth::cli

int main(int argc, char** argv) {
  using namespace berth;
  worker_entry(argc, argv);
  machine::supervisor_entry(argc, argv);
#define BERTH_ENTRY(name) cli::add_##name,
  constexpr void (*verbs[])(const cli::Verb&) = {BERTH_VERBS(BERTH_ENTRY)};
#undef BERTH_ENTRY
  // If one of these is closed, the first opened file would get its number, and messages would be
  // written into that file.
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(standard, F_GETFD) == -1) static_cast<void>(open("/dev/null", O_RDWR | O_CLOEXEC));
  }
  // With this, a write beyond the file-size limit fails instead of ending the process.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const int status = cli::run_command_line({argv, static_cast<std::size_t>(argc)}, cli::version, verbs);
    // A thread that is stuck in a driver must neither delay the exit nor see its data
    // destroyed.
    if (device::detached_threads() > 0) std::_Exit(status);
    return status;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "berth: out of memory\n");
    return world::environment_error;
  }
}
