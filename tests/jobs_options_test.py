"""Arrays, conditions, outputs and notifications of jobs, and the verbs that take patterns."""
import datetime
import json
import os
import pathlib
import subprocess
import time
import unittest

from berth_case import BERTH, GIB, user_name
from jobs_case import JobsCase


class Options(JobsCase):
    def gate(self, name="gate"):
        """A script that runs until the file is there, and that file."""
        path = self.folder / name
        return path, f"until test -e {path}; do sleep 0.05; done"

    def ids(self, *arguments, verb=("run", "-d"), **environment):
        answer = self.berth(*verb, *arguments, **environment)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return answer.stdout.split()

    def last_line(self, job):
        return self.berth("logs", job).stdout.splitlines()[-1]

    def test_the_log_ends_with_the_reason_for_the_end(self):
        done = self.job("--mem", "1G", "--", "echo", "hello")
        failed = self.job("--mem", "1G", "--retries", "1", "--", "sh", "-c", "exit 7")
        late = self.job("--mem", "1G", "--time", "1s", "--", "sleep", "600")
        refused = self.job("--mem", "81G", "--", "true")
        missing = self.job("--", "sh", "-c", "kill -9 $$")
        stopped = self.job("--mem", "1G", "--", "sh", "-c", "echo up; exec sleep 600")
        self.until(lambda: "up\n" in self.berth("logs", stopped).stdout)
        self.assertEqual(self.berth("stop", stopped).returncode, 0)
        self.assertEqual(self.berth("wait", done).returncode, 0)
        answer = self.berth("wait", failed, late, refused)
        self.assertEqual(answer.returncode, 7)
        time_ran = r"\d+ (ms|s|min)"
        for job, text in ((done, f"is done after {time_ran}"),
                          (failed, f"failed after {time_ran} in attempt 2 of 2: ended with status 7"),
                          (late, "timed out after 1 s"),
                          (refused, "was refused: no device has 81.0 GiB in total.*"),
                          (stopped, f"was stopped by {user_name()} after {time_ran}"),
                          (missing, rf"failed after {time_ran}: was ended by signal 9 \(Killed\)")):
            self.berth("wait", job)
            self.assertRegex(self.last_line(job), f"^berth: the job {text}$")
            if job in (failed, late, refused):
                self.assertRegex(answer.stderr, f"(?m)^berth: {job} {text}$")
        after = self.job("--name", "next", "--after", failed, "--", "echo", "never")
        self.assertRegex(self.berth("wait", after).stderr, rf"^berth: {after} \(next\) was skipped because {failed} failed\n$")
        self.assertEqual(self.berth("logs", after).stdout, f"berth: the job was skipped because {failed} failed\n")
        quiet = self.job("-q", "--mem", "1G", "--", "echo", "hello")
        self.assertEqual(self.berth("wait", quiet).returncode, 0)
        self.assertEqual(self.berth("logs", quiet).stdout, "hello\n", "-q adds no output")

    def test_memory_that_was_asked_for_and_never_used_is_named(self):
        pid, (gate, script) = self.folder / "pid", self.gate()
        self.machine.write_text(f"gpu memory=80GiB\nprocess gpu=0 pid_file={pid} bytes=11GiB\n")
        job = self.job("--mem", "40G", "--", "sh", "-c", f"echo $$ > {pid}; {script}")
        self.until(lambda: self.jobs()[job].get("memory_bytes_peak") == 11 * GIB)
        gate.touch()
        answer = self.berth("wait", job)
        self.assertEqual((answer.returncode, answer.stderr), (0, f"berth: {job} used at most 11.0 GiB of the 40.0 GiB requested; --mem 13G would probably be enough\n"))
        self.assertRegex(self.last_line(job), "^berth: the job is done after .*; it used at most 11.0 GiB of the 40.0 GiB requested; --mem 13G would probably be enough$")

    def test_patterns_name_several_jobs(self):
        sweep = self.ids("-q", "--array", "1-3", "--name", "sweep", "--mem", "1G", "--", "sh", "-c", "echo number {}; exec sleep 600")
        other = self.job("-q", "--name", "other", "--", "sleep", "600")
        self.until(lambda: all("number" in self.berth("logs", job).stdout for job in sweep))
        self.assertEqual([self.jobs()[job]["name"] for job in sweep], ["sweep-1", "sweep-2", "sweep-3"])
        headings = [f"==> {job} (sweep-{i}) <==\nnumber {i}\n" for i, job in enumerate(sweep, 1)]
        self.assertEqual(self.berth("logs", "sweep-*").stdout, "\n".join(headings))
        self.assertEqual(self.berth("logs", "sweep-[2]").stdout, "number 2\n")
        self.assertEqual(self.berth("stop", "sweep-*").returncode, 0)
        self.assertEqual(self.berth("stop", "sweep-*").stderr, "berth: all of these jobs have already ended\n")
        self.assertEqual([self.jobs()[job]["state"] for job in sweep], ["stopped"] * 3)
        self.assertIn(self.jobs()[other]["state"], ("waiting", "running"), "the other job does not match")
        again = self.ids("-q", "--array", "2", "--name", "sweep", "--", "true")
        answer = self.berth("wait", "sweep-*")
        self.assertEqual(answer.returncode, 1, "1 and 3 were stopped")
        self.assertEqual([line.split()[1] for line in answer.stderr.splitlines()], [sweep[0], sweep[2]], "the newest of each name counts")
        self.assertEqual(self.berth("rm", "sweep-*").returncode, 0)
        self.assertEqual(list(self.jobs()), [other], f"all of a name are removed, also those before {again}")
        for verb in ("wait", "stop", "rm", "logs", "rerun"):
            self.assertRefused(self.berth(verb, "sweep-*"), 2, "no job has a name that matches 'sweep-*'", "berth ps -a")

    def test_stopping_by_name_tells_of_others_with_this_name(self):
        first, second = (self.job("-q", "--name", "same", "--", "sleep", "600") for _ in range(2))
        self.assertEqual(self.berth("stop", "same").stderr, f"berth: other jobs named same continue; to stop them: berth stop {first}\n")
        self.assertEqual(self.jobs()[second]["state"], "stopped")
        self.assertEqual(self.berth("stop", first).stderr, "")

    def test_the_name_of_an_array_suggests_its_pattern(self):
        self.ids("-q", "--array", "1-2", "--name", "sweep", "--", "true")
        self.assertRefused(self.berth("wait", "sweep"), 2, "there is no job 'sweep'", "did you mean 'sweep-*'?")
        self.assertEqual(self.berth("wait", "sweep-*").returncode, 0)

    def test_an_array_puts_the_index_where_the_braces_are(self):
        output = self.folder / "log-{}.txt"
        answer = self.berth("run", "-d", "-q", "--json", "--array", "0-1,7", "--name", "a", "--output", str(output), "--", "sh", "-c", "echo {}-$0", "x{}y{}")
        started = json.loads(answer.stdout)["jobs"]
        self.assertEqual(self.berth("wait", "a-*").returncode, 0)
        self.assertEqual([self.jobs()[job["job"]]["name"] for job in started], ["a-0", "a-1", "a-7"])
        self.assertEqual([pathlib.Path(str(output).replace("{}", str(i))).read_text() for i in (0, 1, 7)], ["0-x0y0\n", "1-x1y1\n", "7-x7y7\n"])
        job = ("--name", "a", "--", "true")
        for indices in ("x", "3-1", "1-", "-3", "1,,2", "1-2-3", "1-8x"):
            self.assertRefused(self.berth("run", "-d", f"--array={indices}", *job), 2, "--array cannot be", "1-8")
        for indices in ("1-1001", "0-999,2000", "0-1000000"):
            self.assertRefused(self.berth("run", "-d", "--array", indices, *job), 2, "more than 1000 jobs")
        self.assertRefused(self.berth("run", "-d", "--array", "1-2", "--", "true"), 2, "need a name", "--name")
        self.assertRefused(self.berth("run", "-d", "--name", "j17", "--", "true"), 2, "names like j17 are reserved for ids")
        self.assertRefused(self.berth("run", "-d", "--array", "1-2", "--output", "log", *job), 2, "would all write to log", "log-{}.txt")
        self.assertRefused(self.berth("run", "-d", "--array", "1-2", "--name", "a b", "--", "true"), 2, "\"a b\" is not a valid job name")
        self.assertEqual(len(self.jobs()), 3)

    def test_an_array_without_braces_is_pointed_out(self):
        for options, note in (((), "berth: the command does not contain {}; all 3 jobs run the same command\n"), (("-q",), "")):
            answer = self.berth("run", "-d", *options, "--array", "1-3", "--name", "same", "--", "true")
            self.assertEqual((answer.returncode, answer.stderr), (0, note))
        self.assertEqual(self.berth("run", "-d", "--array", "1", "--name", "one", "--", "true").stderr, "")
        mapped = self.ids("-q", "--array", "1-3", "--name", "fit", "--", "bash", "-c", "lr=(0.1 0.03 0.01); exec echo ${lr[{}-1]}")
        self.assertEqual(self.berth("wait", "--all").returncode, 0)
        self.assertEqual([self.berth("logs", job).stdout for job in mapped], ["0.1\n", "0.03\n", "0.01\n"], "as in the guide")

    def test_one_unknown_name_leaves_the_others_alone(self):
        job = self.job("-q", "--name", "known", "--", "sleep", "600")
        for verb, effect in (("stop", "nothing was stopped"), ("rm", "nothing was removed"), ("wait", "no job was waited for"), ("rerun", "nothing was started")):
            self.assertRefused(self.berth(verb, "known", "other"), 2, f"there is no job 'other', so {effect}; see berth ps -a")
            self.assertRefused(self.berth(verb, "other"), 2, "there is no job 'other'; see")
        self.assertNotIn(self.jobs()[job]["state"], ("stopped", "done"))

    def test_the_options_of_a_job_are_listed_as_given(self):
        job = self.job("-q", "--mem", "10G", "--retries", "1", "--time=5m", "--notify", "true", "--label", "x=1", "--label", "y=[2]", "--", "true")
        self.assertEqual(self.jobs()[job]["options"], ["-d", "-q", "--mem", "10G", "--retries", "1", "--time", "5m", "--notify", "true",
                                                       "--label", "x=1", "--label", "y=[2]"])

    def test_wait_gives_up_after_its_timeout(self):
        job, other = self.job("-q", "--name", "slow", "--", "sleep", "600"), self.job("-q", "--", "sleep", "600")
        self.assertRefused(self.berth("wait", "--timeout", "300ms", job), 124, f"gave up after waiting 300 ms: {job} (slow) has not finished")
        self.assertRefused(self.berth("wait", "--timeout", "0", job, other), 124, f"{job} (slow) has not finished, nor has 1 other job")
        self.assertEqual(self.berth("stop", other).returncode, 0)
        failed = self.job("-q", "--", "sh", "-c", "sleep 0.2; exit 7")
        answer = self.berth("wait", "--timeout", "8s", job, failed)
        self.assertEqual(answer.returncode, 124)
        self.assertRegex(answer.stderr, rf"(?m)^berth: {failed} failed after .*: ended with status 7$", "it ended during the wait for the other job")
        self.assertIn(f"{job} (slow) has not finished; berth ps", answer.stderr)
        answer = self.berth("wait", "--timeout", "0s", "--json", job, failed)
        self.assertEqual(answer.returncode, 124)
        self.assertEqual([(each["id"], each["state"], each.get("status")) for each in json.loads(answer.stdout)["jobs"]],
                         [(job, "running", None), (failed, "failed", 7)])
        self.assertRefused(self.berth("wait", "--timeout", "5", job), 2, "without a unit", "5s")
        self.assertEqual(self.berth("stop", "--all").returncode, 0)
        self.assertEqual(self.berth("wait", "--timeout", "60s", job).returncode, 1)
        self.assertEqual(self.berth("wait", "--timeout", "1s", self.job("--", "sleep", "0")).returncode, 0)

    def test_a_command_in_the_foreground_has_a_time_limit_too(self):
        child = self.folder / "child"
        began = time.monotonic()
        answer = self.berth("run", "-q", "--mem", "1G", "--time", "500ms", "--", "sh", "-c", f"sleep 600 & echo $! > {child}; wait")
        self.assertEqual((answer.returncode, answer.stderr), (124, "berth: the command timed out after 500 ms\n"))
        self.assertLess(time.monotonic() - began, 60)
        self.until(lambda: not pathlib.Path(f"/proc/{child.read_text().strip()}/exe").exists(), "what it started ends, too")
        self.until(lambda: not self.ps(), "and the lease")
        self.assertEqual(self.berth("run", "-q", "--mem", "1G", "--time", "60s", "--", "sh", "-c", "exit 5").returncode, 5)
        again = self.berth("run", "-q", "--mem", "1G", "--time", "500ms", "--on-fault", "restart", "--", "sleep", "600")
        self.assertEqual((again.returncode, again.stderr), (124, "berth: the command timed out after 500 ms\n"), "a timeout is not a fault")
        stubborn = self.berth("run", "-q", "--mem", "1G", "--time", "200ms", "--", "sh", "-c", "trap 'exit 9' TERM; while :; do sleep 0.05; done")
        self.assertEqual(stubborn.returncode, 124, "however it handles SIGTERM")
        self.assertRefused(self.berth("run", "--time", "0s", "--", "true"), 2, "--time is zero")

    def test_after_any_starts_however_the_others_end(self):
        gate, script = self.gate()
        bad, slow = self.job("-q", "--", "sh", "-c", "exit 3"), self.job("-q", "--", "sh", "-c", script)
        cleanup = self.job("-q", "--after-any", f"{bad},{slow}", "--", "echo", "cleaned")
        skipped = self.job("-q", "--after", bad, "--", "true")
        self.assertEqual(self.berth("wait", skipped).returncode, 1)
        self.until(lambda: self.jobs()[cleanup].get("reason") == f"it waits for {slow}")
        gate.touch()
        self.assertEqual(self.berth("wait", cleanup).returncode, 0)
        last = self.job("-q", "--after-any", f"{bad},{slow}", "--", "echo", "at once")
        self.assertEqual(self.berth("wait", last).returncode, 0)
        self.ids("-q", "--array", "1-2", "--name", "part", "--", "sh", "-c", "exit $(({} - 1))")
        merge = self.job("-q", "--after-any", "part-*", "--", "true")
        self.assertEqual(self.berth("wait", merge).returncode, 0)

    def test_a_job_begins_at_its_time(self):
        job = self.job("-q", "--mem", "1G", "--begin", "2h", "--", "true")
        when = datetime.datetime.now() + datetime.timedelta(hours=2)
        reason = self.until(lambda: (reason := self.jobs()[job].get("reason", "")).startswith("it starts at ") and reason)
        self.assertLess(abs(datetime.datetime.fromisoformat(reason.removeprefix("it starts at ")) - when), datetime.timedelta(minutes=2))
        self.assertEqual(self.ps(), [], "until then it holds nothing and is not in the queue")
        self.assertEqual(self.berth("stop", job).returncode, 0)
        soon = self.job("-q", "--begin", "1s", "--", "true")
        self.assertEqual(self.berth("wait", soon).returncode, 0)
        for text in ("yesterday", "25:00", "2026-02-30T08:00", "20:00 or so"):
            self.assertRefused(self.berth("run", "-d", f"--begin={text}", "--", "true"), 2, "is not a time", "20:00")
        self.assertRefused(self.berth("run", "-d", "--begin", "2020-01-01T08:00", "--", "true"), 2, "2020-01-01T08:00 is in the past")

    def test_output_goes_to_the_file_that_was_named(self):
        (self.folder / "own.log").write_text("before\n")
        # A relative name refers to the caller's folder.
        answer = subprocess.run([BERTH, "run", "-d", "-q", "--output", "own.log", "--", "echo", "hello"], cwd=self.folder, capture_output=True, text=True,
                                env=self.environment(), timeout=60)
        job = answer.stdout.strip()
        self.assertEqual(self.berth("wait", job).returncode, 0)
        self.assertEqual((self.folder / "own.log").read_text(), "before\nhello\n", "the output is appended")
        self.assertEqual(self.berth("logs", job).stdout, "hello\n", "earlier content is not the job's output")
        self.assertEqual(self.berth("logs", "--tail", "5", job).stdout, "hello\n")
        self.assertEqual(self.jobs()[job]["output"], str(self.folder / "own.log"))
        self.assertEqual(self.berth("rm", job).returncode, 0)
        self.assertTrue((self.folder / "own.log").exists(), "the file belongs to the user")
        for output in (str(self.folder), str(self.folder / "none/x")):
            self.assertRefused(self.berth("run", "-d", "--output", output, "--", "true"), 2, f"cannot write {output}: ", "--output")
        self.assertRefused(self.berth("run", "-d", "--output", "a\nb", "--", "true"), 2, "--output is not a valid file name")
        self.assertEqual(self.jobs(), {}, "refused jobs leave nothing")

    def test_a_notification_names_the_job_and_its_end(self):
        notice = self.folder / "told"
        command = f'echo "$BERTH_JOB|$BERTH_JOB_NAME|$BERTH_JOB_STATE|$BERTH_JOB_STATUS|$BERTH_JOB_REASON|$BERTH_JOB_FOLDER" ' \
                  f'> {notice}.part; mv {notice}.part {notice}'
        for options, script, words in (((), "exit 7", ("failed", "7", "failed after .*: ended with status 7")),
                                       (("--mem", "81G"), "true", ("refused", "3", "was refused: .*")),
                                       (("--time", "200ms"), "sleep 600", ("timed_out", "143", "timed out after 200 ms"))):
            job = self.job("-q", "--name", "train", *options, "--notify", command, "--", "sh", "-c", script)
            self.until(notice.exists)
            self.assertRegex(notice.read_text(), "^" + r"\|".join((job, "train", *words)) + r"\|\n$")
            notice.unlink()
        failed = self.job("-q", "--", "false")
        job = self.job("-q", "--after", failed, "--notify", command, "--", "true")
        self.until(notice.exists)
        self.assertRegex(notice.read_text(), rf"^{job}\|\|skipped\|\|was skipped because ", "a skipped job has no status")
        notice.unlink()
        slow = self.job("-q", "--notify", f"echo wrong >&2; {self.gate()[1]}; touch {notice}", "--", "true")
        self.assertEqual(self.berth("wait", slow).returncode, 0, "nothing waits for the notification")
        self.until(lambda: (self.folder_of(slow) / "notify").read_text() == "wrong\n", "what it prints is kept")
        self.assertEqual(self.berth("logs", slow).stdout, "", "the notification's output is not the job's")
        self.gate()[0].touch()
        self.until(notice.exists)

    def test_a_job_is_run_again_as_it_was(self):
        flag, output = self.folder / "flag", self.folder / "log"
        script = f"echo $PWD $0 $BERTH_MEMORY_BYTES $TOKEN; test -e {flag}"
        answer = subprocess.run([BERTH, "run", "-d", "-q", "--name", "train", "--mem", "3G", "--retries", "0", "--output", "log", "--", "sh", "-c", script, b"a\xffb c"],
                                cwd=self.folder, capture_output=True, env=self.environment(TOKEN="first"), timeout=60)
        first = answer.stdout.decode().strip()
        self.assertEqual(self.berth("wait", first).returncode, 1)
        self.assertNotIn(b"first", (self.folder_of(first) / "order.json").read_bytes(), "the environment is not kept")
        flag.touch()
        second, = self.ids("train", verb=("rerun",), TOKEN="second")
        self.assertEqual(self.berth("wait", second).returncode, 0)
        line = f"{self.folder} ".encode() + b"a\xffb c " + str(3 * GIB).encode()
        self.assertEqual(output.read_bytes().replace(b"berth: the job failed", b"#").splitlines()[0], line + b" first")
        self.assertEqual(output.read_bytes().splitlines()[-1], line + b" second")
        before, after = self.jobs()[first], self.jobs()[second]
        for key in ("name", "command", "options", "memory_bytes"):
            self.assertEqual(after[key], before[key], key)
        listed = json.loads(self.berth("rerun", "--json", second).stdout)["jobs"]
        self.assertEqual([pathlib.Path(job["folder"]).name for job in listed], [job["job"] for job in listed])
        running = self.job("-q", "--", "sleep", "600")
        self.assertRefused(self.berth("rerun", running), 2, f"{running} has not ended", f"berth stop {running}")
        (self.folder_of(second) / "order.json").unlink()
        self.assertRefused(self.berth("rerun", second), 2, f"options of job {second} were not kept", "berth run -d")
        self.assertRefused(self.berth("rerun", "j99"), 2, "there is no job 'j99'")

    def test_who_follows_a_waiting_job_sees_what_it_waits_for(self):
        gate, script = self.gate()
        self.job("-q", "--mem", "60G", "-n", "2", "--name", "first", "--", "sh", "-c", script)
        self.until_state("j1", "running")
        job = self.job("-q", "--mem", "60G", "--", "echo", "hello")
        self.until(lambda: self.jobs()[job].get("reason", "").startswith("place 1"))
        self.assertRegex(self.berth("logs", job).stderr, f"^berth: {job} is waiting: place 1 in line: .*60.0 GiB")
        follower = self.start("logs", "-f", job)
        self.assertRegex(follower.stderr.readline(), f"^berth: {job} is waiting: place 1 in line: .*60.0 GiB")
        gate.touch()
        self.assertEqual(follower.communicate(timeout=60)[0], "hello\n")

    def test_options_of_jobs_are_refused_without_d(self):
        for option in (("--name", "x"), ("--after", "j1"), ("--after-any", "j1"), ("--begin", "2h"), ("--array", "1-2"), ("--retries", "1"),
                       ("--output", "x"), ("--notify", "true"), ("--json",)):
            self.assertRefused(self.berth("run", *option, "--", "true"), 2, f"{option[0]} works only for jobs", "add -d")
        self.assertRefused(self.berth("run", "-d", "--after-any", "j99", "--", "true"), 2, "there is no job 'j99'")


if __name__ == "__main__":
    unittest.main()
