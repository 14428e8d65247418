"""One machine, several people: what berth promises holds between commands, containers and daemons.

Every test runs the real command on scripted GPUs. The codes in comments name the finding of the review that a test
reproduces. Findings between users are in shared_users_test.py, about a Pool inside a program (H2, H6) in
src/pool/shared_pool_test.cpp, about signals and limits (M7, M8) in run_command_test.py.
"""
import fcntl
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

from berth_case import BERTH, DOUBLE, ROOT
from shared_box_case import NEEDS_ROOT, OneUser


class WholeDevices(OneUser):
    script = "gpus 2 memory=80GiB\n"

    # H1, B2
    def test_memory_of_others_keeps_a_whole_device_from_being_given(self):
        gpus = self.gpus()
        for occupied in (0, 1):
            self.rewrite(f"process gpu={occupied} pid=4194711 bytes=79GiB")
            for _ in range(3):
                answer = self.berth("run", "-q", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
                self.assertEqual(answer.stdout.strip(), gpus[1 - occupied], answer.stderr)

    # H1
    def test_a_process_with_little_memory_keeps_a_whole_device_from_being_given(self):
        self.rewrite("process gpu=0 pid=4194711 bytes=400MiB", "process gpu=1 pid=4194712 bytes=0", "process gpu=1 pid=4194712 bytes=2GiB")
        self.assertRefused(self.berth("run", "--", "true"), 3)
        self.assertTrue(self.fits("20G"), "a part of the device is available")

    # H1
    def test_memory_that_no_process_is_listed_for_keeps_a_whole_device_from_being_given(self):
        self.rewrite("process gpu=0 pid=4194711 bytes=20GiB hidden", "process gpu=1 pid=4194711 bytes=20GiB hidden")
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
        self.assertEqual(answer.stdout.count(", exclusive"), 8, answer.stdout)
        self.assertIn(str(held.command_pid), answer.stdout)

    # B6
    def test_draining_sees_processes_of_other_programs(self):
        self.rewrite("process gpu=1 pid=4194712 bytes=60GiB", "set 1 utilization=97")
        answer = self.berth("drain", "cuda:1", "--wait", "300ms")
        self.assertEqual(answer.returncode, 3, answer.stdout + answer.stderr)
        self.assertIn("4194712", answer.stdout + answer.stderr)
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
        self.assertRegex(answer.stderr, r"inside lease \d+, which is smaller than that; to request devices from the machine instead, run env -u BERTH_LEASE ")
        self.assertEqual(answer.stderr.count("env -u BERTH_LEASE"), 2, answer.stderr)
        self.assertNotIn("machine cannot serve it", answer.stderr)

    # H7
    def test_what_is_left_of_a_lease_is_said_to_be_left_of_it(self):
        outer = self.start("run", "-q", "--mem", "20G", "--", "sh", "-c",
                           f"{BERTH} run -q --mem 15G -- sh -c 'echo in; read line' & wait; read line")
        inner = self.start("run", "-q", "--mem", "20G", "--", "sh", "-c",
                           f"{BERTH} run -q --mem 15G -- sh -c '{BERTH} pick --mem 15G' ; env -u BERTH_LEASE {BERTH} pick --mem 21G")
        out, err = inner.communicate()
        self.assertEqual(len(out.split()), 2, "15 of the lease's 15 GiB, and 21 GiB of the machine: " + err)
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
        self.assertFalse(self.fits("6G"), "60 GiB are promised, 15 in use by a process without a lease")
        self.assertTrue(self.fits("3G"))
        self.assertFalse(self.fits("30G", **other), "a variable of another ledger is not a lease")

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
        gate = self.folder / "gate"  # the daemon drops its environment once the driver lists it
        daemon = (f"import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nprint(os.getpid(), flush=True)\nos.closerange(0, 4096)\n"
                  f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\nos.execve('/bin/sleep', ['sleep', '300'], {{}})")
        server = int(self.berth("run", "-q", "--mem", "60G", "--", sys.executable, "-c", daemon).stdout)
        self.addCleanup(self.end, server)
        self.rewrite(f"process gpu=0 pid={server} bytes=10GiB")
        gate.touch()
        self.until(lambda: pathlib.Path(f"/proc/{server}/comm").read_text() == "sleep\n", "it has no environment")
        self.assertFalse(self.fits("15G"), "60 GiB are still promised, and its 10 GiB cannot be counted as part of them")
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
        self.machine.write_text("gpus 4 memory=80GiB\n" + "".join(f"process gpu={i} pid=4194711 bytes={30 if i == 2 else 40}GiB\n" for i in range(4)))
        gpus = self.gpus()
        self.wait_in_line("--mem", "70G", "--wait", "10m", "--", "true")
        for _ in range(3):
            self.assertNotEqual(self.hold("--mem", "1G").devices, [gpus[2]])
        answer = self.berth("run", "--mem", "1G", "--device", "cuda:2", "--", "true")
        self.assertRefused(answer, 3, "reserved for")
        self.assertNotIn("avoid", answer.stderr + self.berth("why").stdout)

    def stop_outside_the_lock(self, process):
        """Stops a process while it does not hold the ledger's lock, because it would block all other commands."""
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
        self.assertFalse(self.fits("10G"), "kept for the waiting request")
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
        answer.stderr = re.sub(r"^berth: waiting, .*\n", "", answer.stderr)  # where it is slow
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
    # Low: after the clock had been ahead, why showed an old decision.
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
        self.hold("--mem", "60G")
        lease, = self.ps()
        answer = self.berth("release", "--json", str(lease["id"]))
        self.assertEqual(json.loads(answer.stdout), {key: lease[key] for key in ("id", "pid", "user", "command")})
        self.assertEqual(self.ps(), [])

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
        self.assertNotIn("memory_bytes_used", pool["devices"][0], "the driver lists no process of it")
        self.assertRefused(self.berth("stop", str(pool["id"])), 2, f"lease {pool['id']} is a pool, not a job", f"kill {pool['pid']}")
        self.assertRefused(self.berth("why", str(pool["id"])), 2, f"{pool['id']} is a lease, not a decision", "Pool::explain")


if __name__ == "__main__":
    unittest.main()
