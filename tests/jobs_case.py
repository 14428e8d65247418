"""What tests of jobs share: jobs that are stopped at the end, and functions that read their state."""
import json
import os
import time

from berth_case import Machine


class JobsCase(Machine):
    def end_all(self):
        self.berth("stop", "--all")
        super().end_all()

    def job(self, *arguments, **environment):
        """Starts a job and returns its id."""
        answer = self.berth("run", "-d", *arguments, **environment)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertRegex(answer.stdout, r"^j\d+\n$")
        return answer.stdout.strip()

    def jobs(self):
        """All jobs, by id."""
        answer = self.berth("ps", "-a", "--json")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return {job["id"]: job for job in json.loads(answer.stdout)["jobs"]}

    def until(self, condition, what=""):
        deadline = time.monotonic() + 60
        while not (found := condition()):
            if time.monotonic() > deadline:
                self.fail(what or self.jobs())
            time.sleep(0.02)
        return found

    def until_state(self, job, *states):
        return self.until(lambda: (now := self.jobs()[job])["state"] in states and now)

    def folder_of(self, job):
        return self.runtime / f"jobs-{os.geteuid()}" / job
