"""A hostile user and the ledger that all users share: locks that are held, files that cannot be read, forged lines, crowds of files.

What one user does there costs the others a message that names that user, and nothing else. These tests need root, for several
users, and say so where they are skipped.
"""
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest

from berth_case import BERTH, DOUBLE, GIB
from shared_box_case import ALICE, MALLORY, SharedFolder, user

BOB = 5003
POOL_PROGRAM = pathlib.Path(DOUBLE).parent / "pool_program"
# A command that cannot wait reports within two seconds who blocks it.
SOON = 2

# The beginning of the attacker's programs: functions that forge ledger files.
FORGE = """
import fcntl, os, struct
def forge(path, text, number=1):
    with open(path, 'wb') as file:
        file.write(b'berth-ledger 1 %016x %016x %08x' % (number, 2, len(text)) + b' ' * 5 + b'\\n')
        file.seek(16384)
        file.write(text)
    os.chmod(path, 0o644)
def lock_all(path):
    file = os.open(path, os.O_RDWR)
    fcntl.fcntl(file, 37, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 1 << 40, 1 << 30, 0))  # F_OFD_SETLK
    return file
"""


class Hostile(SharedFolder):
    def pool(self, uid):
        """A program with a Pool of that user; the answers to what is asked of it."""
        process = self.spawn([*user(uid), str(POOL_PROGRAM)], env=self.environment())
        self.assertEqual(process.stdout.readline(), "open\n", process.stderr.read() if process.poll() is not None else "")

        def ask(what):
            process.stdin.write(f"{what}\n")
            process.stdin.flush()
            return process.stdout.readline()

        return ask

    def forge(self, uid, names, text, then="", alive=False):
        """Creates ledger files of that user with these lines; `alive`: and holds the locks of all their leases."""
        source = self.folder / "lines"
        source.write_text(text)
        script = f"text = open({str(source)!r}, 'rb').read()[:1 << 20]\nos.chdir({str(self.runtime)!r})\n"
        script += f"for name in {list(names)!r}: forge(name, text)\n"
        return self.python(uid, FORGE + script + (f"held = [lock_all(name) for name in {list(names)!r}]\n" if alive else "") + then)

    def lock_holder(self, uid=MALLORY, pattern="while True: time.sleep(60)"):
        """A program that takes the folder's lock; `pattern` says when it gives it back."""
        script = ("import fcntl, os, sys, time\n"
                  f"fd = os.open({str(self.runtime)!r}, os.O_RDONLY)\n"
                  "fcntl.flock(fd, fcntl.LOCK_EX)\nprint('ready', flush=True)\n" + pattern)
        process = self.spawn([*user(uid), sys.executable, "-c", script])
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def timed(self, *arguments, **how):
        began = time.monotonic()
        answer = self.berth(*arguments, **how)
        return answer, time.monotonic() - began

    def assertServed(self, message=""):
        """Checks that run, ps and a Pool of other users work quickly and see Alice's lease."""
        for arguments in (("run", "-q", "--mem", "1G", "--", "true"), ("ps",), ("pick", "--mem", "1G"), ("devices",)):
            answer, seconds = self.timed(*arguments, prefix=user(BOB))
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assertQuick(seconds, SOON, (arguments, message))
        self.assertFalse(self.fits("60G", prefix=user(BOB)), "Alice holds 60 of the 80")
        began = time.monotonic()
        ask = self.pool(BOB)
        self.assertIn("refused no_eligible_device", ask(60 * GIB))
        self.assertEqual(ask(GIB), "granted\n")
        self.assertQuick(time.monotonic() - began, SOON, message)
        ask("release")

    def assertNamed(self, *words):
        """Checks that `berth ps` and `berth doctor` of another user name the author of ignored entries."""
        shown = self.berth("ps", prefix=user(BOB)).stderr
        for word in ("5002", *words):
            self.assertIn(word, shown)


