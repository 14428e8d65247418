"""Shared by tests of the command: a machine of scripted GPUs, a ledger of its own, and processes that are ended."""
import faulthandler
import fcntl
import functools
import json
import os
import pathlib
import pty
import pwd
import re
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

# Absolute paths: in another mount namespace there is no working folder.
BERTH, ROOT, DOUBLE = (os.path.abspath(sys.argv.pop(1)) for _ in range(3))
ROOT = pathlib.Path(ROOT)
BERTH_WORD = shlex.quote(BERTH)  # in a command of a shell
GIB = 1 << 30
# A command that prints the name of each of these signals as it arrives, and ends with the next line of its input. A shell that is about to read a
# line would notice a signal only after that line.
PRINT_SIGNALS = (sys.executable, "-c", """
import os, select, signal
arrived, wakeup = os.pipe()
os.set_blocking(wakeup, False)
signal.set_wakeup_fd(wakeup)
for each in signal.SIGTERM, signal.SIGINT, signal.SIGUSR1:
    signal.signal(each, lambda *_: None)
print("ready", flush=True)
while 0 not in (readable := select.select([0, arrived], [], [])[0]):
    print(signal.Signals(os.read(arrived, 1)[0]).name, flush=True)
print(input())
""")
# ctest ends a test after ten minutes without reporting where it hung.
if "CTEST_INTERACTIVE_DEBUG_MODE" in os.environ:
    faulthandler.dump_traceback_later(570, exit=True)
# A build without SQLite keeps the store of a server in memory.
needs_sqlite = unittest.skipUnless(b"libsqlite3.so" in pathlib.Path(BERTH).read_bytes(), "the store in a file needs SQLite")


def print_skip(result, test, reason, before=unittest.TextTestResult.addSkip):
    """Prints a skip in the form that scripts/skips reads: a skip that tests/expected_skips.txt does not list turns `make test` red."""
    before(result, test, reason)
    kind = re.fullmatch(r"setUp\w+ \((.*)\)", test.id())
    name = (kind[1] if kind else test.id().split(" ")[0]).removeprefix("__main__.")
    print(f"\n[  SKIPPED ] {name}: {' '.join(reason.split())}", file=sys.stderr, flush=True)


unittest.TextTestResult.addSkip = print_skip


# Set by `make nightly` on a machine that does nothing else. Elsewhere limits on durations only end tests that hang.
QUIET = bool(os.environ.get("BERTH_QUIET_MACHINE"))


@functools.cache
def may_mount():
    """Whether this process may mount: root of a machine may, root of a container usually may not."""
    return os.geteuid() == 0 and shutil.which("unshare") and subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "none", "/tmp"], capture_output=True).returncode == 0


def user_name():
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


