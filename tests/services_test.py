"""The services of an installation under a real systemd: a machine is booted in namespaces of its own, with this machine's
programs, and an operator follows docs/operate/operations.md there.
"""
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

from berth_case import BERTH, may_mount

SYSTEMD = next((path for path in ("/usr/lib/systemd/systemd", "/lib/systemd/systemd") if os.path.exists(path)), None)
# Only logins and services are started, not the other services of this machine. Kernel settings are not changed.
BOOT = """
mount --make-rprivate /
mount -t tmpfs -o mode=755 none {folder}
cd {folder}
mkdir -p root upper/etc/systemd/system work
printf '[Unit]\\nRequires=basic.target dbus.service systemd-logind.service\\nAfter=basic.target dbus.service systemd-logind.service\\n' \
  > upper/etc/systemd/system/booted.target
touch upper/etc/machine-id upper/etc/fstab
cp -a {installed}/. upper/
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work none root
cd root
mount -t proc none proc; mount --bind proc/sys proc/sys; mount -o remount,ro,bind proc/sys
mount -t sysfs -o ro none sys; mount -t cgroup2 none sys/fs/cgroup
mount -t tmpfs -o mode=755 none dev; for node in null zero full random urandom tty; do touch dev/$node; mount --bind /dev/$node dev/$node; done
mkdir dev/shm dev/pts; mount -t devpts -o newinstance,ptmxmode=0666 none dev/pts; ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=755 none run; mount -t tmpfs -o mode=1777 none tmp
mkdir tmp/before; pivot_root . tmp/before; umount -l tmp/before
mount --make-rshared / # as the first systemd of a machine does, and one of a container does not
exec env -i container=other PATH=/usr/local/bin:/usr/bin:/usr/sbin {systemd} --unit=booted.target
"""
PROJECT = """
[cluster]
name = "c"
[[deployment]]
name = "web"
cpu = true
memory = "64MiB"
command = ["python3", "-m", "http.server", "{port}", "--bind", "127.0.0.1"]
[deployment.readiness]
http = "/"
every = "200ms"
"""
BUSY = """
[[deployment]]
name = "busy"
cpu = true
memory = "64MiB"
cpus = 0.5
host_memory = "256MiB"
command = ["sh", "-c", "while :; do :; done"]
"""


