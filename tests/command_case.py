"""Shared by tests of the command that need no separate machine: the command, on scripted GPUs, and on a terminal."""
import fcntl
import os
import pathlib
import pty
import select
import struct
import subprocess
import tempfile
import termios
import unittest

from berth_case import BERTH, DOUBLE, ROOT

# A ledger and decisions of its own.
RUNTIME = tempfile.TemporaryDirectory()
os.environ["BERTH_RUNTIME_DIR"] = RUNTIME.name
HAS_CUDA = any(pathlib.Path(p).exists() for p in ("/dev/nvidia0", "/dev/nvidiactl"))
HAS_OPENCL = any(pathlib.Path(os.environ.get("OCL_ICD_VENDORS", "/etc/OpenCL/vendors")).glob("*.icd"))


def berth(*arguments, cwd=None, stdout=subprocess.PIPE, **environment):
    env = {**os.environ, "POCL_DEVICES": "basic basic", **environment}
    env.pop("BERTH_SIMULATED", None) if "BERTH_SIMULATED" not in environment else None
    env.pop("OCL_ICD_FILENAMES", None) if "OCL_ICD_VENDORS" in environment else None
    return subprocess.run([BERTH, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True, env=env, timeout=60, cwd=cwd)


def on_double(machine, *arguments, **environment):
    """The command on scripted GPUs; `machine` is a file of tests/double/machines, or a path."""
    script = machine if "/" in machine else str(ROOT / f"tests/double/machines/{machine}.txt")
    return berth(*arguments, LD_LIBRARY_PATH=DOUBLE, BERTH_DOUBLE=script, **environment)


def without_cuda(*arguments, **environment):
    """Runs the command without NVIDIA's driver: the first file with its name is not a library."""
    for name in ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"):
        pathlib.Path(RUNTIME.name, "no-driver").mkdir(exist_ok=True)
        pathlib.Path(RUNTIME.name, "no-driver", name).write_text("not a library\n")
    return berth(*arguments, LD_LIBRARY_PATH=RUNTIME.name + "/no-driver", **environment)


class Terminal:
    """The command on a separate terminal of 100 columns."""

    def __init__(self, arguments, **environment):
        self.text = ""
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            env = dict(os.environ, POCL_DEVICES="basic basic", TERM="xterm", LANG="C.UTF-8", LC_ALL="C.UTF-8", **environment)
            os.execve(BERTH, [BERTH, *arguments], env)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.master)

    def read(self):
        if not select.select([self.master], [], [], 60)[0]:
            raise TimeoutError(self.text)
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the other end is closed
            data = b""
        self.text += data.decode(errors="replace")
        return bool(data)

    def read_until(self, word, times=1):
        while self.text.count(word) < times:
            if not self.read():
                raise EOFError(self.text)

    def finish(self):
        while self.read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class CommandCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def assert_refused(self, result, status, *words):
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(result.stdout or "", "", "a refusal prints nothing on stdout")
        lines = result.stderr.strip().splitlines()
        self.assertEqual(len(lines), 1, f"one sentence, not: {result.stderr}")
        self.assertTrue(lines[0].startswith("berth: "), lines[0])
        for word in words:
            self.assertIn(word, lines[0])
