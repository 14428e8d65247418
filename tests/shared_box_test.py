"""One machine, several people: what berth promises holds between users, containers, daemons and hostile neighbours.

Every test runs the real command on scripted GPUs. The codes in comments name the finding of the review that a test
reproduces. Findings about a Pool inside a program (H2, H6) are in src/pool/shared_pool_test.cpp, findings about signals and
limits (M7, M8) in run_test.py. Tests with several users or namespaces need root and say so where they are skipped.
"""
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from berth_case import BERTH, DOUBLE, ROOT, Machine

ALICE, MALLORY = 5001, 5002
NEEDS_ROOT = unittest.skipUnless(os.geteuid() == 0, "needs root: several users and namespaces")


def user(uid):
    return ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")


def shell(script):
    """A prefix that runs `script` in a mount namespace of its own, and then the command."""
    return ("unshare", "-m", "--propagation", "private", "sh", "-ec", script + '; exec "$@"', "sh")


class OneUser(Machine):
    """One GPU of 80 GiB."""

    script = "gpu memory=80GiB\n"

    def rewrite(self, *lines):
        """The driver's answers from now on."""
        self.machine.write_text(self.script + "".join(line + "\n" for line in lines))

    def fits(self, amount, *arguments, **more):
        """Whether so much is granted now."""
        answer = self.berth("run", "-q", "--mem", amount, *arguments, "--", "true", **more)
        self.assertIn(answer.returncode, (0, 3), answer.stderr)
        return answer.returncode == 0

    def wait_in_line(self, *arguments, **more):
        """A request that waits, with its place in the ledger taken."""
        before = self.waiting()
        process = self.start("run", *arguments, **more)
        self.until(lambda: self.waiting() > before or process.poll() is not None, "it stands in line")
        return process

    def waiting(self):
        return sum(lease["state"] == "waiting" for lease in self.ps())

    def spawn(self, command, **more):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
        self.started.append(process)
        return process

    def assertNoneLeft(self):
        self.until(lambda: not self.ps(), "every lease is given back")


