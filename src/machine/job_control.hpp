// Jobs as seen by those who start them: `berth run -d`, and an agent whose replicas are jobs. Each job has a
// supervisor, a separate process (machine/job_supervisor.hpp), so it does not depend on the process that started it,
// and a restarted agent finds its jobs with list_jobs() and their labels.
//
// The supervisor is this program again (/proc/self/exe), whose main must call supervisor_entry() first. It is not a
// mere fork, because the caller may have threads. All functions may be called from any thread.
#pragma once

#include <functional>
#include <string>

#include "machine/job_order.hpp"
#include "machine/job_store.hpp"

namespace berth::machine {

// Returns when the job has a supervisor: from then on it can be seen and stopped, and continues whatever happens to
// the caller. Its state shows whether it gets its devices: `waiting`, then `running`, or `refused` with the reason.
// invalid_argument, not_found: the order is wrong; io: the supervisor did not start, and nothing is left of the job.
// If the job runs as another user, that user must be able to enter the folder of jobs.
Result<Job> start_job(const std::string& jobs, const JobOrder& given);
// The same for an order that depends on the job's folder: `complete` is called when the folder exists, and may change
// the command, the environment and the labels. If it returns an error, nothing is left of the job.
using CompleteOrder = std::function<Result<void>(JobOrder& order, const std::string& folder)>;
Result<Job> start_job(const std::string& jobs, const JobOrder& given, const CompleteOrder& complete);

// Call it before starting jobs of this user by hand. no_eligible_device: with this many more, the user's limit on
// waiting requests would be exceeded; jobs that have not started count.
Result<void> check_waiting_limit(const std::string& jobs, std::size_t more);

// The order with which start_job() can repeat a job that was started by hand. invalid_argument: it was not kept,
// because an older version or an agent started the job.
Result<JobOrder> order_to_repeat(const Job& job);

// Requests the end of a job and returns at once. The supervisor sends SIGTERM to the command, and SIGKILL when its
// stop grace has passed. Without a living supervisor all processes of the job get SIGTERM.
void request_stop(const Job& job);
// Sends SIGKILL to all processes of the job, including the supervisor.
void kill_job(const Job& job);
// Waits for the requested end; a job without a supervisor is killed after the stop grace. unavailable: it was
// killed but does not end, or the job belongs to another machine.
Result<void> wait_for_stop(const Job& job);
// request_stop() and wait_for_stop().
Result<void> stop_job(const Job& job);

// For a job with stop_unless_renewed: lets it run for that long again, counted from `ago` before now, by a clock that
// does not jump and that continues while the machine sleeps. Needs no room on the disk.
Result<void> renew_job(const Job& job, Duration ago = {});

}  // namespace berth::machine
