// Jobs as those who start them see them: `berth run -d`, and an agent whose replicas are jobs. Each job has a
// supervisor, a process of its own (machine/job_supervisor.hpp), so a job does not depend on the process that started
// it, and one that was restarted finds its jobs with list_jobs() and their labels.
//
// The supervisor is this program again (/proc/self/exe), whose main must call supervisor_entry() first. It is not a
// mere fork: the caller may have threads. All functions may be called from any thread.
#pragma once

#include <functional>
#include <string>

#include "machine/job_order.hpp"
#include "machine/job_store.hpp"

namespace berth::machine {

// Returns when the job has a supervisor: from then on it can be seen and stopped, and goes on whatever becomes of the
// caller. Whether it gets its devices is shown by its state: `waiting`, then `running`, or `refused` with the reason.
// invalid_argument, not_found: the order is wrong; io: the supervisor did not start, and nothing is left of the job.
// With another user the folder of jobs must be one that this user may enter.
Result<Job> start_job(const std::string& jobs, const JobOrder& given);
// The same for an order that depends on the job's folder: `complete` is called when that is there, and may change the
// command, the environment and the labels. On its error nothing is left of the job.
using CompleteOrder = std::function<Result<void>(JobOrder& order, const std::string& folder)>;
Result<Job> start_job(const std::string& jobs, const JobOrder& given, const CompleteOrder& complete);

// Before jobs of this user are started by hand. no_eligible_device: with so many more, a limit of the user on waiting
// requests would be exceeded; jobs that have not started count.
Result<void> check_waiting_limit(const std::string& jobs, std::size_t more);

// What start_job() needs to run a job again that was started by hand. invalid_argument: it was not kept, because an
// older version or an agent started the job.
Result<JobOrder> order_to_repeat(const Job& job);

// Asks for the end of a job and returns at once. The supervisor sends SIGTERM to the command, and SIGKILL when its stop
// grace has passed. Without a living supervisor all processes of the job get SIGTERM.
void request_stop(const Job& job);
// SIGKILL to all processes of the job, the supervisor too.
void kill_job(const Job& job);
// Waits for the end that was asked for; what has no supervisor is killed after the stop grace. unavailable: it was
// killed and does not end, or the job belongs to another machine.
Result<void> wait_for_stop(const Job& job);
// Both.
Result<void> stop_job(const Job& job);

// For a job with stop_unless_renewed: it may run on for that long again, counted from `ago` before now. By a clock that
// does not jump and that goes on while the machine sleeps. Needs no room on the disk.
Result<void> renew_job(const Job& job, Duration ago = {});

}  // namespace berth::machine
