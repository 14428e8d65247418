"""Jobs (berth run -d) with real processes and real faults, on scripted GPUs."""
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import stat
import subprocess
import time
import unittest

from berth_case import BERTH, BERTH_WORD, GIB, may_mount, user_name
from jobs_case import JobsCase


class Jobs(JobsCase):
    def test_a_job_runs_on_by_itself_and_its_output_and_status_are_kept(self):
        job = self.job("--mem", "20G", "--name", "greeting", "--", "sh", "-c", "echo out; echo err >&2; echo $BERTH_JOB; exit 0")
        self.assertEqual(self.berth("wait", job).returncode, 0)
        log = self.berth("logs", job).stdout
        self.assertEqual([line for line in log.splitlines() if not line.startswith("berth: ")], ["out", "err", job])
        self.assertIn("20.0 GiB of 80.0 GiB", log)
        self.assertEqual(self.berth("logs", "greeting").stdout, log, "logs accepts the job's name")
        ended = self.jobs()[job]
        self.assertEqual((ended["state"], ended["status"], ended["attempts"], ended["name"]), ("done", 0, 1, "greeting"))
        self.assertEqual(ended["command"][:2], ["sh", "-c"])
        self.assertIn(ended["devices"][0], self.gpus())
        self.assertEqual(self.ps(), [], "its lease has ended")
        text = self.berth("ps", "-a").stdout
        self.assertRegex(text, r"ID +NAME +USER +STATE +GPUS +DEVICES +USED/PROMISED +PID +TIME +COMMAND")
        self.assertRegex(text, rf"(?m)^{job} +greeting +{user_name()} +done +0 ")
        failing = self.job("--mem", "1G", "--", "sh", "-c", "exit 7")
        answer = self.berth("wait", failing)
        self.assertEqual(answer.returncode, 7)
        self.assertIn("ended with status 7", answer.stderr)

    def test_the_folder_is_the_users_and_has_no_environment(self):
        job = self.job("--mem", "1G", "--", "sh", "-c", "test ${#TOKEN} = 14", TOKEN="planted-secret")
        self.assertEqual(self.berth("wait", job).returncode, 0)
        folder = self.folder_of(job)
        self.assertEqual(stat.S_IMODE(folder.stat().st_mode), 0o700)
        for file in folder.iterdir():
            self.assertEqual(stat.S_IMODE(file.stat().st_mode) & 0o077, 0, file)
            self.assertNotIn("planted-secret", file.read_text(), file)

    def test_jobs_wait_in_line_as_long_as_they_must(self):
        first = self.job("--mem", "60G", "-n", "2", "--", "sleep", "600")
        self.until_state(first, "running")
        second = self.job("--mem", "60G", "--", "true")
        waiting = self.until(lambda: (now := self.jobs()[second]).get("reason", "").startswith("place 1") and now)
        self.assertEqual(waiting["state"], "waiting")
        third = self.job("--mem", "60G", "--", "true")
        reason = self.until(lambda: (now := self.jobs()[third].get("reason", "")).startswith("place 2") and now)
        self.assertEqual(reason, f"place 2 in line: behind {second}, which does not ask for more")
        self.assertEqual(self.berth("stop", third, first).returncode, 0)
        self.assertEqual(self.jobs()[first]["state"], "stopped")
        self.assertEqual(self.berth("wait", second).returncode, 0)
        refused = self.job("--mem", "81G", "--", "true")
        self.assertEqual(self.berth("wait", refused).returncode, 3, "a job that can never fit is refused")
        self.assertEqual(self.jobs()[refused]["state"], "refused")
        self.assertIn("81.0 GiB", self.berth("why", refused).stdout)

    def test_a_job_that_waits_can_be_stopped(self):
        held = self.hold("--mem", "60G", "-n", "2")
        job = self.job("--mem", "60G", "--", "true")
        self.until(lambda: self.jobs()[job].get("reason", "").startswith("place"))
        why = self.berth("why", job)
        self.assertEqual((why.returncode, why.stderr), (0, ""))
        self.assertIn(f"{job} is waiting at place 1 in line: ", why.stdout)
        self.assertEqual(self.berth("stop", job).returncode, 0)
        self.assertEqual(self.jobs()[job]["state"], "stopped")
        self.assertEqual([lease["state"] for lease in self.ps()], ["running"], "its place in the queue is free")
        held.communicate("")

    def test_one_after_the_other(self):
        gate = self.folder / "gate"
        first = self.job("--mem", "1G", "--", "sh", "-c", f"while ! test -e {gate}; do sleep 0.05; done")
        second = self.job("--mem", "1G", "--after", first, "--", "true")
        third = self.job("--mem", "1G", "--after", f"{first},{second}", "--", "sh", "-c", "exit 1")
        fourth = self.job("--mem", "1G", "--after", third, "--", "true")
        self.assertEqual(self.until_state(second, "waiting")["state"], "waiting")
        gate.touch()
        self.assertEqual(self.berth("wait", first, second).returncode, 0)
        self.assertEqual(self.berth("wait", third, fourth).returncode, 1)
        self.assertEqual([self.jobs()[job]["state"] for job in (first, second, third, fourth)], ["done", "done", "failed", "skipped"])
        self.assertIn(third, self.jobs()[fourth]["reason"])
        self.assertRefused(self.berth("run", "-d", "--after", "j99", "--", "true"), 2, "j99", "ps -a")

    def test_its_time_is_limited_and_what_it_started_ends_with_it(self):
        child = self.folder / "child"
        script = f"trap '' TERM; setsid sh -c 'echo $$ > {child}; exec sleep 600' & sleep 600 & wait; sleep 600"
        job = self.job("--mem", "1G", "--time", "1s", "--", "sh", "-c", script)
        began = time.monotonic()
        self.assertEqual(self.berth("wait", job).returncode, 1)
        self.assertLess(time.monotonic() - began, 40)
        self.assertEqual(self.jobs()[job]["state"], "timed_out")
        self.assertFalse(pathlib.Path(f"/proc/{child.read_text().strip()}").exists(), "the child with its own session was ended")
        self.assertEqual(self.ps(), [])

    def test_a_job_that_uses_more_than_it_asked_for_is_ended_and_the_peak_is_kept(self):
        pid = self.folder / "pid"
        self.machine.write_text(f"gpu memory=80GiB\nprocess gpu=0 pid_file={pid} bytes=45GiB\n")
        script = ("--", "sh", "-c", f"echo $$ > {pid}; exec sleep 600")
        watched = self.job("--mem", "40G", "--limit", "watch", *script)
        self.assertEqual(self.berth("wait", watched).returncode, 143)
        ended = self.jobs()[watched]
        self.assertEqual((ended["state"], ended["memory_bytes_peak"]), ("failed", 45 * GIB))
        self.assertIn("45.0 GiB of the 40.0 GiB", ended["reason"])
        pid.unlink()
        self.machine.write_text(f"gpu memory=80GiB\nprocess gpu=0 pid_file={pid} bytes=11GiB\n")
        modest = self.job("--mem", "40G", "--limit", "watch", *script)
        self.until(lambda: self.jobs()[modest].get("memory_bytes_peak") == 11 * GIB)
        self.assertIn(" 11.0/40.0 GiB ", self.berth("ps").stdout)

    def test_a_job_that_fails_is_tried_again(self):
        count = self.folder / "count"
        job = self.job("--mem", "1G", "--retries", "2", "--", "sh", "-c", f"echo x >> {count}; test $(wc -l < {count}) = 3")
        self.assertEqual(self.berth("wait", job).returncode, 0)
        self.assertEqual((self.jobs()[job]["attempts"], self.jobs()[job]["state"]), (3, "done"))

    def test_a_killed_supervisor_leaves_the_command_its_lease_and_in_the_end_unknown(self):
        go_on = self.folder / "go_on"
        job = self.job("--mem", "30G", "--", "sh", "-c", f"while ! test -e {go_on}; do sleep 0.05; done")
        running = self.until_state(job, "running")
        self.until(lambda: "pid" in self.jobs()[job])
        os.kill(running["supervisor"], signal.SIGKILL)
        self.until(lambda: "supervisor" not in self.jobs()[job])
        self.assertEqual(self.jobs()[job]["state"], "running")
        self.assertIn("the command is still running", self.jobs()[job]["reason"])
        self.assertEqual([lease["devices"][0]["memory_bytes_promised"] for lease in self.ps()], [30 * GIB])
        go_on.touch()
        self.assertEqual(self.until_state(job, "unknown")["state"], "unknown")
        self.assertEqual(self.ps(), [])
        # The same, ended with berth stop.
        other = self.job("--mem", "30G", "--", "sleep", "600")
        self.until(lambda: "pid" in self.jobs()[other])
        os.kill(self.jobs()[other]["supervisor"], signal.SIGKILL)
        self.until(lambda: "supervisor" not in self.jobs()[other])
        self.assertEqual(self.berth("stop", other).returncode, 0)
        self.until_state(other, "unknown")

    def test_nothing_of_the_caller_is_held(self):
        began = time.monotonic()
        answer = subprocess.run(f"x=$({BERTH_WORD} run -d --mem 1G -- sleep 600); echo got $x", shell=True, capture_output=True, text=True,
                                env=self.environment(), timeout=60)
        self.assertRegex(answer.stdout, r"^got j\d+\n$")
        self.assertLess(time.monotonic() - began, 30, "the shell did not wait for the job")
        job = self.until_state(answer.stdout.split()[1], "running")
        self.until(lambda: "pid" in self.jobs()[job["id"]])
        pid = self.jobs()[job["id"]]["pid"]
        self.assertEqual(os.getsid(pid), pid, "the job has its own session")
        self.assertEqual(os.readlink(f"/proc/{pid}/fd/0"), "/dev/null")

    def test_a_job_inside_a_job_or_a_lease_stands_by_itself(self):
        inner = f"{BERTH_WORD} run -d --mem 60G --name inner -- sleep 600"
        outer = self.job("--mem", "60G", "--", "sh", "-c", inner)
        self.assertEqual(self.berth("wait", outer).returncode, 0)
        running = self.until(lambda: next((job for job in self.jobs().values() if job.get("name") == "inner" and "pid" in job), None))
        self.assertEqual([lease["pid"] for lease in self.ps()], [running["supervisor"]], "the outer lease has ended")
        self.assertEqual(self.berth("stop", "inner").returncode, 0)
        answer = self.berth("run", "-q", "--mem", "60G", "-n", "2", "--", "sh", "-c", inner + " > /dev/null")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.until(lambda: any(job["state"] == "running" for job in self.jobs().values()), "it does not wait for the lease that it was started in")

    def test_output_is_bounded_and_nothing_moves(self):
        lines = "seq -f 'line %012.0f of many that this job writes without any pause' 1 1400000"
        job = self.job("-q", "--mem", "1G", "--", "sh", "-c", lines + "; sleep 1.5; echo last")
        self.assertEqual(self.berth("wait", job).returncode, 0)
        self.assertLess((self.folder_of(job) / "output").stat().st_blocks * 512, 65 << 20)
        first, *left = self.berth("logs", job).stdout.splitlines()
        self.assertRegex(first, r"^berth: \d+ bytes were removed here$")
        self.assertEqual(left.pop(), "last")
        numbers = [int(line.split()[1]) for line in left]
        self.assertEqual(numbers, list(range(numbers[0], 1400001)), "whole lines, in order, to the end")

    def test_callers_that_ignore_signals_and_odd_arguments(self):
        answer = subprocess.run([BERTH, "run", "-d", "-q", "--mem", "1G", "--", "sh", "-c", "exit 6", b"\xff"], capture_output=True,
                                env=self.environment(), timeout=60, restore_signals=False,
                                preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        job = answer.stdout.decode().strip()
        self.assertEqual(self.berth("wait", job).returncode, 6)
        self.assertIn(job, self.jobs())
        self.assertEqual(self.berth("run", "-d", "--retries", "-1", "--", "true").returncode, 2)

    def test_without_a_supervisor_stop_ends_what_ignores_it(self):
        job = self.job("-q", "--mem", "1G", "--", "sh", "-c", "trap '' TERM; while :; do sleep 0.1; done")
        self.until(lambda: "pid" in self.jobs()[job])
        os.kill(self.jobs()[job]["supervisor"], signal.SIGKILL)
        self.until(lambda: "supervisor" not in self.jobs()[job])
        self.assertEqual(self.berth("stop", job).returncode, 0)
        self.assertEqual(self.jobs()[job]["state"], "unknown")

    def test_without_a_supervisor_stop_ends_what_the_command_has_started(self):
        job = self.job("--mem", "20G", "--", "sh", "-c", '(trap "" TERM; exec sleep 781) & sleep 782')
        self.until_state(job, "running")
        self.until(lambda: self.sleeping("781"))
        os.kill(self.jobs()[job]["supervisor"], signal.SIGKILL)
        os.kill(self.jobs()[job]["pid"], signal.SIGKILL)
        self.until(lambda: "supervisor" not in self.jobs()[job])
        self.assertIn("it left processes running", self.until_state(job, "running")["reason"])
        self.assertEqual(self.berth("stop", job).returncode, 0)
        self.assertEqual((self.sleeping("781"), self.ps()), ([], []))
        self.assertEqual(self.jobs()[job]["state"], "unknown")

    def sleeping(self, seconds):
        """The processes of this test that sleep for that many seconds."""
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (folder / "cmdline").read_bytes() == f"sleep\0{seconds}\0".encode() and os.fsencode(self.folder) in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
        return found

    def test_a_job_that_ended_well_may_be_removed_while_others_are_awaited(self):
        flag = self.folder / "flag"
        first, second = self.job("--", "sh", "-c", f"until test -e {flag}; do sleep 0.1; done"), self.job("--", "true")
        last = self.job("--after", f"{first},{second}", "--", "true")
        self.assertEqual(self.berth("wait", second).returncode, 0)
        self.until(lambda: self.jobs()[last].get("reason") == f"it waits for {first}")
        self.assertEqual(self.berth("rm", second).returncode, 0)
        flag.touch()
        self.assertEqual(self.until_state(last, "done", "skipped")["state"], "done", self.jobs()[last])

    def test_a_job_of_another_container_is_neither_stopped_nor_removed_from_here(self):
        if not may_mount():
            self.skipTest("needs root, for a namespace")
        job = self.job("--", "sleep", "600")
        self.until_state(job, "running")
        inside = ("unshare", "-upf", "--mount-proc", "timeout", "20", "sh", "-c", 'hostname inner; exec "$@"', "sh")
        self.assertRefused(self.berth("stop", job, prefix=inside), 1, f"job {job} runs in another container, ", "stop it there")
        self.assertRefused(self.berth("rm", job, prefix=inside), 1, f"job {job} belongs to ", "berth rm --force")
        self.assertIn('"state": "running"', self.berth("ps", "-a", "--json", prefix=inside).stdout.replace('":"', '": "'))
        self.assertEqual(self.jobs()[job]["state"], "running")

    def test_a_job_inside_a_job_with_the_same_id_in_another_folder_goes_on(self):
        other = self.folder / "other"
        inner = f"BERTH_RUNTIME_DIR={other} {BERTH_WORD} run -d -q -- sleep 783"
        job = self.job("-q", "--", "sh", "-c", inner)
        self.assertEqual(self.berth("wait", job).returncode, 0)
        self.addCleanup(self.berth, "stop", "--all", BERTH_RUNTIME_DIR=str(other))
        self.assertEqual(self.berth("logs", job).stdout, f"{job}\n", "both jobs have the same id")
        found = json.loads(self.berth("ps", "-a", "--json", BERTH_RUNTIME_DIR=str(other)).stdout)["jobs"]
        self.assertIn(found[0]["state"], ("waiting", "running"))

    def test_a_running_job_whose_state_is_damaged_can_be_read_and_stopped(self):
        job = self.job("-q", "--", "sh", "-c", "echo said; exec sleep 784")
        self.until(lambda: self.sleeping("784"))
        (self.folder_of(job) / "state.json").write_text("{")
        self.assertEqual(self.berth("logs", job).stdout, "said\n")
        self.assertEqual(self.jobs()[job]["state"], "unreadable")
        waits = self.start("wait", "--all")
        self.assertRefused(self.berth("rm", "--force", job), 1, f"job {job} has not ended")
        self.assertIsNone(waits.poll())
        self.assertEqual(self.berth("stop", "--all").returncode, 0)
        self.assertEqual((self.sleeping("784"), self.ps()), ([], []))
        self.assertEqual(self.jobs()[job]["state"], "stopped")
        waits.communicate(timeout=30)

    def test_folders_are_made_with_the_rights_that_they_need(self):
        home = self.folder / "home"
        home.mkdir()
        where = {"XDG_STATE_HOME": str(home / "a/state"), "HOME": str(home), "BERTH_RUNTIME_DIR": ""}
        env = {name: value for name, value in self.environment(**where).items() if name != "BERTH_RUNTIME_DIR"}
        answer = subprocess.run(["sh", "-c", f"umask 177; exec {BERTH_WORD} run -d --json -- true"], env=env, capture_output=True, text=True, timeout=60)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        folder = pathlib.Path(json.loads(answer.stdout)["folder"])
        self.assertEqual(folder, home / "a/state/berth/jobs/j1")
        self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
        subprocess.run([BERTH, "wait", "j1"], env=env, timeout=60)

    def test_a_status_is_that_of_the_attempt_that_is_shown(self):
        flag = self.folder / "flag"
        job = self.job("--retries", "1", "--", "sh", "-c", f"test -e {flag} && exec sleep 600; touch {flag}; exit 7")
        now = self.until(lambda: (now := self.jobs()[job])["attempts"] == 2 and now)
        self.assertEqual((now["state"], now.get("status")), ("running", None))

    def test_a_stopped_supervisor_hears_of_the_end(self):
        job = self.job("-q", "--mem", "1G", "--", "sleep", "600")
        self.until(lambda: "pid" in self.jobs()[job])
        os.kill(self.jobs()[job]["supervisor"], signal.SIGSTOP)
        self.assertEqual(self.berth("stop", job).returncode, 0)
        self.assertEqual(self.jobs()[job]["state"], "stopped")

    @unittest.skipUnless(may_mount(), "mounts a small disk")
    def test_a_full_disk_hides_neither_the_end_of_a_job_nor_its_status(self):
        self.runtime.mkdir(mode=0o700)
        script = f"""mount -t tmpfs -o mode=700,size=4m none {self.runtime}
            {BERTH_WORD} run -d -q --mem 60G -- sh -c 'head -c 8M /dev/zero > {self.runtime}/fill 2> /dev/null; exit 5'
            {BERTH_WORD} wait j1; echo $?
            df --output=avail {self.runtime} | tail -1
            for _ in $(seq 50); do
              listed=$({BERTH_WORD} ps -a --json)
              case "$listed" in *'"leases":[]'*) break;; esac
              sleep 0.1 # the supervisor gives the lease back after it has told of the end
            done
            echo "$listed"
            {BERTH_WORD} rm j1; echo $?"""
        answer = subprocess.run(["unshare", "-m", "--propagation", "private", "sh", "-c", script], capture_output=True, text=True,
                                env=self.environment(), timeout=60)
        job, waited, available, listed, removed = answer.stdout.splitlines()
        self.assertEqual((job, waited, available.strip(), removed), ("j1", "5", "0", "0"), answer.stderr)
        listed = json.loads(listed)
        self.assertEqual(listed["leases"], [], "the lease has ended")
        self.assertEqual((listed["jobs"][0]["state"], listed["jobs"][0]["status"]), ("failed", 5))

    def test_a_command_whose_supervisor_was_killed_outlives_the_job_that_it_was_started_in(self):
        gate = self.folder / "gate"
        inner = f"{BERTH_WORD} run -d -q --mem 30G --name inner -- sleep 600"
        outer = self.job("-q", "--mem", "20G", "--", "sh", "-c", f"{inner}; while ! test -e {gate}; do sleep 0.05; done")
        running = self.until(lambda: next((job for job in self.jobs().values() if job.get("name") == "inner" and "pid" in job), None))
        os.kill(running["supervisor"], signal.SIGKILL)
        gate.touch()
        self.assertEqual(self.berth("wait", outer).returncode, 0)
        self.assertEqual(self.jobs()[running["id"]]["state"], "running")
        self.assertEqual([lease["devices"][0]["memory_bytes_promised"] for lease in self.ps()], [30 * GIB])
        self.assertEqual(self.berth("stop", "inner").returncode, 0)

    def test_killed_at_any_moment_nothing_is_held_and_every_job_is_accounted_for(self):
        seed = random.randrange(1 << 32)
        chance = random.Random(seed)
        for _ in range(24):
            starter = self.start("run", "-d", "-q", "--mem", "60G", "--", "sleep", "0.05")
            if chance.random() < 0.3:
                time.sleep(chance.uniform(0, 0.1))
                starter.kill()
            job = starter.communicate()[0].strip()
            if not job:
                continue
            time.sleep(chance.uniform(0, 0.4))
            supervisor = self.jobs()[job].get("supervisor")
            if supervisor and chance.random() < 0.7:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(supervisor, signal.SIGKILL)
        self.berth("wait", "--all")
        self.until(lambda: not self.ps(), f"no lease stays; seed {seed}")
        for job in self.jobs().values():
            self.assertIn(job["state"], ("done", "unknown", "unreadable"), f"seed {seed}")
            self.assertTrue(job["state"] != "unreadable" or "job.json" in job["reason"], f"{job}, seed {seed}")
        self.assertEqual(self.berth("rm", "--ended", "--force").returncode, 0, f"seed {seed}")
        self.assertEqual(self.jobs(), {}, f"seed {seed}")

    def test_a_job_that_waits_ends_when_its_folder_was_removed(self):
        held, ran = self.hold("--mem", "60G", "-n", "2"), self.folder / "ran"
        job = self.job("-q", "--mem", "60G", "--", "touch", str(ran))
        supervisor = self.until(lambda: (now := self.jobs()[job]).get("reason", "").startswith("place") and now)["supervisor"]
        shutil.rmtree(self.folder_of(job))
        held.communicate("")
        self.until(lambda: not pathlib.Path(f"/proc/{supervisor}").exists() or
                   pathlib.Path(f"/proc/{supervisor}/stat").read_text().split()[2] == "Z")
        self.until(lambda: not self.ps(), "its lease ends")
        self.assertFalse(ran.exists())

    def test_jobs_wait_in_the_order_in_which_they_were_asked_for(self):
        self.hold("--mem", "60G", "-n", "2")
        slow = self.folder / "slow.txt"
        slow.write_text(self.script + "delay nvmlInit_v2 for=2s\n")
        first = self.job("-q", "--mem", "60G", "--", "sleep", "600", BERTH_DOUBLE=str(slow))  # its supervisor joins the queue last
        second = self.job("-q", "--mem", "60G", "--", "sleep", "600")
        self.until(lambda: all(self.jobs()[job].get("reason", "").startswith("place") for job in (first, second)), "both wait in line")
        self.until(lambda: [self.jobs()[job]["reason"].split()[1] for job in (first, second)] == ["1", "2"])

    def test_two_of_everything_at_once(self):
        jobs = [self.job("-q", "--mem", "1G", "--name", "same", "--", "sleep", "600") for _ in range(4)]
        for verb, status in (("stop", {0}), ("wait", {1}), ("rm", {0, 2})):
            both = [self.start(verb, *jobs) for _ in range(2)]
            answers = [(process.communicate()[1], process.returncode) for process in both]
            self.assertLessEqual({code for _, code in answers}, status, (verb, answers))
        self.assertEqual(os.listdir(self.folder_of("j1").parent), ["last"])

    def test_two_at_once_have_different_ids(self):
        processes = [self.start("run", "-d", "--mem", "1G", "--", "true") for _ in range(12)]
        ids = [process.communicate()[0].strip() for process in processes]
        self.assertEqual(len(set(ids)), 12, ids)
        self.assertEqual(self.berth("wait", *ids).returncode, 0)


if __name__ == "__main__":
    unittest.main()