class Machine(unittest.TestCase):
    """Every test has a ledger of its own, and a machine of two GPUs unless it writes another."""

    script = "gpus 2 memory=80GiB capability=9.0\n"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.machine = self.folder / "machine.txt"
        self.machine.write_text(self.script)
        self.runtime = self.folder / "runtime"
        self.started = []
        self.addCleanup(self.end_all)
        # Only PoCL of OpenCL's drivers: a real GPU would be one device too many.
        self.vendors = self.folder / "vendors"
        self.vendors.mkdir()
        # Some loaders take the names of drivers from this variable, others files from a folder, and some both (without listing one twice).
        self.named_drivers = [name for name in os.environ.get("OCL_ICD_FILENAMES", "").split(":") if "pocl" in name]
        for vendor in pathlib.Path("/etc/OpenCL/vendors").glob("*pocl*.icd"):
            (self.vendors / vendor.name).write_text(vendor.read_text())

    def needs_pocl(self):
        if not self.named_drivers and not any(self.vendors.iterdir()):
            self.skipTest("PoCL is not installed")

    def end_all(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def environment(self, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("BERTH_", "CUDA_", "OCL_", "POCL_DEVICES"))}
        if self.named_drivers and self.vendors.is_dir() and "OCL_ICD_VENDORS" not in more:
            env["OCL_ICD_FILENAMES"] = ":".join(self.named_drivers)
        return {**env, "LD_LIBRARY_PATH": DOUBLE, "BERTH_DOUBLE": str(self.machine), "BERTH_RUNTIME_DIR": str(self.runtime),
                "POCL_DEVICES": "basic basic", "OCL_ICD_VENDORS": str(self.vendors), **more}

    def berth(self, *arguments, prefix=(), **environment):
        """Runs the command to its end; `prefix`: another program that starts it, as another user or in a namespace."""
        return subprocess.run([*prefix, BERTH, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120,
                              env=self.environment(**environment))

    def start(self, *arguments, prefix=(), **environment):
        process = subprocess.Popen([*prefix, BERTH, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env=self.environment(**environment))
        self.started.append(process)
        return process

    def hold(self, *arguments, **environment):
        """A command that holds its devices until its standard input ends."""
        process = self.start("run", *arguments, "--", "sh", "-c", "echo $$ $CUDA_VISIBLE_DEVICES; read line", **environment)
        line = process.stdout.readline().split()
        self.assertTrue(line, process.stderr.read() if process.poll() is not None else "")
        process.command_pid, process.devices = int(line[0]), line[1].split(",") if len(line) > 1 else []
        return process

    def mps_daemon(self, listening=True):
        """A folder as CUDA's MPS control daemon leaves it: a socket, on which a process listens or no longer does."""
        folder = self.folder / f"mps{int(listening)}"
        folder.mkdir()
        control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.bind(str(folder / "control"))
        control.listen()
        if listening:
            self.addCleanup(control.close)
        else:
            control.close()
        return str(folder)

    def ps(self, **how):
        """The leases of `berth ps`."""
        answer = self.berth("ps", "--json", **how)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return json.loads(answer.stdout)["leases"]

    def terminal(self, *command):
        """A program with its own terminal: its process id, the other end, and a function that reads there until a word occurs."""
        pid, master = pty.fork()
        if pid == 0:
            os.execvpe(command[0], command, {**self.environment(), "LC_ALL": "C.UTF-8", "PS1": "prompt> "})
        self.addCleanup(os.close, master)

        def read_until(text, word):
            deadline = time.monotonic() + 60
            while word not in text:
                self.assertLess(time.monotonic(), deadline, text)
                if not select.select([master], [], [], 1)[0]:
                    continue
                try:
                    data = os.read(master, 1024)
                except OSError:
                    break
                if not data:
                    break
                text += data
            return text

        return pid, master, read_until

    def on_terminal(self, columns, *arguments, until=None, rows=50, **environment):
        """The output of the command on a terminal, and its status. `until`: words after which it is interrupted."""
        pid, master = pty.fork()
        if pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execve(BERTH, [BERTH, *arguments], self.environment(TERM="xterm", LC_ALL="C.UTF-8", **environment))
        text, latest = b"", time.monotonic() + 60
        while select.select([master], [], [], max(0, latest - time.monotonic()))[0]:
            try:
                data = os.read(master, 65536)
            except OSError:
                break
            if not data:
                break
            text += data
            if until and until in text:
                os.kill(pid, signal.SIGINT)
                until = None
        else:
            os.kill(pid, signal.SIGKILL)
        os.close(master)
        return text.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def until(self, condition, what):
        """A generous bound on a loaded machine; what is waited for takes milliseconds."""
        for _ in range(1200):
            value = condition()
            if value:
                return value
            time.sleep(0.05)
        self.fail(what)

    def assertQuick(self, seconds, bar, why=""):
        """Checks a limit that holds on a quiet machine; on a busy one it is three times as high, and at least 15 s."""
        self.assertLess(seconds, bar if QUIET else max(15, 3 * bar), why)

    def reads(self, pids):
        """How many read calls the processes have made so far, which does not depend on their speed."""
        return sum(int(pathlib.Path(f"/proc/{pid}/io").read_text().split("syscr:")[1].split()[0]) for pid in pids)

    def assertRefused(self, answer, status, *words):
        self.assertEqual(answer.returncode, status, answer.stderr)
        for word in words:
            self.assertIn(word, answer.stderr)
        self.assertNotIn("\nberth: ", answer.stderr.rstrip(), "the message is one sentence")

    def gpus(self):
        return [device["id"] for device in json.loads(self.berth("devices", "--backend", "cuda", "--json").stdout)]
