// Notifies the user that a job has ended, as requested with `berth run -d --notify COMMAND`.
#pragma once

#include <string>

#include "machine/job_store.hpp"

namespace berth::machine {

// Starts the command in a shell, in its own session, and does not wait for it. Its environment is that of this
// process plus BERTH_JOB, BERTH_JOB_NAME, BERTH_JOB_STATE, BERTH_JOB_STATUS and BERTH_JOB_REASON; its output goes
// into the file `notify` in the folder of the job.
void notify(const Job& ended, const std::string& command);

}  // namespace berth::machine
