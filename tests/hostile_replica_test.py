"""Replicas of hostile users, and strangers on the same machine, against an agent that root runs: it keeps stepping, and a deployment that is deleted is gone
within its grace period.
"""
import json
import os
import signal
import subprocess
import unittest

from berth_case import BERTH
from fleet_case import in_own_mounts
from fleet_users_case import GID, PYTHON, STRANGER, UID, UsersCase, as_user

MIB = 1 << 20
AGENT = 5081

# Waits for the folder of each job, and replaces its output with a pipe before the agent opens it.
PIPES = """
import os, sys
for number in range(1, 40):
    while True:
        try:
            os.mkfifo(f"{sys.argv[1]}/j{number}/user/output")
        except FileNotFoundError:
            continue
        except OSError:
            pass
        break
"""

# Replaces every file of every job that it can reach with pipes and links, over and over.
REPLACE = """
import os, sys
jobs, secret = sys.argv[1], sys.argv[2]
open(os.path.join(os.environ["HOME"], "spins"), "w").close()
while True:
    for number in range(1, 40):
        for folder in (f"{jobs}/j{number}/user", f"{jobs}/j{number}"):
            for name in ("output", "state.json", "alive", "supervisor", "decision.json"):
                for act in (lambda path: os.mkfifo(path), lambda path: os.unlink(path), lambda path: os.symlink(secret, path), lambda path: os.link(secret, path)):
                    try:
                        act(f"{folder}/{name}")
                    except OSError:
                        pass
"""

# Tries each way to change the names in the folder of its job, and prints those that work.
NAMES = """
import os, sys
folder = sys.argv[1]
for place in (folder, folder + "/user"):
    for name, act in (("mkfifo", lambda: os.mkfifo(place + "/new")), ("mkdir", lambda: os.mkdir(place + "/newer")), ("symlink", lambda: os.symlink("/etc/passwd", place + "/newest")),
                      ("link", lambda: os.link(folder + "/output", place + "/other")), ("rename", lambda: os.rename(folder + "/output", place + "/moved")),
                      ("unlink", lambda: os.unlink(folder + "/state.json")), ("chmod", lambda: os.chmod(place, 0o777))):
        try:
            act()
            print(place, name)
        except OSError:
            pass
"""

# Copies the lock of its supervisor, takes every other lock and lease that it can, and keeps them.
LOCK = """
import ctypes, fcntl, os, signal, struct, sys, time
folder, supervisor = sys.argv[1], int(sys.argv[2])
signal.signal(signal.SIGIO, signal.SIG_IGN)
kept = []
for name in ("user/alive", "alive", "state.json", "output"):
    for flags in (os.O_RDWR, os.O_RDONLY):
        try:
            kept.append(os.open(f"{folder}/{name}", flags))
            try:
                fcntl.fcntl(kept[-1], fcntl.F_SETLEASE, fcntl.F_WRLCK)
                print("lease on", name)
            except OSError:
                pass
            fcntl.fcntl(kept[-1], 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))  # F_OFD_SETLK
            break
        except OSError:
            pass
libc = ctypes.CDLL(None, use_errno=True)
process = libc.syscall(434, supervisor, 0)  # pidfd_open
for number in range(3, 64):
    if (copy := libc.syscall(438, process, number, 0)) >= 0:  # pidfd_getfd
        kept.append(copy)
print("kept", len(kept), flush=True)
time.sleep(600)
"""