class HeldLock(Hostile):
    def test_a_pool_is_never_granted_what_another_user_holds(self):
        held = self.hold("--mem", "60G", prefix=user(ALICE))
        lock = self.lock_holder()
        ask = self.pool(BOB)
        for amount in (60 * GIB, 1, 0):
            answer = ask(amount)
            self.assertIn("refused unavailable", answer, "nothing is promised while the ledger is locked")
            self.assertIn(f"pid {lock.pid}", answer)
            self.assertIn("user 5002", answer)
        self.assertIn(f"pid {lock.pid}", ask("error"))
        lock.kill()
        lock.wait()
        self.until(lambda: ask("error") == "none\n", "the pool enters the ledger by itself")
        self.assertIn("refused no_eligible_device", ask(60 * GIB))
        self.assertEqual(ask(15 * GIB), "granted\n")
        self.assertIn("5003", [lease["user"] for lease in self.ps()])
        held.communicate("")

    def test_a_pool_that_opens_between_bursts_of_the_lock_is_in_the_ledger_in_the_end(self):
        self.hold("--mem", "60G", prefix=user(ALICE))
        burst = ("while True:\n    time.sleep(1.4)\n    fcntl.flock(fd, fcntl.LOCK_UN)\n    time.sleep(0.3)\n"
                 "    fcntl.flock(fd, fcntl.LOCK_EX)")
        self.lock_holder(pattern=burst)
        for _ in range(3):
            ask = self.pool(BOB)

            def answer():
                got = ask(60 * GIB)
                self.assertNotEqual(got, "granted\n", "Alice holds 60 of the 80")
                return "no_eligible_device" in got and ask("error") == "none\n"

            self.until(answer, "the pool gets the lock between two bursts")

    def test_a_command_says_soon_who_holds_the_lock_or_waits(self):
        self.hold("--mem", "60G", prefix=user(ALICE))
        for arguments in (("run", "--mem", "1G", "--", "echo", "started"), ("ps",), ("pick", "--mem", "1G")):
            lock = self.lock_holder()
            answer, seconds = self.timed(*arguments, prefix=user(BOB))
            self.assertRefused(answer, 1, f"pid {lock.pid}", "user 5002", str(self.runtime))
            self.assertNotIn("BERTH_RUNTIME_DIR", answer.stderr, "that would split the ledger")
            self.assertEqual(answer.stdout, "")
            self.assertQuick(seconds, SOON, arguments)
            # A stopped process still holds the lock.
            os.kill(lock.pid, signal.SIGSTOP)
            answer, seconds = self.timed(*arguments, prefix=user(BOB))
            self.assertRefused(answer, 1, f"pid {lock.pid}", "user 5002")
            lock.kill()
            lock.wait()
        lock = self.lock_holder()
        waiting = self.start("run", "--mem", "1G", "--wait", "5m", "--", "echo", "started", prefix=user(BOB))
        line = waiting.stderr.readline()
        self.assertIn(f"pid {lock.pid}", line)
        self.assertIn("5002", line)
        self.assertIsNone(waiting.poll())
        lock.kill()
        self.assertEqual(waiting.communicate()[0], "started\n")

    def test_a_lock_that_was_left_to_a_child_is_traced_by_root(self):
        lock = self.lock_holder(pattern="child = os.fork()\nif child: print(child, flush=True); os._exit(0)\ntime.sleep(600)")
        child = int(lock.stdout.readline())
        self.addCleanup(os.kill, child, signal.SIGKILL)
        lock.wait()
        self.assertRefused(self.berth("ps"), 1, f"pid {child}", "user 5002")
        self.assertRefused(self.berth("ps", prefix=user(BOB)), 1, str(lock.pid), "has ended")


class UnreadableFile(Hostile):
    def lease(self, path, uid=MALLORY):
        """Keeps a file lease on one of that user's files, and takes it again whenever the kernel ends it."""
        return self.python(uid, "import fcntl, os, signal, threading, time\n"
                                f"fd = os.open({str(path)!r}, os.O_RDWR | os.O_CREAT, 0o644)\n"
                                "def take(*_):\n    try: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n    except OSError: pass\n"
                                "signal.signal(signal.SIGIO, signal.SIG_IGN)\n"
                                "fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n")

    def test_a_file_lease_costs_its_owner_alone(self):
        self.hold("--mem", "60G", prefix=user(ALICE))
        self.lease(self.ledger_of(MALLORY))
        self.assertServed()
        self.assertNamed("file lease", str(self.ledger_of(MALLORY)))
        waited = self.berth("run", "-q", "--mem", "1G", "--wait", "1m", "--", "echo", "started", prefix=user(BOB))
        self.assertEqual(waited.stdout, "started\n")
        self.assertIn("file lease", self.berth("doctor", prefix=user(BOB)).stdout)

    def test_names_that_are_pipes_sockets_links_and_holes_cost_nothing(self):
        self.hold("--mem", "60G", prefix=user(ALICE))
        folder = str(self.runtime)
        self.python(MALLORY, "import os, socket\n"
                             f"name = lambda i: {folder!r} + '/berth-ledger-5002-%016x' % i\n"
                             "os.mkfifo(name(1))\nsocket.socket(socket.AF_UNIX).bind(name(2))\nos.mkdir(name(3))\n"
                             "os.symlink('/proc/self/mem', name(4))\nos.symlink(name(5), name(5))\n"
                             "open(name(6), 'w').truncate(1 << 40)\n"  # a hole of a tebibyte
                             "open(name(7), 'w').close()\n"
                             "os.chmod(name(7), 0)\n"
                             "open(name(8), 'wb').write(b'berth-ledger 1 ' + b'f' * 16 + b' ' + b'f' * 16 + b' 00100000' + b' ' * 9)\n")
        self.assertServed()
        self.assertNamed("truncated", "not a ledger")


