// Tells the user that a job has ended, in the way that `berth run -d --notify COMMAND` asked for.
#pragma once

#include <string>

#include "machine/job_store.hpp"

namespace berth::machine {

// Starts the command in a shell, in a session of its own, and does not wait for it. Its environment is that of this
// process and BERTH_JOB, BERTH_JOB_NAME, BERTH_JOB_STATE, BERTH_JOB_STATUS and BERTH_JOB_REASON; its output goes into
// the file `notify` in the folder of the job.
void notify(const Job& ended, const std::string& command);

}  // namespace berth::machine