class WholeDevices(OneUser):
    script = "gpus 2 memory=80GiB\n"

    # H1, B2
    def test_memory_of_others_keeps_a_whole_device_from_being_given(self):
        gpus = self.gpus()
        for occupied in (0, 1):
            self.rewrite(f"process gpu={occupied} pid=4711 bytes=79GiB")
            for _ in range(3):
                answer = self.berth("run", "-q", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
                self.assertEqual(answer.stdout.strip(), gpus[1 - occupied], answer.stderr)

    # H1
    def test_a_process_with_little_memory_keeps_a_whole_device_from_being_given(self):
        self.rewrite("process gpu=0 pid=4711 bytes=400MiB", "process gpu=1 pid=4712 bytes=0", "process gpu=1 pid=4712 bytes=2GiB")
        self.assertRefused(self.berth("run", "--", "true"), 3)
        self.assertTrue(self.fits("20G"), "a part of it can be had")

    # H1
    def test_memory_that_no_process_is_listed_for_keeps_a_whole_device_from_being_given(self):
        self.rewrite("process gpu=0 pid=4711 bytes=20GiB hidden", "process gpu=1 pid=4711 bytes=20GiB hidden")
        self.assertRefused(self.berth("run", "--", "true"), 3)

    # H1
    def test_a_silent_gpu_is_never_given_whole(self):
        self.rewrite("hang nvmlDeviceGetMemoryInfo* times=always")
        began = time.monotonic()
        answer = self.berth("run", "--", "echo", "started")
        self.assertEqual((answer.returncode, answer.stdout), (3, ""), answer.stderr)
        self.assertLess(time.monotonic() - began, 15)

    # H1: a program whose work is in flight on the GPU, without bytes declared.
    def test_a_gpu_that_a_pool_works_on_is_not_given_whole(self):
        self.start("demo", "--frames", "1000000")
        self.until(lambda: any(lease["state"] == "pool" for lease in self.ps()), "the program is in the ledger")
        self.assertRefused(self.berth("run", "-n", "2", "--", "true"), 3)

    # B2: the two occupied GPUs of eight are taken last.
    def test_idle_gpus_are_taken_before_those_that_others_use(self):
        self.machine.write_text((ROOT / "tests/double/machines/eight.txt").read_text())
        gpus = self.gpus()
        taken = [device for _ in range(4) for device in self.hold().devices]
        taken += self.hold("--mem", "20G").devices + self.hold("--mem", "20G").devices
        self.assertFalse({gpus[1], gpus[6]} & set(taken), "30 GiB and 120 GiB of them are in use")

    # B2
    def test_a_gang_of_whole_devices_does_not_take_those_in_use(self):
        self.machine.write_text((ROOT / "tests/double/machines/tour.txt").read_text())
        self.assertRefused(self.berth("run", "-n", "3", "--", "true"), 3)

    # B5
    def test_devices_says_which_gpus_are_held_and_by_whom(self):
        self.machine.write_text((ROOT / "tests/double/machines/eight.txt").read_text().replace("process", "# process"))
        held = self.hold("-n", "8")
        answer = self.berth("devices", "--backend", "cuda")
        self.assertEqual(answer.stdout.count("held"), 8, answer.stdout)
        self.assertIn(str(held.command_pid), answer.stdout)

    # B6
    def test_draining_sees_processes_of_other_programs(self):
        self.rewrite("process gpu=1 pid=4712 bytes=60GiB", "set 1 utilisation=97")
        answer = self.berth("drain", "cuda:1", "--wait", "300ms")
        self.assertEqual(answer.returncode, 3, answer.stdout + answer.stderr)
        self.assertIn("4712", answer.stdout + answer.stderr)
        self.assertNotIn("nobody", answer.stdout + answer.stderr)

    # B4, M2
    def test_a_broken_driver_is_an_error_and_the_command_does_not_run_on_the_processor(self):
        for lines, environment in ((["error nvmlInit_v2 code=18 times=always", "error cuInit code=803 times=always"], {}),
                                   (["error nvmlInit_v2 code=999 times=always", "error cuInit code=999 times=always"], {}),
                                   ([], {"CUDA_VISIBLE_DEVICES": "foo"}), ([], {"CUDA_VISIBLE_DEVICES": "9"}),
                                   ([], {"LD_LIBRARY_PATH": DOUBLE + "/old"})):
            self.rewrite(*lines)
            answer = self.berth("run", "--mem", "1G", "--", "echo", "started", **environment)
            self.assertIn(answer.returncode, (1, 2), (lines, environment, answer.stderr))
            self.assertEqual((answer.stdout, answer.stderr.count("berth: ")), ("", 1), answer.stderr)


class BytesOnce(OneUser):
    # H7
    def test_a_nested_run_draws_on_the_lease_it_runs_in(self):
        inner = f'{BERTH} run -q --mem 20G -- sh -c \'echo $$; read line\''
        outer = self.start("run", "-q", "--mem", "20G", "--", "sh", "-c", inner)
        pid = int(outer.stdout.readline())
        self.assertEqual(len(self.ps()), 2)
        self.assertTrue(self.fits("55G"), "20 GiB are promised, once")
        self.rewrite(f"process gpu=0 pid={pid} bytes=20GiB")
        self.assertFalse(self.fits("61G"), "20 GiB are in use")
        self.assertTrue(self.fits("55G"))

    # H7, M8
    def test_a_nested_run_gets_no_more_than_is_left_of_its_lease(self):
        script = (f"{BERTH} run -q --mem 15G -- sh -c 'echo one; exec {BERTH} run --mem 16G -- echo never'; "
                  f"{BERTH} run --mem 30G --wait 1h -- echo never; {BERTH} run -q --mem 20G -- echo two")
        answer = self.berth("run", "-q", "--mem", "20G", "--", "sh", "-c", script)
        self.assertEqual(answer.stdout.split(), ["one", "two"], answer.stderr)
        self.assertRegex(answer.stderr, r"inside lease \d+, which is smaller than that; to ask the machine instead: env -u BERTH_LEASE ")
        self.assertEqual(answer.stderr.count("env -u BERTH_LEASE"), 2, answer.stderr)
        self.assertNotIn("machine cannot serve it", answer.stderr)

    # H7
    def test_what_is_left_of_a_lease_is_said_to_be_left_of_it(self):
        outer = self.start("run", "-q", "--mem", "20G", "--", "sh", "-c",
                           f"{BERTH} run -q --mem 15G -- sh -c 'echo in; read line' & wait; read line")
        inner = self.start("run", "-q", "--mem", "20G", "--", "sh", "-c",
                           f"{BERTH} run -q --mem 15G -- sh -c '{BERTH} pick --mem 15G' ; env -u BERTH_LEASE {BERTH} pick --mem 21G")
        out, err = inner.communicate()
        self.assertEqual(len(out.split()), 2, "15 of 15 GiB, and 21 of the machine's: " + err)
        outer.communicate("")

    # M8: with --wait it waited for itself.
    def test_a_nested_run_in_a_whole_device_lease_is_a_part_of_it(self):
        for amount in ([], ["--mem", "10G"]):
            answer = self.berth("run", "-q", "--", BERTH, "run", "-q", *amount, "--", "echo", "in")
            self.assertEqual((answer.returncode, answer.stdout), (0, "in\n"), answer.stderr)

    # H7
    def test_a_variable_of_another_ledger_is_not_believed(self):
        self.hold("--mem", "60G")
        other = {"BERTH_LEASE": "0123456789abcdef:1"}
        stale = self.spawn(["sleep", "300"], env=self.environment(**other))
        self.rewrite(f"process gpu=0 pid={stale.pid} bytes=15GiB")
        self.assertFalse(self.fits("6G"), "60 are promised, 15 in use by a process of no lease")
        self.assertTrue(self.fits("3G"))
        self.assertFalse(self.fits("30G", **other), "it is not inside a lease")

    # H8: the command frees its memory between two answers of the driver.
    def test_memory_freed_while_the_driver_is_asked_does_not_count_twice(self):
        held = self.hold("--mem", "20G")
        for at in (1, 2, 3):
            self.rewrite(f"process gpu=0 pid={held.command_pid} bytes=18GiB",
                         f"process gpu=0 pid={held.command_pid} bytes=0 when=nvmlDeviceGetMemoryInfo_v2 at={at}")
            self.assertFalse(self.fits("70G"), at)

    # M6
    def test_new_layouts_of_devices_never_fill_the_ledger(self):
        for series in range(6):
            self.machine.write_text(f"series {series + 1}\ngpus 50 memory=80GiB\n")
            answer = self.berth("run", "-q", "--mem", "1G", "-n", "50", "--", "true")
            self.assertEqual(answer.returncode, 0, answer.stderr)
        answer = self.berth("cordon", "cuda:49")
        self.assertEqual(answer.returncode, 0, answer.stderr)


class Life(OneUser):
    # M4
    def test_a_command_that_daemonises_keeps_its_lease(self):
        answer = self.berth("run", "-q", "--mem", "60G", "--", "sh", "-c", "setsid sleep 300 < /dev/null > /dev/null 2>&1 & echo $!")
        server = int(answer.stdout)
        self.addCleanup(self.end, server)
        lease, = self.ps()
        self.assertTrue(lease["command_ended"])
        self.assertIn(server, [process["pid"] for process in lease["kept_by"]])
        self.assertFalse(self.fits("70G"))
        self.assertIn(f"berth release {lease['id']}", self.berth("ps").stdout)
        os.kill(server, signal.SIGKILL)
        self.assertNoneLeft()

    # M4
    def test_a_daemon_that_closes_every_descriptor_keeps_its_lease(self):
        daemon = "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nprint(os.getpid(), flush=True)\nos.closerange(0, 4096)\ntime.sleep(300)"
        server = int(self.berth("run", "-q", "--mem", "60G", "--", sys.executable, "-c", daemon).stdout)
        self.addCleanup(self.end, server)
        self.assertFalse(self.fits("70G"))
        self.assertEqual([process["pid"] for lease in self.ps() for process in lease["kept_by"]], [server])

    # M4
    def test_an_orphan_without_environment_keeps_the_lease_of_the_device_it_uses(self):
        daemon = ("import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nprint(os.getpid(), flush=True)\nos.closerange(0, 4096)\n"
                  "os.execve('/bin/sleep', ['sleep', '300'], {})")
        server = int(self.berth("run", "-q", "--mem", "60G", "--", sys.executable, "-c", daemon).stdout)
        self.addCleanup(self.end, server)
        self.rewrite(f"process gpu=0 pid={server} bytes=10GiB")
        self.assertFalse(self.fits("15G"), "60 GiB are still promised, and which of them it uses is not known")
        self.assertTrue(self.fits("5G"))

    # M3 and M4: such a child inherits no descriptor.
    def test_a_spawned_python_child_whose_parent_dies_keeps_the_lease(self):
        program = self.folder / "parent.py"
        program.write_text("import multiprocessing, os, time\n"
                           "def work():\n    print(os.getpid(), flush=True)\n    time.sleep(300)\n"
                           "if __name__ == '__main__':\n    multiprocessing.set_start_method('spawn')\n"
                           "    multiprocessing.Process(target=work).start()\n    time.sleep(300)\n")
        parent = self.start("run", "-q", "--mem", "60G", "--", sys.executable, str(program))
        child = int(parent.stdout.readline())
        self.addCleanup(self.end, child)
        parent.kill()
        parent.wait()
        self.assertFalse(self.fits("70G"))
        self.end(child)
        self.assertNoneLeft()

    @NEEDS_ROOT  # M3
    def test_a_dead_containers_lease_returns_and_a_living_ones_stays(self):
        for container in (("unshare", "-p", "-f", "--kill-child"), ("unshare", "-p", "-f", "--kill-child", "--mount-proc")):
            held = self.hold("--mem", "60G", prefix=container)
            self.assertFalse(self.fits("60G"))
            self.assertEqual(len(self.ps()), 1)
            held.kill()
            held.wait()
            self.until(lambda: self.fits("60G"), "its bytes return")

    @NEEDS_ROOT  # M3
    def test_a_container_sees_the_leases_outside_of_it(self):
        held = self.hold("--mem", "60G")
        container = ("unshare", "-p", "-f", "--kill-child", "--mount-proc")
        self.assertFalse(self.fits("60G", prefix=container))
        held.communicate("")
        self.assertTrue(self.fits("60G", prefix=container))

    @NEEDS_ROOT  # Low: time namespaces shift both clocks.
    def test_another_time_namespace_changes_nothing(self):
        ahead = ("unshare", "-T", "--fork", "--kill-child", "--monotonic", "1000000", "--boottime", "1000000")
        held = self.hold("--mem", "60G", prefix=ahead)
        self.assertFalse(self.fits("60G"))
        held.kill()
        held.wait()
        self.until(lambda: self.fits("60G"), "its bytes return")
        self.hold("--mem", "60G")
        self.assertFalse(self.fits("60G", prefix=ahead))

    def end(self, pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Line(OneUser):
    # H5
    def test_a_waiter_keeps_only_the_devices_nearest_to_fitting_it(self):
        self.machine.write_text("gpus 4 memory=80GiB\n" + "".join(f"process gpu={i} pid=4711 bytes={30 if i == 2 else 40}GiB\n" for i in range(4)))
        gpus = self.gpus()
        self.wait_in_line("--mem", "70G", "--wait", "10m", "--", "true")
        for _ in range(3):
            self.assertNotEqual(self.hold("--mem", "1G").devices, [gpus[2]])
        answer = self.berth("run", "--mem", "1G", "--device", "cuda:2", "--", "true")
        self.assertRefused(answer, 3, "kept for")
        self.assertNotIn("avoid", answer.stderr + self.berth("why").stdout)

    def stop_outside_the_lock(self, process):
        """Stopped while it holds the machine's lock, it would keep every other command from the ledger until it goes on."""
        folder = os.open(self.runtime, os.O_RDONLY | os.O_DIRECTORY)
        self.addCleanup(os.close, folder)

        def stopped_outside():
            process.send_signal(signal.SIGSTOP)
            self.until(lambda: pathlib.Path(f"/proc/{process.pid}/stat").read_text().split(") ")[1][0] == "T", "it is stopped")
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                process.send_signal(signal.SIGCONT)
                return False
            fcntl.flock(folder, fcntl.LOCK_UN)
            return True

        self.until(stopped_outside, "it is stopped outside the lock")

    # H5
    def test_a_stopped_waiter_is_passed_over_after_ten_seconds(self):
        held = self.hold("--mem", "60G")
        stopped = self.wait_in_line("--mem", "70G", "--wait", "10m", "--", "true")
        self.assertFalse(self.fits("10G"), "kept for the one that waits")
        self.stop_outside_the_lock(stopped)
        began = time.monotonic()
        self.until(lambda: self.fits("10G"), "it is passed over")
        self.assertGreater(time.monotonic() - began, 4)
        self.assertLess(time.monotonic() - began, 25)
        stopped.send_signal(signal.SIGCONT)
        self.until(lambda: not self.fits("10G"), "it is back in line")
        held.communicate("")
        stopped.communicate()
        self.assertEqual(stopped.returncode, 0)

    @NEEDS_ROOT  # H5
    def test_a_dead_containers_waiter_closes_nothing(self):
        self.hold("--mem", "60G")
        waiter = self.wait_in_line("--mem", "70G", "--wait", "10m", "--", "true", prefix=("unshare", "-p", "-f", "--kill-child"))
        self.assertFalse(self.fits("10G"))
        waiter.kill()
        waiter.wait()
        self.until(lambda: self.fits("10G"), "nothing is kept for it")

    # B15
    def test_a_gang_is_not_overtaken_by_later_single_requests(self):
        self.machine.write_text("gpus 4 memory=80GiB\n")
        held = self.hold("--mem", "60G", "--device", "cuda:0")
        log = self.folder / "log"
        note = lambda name: ("--", "sh", "-c", f"echo {name} >> {log}; sleep 0.3")
        processes = [self.wait_in_line("-q", "-n", "4", "--priority", "high", "--mem", "60G", "--wait", "5m", *note("gang"))]
        for _ in range(3):
            processes.append(self.wait_in_line("-q", "--priority", "low", "--mem", "60G", "--wait", "5m", *note("single")))
        self.assertFalse(self.fits("60G"), "three GPUs are free, and kept for the gang")
        self.assertFalse(log.exists())
        held.communicate("")
        for process in processes:
            process.communicate()
            self.assertEqual(process.returncode, 0)
        self.assertEqual(log.read_text().split(), ["gang"] + 3 * ["single"])

    # B19
    def test_ps_says_how_many_devices_are_waited_for(self):
        self.machine.write_text("gpus 8 memory=80GiB\n")
        self.hold("-n", "2")
        self.wait_in_line("-n", "7", "--wait", "5m", "--", "true")
        self.assertIn("7 whole devices", self.berth("ps").stdout)

    # B20
    def test_a_wait_that_ran_out_does_not_advise_to_wait(self):
        self.hold("--mem", "60G")
        answer = self.berth("run", "--mem", "60G", "--wait", "700ms", "--", "true")
        self.assertRefused(answer, 3, "gave up after waiting")
        self.assertNotIn("--wait", answer.stderr)

    # M1
    def test_short_jobs_of_others_hold_up_no_request(self):
        self.hold("--mem", "40G")
        self.rewrite("delay nvmlDeviceGetMemoryInfo* for=200ms times=always")
        stop = self.folder / "stop"
        quick = self.folder / "quick.txt"
        quick.write_text(self.script)
        loop = f"while ! test -e {stop}; do {BERTH} run -q --mem 1G -- sleep 0.03; done"
        for _ in range(2):
            self.spawn(["sh", "-c", loop], env=self.environment(BERTH_DOUBLE=str(quick)))
        for arguments, status, most in ((("--mem", "20G"), 0, 8), (("--mem", "70G"), 3, 8), (("--mem", "70G", "--wait", "2s"), 3, 10)):
            began = time.monotonic()
            answer = self.berth("run", "-q", *arguments, "--", "true")
            self.assertEqual(answer.returncode, status, answer.stderr)
            self.assertLess(time.monotonic() - began, most)
        stop.touch()


class Records(OneUser):
    # Low: after the clock was ahead, why answered with an old decision.
    def test_why_answers_with_the_newest_decision_although_the_clock_was_ahead(self):
        self.berth("pick", "--mem", "11G")
        folder = self.runtime / f"decisions-{os.geteuid()}"
        record, = folder.glob("*.json")
        record.rename(folder / re.sub(r"\d{8}-\d{6}", "20991231-235959", record.name))
        self.berth("pick", "--mem", "900G")
        self.assertIn("900.0 GiB", self.berth("why").stdout)
        self.assertEqual([entry["fits"] for entry in json.loads(self.berth("why", "--list", "--json").stdout)], [False, True])

    def test_decisions_are_kept_in_the_users_state_folder_and_not_beside_the_ledger(self):
        state = self.folder / "state"
        state.mkdir()
        for environment, folder in (({"XDG_STATE_HOME": str(state)}, state / "berth/decisions"),
                                    ({"XDG_STATE_HOME": "", "HOME": str(self.folder)}, self.folder / ".local/state/berth/decisions")):
            env = {**self.environment(**environment), "XDG_RUNTIME_DIR": str(self.folder / "session")}
            del env["BERTH_RUNTIME_DIR"]
            subprocess.run([BERTH, "pick", "--mem", "1G"], env=env, stdout=subprocess.PIPE, check=True)
            self.assertEqual(len(list(folder.iterdir())), 1)
            self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
        self.assertFalse((self.folder / "session").exists())


class Release(OneUser):
    def test_a_released_lease_counts_no_more_and_its_process_runs_on(self):
        held = self.hold("--mem", "60G")
        lease, = self.ps()
        answer = self.berth("release", str(lease["id"]))
        self.assertEqual((answer.returncode, answer.stdout, answer.stderr),
                         (0, f"lease {lease['id']} (sh) is released; its processes keep running without it\n", ""))
        self.assertEqual(self.ps(), [])
        self.assertIsNone(held.poll())
        self.assertTrue(self.fits("60G"))
        self.assertRefused(self.berth("release", str(lease["id"])), 2, "berth ps")

    def test_what_is_no_lease_is_refused(self):
        self.assertRefused(self.berth("release", "17"), 2, "no lease 17", "berth ps")
        self.assertRefused(self.berth("release", "x"), 2, "'x'")
        self.hold("--mem", "60G")
        waiter = self.wait_in_line("--mem", "60G", "--wait", "5m", "--", "true")
        request = next(lease for lease in self.ps() if lease["state"] == "waiting")
        self.assertRefused(self.berth("release", str(request["id"])), 1, "end its process", str(waiter.pid))
        self.assertIsNone(waiter.poll())

    def test_a_pool_is_refused(self):
        self.start("demo", "--frames", "1000000")
        pool = self.until(lambda: [lease for lease in self.ps() if lease["state"] == "pool"], "the program is in the ledger")[0]
        self.assertRefused(self.berth("release", str(pool["id"])), 1, "it belongs to a running program")


class SharedFolder(OneUser):
    """Several users of one root-owned folder with mode 1777."""

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("needs root: several users and namespaces")
        self.folder.chmod(0o755)
        self.machine.chmod(0o644)
        self.runtime.mkdir()
        self.runtime.chmod(0o1777)

    def ledger_of(self, uid):
        return self.runtime / f"berth-ledger-{uid}"

    def python(self, uid, script):
        """A program of that user that tells when it is ready and then waits for the end of its input."""
        process = self.spawn([*user(uid), sys.executable, "-c", script + "\nprint('ready', flush=True)\nimport sys\nsys.stdin.read()"])
        self.assertEqual(process.stdout.readline(), "ready\n", process.stderr.read() if process.poll() is not None else "")
        return process


class SeveralUsers(SharedFolder):
    def test_two_users_never_get_the_same_bytes(self):
        held = self.hold("--mem", "60G", prefix=user(ALICE))
        self.assertFalse(self.fits("60G", prefix=user(MALLORY)))
        self.assertFalse(self.fits("60G"))
        held.communicate("")
        self.assertTrue(self.fits("60G", prefix=user(MALLORY)))

    # B1
    def test_users_do_not_all_begin_with_the_same_gpu(self):
        self.machine.write_text("gpus 8 memory=80GiB\n")
        picked = {self.berth("pick", "--mem", "1G", prefix=user(uid)).stdout for uid in range(5001, 5009)}
        self.assertGreater(len(picked), 2)

    # H3
    def test_another_boot_id_wipes_nothing(self):
        boot = self.folder / "boot_id"
        boot.write_text("11111111-2222-3333-4444-555555555555\n")
        self.hold("--mem", "60G", prefix=user(ALICE))
        container = shell(f"mount --bind {boot} /proc/sys/kernel/random/boot_id")
        self.assertEqual(self.berth("ps", prefix=container).returncode, 0)
        self.assertFalse(self.fits("60G", prefix=container))
        self.assertFalse(self.fits("60G"))

    # H3
    def test_leases_are_seen_whatever_of_proc_is_hidden(self):
        for proc in ("mount -t proc -o subset=pid proc /proc", "mount -t proc -o hidepid=2 proc /proc", "mount -t tmpfs none /proc"):
            hidden = (*shell(proc), *user(MALLORY))
            held = self.hold("--mem", "60G", prefix=user(ALICE))
            self.assertFalse(self.fits("60G", prefix=hidden), proc)
            self.assertEqual(self.berth("ps", prefix=hidden).stdout.count("sh"), 1, proc)
            self.assertFalse(self.fits("60G"), "merely looking took nothing away")
            held.communicate("")
            self.assertTrue(self.fits("60G", prefix=hidden), proc)
            # And what is taken there counts outside.
            held = self.hold("--mem", "60G", prefix=hidden)
            self.assertFalse(self.fits("60G", prefix=user(ALICE)), proc)
            held.communicate("")
            self.assertTrue(self.fits("60G", prefix=user(ALICE)), proc)

    # Low: in a user namespace the folder belongs to nobody.
    def test_a_rootless_container_sees_the_machines_leases(self):
        if subprocess.run([*user(ALICE), "unshare", "-r", "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("users may not make user namespaces here")
        held = self.hold("--mem", "60G", prefix=user(MALLORY))
        for container in (("unshare", "-r"), ("unshare", "-U")):
            answer = self.berth("run", "--mem", "60G", "--", "true", prefix=(*user(ALICE), *container))
            self.assertNotEqual(answer.returncode, 0, answer.stderr)
        held.communicate("")
        held = self.hold("--mem", "60G", prefix=(*user(ALICE), "unshare", "-r"))
        self.assertFalse(self.fits("60G", prefix=user(MALLORY)))

    def test_a_variable_of_another_users_lease_is_not_believed(self):
        held = self.start("run", "-q", "--mem", "60G", "--", "sh", "-c", "echo $BERTH_LEASE; read line", prefix=user(ALICE))
        lease = held.stdout.readline().strip()
        answer = self.berth("run", "--mem", "30G", "--", "true", prefix=user(MALLORY), BERTH_LEASE=lease)
        self.assertRefused(answer, 3)
        self.assertNotIn("inside lease", answer.stderr)

    def test_many_requests_of_one_user_do_not_block_another(self):
        self.machine.write_text("gpus 4 memory=80GiB\n")
        held = self.hold("-n", "4", "--mem", "60G")
        log = self.folder / "log"
        log.touch()
        log.chmod(0o666)
        run = lambda name: ("-q", "--mem", "60G", "--wait", "5m", "--", "sh", "-c", f"echo {name} >> {log}; exec sleep 2")
        many = [self.start("run", *run("many"), prefix=user(MALLORY)) for _ in range(20)]
        self.until(lambda: self.waiting() == 20, "they stand in line")
        one = self.wait_in_line(*run("one"), prefix=user(ALICE))
        held.communicate("")
        one.communicate()
        self.assertEqual(one.returncode, 0)
        self.assertLessEqual(log.read_text().split().index("one"), 3, log.read_text())
        for process in many:
            process.kill()

    def test_only_its_user_and_root_release_a_lease(self):
        alice = self.hold("--mem", "20G", prefix=user(ALICE))
        number = str(self.ps()[0]["id"])
        self.assertRefused(self.berth("release", number, prefix=user(MALLORY)), 1, "belongs to 5001", "root")
        self.assertEqual(len(self.ps()), 1)
        self.assertRefused(self.berth("release", f"5002/{number}"), 2, "user 5002")
        self.assertEqual(self.berth("release", f"5001/{number}").returncode, 0)
        self.assertEqual(self.ps(), [])
        self.assertIsNone(alice.poll())
        self.hold("--mem", "20G", prefix=user(ALICE))
        self.assertEqual(self.berth("release", str(self.ps()[0]["id"]), prefix=user(ALICE)).returncode, 0)

    def test_a_cordon_counts_for_all_and_its_author_or_root_lifts_it(self):
        self.assertEqual(self.berth("cordon", "cuda:0", prefix=user(ALICE)).returncode, 0)
        self.assertFalse(self.fits("1G", prefix=user(MALLORY)))
        self.assertRefused(self.berth("uncordon", "cuda:0", prefix=user(MALLORY)), 1, "5001")
        self.assertEqual(self.berth("uncordon", "cuda:0").returncode, 0)
        self.assertTrue(self.fits("1G", prefix=user(MALLORY)))


class HostileUser(SharedFolder):
    # M5
    def test_another_users_file_cannot_be_cut_written_or_replaced(self):
        self.hold("--mem", "60G", prefix=user(ALICE))
        path = self.ledger_of(ALICE)
        attack = f"""
import os
def fails(action):
    try: action()
    except PermissionError: return
    raise SystemExit('it worked')
for action in (lambda: os.truncate({str(path)!r}, 0), lambda: open({str(path)!r}, 'r+b'), lambda: os.unlink({str(path)!r}),
               lambda: os.rename({str(path)!r}, {str(path)!r} + '-old'), lambda: os.link({str(path)!r}, {str(path)!r} + '-link'),
               lambda: os.rename({str(self.runtime)!r}, {str(self.runtime)!r} + '-old'), lambda: os.chmod({str(path)!r}, 0o666)):
    fails(action)
"""
        self.python(MALLORY, attack)
        self.assertFalse(self.fits("60G", prefix=user(MALLORY)))
        self.assertFalse(self.fits("60G", prefix=user(ALICE)))

    # M5
    def test_a_name_that_was_taken_before_means_nothing(self):
        victim = self.folder / "precious"
        victim.write_text("mine")
        victim.chmod(0o666)
        for take in (f"open({str(self.ledger_of(ALICE))!r}, 'w').write('berth-ledger 1 nonsense')", f"import os; os.symlink({str(victim)!r}, {str(self.ledger_of(ALICE))!r})",
                     f"import os; os.mkfifo({str(self.ledger_of(ALICE))!r})", f"import os; os.mkdir({str(self.ledger_of(ALICE))!r})"):
            self.python(MALLORY, take)
            held = self.hold("--mem", "60G", prefix=user(ALICE))
            self.assertFalse(self.fits("60G", prefix=user(MALLORY)), take)
            held.communicate("")
            self.assertTrue(self.fits("60G", prefix=user(MALLORY)), take)
            for path in self.runtime.glob("berth-ledger-*"):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        self.assertEqual(victim.read_text(), "mine")

    # M5
    def test_a_forged_file_speaks_for_its_author_alone(self):
        self.hold("--mem", "60G", prefix=user(ALICE))
        forged = self.runtime / "berth-ledger-5001-0000000000000001"
        self.python(MALLORY, f"import shutil; shutil.copyfile({str(self.ledger_of(ALICE))!r}, {str(forged)!r})")
        self.assertEqual(forged.stat().st_uid, MALLORY)
        self.assertEqual([lease["user"] for lease in self.ps() if lease["user"] != "5001"], [], "no process of theirs is behind the copy")
        self.assertTrue(self.fits("15G"), "the copy promises nothing more")
        self.assertFalse(self.fits("60G", prefix=user(MALLORY)))

    # M5
    def test_a_held_lock_is_a_sentence_that_names_its_holder(self):
        process = self.python(MALLORY, f"import fcntl, os; fd = os.open({str(self.runtime)!r}, os.O_RDONLY); fcntl.flock(fd, fcntl.LOCK_EX)")
        began = time.monotonic()
        answer = self.berth("run", "--mem", "1G", "--", "echo", "started", prefix=user(ALICE))
        self.assertRefused(answer, 1, f"pid {process.pid}", "5002", str(self.runtime))
        self.assertEqual(answer.stdout, "")
        self.assertLess(time.monotonic() - began, 15)
        process.kill()
        process.wait()
        self.assertTrue(self.fits("1G", prefix=user(ALICE)))

    # M5
    def test_read_locks_on_another_users_file_stand_in_no_ones_way(self):
        self.assertTrue(self.fits("1G", prefix=user(ALICE)))
        self.python(MALLORY, f"import fcntl; file = open({str(self.ledger_of(ALICE))!r}, 'rb'); fcntl.lockf(file, fcntl.LOCK_SH)")
        held = self.hold("--mem", "60G", prefix=user(ALICE))
        self.assertFalse(self.fits("60G", prefix=user(MALLORY)))
        held.communicate("")
        self.assertTrue(self.fits("60G", prefix=user(MALLORY)), "no sign of life")

    # M5
    def test_hundreds_of_files_of_one_user_hold_up_no_other(self):
        self.hold("--mem", "60G", prefix=user(ALICE))
        self.python(MALLORY, f"for i in range(500): open({str(self.runtime)!r} + f'/berth-ledger-{{i}}', 'wb').write(bytes(100))")
        began = time.monotonic()
        self.assertFalse(self.fits("60G", prefix=user(MALLORY)))
        self.assertTrue(self.fits("15G", prefix=user(ALICE)))
        self.assertLess(time.monotonic() - began, 5)

    # M5
    def test_many_waiting_requests_of_one_user_hold_up_no_other(self):
        self.rewrite("process gpu=0 pid=4711 bytes=75GiB")
        waiting = [self.start("run", "-q", "--mem", "70G", "--priority", "high", "--wait", "5m", "--", "true", prefix=user(MALLORY)) for _ in range(30)]
        self.until(lambda: self.waiting() == 30, "they stand in line")
        self.machine.write_text("gpus 2 memory=80GiB\nprocess gpu=0 pid=4711 bytes=75GiB\nprocess gpu=1 pid=4711 bytes=60GiB\n")
        began = time.monotonic()
        self.assertTrue(self.fits("10G", prefix=user(ALICE)), "on the GPU that is not kept")
        self.assertLess(time.monotonic() - began, 10)
        for process in waiting:
            process.kill()

    # M5
    def test_names_carry_no_control_characters_to_a_terminal(self):
        odd = self.folder / "x\x1b[2J\x07y"
        odd.write_text("#!/bin/sh\necho; read line\n")
        odd.chmod(0o755)
        process = self.start("run", "-q", "--mem", "1G", "--", str(odd), prefix=user(MALLORY))
        process.stdout.readline()
        for verb in ("ps", "devices"):
            text = self.berth(verb).stdout
            self.assertFalse(set(text) & {"\x1b", "\x07"}, text)

    # A format that this build does not know.
    def test_a_file_of_another_version_beside_ours_is_reported_and_harms_nothing(self):
        self.python(MALLORY, f"open({str(self.runtime)!r} + '/berth-ledger-5002', 'w').write('berth-ledger 9 ' + 'x' * 20000)")
        self.python(ALICE, f"open({str(self.runtime)!r} + '/ledger', 'wb').write(bytes(100000))")
        held = self.hold("--mem", "60G", prefix=user(ALICE))
        self.assertFalse(self.fits("60G", prefix=user(MALLORY)))
        mallory = self.hold("--mem", "15G", prefix=user(MALLORY))
        self.assertFalse(self.fits("15G", prefix=user(ALICE)))
        self.assertIn("berth-ledger-5002", self.berth("doctor").stdout)


class DefaultFolders(SharedFolder):
    """The machine's own folders, in a mount namespace where they are empty: /run, /dev/shm and /tmp."""

    # With the project, where that is below /tmp.
    new_tmp = "mount -t tmpfs -o mode=1777 none /tmp"
    if str(ROOT).startswith("/tmp/"):
        new_tmp = f"exec 9<{ROOT}; {new_tmp}; mkdir -p {ROOT}; mount -c --bind /proc/self/fd/9 {ROOT}; exec 9<&-"
    mounts = ("mount -t tmpfs -o mode=755 none /run; mkdir -m 1777 /run/lock; mount -t tmpfs -o mode=1777 none /dev/shm; " + new_tmp)

    def setUp(self):
        super().setUp()
        # Not below /tmp, which is another one inside.
        folder = tempfile.TemporaryDirectory(dir="/var/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.folder.chmod(0o755)
        self.machine = self.folder / "machine.txt"
        self.machine.write_text(self.script)
        self.keeper = self.spawn([*shell(self.mounts), "sh", "-c", "echo ready; read line"])
        self.assertEqual(self.keeper.stdout.readline(), "ready\n")
        self.inside = ("nsenter", f"--mount=/proc/{self.keeper.pid}/ns/mnt", "--")

    def environment(self, **more):
        env = super().environment(**more)
        del env["BERTH_RUNTIME_DIR"]
        return {"XDG_STATE_HOME": str(self.folder), **env, "HOME": "/nonexistent", **more}

    def do(self, script):
        return subprocess.run([*self.inside, "sh", "-ec", script], stdout=subprocess.PIPE, text=True, check=True).stdout

    def ps(self):
        return super().ps(prefix=self.inside)

    # B1, H4
    def test_two_users_with_default_set_up_never_get_the_same_bytes(self):
        held = self.hold("--mem", "60G", prefix=(*self.inside, *user(ALICE)))
        self.assertFalse(self.fits("60G", prefix=(*self.inside, *user(MALLORY))))
        self.assertTrue(self.fits("15G", prefix=(*self.inside, *user(MALLORY))))
        held.communicate("")
        self.assertTrue(self.fits("60G", prefix=(*self.inside, *user(MALLORY))))
        self.assertEqual(self.do("ls /run/lock /dev/shm /tmp | grep -c ledger").split(), ["2"], "one file for each, in one folder")

    # H4
    def test_a_login_shell_and_a_cron_job_have_one_ledger(self):
        session = self.folder / "session"
        session.mkdir(mode=0o700)
        os.chown(session, ALICE, ALICE)
        held = self.hold("--mem", "60G", prefix=(*self.inside, *user(ALICE)), XDG_RUNTIME_DIR=str(session))
        self.assertFalse(self.fits("60G", prefix=(*self.inside, *user(ALICE)), XDG_RUNTIME_DIR=""))
        self.assertFalse(self.fits("60G", prefix=(*self.inside, *user(ALICE)), XDG_RUNTIME_DIR=str(self.folder / "gone")))
        self.assertEqual(list(session.iterdir()), [])
        # The session's folder is removed at the last logout.
        session.rmdir()
        self.assertFalse(self.fits("60G", prefix=(*self.inside, *user(ALICE))))
        held.communicate("")

    def test_a_service_with_a_private_tmp_or_a_read_only_run_has_the_same_ledger(self):
        self.hold("--mem", "60G", prefix=(*self.inside, *user(ALICE)))
        for private in (self.new_tmp, "mount -o remount,ro,bind /run 2>/dev/null || mount -o remount,ro /run"):
            service = (*self.inside, *shell(private), *user(MALLORY))
            self.assertFalse(self.fits("60G", prefix=service), private)

    def test_what_a_service_with_a_read_only_run_takes_is_seen_by_all(self):
        # As ProtectSystem=strict does: a read-only view of the same folder.
        service = (*self.inside, *shell("mount --bind /run/lock /run/lock; mount -o remount,bind,ro /run/lock"), *user(MALLORY))
        self.hold("--mem", "60G", prefix=service)
        self.assertFalse(self.fits("60G", prefix=(*self.inside, *user(ALICE))))

    def test_a_folder_made_at_noon_does_not_split_the_ledger(self):
        self.hold("--mem", "30G", prefix=(*self.inside, *user(ALICE)))
        self.do("mkdir /run/berth; chmod 1777 /run/berth")
        self.hold("--mem", "30G", prefix=(*self.inside, *user(ALICE)))
        self.assertEqual(self.do("ls /run/berth").split(), ["berth-ledger-5001"])
        self.assertFalse(self.fits("30G", prefix=(*self.inside, *user(MALLORY))))

    def test_a_full_folder_is_passed_over_for_the_next(self):
        self.do("mkdir -p /run/berth; mount -t tmpfs -o mode=1777,size=64k none /run/berth")
        self.python_inside(MALLORY, "fill = open('/run/berth/fill', 'wb', 0)\nwhile True:\n    try: fill.write(bytes(512))\n    except OSError: break")
        self.hold("--mem", "60G", prefix=(*self.inside, *user(ALICE)))
        self.assertFalse(self.fits("60G", prefix=(*self.inside, *user(MALLORY))))
        self.assertIn("berth-ledger-5001", self.do("ls /run/lock").split())

    def test_a_folder_that_fills_up_later_is_passed_over_too(self):
        self.do("mkdir -p /run/berth; mount -t tmpfs -o mode=1777,size=128k none /run/berth")
        alice = (*self.inside, *user(ALICE))
        first = self.hold("--mem", "20G", prefix=alice)
        self.python_inside(MALLORY, "fill = open('/run/berth/fill', 'wb', 0)\nwhile True:\n    try: fill.write(bytes(512))\n    except OSError: break")
        second = self.hold("--mem", "40G", prefix=alice)
        self.assertFalse(self.fits("30G", prefix=(*self.inside, *user(MALLORY))), "both count")
        self.assertEqual(len(self.ps()), 2)
        first.communicate("")
        second.communicate("")
        self.assertTrue(self.fits("70G", prefix=(*self.inside, *user(MALLORY))))
        self.assertTrue(self.fits("70G", prefix=alice))

    def test_a_folder_that_is_not_roots_or_not_sticky_is_not_used(self):
        self.do("mkdir /run/berth; chmod 777 /run/berth; chown 5002 /run/lock; chmod 755 /dev/shm")
        self.hold("--mem", "60G", prefix=(*self.inside, *user(ALICE)))
        self.assertEqual(self.do("ls /tmp | grep ledger; ls /run/berth /run/lock /dev/shm | grep ledger || true").split(), ["berth-ledger-5001"])

    def test_without_any_folder_nothing_is_started(self):
        self.do("chmod 755 /run/lock /dev/shm /tmp")
        answer = self.berth("run", "--mem", "1G", "--", "echo", "started", prefix=(*self.inside, *user(ALICE)))
        self.assertRefused(answer, 1, "BERTH_RUNTIME_DIR")
        self.assertEqual(answer.stdout, "")

    def python_inside(self, uid, script):
        subprocess.run([*self.inside, *user(uid), sys.executable, "-c", script], check=True)


if __name__ == "__main__":
    unittest.main()
