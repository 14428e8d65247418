// The process that supervises a job: one per job, running as the job's user. It waits for other jobs and for devices,
// runs the command, records the outcome, and ends.
#pragma once

#include <optional>
#include <string>

#include "berth/clock.hpp"

namespace berth::machine {

// Call it first thing in main: if the program was started as a supervisor (`berth supervise-job FOLDER`), it does
// not return.
void supervisor_entry(int argc, char** argv);

// The verb with which start_job() starts a supervisor. Standard input is the order (machine/job_order.hpp), standard
// output a pipe that gets a byte when the job can be seen and stopped, standard error the output of the job.
inline constexpr const char* supervisor_verb = "supervise-job";

// Time since the machine started, including sleep; this is the time stored in `renewed`.
Duration time_since_boot() noexcept;

}  // namespace berth::machine