class HostileReplica(UsersCase):
    stop_grace_s = 2

    def setUp(self):
        super().setUp()
        # These tests do not restrict the commands of the users.
        self.rules.write_text('users = ["svc"]\n')

    def replica(self, name, user=None, script="exec sleep 600", **more):
        return {"name": name, "gpus": 1, "memory": "1GiB", "command": ["/bin/sh", "-c", script], "stop_grace": f"{self.stop_grace_s}s",
                **({"user": user} if user else {}), **more}

    def spawn(self, uid, *command, **more):
        """A process of that user, as one that logs in would start."""
        process = subprocess.Popen([*as_user(uid), *command], stdin=subprocess.DEVNULL, text=True, **more)
        self.started.append(process)
        return process

    def jobs_folder(self):
        return self.folder / "shared" / "agent-0" / "a" / "jobs"

    def delete(self, name):
        """Deletes the deployment; it ends within the grace period and ten seconds for a disobedient supervisor, later on a busy machine."""
        self.assertEqual(self.command("delete", name).returncode, 0)
        self.until(lambda: not any(replica["deployment"] == name for replica in self.get("replicas")["replicas"]), self.situation,
                   seconds=self.stop_grace_s + 10 + 30)
        self.until(lambda: not any(job.startswith(f"{name}.") for job in self.nodes["a"].jobs()), self.situation)

    def assertSteps(self, name):
        """The agent still starts and stops what it is ordered to."""
        self.apply(self.replica(name), *self.kept, wait=False)
        self.until_ready(name, 1)
        self.delete(name)

    kept = ()

    def test_pipes_and_links_in_the_place_of_files_do_not_stop_the_agent(self):
        self.add()
        secret = self.home / "planted"
        secret.write_text("planted")
        os.chown(secret, UID, GID)
        for script in (PIPES, REPLACE):
            self.spawn(UID, PYTHON, "-c", script, str(self.jobs_folder()), str(secret), env={**os.environ, "HOME": str(self.home)})
        self.until((self.home / "spins").exists, "the attack runs")
        self.kept = tuple(self.replica(f"mine{number}", "svc") for number in range(10))
        self.apply(*self.kept, wait=False)
        for deployment in self.kept:
            self.until_ready(deployment["name"], 1)
        self.assertSteps("after")
        for deployment in self.kept:
            self.delete(deployment["name"])
        self.assertEqual(secret.read_text(), "planted", "root wrote into a file that the user put there")

    def test_a_user_can_change_no_name_in_the_folder_of_its_job(self):
        self.add()
        self.apply(self.replica("mine", "svc", "echo hello; exec sleep 600"), wait=False)
        self.until_ready("mine", 1)
        folder = self.folder_of("mine")
        done = subprocess.run([*as_user(UID), PYTHON, "-c", NAMES, str(folder)], capture_output=True, text=True, check=True).stdout
        self.assertEqual(done, "")
        self.assertEqual({path.stat().st_uid for path in (folder, *folder.rglob("*")) if path.is_dir()}, {0})
        answer = self.command("logs", "mine/0")
        self.assertEqual((answer.returncode, answer.stdout.splitlines()[-1:]), (0, ["hello"]), answer.stderr)
        self.delete("mine")

    def test_locks_that_a_user_keeps_hold_up_no_deletion(self):
        self.add()
        self.apply(self.replica("mine", "svc"), wait=False)
        self.until_ready("mine", 1)
        folder = self.folder_of("mine")
        state = next(path for path in (folder / "user/state.json", folder / "state.json") if path.exists())
        supervisor = json.loads(state.read_text())["supervisor"]["pid"]
        thief = self.spawn(UID, PYTHON, "-c", LOCK, str(folder), str(supervisor), stdout=subprocess.PIPE)
        self.until(lambda: "kept" in thief.stdout.readline(), "the attack runs")
        self.delete("mine")
        self.assertSteps("after")

    def test_a_supervisor_that_is_stopped_over_and_over_holds_up_neither_the_agent_nor_a_deletion(self):
        self.add()
        spins = "import os, pathlib, signal\nwhile True:\n" \
                "    for path in pathlib.Path('/proc').glob('[0-9]*/comm'):\n" \
                "        try:\n" \
                "            if path.read_text() == 'berth-job\\n': os.kill(int(path.parent.name), signal.SIGSTOP)\n" \
                "        except OSError: pass\n"
        self.spawn(UID, PYTHON, "-c", spins)
        self.apply(self.replica("mine", "svc"), wait=False)
        self.until(lambda: self.nodes["a"].jobs() or list(self.jobs_folder().glob("j*")), self.situation)
        self.apply(self.replica("after"), self.replica("mine", "svc"), wait=False)
        self.until_ready("after", 1)
        self.delete("mine")

    def test_a_variable_in_the_environment_of_a_stranger_makes_its_process_part_of_no_job(self):
        node = self.add()
        self.apply(self.replica("root"), self.replica("mine", "svc"), wait=False)
        for name in ("root", "mine"):
            self.until_ready(name, 1)
        for name, strangers in (("root", (STRANGER, UID)), ("mine", (STRANGER,))):
            folder = self.folder_of(name)
            state = next(path for path in (folder / "user/state.json", folder / "state.json") if path.exists())
            lease = json.loads(state.read_text())["lease"]
            forged = [self.spawn(uid, "sleep", "600", env={**os.environ, "BERTH_JOB_FOLDER": str(folder), "BERTH_LEASE": lease}) for uid in strangers]
            self.delete(name)
            for process in forged:
                self.assertIsNone(process.poll(), f"a process of a stranger was ended with {name}")
        self.until(lambda: not node.jobs(), self.situation)

    def test_a_drain_by_a_stranger_moves_no_replica_and_its_user_is_named(self):
        node = self.add()
        self.apply(self.replica("root"), wait=False)
        before = self.until_ready("root", 1)[0]
        device, = before["devices"]

        def as_stranger(verb):
            return subprocess.run([*as_user(STRANGER), BERTH, verb, device], env={**node.environment(), "HOME": "/"}, capture_output=True, text=True, timeout=60)
        answer = as_stranger("drain")
        self.assertEqual(answer.returncode, 0, answer.stderr)

        def shown():
            return next(row for row in self.get("nodes/a")["node"]["devices"] if row["id"] == device)
        self.until(lambda: shown().get("intent_by") == "other", self.situation)
        self.assertEqual(shown()["intent"], "cordoned")
        self.stays(lambda: self.until_ready("root", 1)[0]["generation"] == before["generation"])
        for command in (["status"], ["nodes"], ["nodes", "a"]):
            self.assertIn("is cordoned by other", " ".join(self.command(*command).stdout.split()))
        # The device gets no new replica, and only root's drain moves the existing one.
        self.apply(self.replica("root"), self.replica("next"), wait=False)
        self.assertNotEqual(self.until_ready("next", 1)[0]["devices"], [device])
        self.assertEqual(node.berth("drain", device).returncode, 0)
        self.until(lambda: self.until_ready("root", 1)[0]["devices"] != [device], self.situation)
        # Root lifts the intents of other users.
        self.assertEqual(node.berth("uncordon", device).returncode, 0)
        self.until(lambda: shown()["intent"] == "in_service", self.situation)

    def test_the_output_of_a_replica_with_a_user_is_kept_within_its_limit(self):
        self.add()
        self.apply(self.replica("mine", "svc", f"head -c {300 * MIB} /dev/zero; echo; echo last; exec sleep 600"), wait=False)
        self.until_ready("mine", 1)
        folder = self.folder_of("mine")
        output = next(path for path in (folder / "user/output", folder / "output") if path.exists())
        self.until(lambda: output.stat().st_size > 300 * MIB, self.situation)
        self.until(lambda: output.stat().st_blocks * 512 <= 64 * MIB, lambda: f"{output.stat().st_blocks * 512 // MIB} MiB are kept")
        answer = self.command("logs", "--tail", "1", "mine/0")
        self.assertEqual((answer.returncode, answer.stdout.splitlines()[-1:]), (0, ["last"]), answer.stderr)
        self.delete("mine")

    def test_without_threads_the_agent_goes_on_and_tries_later(self):
        """The agent runs as a user: the limit does not apply to root."""
        runtime = self.folder / "own"
        runtime.mkdir()
        os.chown(runtime, AGENT, AGENT)
        node = self.make_node("a", runtime=runtime)
        node.folder.chmod(0o711)
        node.script.chmod(0o644)
        node.prefix = ("sh", "-c", f'chown {AGENT} {node.folder}/token && exec {" ".join(as_user(AGENT))} "$@"', "sh")
        node.start(self.token("join"))
        self.until_healthy("a")

        def web(name):
            return {**self.web(name), "command": [PYTHON, "-SE", str(self.program), "{port}", str(self.journal), "v1"]}
        self.apply(web("web"), wait=False)
        self.until_ready("web", 1)

        def limit(most):
            subprocess.run([*as_user(AGENT), "prlimit", "--pid", str(node.agent.pid), f"--nproc={most}:"], check=True)
        limit(1)
        answer = self.command("logs", "web/0")
        self.assertIsNone(node.agent.poll(), node.log.read_text())
        self.assertEqual(answer.returncode, 1, answer.stdout)
        self.assertIn("cannot start another thread", " ".join(answer.stderr.split()))
        self.apply(web("web"), web("two"), wait=False, status=None)
        self.until(lambda: "cannot start" in node.log.read_text() or "thread" in str(self.get("nodes/a")), self.situation)
        self.stays(lambda: node.agent.poll() is None)
        self.assertEqual(self.replicas("web")[0]["state"], "ready")
        limit(4096)
        self.until_ready("two", 1)
        self.assertEqual(self.command("logs", "web/0").returncode, 0)

    def test_an_output_without_an_end_does_not_keep_the_agent_from_ending(self):
        node = self.add()
        self.apply(self.replica("mine", "svc", "echo hello; exec sleep 600"), wait=False)
        self.until_ready("mine", 1)
        output = self.folder_of("mine") / "output"
        for size in ("7E", "15T", "1T"):  # up to the limit of the file system
            if subprocess.run([*as_user(UID), "truncate", "-s", size, str(output)], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                break
        readers = [subprocess.Popen([BERTH, "logs", *options, "mine/0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                    env=self.environment(BERTH_RUNTIME_DIR=str(self.folder / "server"))) for options in (("--tail", "3"), ())]
        self.started += readers
        for reader in readers:
            self.assertEqual(reader.wait(60), 0)
        node.agent.send_signal(signal.SIGTERM)
        self.assertEqual(node.agent.wait(60), 0)


if __name__ == "__main__":
    in_own_mounts("hostile_replica")
    unittest.main(verbosity=1)
