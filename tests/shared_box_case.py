"""Shared by tests of a machine with several users: users, mount namespaces, and a ledger in a folder for all."""
import os
import shlex
import subprocess
import sys
import unittest

from berth_case import ROOT, Machine, may_mount

ALICE, MALLORY = 5001, 5002
NEEDS_ROOT = unittest.skipUnless(may_mount(), "needs root: several users and namespaces")
# The machine's own folders, empty: /run, /dev/shm and /tmp, with the project where that is below /tmp.
NEW_TMP = "mount -t tmpfs -o mode=1777 none /tmp"
if str(ROOT).startswith("/tmp/"):
    QUOTED = shlex.quote(str(ROOT))
    NEW_TMP = f"exec 9<{QUOTED}; {NEW_TMP}; mkdir -p {QUOTED}; mount -c --bind /proc/self/fd/9 {QUOTED}; exec 9<&-"
MOUNTS = "mount -t tmpfs -o mode=755 none /run; mkdir -m 1777 /run/lock; mount -t tmpfs -o mode=1777 none /dev/shm; " + NEW_TMP


def user(uid):
    return ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")


def shell(script):
    """A prefix that runs `script` in a new mount namespace, and then the command."""
    return ("unshare", "-m", "--propagation", "private", "sh", "-ec", script + '; exec "$@"', "sh")


class OneUser(Machine):
    """One GPU of 80 GiB."""

    script = "gpu memory=80GiB\n"

    def rewrite(self, *lines):
        """Replaces the driver's answers from now on."""
        self.machine.write_text(self.script + "".join(line + "\n" for line in lines))

    def fits(self, amount, *arguments, **more):
        """Whether this much is granted now."""
        answer = self.berth("run", "-q", "--mem", amount, *arguments, "--", "true", **more)
        self.assertIn(answer.returncode, (0, 3), answer.stderr)
        return answer.returncode == 0

    def wait_in_line(self, *arguments, **more):
        """Starts a request that waits, once its place is in the ledger."""
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


class SharedFolder(OneUser):
    """Several users of one root-owned folder with mode 1777."""

    def setUp(self):
        super().setUp()
        if not may_mount():
            self.skipTest("needs root: several users and namespaces")
        self.folder.chmod(0o755)
        self.machine.chmod(0o644)
        self.runtime.mkdir()
        self.runtime.chmod(0o1777)

    def ledger_of(self, uid):
        return self.runtime / f"berth-ledger-{uid}"

    def python(self, uid, script):
        """A program of that user that prints when it is ready and then waits for the end of its input."""
        process = self.spawn([*user(uid), sys.executable, "-c", script + "\nprint('ready', flush=True)\nimport sys\nsys.stdin.read()"])
        self.assertEqual(process.stdout.readline(), "ready\n", process.stderr.read() if process.poll() is not None else "")
        return process
