"""Jobs as berth ps, logs, why and rm show them, also those that cannot be read."""
import json
import os
import re
import shutil
import subprocess
import time
import unittest

from berth_case import BERTH, user_name
from jobs_case import JobsCase


class Shown(JobsCase):
    def test_logs_follow_until_the_end(self):
        job = self.job("-q", "--mem", "1G", "--", "sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.3; done")
        self.assertEqual(self.berth("logs", "-f", job).stdout, "1\n2\n3\n")

    def test_logs_do_not_control_the_terminal_of_their_reader(self):
        written = "\033[1;31mred\033[0m \033]52;c;cm0gLXJm\a\033[2J 10 %\r20 %\rJürgen\n"
        job = self.job("-q", "--mem", "1G", "--", "printf", "%s", written)
        self.assertEqual(self.berth("wait", job).returncode, 0)
        for follow in ((), ("-f",)):
            self.assertEqual(subprocess.run([BERTH, "logs", *follow, job], capture_output=True, env=self.environment()).stdout.decode(), written,
                             "a file or a pipe gets all of it")
            shown, status = self.on_terminal(100, "logs", *follow, job)
            self.assertEqual((shown, status), ("\033[1;31mred\033[0m \\x1b]52;c;cm0gLXJm\\x07\\x1b[2J 10 %\r20 %\rJürgen\r\n", 0))

    def test_logs_say_why_a_job_never_ran(self):
        failed = self.job("-q", "--mem", "1G", "--", "false")
        self.assertEqual(self.berth("wait", failed).returncode, 1)
        job = self.job("-q", "--mem", "1G", "--after", failed, "--", "echo", "never")
        self.berth("wait", job)
        for follow in ((), ("-f",)):
            answer = self.berth("logs", *follow, job)
            self.assertEqual((answer.returncode, answer.stdout), (0, f"berth: the job was skipped because {failed} failed\n"))
        silent = self.job("-q", "--mem", "1G", "--", "true")
        self.assertEqual(self.berth("wait", silent).returncode, 0)
        self.assertEqual(self.berth("logs", silent).stderr, "", "a job that ran without output has no message")

    def test_jobs_that_have_ended_can_be_removed_and_others_not(self):
        ended, running = self.job("--mem", "1G", "--", "true"), self.job("--mem", "1G", "--", "sleep", "600")
        self.assertEqual(self.berth("wait", ended).returncode, 0)
        self.until_state(running, "running")
        self.assertRefused(self.berth("rm", running), 1, "has not ended", "berth stop")
        self.assertEqual(self.berth("rm", "--ended").returncode, 0)
        self.assertEqual(list(self.jobs()), [running])
        self.assertFalse(self.folder_of(ended).exists())

    def test_wrong_input(self):
        self.assertRefused(self.berth("run", "-d"), 2, "no command")
        self.assertRefused(self.berth("run", "-d", "--mem", "20", "--", "true"), 2, "20G")
        self.assertRefused(self.berth("run", "-d", "--mem", "1G", "--", "no-such-command"), 127, "no-such-command")
        for option in (("--name", "x"), ("--after", "j1"), ("--retries", "1"), ("--json",)):
            self.assertRefused(self.berth("run", *option, "--", "true"), 2, "for jobs", "-d")
        for name in ("17", "j17", "a b", "../x", "x\x1b[2J", "-x", "..", "_x"):
            self.assertRefused(self.berth("run", "-d", f"--name={name}", "--", "true"), 2, "not a valid job name")
        self.assertRefused(self.berth("run", "-d", "--time", "0s", "--", "true"), 2, "--time")
        self.assertRefused(self.berth("run", "--limit", "watch", "--mem", "1G", "--", "true"), 2, "works only for jobs", "add -d")
        for verb in ("logs", "wait", "stop", "rm", "why"):
            self.assertRefused(self.berth(verb, "j7"), 2, "there is no job 'j7'", "berth ps -a")
        for verb in ("wait", "stop", "rm"):
            self.assertRefused(self.berth(verb), 2, "no job was named")
        self.assertEqual(self.jobs(), {}, "none of these is a job")

    def test_jobs_that_cannot_be_read_are_listed_with_the_reason_and_removed_by_force(self):
        self.assertEqual(self.berth("wait", self.job("-q", "--mem", "1G", "--", "true")).returncode, 0)
        outside = self.folder / "outside"
        shutil.copytree(self.folder_of("j1"), outside)
        for number in range(2, 8):
            shutil.copytree(outside, self.folder_of(f"j{number}"))
        (self.folder_of("j2") / "job.json").write_text("{")
        (self.folder_of("j3") / "state.json").unlink()
        os.mkfifo(self.folder_of("j3") / "state.json")
        (self.folder_of("j4") / "job.json").unlink()
        (self.folder_of("j4") / "job.json").symlink_to(outside / "job.json")
        self.folder_of("j5").rename(self.folder / "moved")
        self.folder_of("j5").symlink_to(outside)
        (self.folder_of("j6") / "job.json").unlink()
        os.utime(self.folder_of("j6"), (0, 0))
        self.folder_of("j8").write_text("a file")
        # A job of a machine that no longer exists.
        asked = json.loads((outside / "job.json").read_text())
        (self.folder_of("j7") / "job.json").write_text(json.dumps({**asked, "machine": "gone", "boot": "gone"}))
        state = json.loads((outside / "state.json").read_text())
        (self.folder_of("j7") / "state.json").write_text(json.dumps({**state, "state": "running"}))
        listed = self.jobs()
        reasons = {"j2": "not JSON", "j3": "is not a file", "j4": "symbolic link", "j5": "is not a folder", "j6": "job.json", "j8": "is not a folder"}
        for job, reason in reasons.items():
            self.assertEqual(listed[job]["state"], "unreadable", job)
            self.assertIn(reason, listed[job]["reason"])
            self.assertRegex(self.berth("rm", job).stderr, "berth rm --force")
            self.assertEqual(self.berth("logs", job).returncode == 0, job == "j3", "the output of j3 can be read without its state")
        self.assertRegex(self.berth("ps", "-a").stdout, "! j2: .*not JSON")
        self.assertEqual(self.berth("rm", "--ended").returncode, 0)
        self.assertEqual(set(self.jobs()), {*reasons, "j7"}, "an unreadable job may not have ended")
        self.assertRefused(self.berth("rm", "j7"), 1, "belongs to gone", "berth rm --force j7")
        self.assertEqual(self.berth("rm", "--force", "j7", *reasons).returncode, 0)
        self.assertEqual(os.listdir(self.folder_of("j1").parent), ["last"])
        self.assertTrue((outside / "job.json").exists(), "a link is removed, not what it points to")
        running = self.job("-q", "--mem", "1G", "--", "sleep", "600")
        self.until_state(running, "running")
        self.assertRefused(self.berth("rm", "--force", running), 1, "has not ended", "berth stop")

    def test_a_narrow_terminal_shows_whole_reasons(self):
        self.hold("-n", "2")
        job = self.job("--name", "tooearly", "--mem", "40G", "-n", "2", "--", "true")
        reason = self.until(lambda: (now := self.jobs()[job].get("reason", "")).startswith("place") and now)
        shown, status = self.on_terminal(80, "ps")
        self.assertEqual(status, 0)
        self.assertRegex(shown, r"(?m)^! j1 tooearly: needs 2 devices with 40\.0 GiB each; ")
        words = reason.split(" in line: ")[1].split()
        self.assertIn(" ".join(words), " ".join(shown.split()), "the command is shown completely")
        self.assertLessEqual(max(len(line.rstrip()) for line in re.sub(r"\x1b\[[\d;]*m", "", shown).splitlines()), 80, shown)
        self.assertNotRegex(shown, r"GPU-[0-9a-f]{8}-", "ids are short")

    def test_a_job_and_its_lease_are_one_row(self):
        running = self.job("-q", "--name", "train", "--mem", "40G", "--device", "cuda:0", "--", "sleep", "604")
        self.until_state(running, "running")
        held = self.hold("--mem", "10G", "--device", "cuda:1")
        waiting = self.job("-q", "--name", "next", "--mem", "60G", "--device", "cuda:0", "--", "sleep", "605")
        self.until(lambda: self.jobs()[waiting].get("reason", "").startswith("place"))
        after = self.job("-q", "--after", running, "--", "sleep", "606")
        self.until(lambda: "it waits for" in self.jobs()[after].get("reason", ""))
        page = json.loads(self.berth("ps", "--json").stdout)
        self.assertEqual({lease.get("job"): lease["state"] for lease in page["leases"]}, {running: "running", None: "running", waiting: "waiting"})
        self.assertEqual([lease.get("command_pid") for lease in page["leases"]],
                         [self.jobs()[running]["pid"] if lease.get("job") == running else None for lease in page["leases"]])
        number = next(str(lease["id"]) for lease in page["leases"] if "job" not in lease)
        table = self.berth("ps").stdout.split("\n\n")[0].splitlines()[1:]
        self.assertEqual([row.split()[0] for row in table], [number, running, waiting, after], table)
        whole = {row.split()[0]: row for row in table}
        self.assertRegex(whole[running], rf"train +{user_name()} +running +0 .*40\.0 GiB .* sleep 604$")
        self.assertRegex(whole[number], rf"running +1 .*10\.0 GiB +{held.command_pid} .* sh -c 'echo .*read line'$", "a command of this user, with its arguments")
        self.assertRegex(whole[waiting], r"next .*waiting #1 +any 1 .*60\.0 GiB .* sleep 605$")
        self.assertEqual(self.berth("stop", after, waiting, running).returncode, 0)

    def test_why_explains_what_a_job_waits_for(self):
        self.machine.write_text(f"gpus 4 memory=80GiB\nprocess gpu=3 pid={os.getpid()} bytes=30GiB\n")
        own = [self.job("-q", "--name", f"own{gpu}", "--time", f"{9 - gpu}h", "--device", f"cuda:{gpu}", "--", "sleep", "608") for gpu in range(3)]
        for job in own:
            self.until_state(job, "running")
        waiting = self.job("-q", "--name", "next", "--", "sleep", "609")
        reason = self.until(lambda: (now := self.jobs()[waiting].get("reason", "")).startswith("place 1 in line") and now)
        self.assertIn("every suitable device is held exclusively", reason, "the reason of most devices, not the process on the fourth")
        answer = self.berth("why", "next")
        self.assertEqual((answer.returncode, answer.stderr), (0, ""))
        text = " ".join(answer.stdout.split())
        self.assertIn(f"{waiting} (next) is waiting at place 1 in line: every suitable device is held exclusively", text)
        for words in ("4 devices -> ", "in the way:", "each of these changes alone would let it start", "next: "):
            self.assertIn(words, text)
        for gpu, job in enumerate(own):
            self.assertRegex(answer.stdout, rf"(?m)^cuda:{gpu} +you .* all .*{job} \(own{gpu}\): sleep$")
        self.assertRegex(answer.stdout, rf"(?m)^cuda:3 +you +{os.getpid()} +30.0 GiB .*python")
        self.assertRegex(answer.stdout, rf"(?m)^wait for the processes .* end process {os.getpid()} \(30\.0 GiB\)$")
        self.assertRegex(text, rf"it starts by \S+ \S+, when {own[2]} \(own2\) reaches its time limit, if nothing else takes the devices")
        known = json.loads(self.berth("why", waiting, "--json").stdout)
        self.assertEqual((known["job"], known["state"], known["place"], known["explanation"]["cause"]), (waiting, "waiting", 1, "held_exclusively"))
        self.assertEqual(known["starts_by_us"], self.jobs()[own[2]]["started_us"] + 7 * 3600 * 1_000_000)
        self.assertEqual([device["held_by"][0]["user"] for device in known["in_the_way"][:3]], 3 * ["you"])
        # A lease with the same number in another file of the ledger is not this job's.
        state = self.folder_of(own[0]) / "state.json"
        text = state.read_text()
        file, number = json.loads(text)["lease"].split(":")
        state.write_text(text.replace(f'"{file}:{number}"', f'"{int(file, 16) ^ 1:x}:{number}"'))
        self.assertRegex(self.berth("why", waiting).stdout, r"(?m)^cuda:0 +you .* all .*(?<!: )sleep$")
        state.write_text(text)
        shown, _ = self.on_terminal(80, "why", waiting)
        self.assertLessEqual(max(len(line.rstrip()) for line in shown.splitlines()), 80, shown)
        # A job without a time limit is ahead of the second.
        both = self.job("-q", "-n", "4", "--", "sleep", "610")
        self.until(lambda: "place 2 in line" in self.jobs()[both].get("reason", ""))
        self.assertIn("its start cannot be estimated", " ".join(self.berth("why", both).stdout.split()))
        after = self.job("-q", "--after", own[0], "--", "true")
        self.until(lambda: "it waits for" in self.jobs()[after].get("reason", ""))
        answer = self.berth("why", after)
        self.assertEqual((answer.returncode, answer.stderr), (0, ""))
        self.assertRegex(" ".join(answer.stdout.split()), rf"^{after} is waiting: it waits for {own[0]} \(own0\) {own[0]} \(own0\) is running; it ends by \S+ \S+ next: berth logs -f {own[0]}$")
        self.assertEqual(json.loads(self.berth("why", after, "--json").stdout), {"job": after, "state": "waiting", "reason": f"it waits for {own[0]} (own0)"})

    def test_why_names_the_request_ahead_that_alone_keeps_a_job_waiting(self):
        self.machine.write_text(f"gpus 2 memory=80GiB\nprocess gpu=1 pid={os.getpid()} bytes=10GiB\n")
        holder = self.job("-q", "--mem", "60G", "--device", "cuda:0", "--", "sleep", "611")
        self.until_state(holder, "running")
        large = self.job("-q", "--name", "large", "--mem", "60G", "-n", "2", "--", "sleep", "612")
        self.until(lambda: "place 1 in line" in self.jobs()[large].get("reason", ""))
        small = self.job("-q", "--mem", "30G", "--device", "cuda:1", "--", "sleep", "613")
        self.until(lambda: "place 2 in line" in self.jobs()[small].get("reason", ""))
        text = " ".join(self.berth("why", small).stdout.split())
        self.assertIn(f"in the way: {large} (large) at place 1 is ahead of it in line and is served first", text)
        self.assertEqual(json.loads(self.berth("why", small, "--json").stdout)["ahead"], f"{large} (large) at place 1")
        self.assertNotIn("in the way: j", " ".join(self.berth("why", large).stdout.split()), "a lease, not a request, blocks it")

    def test_a_job_behind_a_reserved_device_names_the_job_and_what_lets_it_start(self):
        self.machine.write_text(f"gpus 4 memory=80GiB\nprocess gpu=1 pid={os.getpid()} bytes=30GiB\n")
        for gpu, amount in enumerate((75, 42, 75, 40)):
            self.until_state(self.job("-q", "--name", f"holds{gpu}", "--mem", f"{amount}G", "--device", f"cuda:{gpu}", "--", "sleep", "614"), "running")
        blocked = self.job("-q", "--name", "blocked", "--mem", "70G", "--", "sleep", "615")
        reason = self.until(lambda: "place 1 in line" in (now := self.jobs()[blocked].get("reason", "")) and now)
        self.assertIn("(largest: 40.0 GiB on GPU-", reason)
        small = self.job("-q", "--mem", "10G", "--", "sleep", "616")
        reason = self.until(lambda: "place 2 in line" in (now := self.jobs()[small].get("reason", "")) and now)
        self.assertRegex(reason, rf"every device with room is reserved for earlier requests \(GPU-\w+: reserved for {blocked} \(blocked\)\)")
        behind = self.job("-q", "--mem", "10G", "--", "sleep", "617")
        reason = self.until(lambda: "place 3 in line" in (now := self.jobs()[behind].get("reason", "")) and now)
        self.assertEqual(reason, f"place 3 in line: behind {small}, which does not ask for more")
        text = self.berth("why", small).stdout
        self.assertIn("every device with room is reserved for earlier requests", " ".join(text.split()))
        self.assertRegex(text, rf"(?m)^go ahead of your own job {blocked} \(blocked\) +--priority high$")
        self.assertRegex(text, rf"(?m)^stop your own job {blocked} \(blocked\) +berth stop {blocked}$")
        self.assertIn(f"{blocked} (blocked) at place 1 is ahead of it", " ".join(text.split()))
        self.assertRegex(self.berth("devices").stdout, rf"(?m)^cuda:0 +{user_name()} +{self.jobs()['j1']['pid']} .* j1 \(holds0\): sleep$")
        urgent = self.job("-q", "--mem", "10G", "--priority", "high", "--", "sleep", "618")
        self.until_state(urgent, "running")
        self.assertEqual(self.berth("stop", blocked).returncode, 0)
        self.until_state(small, "running")

    def test_a_job_that_gives_up_says_how_long_it_waited(self):
        self.hold("--mem", "60G", "-n", "2")
        job = self.job("--mem", "60G", "--wait", "1s", "--", "true")
        self.assertEqual(self.berth("wait", job).returncode, 3)
        log = self.berth("logs", job).stdout
        self.assertRegex(log, rf"(?m)^berth: no device has 60\.0 GiB free, .*; see berth why {job}$")
        self.assertRegex(log, r"(?m)^berth: the job was refused after waiting 1 s \(--wait\): no device has 60\.0 GiB free, ")
        self.assertNotRegex(log, r"GPU-[0-9a-f]{8}-", "ids are short")

    def test_why_says_that_load_decided(self):
        self.machine.write_text("gpus 2 memory=80GiB\nprocess gpu=0 pid=4194711 bytes=30GiB\nprocess gpu=1 pid=4194712 bytes=10GiB\n")
        self.assertEqual(self.berth("pick", "--mem", "1G").stdout.strip(), self.gpus()[1])
        self.assertRegex(self.berth("why").stdout, r"(?m)^GPU-\S+ +runner-up .* others use it more than GPU-\S+$")

    def test_rows_are_selected_by_state_time_and_number(self):
        self.assertEqual(self.berth("wait", *(self.job("-q", "--mem", "1G", "--", "true") for _ in range(2))).returncode, 0)
        failed, running = self.job("-q", "--mem", "1G", "--", "false"), self.job("-q", "--mem", "1G", "--", "sleep", "607")
        self.berth("wait", failed)
        self.until_state(running, "running")
        self.hold("--mem", "1G")
        state = self.folder_of("j1") / "state.json"
        long_ago = json.loads(state.read_text())
        long_ago.update(started_us=1_000_000, ended_us=2_000_000)
        state.write_text(json.dumps(long_ago))

        def listed(*options):
            answer = self.berth("ps", "--json", *options)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            page = json.loads(answer.stdout)
            jobs = [job["id"] for job in page["jobs"]]
            text = self.berth("ps", *options).stdout.split("\n\n")[0].splitlines()[1:]
            self.assertEqual(sorted(row.split()[0] for row in text if row.startswith("j")), jobs, "the table has the same jobs")
            return jobs, len(page["leases"])
        self.assertEqual(listed(), ([running], 2))
        self.assertEqual(listed("--all"), (["j1", "j2", failed, running], 2))
        self.assertEqual(listed("--state", "failed"), ([failed], 0))
        self.assertEqual(listed("--state", "running,done"), (["j1", "j2", running], 2))
        self.assertEqual(listed("--last", "2"), ([failed, running], 1))
        self.assertEqual(listed("--since", "1h"), (["j2", failed, running], 2))
        self.assertEqual(listed("--state", "waiting"), ([], 0))
        self.assertEqual(self.berth("ps", "--state", "waiting").stdout, "there is nothing to list\n")
        for options, words in ((("--state", "runing"), "'runing' is not a state; did you mean running?"), (("--state", "x"), "the states are pool"),
                               (("--last", "0"), "--last"), (("--since", "25:00"), '"25:00" is not a time'), (("--since", "2126-01-01T08:00"), "is in the future")):
            self.assertRefused(self.berth("ps", *options), 2, words)

    def test_two_hundred_jobs_are_one_screen_of_a_terminal(self):
        self.assertEqual(self.berth("wait", self.job("-q", "--mem", "1G", "--", "true")).returncode, 0)
        state = json.loads((self.folder_of("j1") / "state.json").read_text())
        state.update(state="waiting", reason="place 9 in line: no device has room")
        asked = json.loads((self.folder_of("j1") / "job.json").read_text())
        for number in range(2, 202):
            shutil.copytree(self.folder_of("j1"), self.folder_of(f"j{number}"))
            (self.folder_of(f"j{number}") / "state.json").write_text(json.dumps(state))
            # Jobs of a machine that is not visible from here: they have no supervisor.
            (self.folder_of(f"j{number}") / "job.json").write_text(json.dumps({**asked, "machine": "elsewhere", "boot": "x"}))
        shown, _ = self.on_terminal(80, "ps", rows=24)
        self.assertLess(len(shown.splitlines()), 24, shown)
        self.assertRegex(shown, r"(?m)^1\d\d more waiting: berth ps --all\r?$")
        for options in ((), ("--state", "waiting")):
            self.assertEqual(self.berth("ps", *options).stdout.count("\nj"), 200, "a pipe gets all of them")
        took = []
        for _ in range(5):
            began = time.monotonic()
            self.berth("ps")
            took.append(time.monotonic() - began)
        self.assertQuick(min(took), 0.1, "200 jobs are listed in at most 100 ms")

    def test_what_can_never_fit_is_not_explained_by_requests_ahead(self):
        self.hold("--mem", "10G")
        self.start("run", "-q", "--wait", "5m", "-n", "2", "--exclusive", "--", "true")
        self.until(lambda: any(lease["state"] == "waiting" for lease in self.ps()), "it stands in line")
        answer = self.berth("run", "--mem", "300G", "--", "true")
        self.assertRefused(answer, 3, "no device has 300.0 GiB in total", "even when idle")
        self.assertIn("ask for 80.0 GiB instead of 300.0 GiB", self.berth("why").stdout)

    def test_why_says_the_reason_when_the_record_is_gone(self):
        job = self.job("--mem", "81G", "--", "true")
        self.assertEqual(self.berth("wait", job).returncode, 3)
        shutil.rmtree(self.runtime / f"decisions-{os.geteuid()}")  # only the last 256 decisions are kept
        self.assertIn("81.0 GiB", self.berth("why", job).stdout)

    def test_commands_are_listed_whole_without_a_terminal_and_numbers_are_plain(self):
        script = "sleep 0.01; " + "echo a rather long command; " * 8
        job = self.job("-q", "--mem", "1G", "--", "sh", "-c", script)
        self.assertEqual(self.berth("wait", job).returncode, 0)
        self.assertIn(script, self.berth("ps", "-a").stdout)
        for text in (self.berth("ps", "-a", "--json").stdout, (self.folder_of(job) / "state.json").read_text()):
            self.assertRegex(text, r'"device_seconds":\d+\.\d+[,}]')

    def test_a_thousand_jobs_that_have_ended_are_listed_and_removed(self):
        self.assertEqual(self.berth("wait", self.job("-q", "--mem", "1G", "--", "true")).returncode, 0)
        for number in range(2, 1001):
            shutil.copytree(self.folder_of("j1"), self.folder_of(f"j{number}"))
        for arguments in (("ps",), ("ps", "-a"), ("logs", "j999"), ("rm", "--ended")):
            began = time.monotonic()
            self.assertEqual(self.berth(*arguments).returncode, 0)
            self.assertLess(time.monotonic() - began, 20, arguments)
        self.assertEqual(self.jobs(), {})


if __name__ == "__main__":
    unittest.main()
