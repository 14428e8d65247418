"""A long line of waiting jobs on scripted GPUs, measured: how long `run -d` and `ps` take, how soon the next job starts when
devices are given back, and how much processor time the line takes while it waits.

job_line.py BERTH ROOT DOUBLE [COUNT]: with a count, the limits for 500 jobs on a quiet machine are checked; without one, only
what does not depend on load.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
import unittest

BARS = len(sys.argv) > 4
COUNT = int(sys.argv.pop(4)) if BARS else 60
from berth_case import BERTH, Machine  # noqa: E402


def processor_seconds(pids):
    """The processor time of all threads."""
    total = 0
    for pid in pids:
        for thread in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
            total += int(thread.read_text().split()[0])
    return total / 1e9


class JobLine(Machine):
    script = "gpus 2 memory=80GiB capability=9.0\n"

    def end_all(self):
        self.berth("stop", "--all")
        super().end_all()

    def timed(self, *arguments):
        began = time.monotonic()
        answer = self.berth(*arguments)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return time.monotonic() - began, answer.stdout

    def jobs(self):
        return {job["id"]: job for job in json.loads(self.berth("ps", "-a", "--json").stdout)["jobs"]}

    def test_a_long_line(self):
        hold = [self.timed("run", "-d", "-q", "--mem", "60G", "-n", "2", "--", "sleep", "3600")[1].strip()]
        self.until(lambda: self.jobs()[hold[0]]["state"] == "running", "it runs")
        starts = []
        ids = []
        for i in range(COUNT):
            took, job = self.timed("run", "-d", "-q", "--mem", "60G", "--", "sh", "-c",
                                   f"date +%s.%N > {self.folder}/started-$BERTH_JOB; sleep 3600")
            starts.append(took)
            ids.append(job.strip())
        self.until(lambda: sum(job.get("reason", "").startswith("place") for job in self.jobs().values()) == COUNT, "all wait in line")
        looks = [self.timed("ps")[0] for _ in range(7)]
        pids = [job["supervisor"] for job in self.jobs().values() if "supervisor" in job]
        self.assertEqual(len(pids), COUNT + 1)
        time.sleep(20 if BARS else 5)  # long waiting commands look less often
        before, reads, began = processor_seconds(pids), self.reads(pids), time.monotonic()
        time.sleep(20 if BARS else 10)
        seconds = time.monotonic() - began
        share, reads = (processor_seconds(pids) - before) / seconds, (self.reads(pids) - reads) / seconds / COUNT
        delays = []
        running = hold
        for i in range(4):
            self.timed("stop", running[0])
            freed = time.time()
            # Two devices at first, then one by one.
            count = 2 if i == 0 else 1
            for job in ids[:count]:
                path = self.folder / f"started-{job}"
                self.until(lambda: path.exists() and path.read_text().strip(), "the next one starts")
                delays.append(float(path.read_text()) - freed)
            running = running[1:] + ids[:count]
            ids = ids[count:]
        start, look, delay = statistics.median(starts[-50:]), statistics.median(looks), max(delays)
        print(f"{COUNT} waiting jobs: run -d {1e3 * start:.0f} ms, ps {1e3 * look:.0f} ms, next start at most {1e3 * delay:.0f} ms "
              f"after a release, {100 * share:.2f} % of a core, {reads:.1f} reads a second by each", flush=True)
        # When each command polled the whole ledger, 60 of them took 1.3 % of a core.
        self.assertLess(reads, 10)
        if BARS:
            self.assertLess(share, 0.01)
            self.assertLess(start, 0.050)
            self.assertLess(look, 0.100)
            self.assertLess(delay, 0.300)


if __name__ == "__main__":
    unittest.main(verbosity=0)