class ForgedEntries(Hostile):
    def lines(self, count, holder, more=""):
        gpu = self.gpus()[0]
        return "".join(f"lease {i + 1} running {holder} since=0 priority=1 {more} name=x claim={gpu},{gpu},1073741824,0,0\n" for i in range(count))

    def holder_of(self, pid):
        start = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
        return f"pid={pid} start={start} pidns={os.stat('/proc/self/ns/pid').st_ino}"

    def test_a_forged_holder_does_not_count(self):
        victim = self.spawn([*user(ALICE), "sleep", "600"])
        roots = self.spawn(["sleep", "600"])
        for pid in (1, victim.pid, roots.pid, os.getpid()):
            text = self.lines(4, self.holder_of(pid))
            self.forge(MALLORY, ["berth-ledger-5002"], text)
            for who in (user(BOB), user(MALLORY), ()):
                self.assertEqual(self.ps(prefix=who), [], f"no process of its author is behind it: {pid}")
            self.assertTrue(self.fits("79G", prefix=user(BOB)))
        own = self.spawn([*user(MALLORY), "sleep", "600"])
        text = self.lines(4, self.holder_of(own.pid))
        self.forge(MALLORY, ["berth-ledger-5002"], text)
        self.assertEqual(len(self.ps()), 4, "a lease with a process of its author counts")

    def test_sixty_four_files_of_forged_lines_slow_no_one_down(self):
        self.hold("--mem", "60G", prefix=user(ALICE))
        names = [f"berth-ledger-5002-{i:016x}" for i in range(64)]
        holders = {"of init": self.holder_of(1), "none": "pid=0"}
        for what, holder in holders.items():
            text = self.lines(9000, holder, "within=0000000000000001:7")
            self.forge(MALLORY, names, text)
            self.assertServed(what)
            self.assertNamed("MiB")
        # If all of them are alive, the limit of entries applies: 4096 of one byte each.
        text = "".join(f"lease {i + 1} running pid=0 since=0 within=0000000000000001:{i + 2} name=x claim=GPU-x,GPU-x,1,0,0\n" for i in range(7000))
        self.forge(MALLORY, names[:1], text, alive=True)
        self.assertServed("alive")
        self.assertNamed("4096 lines")
        self.assertEqual(sum(lease["user"] == "5002" for lease in self.ps()), 4096)

    def test_forged_lines_hide_no_lease_from_a_user_namespace(self):
        """In a user namespace, the files of all outside users have one owner."""
        if subprocess.run([*user(BOB), "unshare", "-r", "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("users may not make user namespaces here")
        self.hold("--mem", "60G", prefix=user(ALICE))
        # Their names sort before Alice's files. Locks on every second byte make each query slow.
        names = [f"berth-ledger-1000-{i:016x}" for i in range(6)]
        lock_each = ("for name in os.listdir('.'):\n    if name.startswith('berth-ledger-1000'):\n        file = os.open(name, os.O_RDWR)\n"
                     "        held.append(file)\n        for i in range(3500):\n"
                     "            fcntl.fcntl(file, 37, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, (1 << 40) + 20000 + 2 * i, 1, 0))\n")
        self.forge(MALLORY, names, self.lines(4000, self.holder_of(1), "within=0000000000000001:7"), then="held = []\n" + lock_each)
        self.assertFalse(self.fits("60G", prefix=(*user(BOB), "unshare", "-r")), "Alice holds 60 of the 80")

    def test_a_user_at_the_limit_is_told_and_loses_nothing(self):
        text = "".join(f"lease {i + 1} waiting pid=0 since=0 count=1 beat=0 name=x claim=GPU-x,GPU-x,1,0,0\n" for i in range(4095))
        self.forge(ALICE, ["berth-ledger-5001"], text, alive=True)
        held = self.hold("--mem", "60G", prefix=user(ALICE))
        self.assertFalse(self.fits("60G", prefix=user(BOB)), "the last entry that fits counts")
        self.assertRefused(self.berth("run", "--mem", "1G", "--", "true", prefix=user(ALICE)), 1, "no room for another entry", "berth ps")
        held.communicate("")

    def test_a_forged_heartbeat_in_the_future_keeps_no_place(self):
        self.rewrite("process gpu=0 pid=4194711 bytes=75GiB")
        gpu = self.gpus()[0]
        text = f"lease 1 waiting pid=0 since=0 count=1 beat=0 name=x priority=2 claim={gpu},{gpu},1,0,0\n"
        self.forge(MALLORY, ["berth-ledger-5002"], text, "os.pwrite(held[0], struct.pack('q', 1 << 62), 4096)", alive=True)
        self.rewrite()
        self.assertTrue(self.fits("79G", prefix=user(BOB)), "a request that has ended keeps nothing")


class OwnProcesses(Hostile):
    """A user's processes keep their lease, also as another user or in a container."""

    def test_a_command_that_becomes_roots_process_keeps_its_lease(self):
        sudo = self.folder / "sudo"
        shutil.copy(os.path.realpath(sys.executable), sudo)
        sudo.chmod(0o4755)
        if subprocess.run([*user(ALICE), str(sudo), "-c", "import os; exit(os.geteuid())"], env=self.python_home()).returncode != 0:
            self.skipTest("programs with the set-user-id bit do not get their owner's rights here")
        # Like sudo: root, without descriptors of the caller, and with another environment for the child.
        script = ("import os, sys\nos.setresgid(0, 0, 0)\nos.setresuid(0, 0, 0)\nos.closerange(3, 4096)\nprint(os.getpid(), flush=True)\n"
                  "sys.stdin.read()")
        command = [*user(ALICE), "sh", "-c", '"$@"; exit $?', "sh", BERTH, "run", "-q", "--mem", "60G", "--", str(sudo), "-c", script]
        held = self.spawn(command, env={**self.environment(), **self.python_home()})
        pid = int(held.stdout.readline())
        self.assertEqual(pathlib.Path(f"/proc/{pid}").stat().st_uid, 0)
        for who in (user(BOB), user(ALICE), ()):
            self.assertFalse(self.fits("60G", prefix=who), who)
            self.assertEqual([lease["user"] for lease in self.ps(prefix=who)], ["5001"])
        held.communicate("")
        self.assertNoneLeft()

    def python_home(self):
        """Where a copy of the interpreter finds its library."""
        return {"PYTHONHOME": f"{sys.base_prefix}:{sys.base_exec_prefix}"}

    def test_a_command_in_a_container_keeps_its_lease(self):
        containers = (["unshare", "-r"], ["unshare", "-r", "-p", "--fork", "--mount-proc"])
        for container in containers:
            if subprocess.run([*user(ALICE), *container, "true"], stderr=subprocess.DEVNULL).returncode != 0:
                self.skipTest("users may not make user namespaces here")
            # Berth outside with its command inside, and Berth inside.
            for prefix, command in ((user(ALICE), container), ((*user(ALICE), *container), [])):
                held = self.start("run", "-q", "--mem", "60G", "--", *command, "sh", "-c", "echo in; read line", prefix=prefix)
                self.assertEqual(held.stdout.readline(), "in\n")
                self.assertFalse(self.fits("60G", prefix=user(BOB)), (container, prefix))
                self.assertEqual([lease["user"] for lease in self.ps(prefix=user(BOB))], ["5001"])
                self.assertFalse(self.fits("60G", prefix=(*user(BOB), "unshare", "-r")))
                held.communicate("")
                self.assertNoneLeft()


class Crowds(Hostile):
    # With ten times as many files, the commands take 0.1 s longer, and the test takes minutes to create them.
    COUNT = 30_000

    def test_tens_of_thousands_of_names_hold_up_no_one(self):
        self.hold("--mem", "60G", prefix=user(ALICE))
        for name in ("berth-ledger-{i}x", "berth-ledger-5002-{i:016x}", "berth-ledger-5001-{i:016x}"):
            self.python(MALLORY, f"import os\nos.chdir({str(self.runtime)!r})\n"
                                 f"for i in range({self.COUNT}): os.close(os.open(f{name!r}, os.O_CREAT | os.O_WRONLY, 0o644))")
            self.assertServed(name)
            # Several commands at once, each of which takes the lock several times.
            runs = [self.start("run", "-q", "--mem", "1G", "--", "true", prefix=user(BOB)) for _ in range(8)]
            for process in runs:
                self.assertEqual((process.communicate()[1], process.returncode), ("", 0), name)
        self.assertNamed(f"{2 * self.COUNT - 64} more ledger files")

    def test_a_user_with_thousands_of_numbers_exhausts_no_descriptors(self):
        """A user with a range of subordinate users can be thousands of users."""
        self.hold("--mem", "60G", prefix=user(ALICE))
        text = b"lease 1 running pid=0 since=0 name=x claim=GPU-x,GPU-x,1,0,0\n"
        subprocess.run([sys.executable, "-c", FORGE + f"os.chdir({str(self.runtime)!r})\nfor i in range(100000, 103000):\n"
                        f"    path = 'berth-ledger-%d' % i\n    forge(path, {text!r})\n    os.chown(path, i, i)"], check=True)
        self.assertServed()


if __name__ == "__main__":
    unittest.main()