class Services(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not may_mount() or SYSTEMD is None or not all(map(shutil.which, ("dbus-daemon", "loginctl", "pgrep", "ss"))):
            raise unittest.SkipTest("needs root, systemd, dbus-daemon, loginctl, pgrep and ss")
        mounts = [line.split() for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
        tree = next((mount[1] for mount in mounts if mount[2] == "cgroup2"), None)
        if tree is None:
            raise unittest.SkipTest("there are no control groups of version 2 here")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.group = pathlib.Path(tree) / f"berth-services-{os.getpid()}"
        try:
            for group in (cls.group, cls.group / "machine", cls.group / "outside"):
                group.mkdir()
        except OSError as error:
            raise unittest.SkipTest(f"no control group can be made here: {error}")
        cls.addClassCleanup(cls.remove_group)
        # Limits on memory and processors work inside if this machine's control groups support them.
        for controller in (cls.group / "cgroup.controllers").read_text().split():
            (cls.group / "cgroup.subtree_control").write_text(f"+{controller}")
        installed, box = (pathlib.Path(folder.name) / name for name in ("installed", "box"))
        box.mkdir()
        subprocess.run(["cmake", "--install", os.path.dirname(BERTH), "--prefix", "/usr/local"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "DESTDIR": str(installed)})
        boot = BOOT.format(folder=box, installed=installed, systemd=SYSTEMD)
        cls.log = open(pathlib.Path(folder.name) / "boot.log", "w+")
        cls.outer = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "sh", "-ec", f'echo $$ > {cls.group}/machine/cgroup.procs; exec unshare -C -p -m -i -u -n -f --kill-child sh -ec "$1"', "sh", boot],
            stdin=subprocess.DEVNULL, stdout=cls.log, stderr=cls.log)
        cls.addClassCleanup(cls.end)
        first = pathlib.Path(f"/proc/{cls.outer.pid}/task/{cls.outer.pid}/children")
        if not cls.within(30, lambda: cls.outer.poll() is not None or cls.is_booted(first)) or cls.outer.poll() is not None:
            cls.log.seek(0)
            raise unittest.SkipTest("no systemd boots here: " + cls.log.read()[-500:])
        cls.run_inside("systemd-sysusers")

    @classmethod
    def is_booted(cls, first):
        children = first.read_text().split()
        if not children:
            return False
        # A group with limits for its child groups must not have processes itself.
        (cls.group / "outside/cgroup.procs").write_text(str(cls.outer.pid))
        cls.inside = ["nsenter", "-t", children[0], "-a"]
        return subprocess.run([*cls.inside, "systemctl", "is-active", "booted.target"], capture_output=True).returncode == 0

    @classmethod
    def end(cls):
        cls.outer.kill()
        cls.outer.wait()
        cls.log.close()

    @classmethod
    def remove_group(cls):
        folders = [pathlib.Path(folder) for folder, _, _ in os.walk(cls.group, topdown=False)]

        def is_empty(folder):
            try:
                return not (folder / "cgroup.procs").read_text()
            except FileNotFoundError:
                return True  # the last process of the namespace has just removed it
        cls.within(20, lambda: all(is_empty(folder) for folder in folders))
        for folder in folders:
            with contextlib.suppress(FileNotFoundError):
                folder.rmdir()

    @staticmethod
    def within(seconds, holds):
        end = time.monotonic() + seconds
        while not (held := holds()) and time.monotonic() < end:
            time.sleep(0.1)
        return held

    @classmethod
    def run_inside(cls, *command, status=0, text=None):
        done = subprocess.run([*cls.inside, "env", "PATH=/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin", *command], input=text, capture_output=True, text=True, timeout=120)
        if status is not None and done.returncode != status:
            raise AssertionError(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}{cls.journal()}")
        return done.stdout

    @classmethod
    def journal(cls):
        return subprocess.run([*cls.inside, "journalctl", "--no-pager", "-n", "40"], capture_output=True, text=True).stdout

    @classmethod
    def as_berth(cls, *command, **more):
        return cls.run_inside("runuser", "-u", "berth", "--", "env", "-C", "/var/lib/berth", "HOME=/var/lib/berth", *command, **more)

    def write(self, path, text):
        self.run_inside("sh", "-ec", f"mkdir -p {os.path.dirname(path)}; cat > {path}", text=text)

    def apply(self, project):
        self.write("/etc/berth/project.toml", project)
        self.as_berth("berth", "apply", "/etc/berth/project.toml", "--wait")

    def process(self, what):
        return self.run_inside("pgrep", "-f", what).split()

    def main(self, unit):
        return self.run_inside("systemctl", "show", "-p", "MainPID", "--value", unit).strip()

    def ready(self, deployment):
        return self.within(30, lambda: re.search(rf"^{deployment}/0 +ready ", self.as_berth("berth", "replicas"), re.M))

    def test_a_fleet_of_services(self):
        self.write("/etc/berth/server.toml", 'listen = ["127.0.0.1:8080"]\n')
        self.run_inside("systemctl", "enable", "--now", "berth-server")
        self.as_berth("berth", "token", "add", "join", "-o", "/var/lib/berth/join.token")
        self.run_inside("install", "-D", "-o", "berth", "-m", "600", "/var/lib/berth/join.token", "/etc/berth/join.token")
        self.write("/etc/berth/agent.env", "BERTH_AGENT_OPTIONS=--join http://127.0.0.1:8080 --token-file /etc/berth/join.token\n")
        self.run_inside("systemctl", "enable", "--now", "berth-agent")
        self.apply(PROJECT)
        replica = self.process("http.server")

        with self.subTest("replicas run on while their agent is stopped, killed and started again"):
            self.run_inside("systemctl", "restart", "berth-agent")
            before = self.main("berth-agent")
            self.run_inside("kill", "-9", before)
            self.assertTrue(self.within(20, lambda: self.main("berth-agent") not in ("0", before)))
            self.assertTrue(self.ready("web"))
            self.assertEqual(self.process("http.server"), replica)

        with self.subTest("the server reads its file again, and starts again with its state"):
            self.write("/etc/berth/server.toml", 'listen = ["127.0.0.1:8080", "127.0.0.1:8081"]\n')
            before = self.main("berth-server")
            self.run_inside("systemctl", "reload", "berth-server")
            self.assertTrue(self.within(20, lambda: "8081" in self.run_inside("ss", "-ltn")))
            self.assertEqual(self.main("berth-server"), before)
            self.run_inside("systemctl", "restart", "berth-server")
            self.assertTrue(self.ready("web"))
            self.assertEqual(self.process("http.server"), replica)

        with self.subTest("limits on the host hold, or are said not to"):
            self.run_inside("loginctl", "enable-linger", "berth")
            user = self.run_inside("id", "-u", "berth").strip()
            self.assertTrue(self.within(20, lambda: self.run_inside("systemctl", "is-active", f"user@{user}", status=None) == "active\n"))
            self.apply(PROJECT + BUSY)
            group = self.run_inside("sh", "-c", f"sed -n 's/^0:://p' /proc/{self.process('while :')[0]}/cgroup").strip()
            self.assertRegex(group, rf"/user@{user}\.service/.*/berth-j\d+-\d+\.scope$")
            controllers = self.run_inside("cat", f"/sys/fs/cgroup{group}/cgroup.controllers").split()
            why = self.as_berth("berth", "why", "replica", "busy/0")
            limited = {"cpu": "processors", "memory": "memory"}
            self.assertEqual("is not enforced" in why, not all(name in controllers for name in limited), why)
            if "cpu" in controllers:
                self.assertEqual(self.run_inside("cat", f"/sys/fs/cgroup{group}/cpu.max").split(), ["50000", "100000"])
                used = lambda: int(self.run_inside("sed", "-n", "s/^usage_usec //p", f"/sys/fs/cgroup{group}/cpu.stat"))
                before, began = used(), time.monotonic()
                time.sleep(2)
                self.assertLess((used() - before) / 1e6, 0.65 * (time.monotonic() - began), "an endless loop gets half a processor")
            if "memory" in controllers:
                self.assertEqual(self.run_inside("cat", f"/sys/fs/cgroup{group}/memory.max").strip(), str(256 << 20))
            # The user's systemd holds the job, so the agent can stop.
            self.run_inside("systemctl", "restart", "berth-agent")
            self.assertTrue(self.ready("busy"))

        with self.subTest("nothing is left of what is deleted"):
            for name in ("web", "busy"):
                self.as_berth("berth", "delete", name)
            gone = lambda what: not self.run_inside("pgrep", "-f", what, status=None)
            self.assertTrue(self.within(30, lambda: gone("http.server") and gone("while :") and gone("supervise-job")))


if __name__ == "__main__":
    unittest.main()
