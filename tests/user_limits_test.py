"""Limits per user, from /etc/berth/limits.toml: commands, jobs and pools of real users keep to them.

They need root, for users and a mount namespace with an /etc of its own, and say so where they are skipped.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest

from berth_case import BERTH, DOUBLE, ROOT
from shared_box_case import SharedFolder, shell, user

ANNA, BERT, CARL = 5001, 5002, 5003
ACCOUNTS = {"passwd": "root:x:0:0::/root:/bin/sh\nanna:x:5001:5001::/nonexistent:/bin/sh\nbert:x:5002:5002::/nonexistent:/bin/sh\n"
                      "carl:x:5003:5003::/nonexistent:/bin/sh\n",
            "group": "root:x:0:\nanna:x:5001:\nbert:x:5002:\ncarl:x:5003:\nstudents:x:6000:bert\n"}
DOCUMENTED = re.search(r"```toml\n(# /etc/berth/limits\.toml\n.*?)```", (ROOT / "docs/guide/run.md").read_text(), re.S)


class LimitsCase(SharedFolder):
    script = "gpus 4 memory=80GiB\n"

    def setUp(self):
        super().setUp()
        self.etc = self.folder / "etc"
        (self.etc / "berth").mkdir(parents=True)
        for name in ("nsswitch.conf", "ld.so.cache", "localtime"):
            if os.path.exists(f"/etc/{name}"):
                shutil.copy(f"/etc/{name}", self.etc)
        for name, text in ACCOUNTS.items():
            (self.etc / name).write_text(text)
        for path in [self.etc, *self.etc.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        self.file = self.etc / "berth/limits.toml"
        self.keeper = self.spawn([*shell(f"mount --bind {self.etc} /etc"), "sh", "-c", "echo ready; read line"])
        self.assertEqual(self.keeper.stdout.readline(), "ready\n")

    def end_all(self):
        for uid in (ANNA, BERT, CARL):
            if (self.runtime / f"jobs-{uid}").is_dir():
                self.berth("stop", "--all", prefix=self.as_user(uid))
        super().end_all()

    def as_user(self, uid, *more):
        return ("nsenter", f"--mount=/proc/{self.keeper.pid}/ns/mnt", "--", *user(uid), *more)

    def limit(self, text, mode=0o644):
        self.file.write_text(text)
        self.file.chmod(mode)

    def run_as(self, uid, *arguments, **more):
        return self.berth("run", "-q", *arguments, "--", "true", prefix=self.as_user(uid), **more)

    def hold_as(self, uid, *arguments):
        return self.hold(*arguments, prefix=self.as_user(uid))

    def job(self, uid, *arguments):
        answer = self.berth("run", "-d", *arguments, prefix=self.as_user(uid))
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return answer.stdout.split()

    def jobs(self, uid):
        answer = self.berth("ps", "-a", "--json", prefix=self.as_user(uid))
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return {job["id"]: job for job in json.loads(answer.stdout)["jobs"]}


class Commands(LimitsCase):
    def test_the_documented_file_limits_users_groups_and_the_rest(self):
        self.limit(DOCUMENTED[1])
        held = self.hold_as(ANNA, "--mem", "20G", "-n", "2")
        self.assertRefused(self.run_as(ANNA, "--mem", "20G", "--avoid", ",".join(held.devices)), 3,
                           "anna may have 2 GPUs at a time (gpus in [user.anna] of /etc/berth/limits.toml), has 2 GPUs and asks for 1 GPU more")
        self.assertRefused(self.run_as(ANNA, "--mem", "20G", "-n", "3"), 3, "asks for 3 GPUs", "ask for less")
        students = [self.hold_as(BERT, "--mem", "1G")]
        self.assertRefused(self.run_as(BERT, "--mem", "1G", "--avoid", ",".join(students[0].devices)), 3, "gpus in [group.students]")
        students.append(self.hold_as(BERT, "--mem", "1G"))
        self.assertEqual(students[0].devices, students[1].devices, "the GPU that the user has already")
        self.assertRefused(self.run_as(BERT, "--mem", "1G"), 3, "2 running commands", "running in [group.students]")
        self.hold_as(CARL, "-n", "4", "--mem", "30G")
        self.assertRefused(self.run_as(CARL, "--mem", "41G"), 3, "memory in [default]", "160.0 GiB", "120.0 GiB", "41.0 GiB more")
        self.assertTrue(self.fits("41G"), "root is not limited by default")

    def test_pick_and_doctor_consider_the_limits(self):
        self.limit("[user.anna]\nmemory = \"50G\"\n")
        self.hold_as(ANNA, "--mem", "20G")
        sentence = "anna may have 50.0 GiB at a time (memory in [user.anna] of /etc/berth/limits.toml), has 20.0 GiB and asks for 40.0 GiB more"
        self.assertRefused(self.berth("pick", "--mem", "40G", prefix=self.as_user(ANNA)), 3, sentence)
        answer = self.berth("pick", "--mem", "40G", "--json", prefix=self.as_user(ANNA))
        self.assertEqual((answer.returncode, json.loads(answer.stdout)["reason"]), (3, sentence))
        self.assertEqual(self.berth("pick", "--mem", "30G", prefix=self.as_user(ANNA)).returncode, 0)
        doctor = json.loads(self.berth("doctor", "--json", prefix=self.as_user(ANNA)).stdout)
        self.assertEqual([each["message"] for each in doctor if each["check"] == "user_limits"],
                         ["you may have 50.0 GiB at a time (memory in [user.anna] of /etc/berth/limits.toml) and have 20.0 GiB"])

    def test_a_limit_lasts_as_long_as_the_leases(self):
        self.limit("[user.5001]\ngpus = 1\n")
        first = self.hold_as(ANNA)
        self.assertRefused(self.run_as(ANNA), 3, "gpus in [user.5001]")
        first.communicate("")
        self.assertEqual(self.run_as(ANNA).returncode, 0)

    def test_why_names_the_limit(self):
        self.limit("[user.anna]\nmemory = \"30G\"\n")
        self.hold_as(ANNA, "--mem", "20G")
        self.assertEqual(self.run_as(ANNA, "--mem", "20G").returncode, 3)
        why = self.berth("why", prefix=self.as_user(ANNA)).stdout
        self.assertIn("memory in [user.anna]", " ".join(why.split()))
        self.assertIn("4 fit 20.0 GiB -> 0 within the limits of the user -> none", " ".join(why.split()))
        answer = self.berth("why", "--json", prefix=self.as_user(ANNA)).stdout
        explanation = json.loads(answer)["explanation"]
        self.assertEqual(explanation["cause"], "limit")
        self.assertIn("anna may have 30.0 GiB at a time", explanation["reason"])
        record = self.folder / "record.json"
        record.write_text(answer)
        self.assertEqual(self.berth("replay", str(record)).returncode, 3, "the same decision")

    def test_inside_a_lease_nothing_is_counted_twice(self):
        self.limit("[user.anna]\nmemory = \"20G\"\nrunning = 1\n")
        answer = self.berth("run", "-q", "--mem", "20G", "--", shutil.which("sh"), "-c", "exec \"$0\" run -q --mem 10G -- true", BERTH,
                            prefix=self.as_user(ANNA))
        self.assertEqual(answer.returncode, 0, answer.stderr)

    def test_a_user_namespace_is_no_way_around_a_limit(self):
        if subprocess.run([*user(ANNA), "unshare", "-r", "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("users may not make user namespaces here")
        self.limit("[user.anna]\ngpus = 1\n[default]\ngpus = 1\n")
        self.hold_as(ANNA)
        for container in (("unshare", "-r"), ("unshare", "-r", "unshare", "-r")):
            answer = self.berth("run", "--", "true", prefix=self.as_user(ANNA, *container))
            self.assertEqual(answer.returncode, 3, answer.stderr)
            self.assertIn("limits.toml", answer.stderr)


class Waiting(LimitsCase):
    def test_a_job_waits_for_its_limit_and_says_so(self):
        self.limit("[user.anna]\ngpus = 1\n")
        first = self.hold_as(ANNA)
        job, = self.job(ANNA, "--", "true")
        reason = self.until(lambda: "limits.toml" in (now := self.jobs(ANNA)[job]["reason"]) and now, "it names the limit")
        self.assertIn("anna may have 1 GPU at a time (gpus in [user.anna]", reason)
        self.assertTrue(self.fits("70G", "--device", self.other_gpu(first)), "other users are served")
        self.hold_as(BERT, "--mem", "1G", "--avoid", ",".join(first.devices))
        why = self.berth("why", job, prefix=self.as_user(ANNA)).stdout
        words = " ".join(why.split())
        self.assertIn("in the way: DEVICE USER ", words)
        self.assertRegex(why, r"(?m)^cuda:\d +you ")
        self.assertTrue(words.endswith("next: berth ps lists your leases; the job starts when enough of them have ended"), why)
        for wrong in ("bert ", "no single change", "cannot be estimated"):
            self.assertNotIn(wrong, words)
        known = json.loads(self.berth("why", job, "--json", prefix=self.as_user(ANNA)).stdout)
        self.assertEqual([(device["id"], [lease["user"] for lease in device["held_by"]]) for device in known["in_the_way"]], [(first.devices[0], ["you"])])
        first.communicate("")
        self.until(lambda: self.jobs(ANNA)[job]["state"] == "done", "the limit no longer stops it")

    def test_a_job_that_waits_for_a_limit_on_memory_is_not_shown_as_wanting_a_whole_device(self):
        self.limit("[user.anna]\nmemory = \"30GiB\"\n")
        self.hold_as(ANNA, "--mem", "20G")
        job, = self.job(ANNA, "--mem", "20G", "--", "true")
        self.until(lambda: "limits.toml" in self.jobs(ANNA)[job]["reason"], "it waits for the limit")
        shown = self.berth("ps", prefix=self.as_user(ANNA)).stdout
        self.assertRegex(shown, rf"(?m)^{job} .* waiting #1 +any 1 .* - ")
        self.assertIn(f"! {job}: needs 1 device; ", shown)

    def other_gpu(self, held):
        return next(gpu for gpu in self.gpus() if gpu not in held.devices)

    def test_what_exceeds_a_limit_by_itself_is_refused_although_no_gpu_is_free(self):
        self.limit("[user.anna]\ngpus = 1\n")
        self.hold_as(BERT, "-n", "4")
        self.assertRefused(self.run_as(ANNA, "-n", "2", "--wait", "5s"), 3, "anna may have 1 GPU at a time", "asks for 2 GPUs", "ask for less")
        job, = self.job(ANNA, "-n", "2", "--", "true")
        self.until(lambda: self.jobs(ANNA)[job]["state"] == "refused", "it would never start")

    def test_a_request_that_a_limit_stops_keeps_no_gpu_from_others(self):
        self.machine.write_text("gpus 2 memory=80GiB\n")
        self.limit("[user.anna]\ngpus = 1\n")
        last = self.hold_as(BERT)
        # Of the two waiting users, anna holds less and is first.
        self.hold_as(ANNA, "--mem", "1G")
        self.hold_as(CARL, "--mem", "2G")
        limited = self.wait_in_line("--wait", "5m", "--", "true", prefix=self.as_user(ANNA))
        waits = self.wait_in_line("--wait", "5m", "--", "true", prefix=self.as_user(CARL))
        places = {lease["user"]: lease["place"] for lease in self.ps(prefix=self.as_user(ANNA)) if lease["state"] == "waiting"}
        self.assertEqual(places, {"anna": 1, "carl": 2})
        last.communicate("")
        self.assertEqual(waits.wait(60), 0)
        self.assertIsNone(limited.poll())

    def test_more_waiting_jobs_than_allowed_are_refused_in_one_sentence(self):
        self.limit("[user.anna]\nrunning = 1\nwaiting = 2\n")
        self.hold_as(ANNA, "--mem", "1G")
        self.job(ANNA, "--array", "1-2", "--name", "fit", "--mem", "1G", "--", "true")
        answer = self.berth("run", "-d", "--mem", "1G", "--", "true", prefix=self.as_user(ANNA))
        self.assertRefused(answer, 3, "anna may have 2 waiting requests at a time (waiting in [user.anna]", "asks for 1 more")
        self.assertEqual(len(self.jobs(ANNA)), 2)
        self.assertRefused(self.berth("run", "-d", "--array", "1-3", "--name", "more", "--", "true", prefix=self.as_user(ANNA)), 3,
                           "has 2 waiting requests and asks for 3 more")
        self.until(lambda: self.waiting() == 2, "both stand in line")
        self.assertRefused(self.run_as(ANNA, "--mem", "1G", "--wait", "1m"), 3, "waiting in [user.anna]")
        self.assertRefused(self.run_as(ANNA, "--mem", "1G"), 3, "running in [user.anna]")


class Pools(LimitsCase):
    def test_a_pool_gets_what_its_user_may_have_and_no_more(self):
        self.limit("[user.anna]\nmemory = \"30G\"\n")
        program = pathlib.Path(DOUBLE).parent / "pool_program"
        self.hold_as(ANNA, "--mem", "5G")
        pool = self.spawn([*self.as_user(ANNA), str(program)], env=self.environment())
        self.assertEqual(pool.stdout.readline(), "open\n")

        def ask(gibibytes):
            pool.stdin.write(f"{gibibytes << 30}\n")
            pool.stdin.flush()
            return pool.stdout.readline()

        self.until(lambda: ask(20) == "granted\n", "the first report of the devices has come")
        self.assertRegex(ask(6), r"refused no_eligible_device: anna may have 30\.0 GiB at a time \(memory in \[user\.anna\]")
        self.until(lambda: ask(5) == "granted\n", "exactly what the limit leaves")
        self.assertRefused(self.run_as(ANNA, "--mem", "1G"), 3, "memory in [user.anna]")


class BrokenFile(LimitsCase):
    def test_it_limits_nobody_and_is_reported_everywhere(self):
        for text, mode, words in (("[user.anna]\ngpu = 0\n", 0o644, "limits.toml:2:1: \"gpu\" is not a limit"),
                                  ("[user.anna]\ngpus = 0\n", 0o666, "can be written by users other than root")):
            self.limit(text, mode)
            answer = self.run_as(ANNA, "--mem", "1G")
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assertIn(words, answer.stderr)
            self.assertIn("no limit per user applies until that is corrected", answer.stderr)
            doctor = json.loads(self.berth("doctor", "--json", prefix=self.as_user(ANNA)).stdout)
            finding, = [each for each in doctor if each["check"] == "user_limits"]
            self.assertEqual(finding["severity"], "error")
            self.assertIn(words, finding["message"])
        self.limit("[user.anna]\ngpus = 0\n")
        self.assertRefused(self.run_as(ANNA, "--mem", "1G"), 3, "0 GPUs")
        self.file.parent.chmod(0o700)
        root = self.berth("run", "-q", "--mem", "1G", "--", "true", prefix=self.as_user(0))
        self.assertIn("users cannot enter /etc/berth", root.stderr)
        self.file.parent.chmod(0o755)
        self.file.unlink()
        self.file.symlink_to("/etc/passwd")
        self.assertIn("symbolic link", self.run_as(ANNA, "--mem", "1G").stderr)

    def test_a_file_of_another_user_does_not_count(self):
        self.limit("[default]\ngpus = 0\n")
        os.chown(self.file, BERT, BERT)
        answer = self.run_as(ANNA, "--mem", "1G")
        self.assertEqual(answer.returncode, 0)
        self.assertIn("does not belong to root", answer.stderr)


if __name__ == "__main__":
    unittest.main()
