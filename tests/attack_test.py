"""Attempts to make the shared ledger forget, split or stall: no descriptors, closed descriptors, limits, forged files, crowds.

Every test runs the real command on scripted GPUs. Attacks within one program are in src/ledger/ledger_attack_test.cpp and
src/pool/shared_pool_process_test.cpp.
"""
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from berth_case import BERTH, BERTH_WORD, GIB
from shared_box_case import ALICE, MALLORY, MOUNTS, OneUser, SharedFolder, shell, user


class Limits(OneUser):
    """A caller with few resources."""

    def limited(self, prepare, *arguments):
        return subprocess.run([BERTH, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120,
                              env=self.environment(), preexec_fn=prepare)

    def test_with_standard_descriptors_closed_the_lease_takes_none_of_their_places(self):
        look = self.folder / "look.py"
        look.write_text("import os, sys, time\n"
                        "links = {fd: os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{fd}')}\n"
                        "with open(sys.argv[1] + '.new', 'w') as out: out.write(repr(links))\n"
                        "os.rename(sys.argv[1] + '.new', sys.argv[1])\n"
                        "while not os.path.exists(sys.argv[2]): time.sleep(0.02)\n"
                        "os._exit(7)\n")
        for closed in ((0,), (1,), (2,), (0, 1, 2)):
            seen, end = self.folder / f"seen{closed}", self.folder / f"end{closed}"
            process = subprocess.Popen([BERTH, "run", "--mem", "60G", "--", sys.executable, str(look), str(seen), str(end)],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment(),
                                       preexec_fn=lambda: [os.close(fd) for fd in closed])
            self.started.append(process)
            self.until(seen.exists, "the command runs")
            links = eval(seen.read_text())
            ledgers = [int(fd) for fd, target in links.items() if "berth-ledger-" in target]
            self.assertEqual(len(ledgers), 1, links)
            self.assertGreater(ledgers[0], 2, closed)
            self.assertEqual(len(self.ps()), 1)
            self.assertFalse(self.fits("30G"), closed)
            end.touch()
            self.assertEqual(process.wait(60), 7, closed)
            self.assertNoneLeft()

    def test_without_descriptors_nothing_is_promised_twice_and_one_sentence_says_why(self):
        held = self.hold("--mem", "60G")
        outcomes = set()
        for most in range(4, 24):
            limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            for amount in ("60G", "10G"):
                answer = self.limited(limit, "run", "-q", "--mem", amount, "--", "echo", "started")
                self.assertGreaterEqual(answer.returncode, 0, (most, answer.returncode))
                if amount == "60G":
                    self.assertEqual(answer.stdout, "", f"promised twice with {most} descriptors")
                if "shared libraries" in answer.stderr:  # the dynamic linker's own words
                    continue
                if answer.returncode != 0:
                    self.assertEqual(answer.stderr.count("berth: "), 1, (most, answer.stderr))
                    self.assertIn(answer.returncode, (1, 3), (most, answer.stderr))
                else:
                    self.assertEqual((answer.stdout, answer.stderr), ("started\n", ""), most)
                outcomes.add((amount, answer.returncode))
            self.assertEqual(len(self.ps()), 1, most)
            self.assertEqual(self.limited(limit, "pick", "--mem", "60G").stdout, "", f"the ledger looks empty with {most} descriptors")
        self.assertLessEqual({("10G", 0), ("10G", 1), ("60G", 3)}, outcomes)
        held.communicate("")

    def test_a_limit_on_the_size_of_files_is_a_sentence_and_harms_no_lease(self):
        held = self.hold("--mem", "60G")
        ledger = self.runtime / f"berth-ledger-{os.geteuid()}"
        for most in (0, 63, 4096, 16384, 16400, 1064970):
            before = ledger.read_bytes()
            limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            answer = self.limited(limit, "run", "--mem", "10G", "--", "echo", "started")
            self.assertRefused(answer, 1, "File too large", "ulimit -f")
            self.assertEqual(answer.stdout, "")
            self.assertEqual(ledger.read_bytes()[:64], before[:64], "the earlier entries are unchanged")
            self.assertEqual([lease["pid"] for lease in self.ps()], [held.command_pid])
        self.assertEqual([path.name for path in self.runtime.glob("berth-ledger*")], [ledger.name])
        # The command gets the default action of the signal back.
        answer = self.limited(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20)), "run", "-q", "--mem", "1G", "--",
                              "dd", "if=/dev/zero", f"of={self.folder}/big", "bs=1M", "count=8")
        self.assertEqual(answer.returncode, -signal.SIGXFSZ, answer.stderr)


