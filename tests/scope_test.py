"""Commands in a systemd scope: processes in the scope of a lease keep it alive for every user.

Alice has a login session and a real systemd of her own, in a mount namespace with a /run and a cgroup tree of its own. Her
systemd moves processes itself, as her part of the tree is hers; on a booted machine it asks the first systemd to do so.
"""
import os
import pathlib
import pwd
import re
import signal
import socket
import time
import unittest

from berth_case import BERTH
from shared_box_case import ALICE, MALLORY, SharedFolder, shell, user

SYSTEMD = next((path for path in ("/usr/lib/systemd/systemd", "/lib/systemd/systemd") if os.path.exists(path)), None)
# A child of a command that cannot be found by its parent, its descriptors or its environment.
DAEMON = """setsid env -i bash -c 'for fd in /proc/$$/fd/*; do eval "exec ${fd##*/}>&-"; done; exec sleep 300' &
echo $!; until [ "$(cat /proc/$!/comm)" = sleep ]; do :; done"""
SCOPE = rf"/berth-{ALICE}-[0-9a-f]{{16}}-\d+\.scope$"


class Scope(SharedFolder):
    def setUp(self):
        super().setUp()
        name = f"berth-test-{os.getpid()}-{time.monotonic_ns()}"
        slice_ = f"/sys/fs/cgroup/{name}/user.slice/user-{ALICE}.slice"
        self.session, self.manager, self.service = f"{slice_}/session-1.scope", f"{slice_}/user@{ALICE}.service", f"{slice_}/job.service"
        script = (f"mount -t cgroup2 none /sys/fs/cgroup; mkdir -p {self.session} {self.manager} {self.service}; "
                  f"chown -R {ALICE}:{ALICE} {slice_}; mount -t tmpfs -o mode=755 none /run; "
                  f"mkdir -p /run/systemd/system /run/user/{ALICE}/systemd; chown -R {ALICE}:{ALICE} /run/user/{ALICE}; "
                  f"chmod 700 /run/user/{ALICE}; mount -t tmpfs -o mode=755 none /var/lib/systemd; mkdir /var/lib/systemd/linger")
        self.keeper = self.spawn([*shell(script), "sh", "-c", "echo ready; read line"])
        self.root = pathlib.Path(f"/proc/{self.keeper.pid}/root")
        ready = self.keeper.stdout.readline()
        if ready != "ready\n":
            self.skipTest("no cgroup tree can be made here: " + self.keeper.stderr.read())
        self.tree = self.root / f"sys/fs/cgroup/{name}"
        self.addCleanup(self.remove_tree)
        self.inside = ("nsenter", f"--mount=/proc/{self.keeper.pid}/ns/mnt", "--")
        self.alice, self.mallory = self.alice_in(self.session), (*self.inside, *user(MALLORY))
        self.socket = self.root / f"run/user/{ALICE}/systemd/private"

    def alice_in(self, cgroup):
        return (*self.inside, "sh", "-ec", f'echo $$ > {cgroup}/cgroup.procs; exec "$@"', "sh", *user(ALICE))

    def remove_tree(self):
        folders = [pathlib.Path(folder) for folder, _, _ in os.walk(self.tree, topdown=False)]
        for folder in folders:
            try:
                for pid in (folder / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
            except OSError:
                pass  # the process and its group have ended meanwhile
        for folder in folders:
            self.until(lambda: self.is_removed(folder), "its processes have ended")

    @staticmethod
    def is_removed(folder):
        try:
            folder.rmdir()
        except FileNotFoundError:
            pass
        except OSError:
            return False
        return True

    def start_systemd(self):
        if SYSTEMD is None:
            self.skipTest("systemd is not installed")
        runtime = f"/run/user/{ALICE}"
        process = self.spawn([*self.alice_in(self.manager), "env", "-i", "HOME=/nonexistent", f"XDG_RUNTIME_DIR={runtime}",
                              "SYSTEMD_LOG_TARGET=console", SYSTEMD, "--user"])
        self.until(lambda: self.socket.exists() or process.poll() is not None, "systemd starts")
        if process.poll() is not None:
            self.skipTest("no systemd of a user can run here: " + process.stderr.read())

    def linger(self, on=True):
        try:
            name = pwd.getpwuid(ALICE).pw_name
        except KeyError:
            name = str(ALICE)
        file = self.root / "var/lib/systemd/linger" / name
        file.touch() if on else file.unlink()

    def cgroup_of_run(self, *arguments, prefix=None):
        """The control group of a command of alice."""
        answer = self.berth("run", "-q", "--mem", "1G", *arguments, "--", "cat", "/proc/self/cgroup", prefix=prefix or self.alice)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return re.search("^0::(.*)$", answer.stdout, re.M)[1]

    def assertScoped(self, *arguments):
        """Checks that one of several commands gets a scope: on a busy machine systemd may take longer than berth waits."""
        for _ in range(5):
            cgroup = self.cgroup_of_run(*arguments)
            if re.search(SCOPE, cgroup):
                return
        self.fail(cgroup)

    def start_daemon(self, *arguments):
        """Starts a daemon whose memory mallory does not get, in several attempts, because systemd may be slow."""
        for _ in range(5):
            server = int(self.berth("run", "-q", "--mem", "60G", *arguments, "--", "sh", "-c", DAEMON, prefix=self.alice).stdout)
            if not self.fits("30G", prefix=self.mallory):
                return server
            os.kill(server, signal.SIGKILL)
        self.fail("another user gets the memory of a daemon")

    def scopes(self):
        return [folder for folder, _, _ in os.walk(self.tree) if "/berth-" in folder[len(str(self.tree)):]]

    def scope_finding(self, prefix):
        text = self.berth("doctor", prefix=prefix).stdout
        return " ".join(re.sub(r"\s+", " ", text).partition(" ledger_scope ")[2].split()[:9])

    def test_an_orphan_without_descriptors_and_environment_keeps_the_lease_for_all_users(self):
        self.start_systemd()
        self.linger()
        for more in ((), ("--on-fault", "restart")):
            server = self.start_daemon(*more)
            self.assertFalse(self.fits("30G", prefix=self.alice), more)
            text = self.berth("ps", prefix=self.mallory).stdout
            self.assertIn(f"kept by {server} (sleep)", text)
            os.kill(server, signal.SIGKILL)
            self.until(lambda: self.fits("70G", prefix=self.mallory), "its bytes return")
        self.until(lambda: not self.scopes(), "empty scopes are removed")

    def test_a_command_gets_a_scope_in_a_login_session_of_a_user_who_lingers(self):
        self.start_systemd()
        self.assertRegex(self.cgroup_of_run(), r"/session-1\.scope$")
        self.assertIn("opens no systemd scope: it would", self.scope_finding(self.alice))
        self.linger()
        for more in ((), ("--on-fault", "restart")):
            self.assertScoped(*more)
        self.assertRegex(self.scope_finding(self.alice), "opens a systemd scope")
        service = self.alice_in(self.service)
        self.assertRegex(self.cgroup_of_run(prefix=service), r"/job\.service$", "a service keeps its processes")
        self.assertIn("opens no systemd scope here", self.scope_finding(service))
        self.linger(False)
        self.assertRegex(self.cgroup_of_run(), r"/session-1\.scope$")

    def test_a_replica_with_limits_leaves_the_service_of_its_agent(self):
        self.start_systemd()
        self.linger()
        server = self.start("serve", "--gateway", "none", "--listen", "127.0.0.1:0", "--name", "a", prefix=self.alice_in(self.service))
        while "yours is in" not in (line := server.stderr.readline()):
            self.assertTrue(line, "the server starts")
        deployment = '\n[[deployment]]\nname = "{0}"\ncpu = true\ncommand = ["sh", "-c", "cat /proc/self/cgroup; exec sleep 300"]\n'
        project = self.folder / "project.toml"
        project.write_text('[cluster]\nname = "lab"\n' + deployment.format("free") + deployment.format("held") + 'host_memory = "1G"\nreplicas = 5\n')
        project.chmod(0o644)
        answer = self.berth("apply", str(project), "--wait", prefix=self.alice)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        free, *held = (re.search("^0::(.*)$", self.berth("logs", name, prefix=self.alice).stdout, re.M)[1]
                       for name in ("free/0", *(f"held/{replica}" for replica in range(5))))
        self.assertRegex(free, r"/job\.service$")
        # One of several attempts: on a busy machine systemd may take longer than berth waits.
        self.assertTrue(any(re.search(rf"/user@{ALICE}\.service/.*/berth-[^/]*\.scope$", cgroup) for cgroup in held), held)

    def test_a_run_inside_a_lease_stays_in_its_scope(self):
        self.start_systemd()
        self.linger()
        for _ in range(5):
            answer = self.berth("run", "-q", "--mem", "2G", "--", "sh", "-c", 'cat /proc/self/cgroup; "$@"', "sh", BERTH, "run", "-q",
                                "--mem", "1G", "--", "cat", "/proc/self/cgroup", prefix=self.alice)
            outer, inner = re.findall("^0::(.*)$", answer.stdout, re.M)
            if re.search(SCOPE, outer):
                return self.assertEqual(outer, inner)
        self.fail(outer)

    def test_a_systemd_that_does_not_answer_costs_a_tenth_of_a_second(self):
        def seconds():
            took = []
            for _ in range(3):
                began = time.monotonic()
                self.assertRegex(self.cgroup_of_run(), r"/session-1\.scope$")
                took.append(time.monotonic() - began)
            return min(took)

        silent = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.addCleanup(silent.close)
        silent.bind(str(self.socket))
        self.socket.chmod(0o777)
        silent.listen()
        usual = seconds()
        self.linger()
        took = seconds()
        self.assertGreater(took, 0.1, "systemd was asked")
        self.assertQuick(took - usual, 1, "the library by itself would wait for 25 s")
        silent.close()
        seconds()


if __name__ == "__main__":
    unittest.main()