class ProcessList(OneUser):
    def test_a_driver_that_does_not_list_processes_makes_no_device_empty(self):
        """An engine that outlived its command is known only by its memory on the device, and the driver does not list it."""
        daemon = ("import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nprint(os.getpid(), flush=True)\nos.closerange(0, 4096)\n"
                  "os.execve('/bin/sleep', ['sleep', '300'], {})")
        engine = int(self.berth("run", "-q", "--mem", "60G", "--", sys.executable, "-c", daemon).stdout)
        self.addCleanup(os.kill, engine, signal.SIGKILL)
        self.rewrite(f"process gpu=0 pid={engine} bytes=10GiB", "error nvmlDeviceGetComputeRunningProcesses* code=999 times=always",
                     "error nvmlDeviceGetGraphicsRunningProcesses* code=999 times=always")
        self.assertFalse(self.fits("25G"), "60 GiB are promised")
        self.assertRefused(self.berth("run", "--", "true"), 3)
        self.assertEqual(len(self.ps()), 1)
        self.rewrite(f"process gpu=0 pid={engine} bytes=10GiB")
        self.assertFalse(self.fits("25G"), "the lines above did not remove it")
        self.rewrite()
        self.assertTrue(self.fits("70G"), "the driver reports that no process is there")


class SeveralUsers(SharedFolder):
    def test_a_forged_number_of_another_users_file_changes_nothing_for_it(self):
        held = self.start("run", "-q", "--mem", "60G", "--", "sh", "-c", "echo $BERTH_LEASE; read line", prefix=user(ALICE))
        lease = held.stdout.readline().strip()
        number, name = lease.split(":")
        text = f"next 9 granted=0\nlease {name} running pid=1 start=1 pidns=1 since=0 priority=1 name=x claim={self.gpus()[0]},{self.gpus()[0]},1,0,0\n"
        forge = (f"import fcntl, os, struct\nfile = open({str(self.ledger_of(MALLORY))!r}, 'w+b')\n"
                 f"file.write(b'berth-ledger 1 {number} ' + b'%016x %08x'.ljust(10) % (2, {len(text)}) + b' ' * 5 + b'\\n')\n"
                 f"file.seek(16384)\nfile.write({text.encode()!r})\nfile.flush()\nos.chmod(file.name, 0o644)\n"
                 f"fcntl.fcntl(file, 37, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, (1 << 40) + {name}, 1, 0))")  # F_OFD_SETLK
        self.python(MALLORY, forge)
        self.assertEqual(sorted(entry["user"] for entry in self.ps()), ["5001", "5002"], "it counts as a lease of its author")
        for who in (user(ALICE), user(MALLORY), ()):
            self.assertFalse(self.fits("30G", prefix=who), who)
        inside = self.berth("run", "-q", "--mem", "50G", "--", "echo", "in", prefix=user(ALICE), BERTH_LEASE=lease)
        self.assertEqual(inside.stdout, "in\n", inside.stderr)
        stolen = self.berth("run", "-q", "--mem", "50G", "--", "echo", "in", prefix=user(MALLORY), BERTH_LEASE=lease)
        self.assertRefused(stolen, 3, "inside lease")
        self.assertNotEqual(self.berth("release", f"5001/{name}", prefix=user(MALLORY)).returncode, 0)
        self.assertEqual(self.berth("release", f"5002/{name}").returncode, 0)
        self.assertEqual([entry["user"] for entry in self.ps()], ["5001"])
        held.communicate("")
        self.assertNoneLeft()

    def test_a_command_of_root_that_goes_on_as_another_user_keeps_roots_lease(self):
        drop = f"import os, sys\nos.setgid({ALICE})\nos.setuid({ALICE})\nprint(os.getpid(), flush=True)\nsys.stdin.read()"
        held = self.start("run", "-q", "--mem", "60G", "--", sys.executable, "-c", drop)
        pid = int(held.stdout.readline())
        self.assertEqual([(lease["user"], lease["pid"]) for lease in self.ps()], [("root", pid)])
        # 60 are promised, 40 of them in use: 20 are available to every user.
        self.rewrite(f"process gpu=0 pid={pid} bytes=40GiB")
        for who in ((), user(ALICE), user(MALLORY)):
            self.assertFalse(self.fits("25G", prefix=who), who)
            self.assertTrue(self.fits("15G", prefix=who), who)
        self.assertRefused(self.berth("release", str(self.ps()[0]["id"]), prefix=user(ALICE)), 1, "root")
        held.communicate("")
        self.rewrite()
        self.assertNoneLeft()

    def test_one_folder_under_two_names_is_locked_and_counted_once(self):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            machine = pathlib.Path(folder, "machine.txt")
            machine.write_text(self.script)
            inner = (f"env -u BERTH_LEASE {BERTH_WORD} run --mem 30G -- echo never; env -u BERTH_LEASE {BERTH_WORD} run -q --mem 15G -- echo fits; "
                     f"{BERTH_WORD} ps --json; ls /run/lock /dev/shm")
            inside = shell(MOUNTS + "; mount --bind /run/lock /dev/shm")
            env = {**self.environment(BERTH_DOUBLE=str(machine)), "XDG_STATE_HOME": folder}
            del env["BERTH_RUNTIME_DIR"]
            began = time.monotonic()
            answer = subprocess.run([*inside, BERTH, "run", "-q", "--mem", "60G", "--", "sh", "-c", inner], env=env, text=True, timeout=60,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(answer.stdout.splitlines().count("fits"), 1, answer.stdout + answer.stderr)
        self.assertNotIn("never", answer.stdout.splitlines())
        self.assertEqual(answer.stdout.count('"state":"running"'), 1, answer.stdout)
        self.assertNotIn("holds the lock", answer.stderr)
        self.assertLess(time.monotonic() - began, 15)

    def test_a_link_to_the_folder_is_refused(self):
        link = self.folder / "link"
        link.symlink_to(self.runtime)
        self.assertRefused(self.berth("run", "--mem", "1G", "--", "true", BERTH_RUNTIME_DIR=str(link)), 1, "is a symbolic link")
        # A link further up leads to the same folder, and to the same lock.
        (self.folder / "up").symlink_to(self.folder)
        self.hold("--mem", "60G")
        self.assertFalse(self.fits("60G", BERTH_RUNTIME_DIR=str(self.folder / "up" / "runtime")))


class Crowd(OneUser):
    script = "gpus 2 memory=80GiB\n"

    def test_a_hundred_at_once_are_all_served_and_never_overcommit(self):
        holders = [self.hold("--mem", "50G") for _ in range(2)]
        log = self.folder / "log"
        script = f"echo + $CUDA_VISIBLE_DEVICES $BERTH_MEMORY_BYTES >> {log}; sleep 0.1; echo - $CUDA_VISIBLE_DEVICES $BERTH_MEMORY_BYTES >> {log}"
        began = time.monotonic()
        crowd = [self.start("run", "-q", "--mem", "60G" if i % 10 < 3 else "1G", "--wait", "4m", "--", "sh", "-c", script) for i in range(100)]
        self.until(lambda: self.waiting() >= 30, "thirty have to wait")
        for holder in holders:
            holder.communicate("")
        for process in crowd:
            _, errors = process.communicate()
            self.assertEqual((process.returncode, errors), (0, ""))
        self.assertLess(time.monotonic() - began, 150)
        lines = [line.split() for line in log.read_text().splitlines()]
        self.assertEqual(len(lines), 200)
        in_use = {}
        for sign, device, amount in lines:
            in_use[device] = in_use.get(device, 0) + (1 if sign == "+" else -1) * int(amount)
            self.assertLessEqual(in_use[device], 80 * GIB)
        self.assertNoneLeft()
        self.assertEqual(self.berth("run", "-q", "--mem", "80G", "-n", "2", "--", "true").returncode, 0, "nothing is left behind")

    def test_a_long_line_sleeps(self):
        self.hold("--mem", "60G", "-n", "2")
        waiting = [self.start("run", "-q", "--mem", "70G", "--wait", "5m", "--", "true") for _ in range(50)]
        self.until(lambda: self.waiting() == 50, "they stand in line")
        pids = [process.pid for process in waiting]
        before, began = self.reads(pids), time.monotonic()
        time.sleep(5)
        reads = (self.reads(pids) - before) / (time.monotonic() - began) / len(pids)
        self.assertLess(reads, 60, "reads per second by each waiting command")


if __name__ == "__main__":
    unittest.main()
