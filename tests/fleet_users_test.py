"""What the owner of a machine allows the fleet: users, commands and folders, with an agent that runs as root."""
import json
import os
import pathlib
import subprocess
import unittest

from berth_case import BERTH
from fleet_case import in_own_mounts
from fleet_users_case import EXTRA, GID, UID, UsersCase


class Users(UsersCase):
    def test_a_replica_runs_as_the_user_that_is_allowed(self):
        node = self.add()
        self.apply(self.serve_as("mine", "svc"), self.serve_as("root"), self.serve_as("bad", "other"), wait=False)
        self.until_ready("mine", 1)
        self.until_ready("root", 1)
        lines = self.until(lambda: (self.journal / "mine").exists() and (text := (self.journal / "mine").read_text().split("\n"))[3:] and text, "it runs")
        self.assertEqual((lines[0], set(lines[1].split()), lines[2], lines[3]), (str(UID), {str(GID), str(EXTRA)}, str(self.home), str(self.home)))
        self.assertEqual((self.journal / "root").read_text().split("\n")[0], "0")
        folder, = (file.parent for file in (self.folder / "shared").glob("agent-0/a/jobs/j*/job.json")
                   if json.loads(file.read_text())["name"].startswith("mine."))
        modes = {name: ((folder / name).stat().st_uid, (folder / name).stat().st_mode & 0o777) for name in (".", "job.json", "state.json", "output")}
        self.assertEqual(modes, {".": (0, 0o711), "job.json": (0, 0o600), "state.json": (UID, 0o600), "output": (UID, 0o600)})
        self.assertEqual((folder.parent.parent / "credential").stat().st_mode & 0o777, 0o600)
        # Another user is refused, with a message.
        self.until_said("bad", "the agent's file does not permit user other")
        # It is stopped like any other replica, and its folder is removed.
        self.assertEqual(self.command("delete", "mine").returncode, 0)
        self.until(lambda: not any(name.startswith("mine.") for name in node.jobs()), self.situation)

    def test_a_probe_runs_as_the_same_user_and_within_the_same_rules(self):
        self.add()
        good = {"command": ["/usr/bin/env", "sh", "-c", f"id -u > {self.journal}/probe && test $HOME = {self.home}"], "every": "200ms"}
        self.apply(self.serve_as("mine", "svc", readiness=good), self.serve_as("bad", "svc", liveness={"command": ["/bin/sh", "-c", "true"]}), wait=False)
        self.until_ready("mine", 1)
        self.assertEqual((self.journal / "probe").read_text().strip(), str(UID))
        self.until_said("bad", "the agent's file does not permit command /bin/sh")

    def test_commands_and_secrets_outside_of_what_is_allowed_are_refused(self):
        (self.folder / "secrets").mkdir()
        (self.folder / "outside").write_text("value")
        (self.folder / "secrets" / "link").symlink_to(self.folder / "outside")
        self.add()
        name = f"file:{self.folder}/secrets"
        self.apply({**self.serve_as("shell"), "command": ["/bin/sh", "-c", "true"]},
                   {**self.serve_as("dots"), "command": [f"{self.tools}/../../../bin/sh", "-c", "true"]},
                   {**self.serve_as("link"), "command": [f"{self.tools}/link", "-c", "true"]},
                   {**self.serve_as("name"), "command": [f"{self.tools}/{{name}}", "-c", "true"]},
                   self.serve_as("variable", environment={"BASH_ENV": f"$(touch {self.journal}/variable)"}),
                   self.serve_as("secret", secrets={"A": f"{name}/link"}),
                   self.serve_as("secretdots", secrets={"A": f"{name}/../outside"}), wait=False)
        self.until_said("shell", "the agent's file does not permit command /bin/sh")
        self.until_said("dots", f"the agent's file does not permit command {self.tools}/../../../bin/sh")
        self.until_said("link", f"the agent's file does not permit command {self.tools}/link, which resolves to /")
        self.until_said("name", f"the agent's file does not permit command {self.tools}/{{name}}")
        self.until_said("variable", "the agent's file does not permit variable BASH_ENV")
        self.until_said("secret", "in none of the folders that secrets may be read from")
        self.until_said("secretdots", "in none of the folders that secrets may be read from")
        self.assertEqual(list(self.journal.iterdir()), [], "no part of it ran")

    def test_what_a_user_writes_about_its_job_ends_no_process_of_another_user(self):
        self.add()
        victim = subprocess.Popen(["sleep", "600"])
        self.started.append(victim)
        start_time = int(pathlib.Path(f"/proc/{victim.pid}/stat").read_text().rpartition(")")[2].split()[19])
        self.apply(self.serve_as("mine", "svc"), wait=False)
        self.until_ready("mine", 1)
        folder = self.folder_of("mine")
        state = folder / "state.json"
        planted = {"pid": victim.pid, "start_time": start_time, "pid_namespace": json.loads(state.read_text())["supervisor"]["pid_namespace"]}
        self.assertTrue(self.change_as_user(state, supervisor=planted, command=planted))
        self.change_as_user(folder / "job.json", labels__generation="99")
        self.assertEqual(self.command("delete", "mine").returncode, 0)
        self.stays(lambda: victim.poll() is None)
        self.until(lambda: not self.nodes["a"].jobs(), self.situation)
        self.until_nothing_runs()
        self.assertIsNone(victim.poll())

    def test_a_user_can_neither_take_the_place_of_another_replica_nor_hide_its_own(self):
        self.add()
        self.apply(self.serve_as("good"), self.serve_as("evil", "svc"), wait=False)
        good, evil = self.until_ready("good", 1)[0], self.until_ready("evil", 1)[0]
        folder = self.folder_of("evil")
        labels = {f"labels__{name}": value for name, value in json.loads((self.folder_of("good") / "job.json").read_text())["labels"].items()}
        self.change_as_user(folder / "job.json", **{**labels, "labels__port": "4444"})
        state = folder / "state.json"
        self.assertTrue(self.change_as_user(state, started_us=1))
        self.stays(lambda: self.replicas("good")[0]["job"] == good["job"] and "port" not in self.replicas("good")[0])
        for claimed in ("refused", "done"):
            self.assertTrue(self.change_as_user(state, state=claimed))
            self.stays(lambda: folder.exists() and self.replicas("evil")[0]["job"] == evil["job"])
        self.assertEqual(sum("sleep 600" in text for text in self.processes().values()), 2, self.processes())

    def test_a_user_cannot_make_the_lease_of_another_one_of_its_replica(self):
        node = self.add()
        own = subprocess.Popen([BERTH, "run", "-q", "-n", "1", "--", "sleep", "600"], env=node.environment())
        self.started.append(own)
        lease, = self.until(node.leases, "it runs")
        device, = (row["id"] for row in lease["devices"])
        self.apply(self.serve_as("mine", "svc"), wait=False)
        self.until_ready("mine", 1)
        folder = self.folder_of("mine")
        file, _, _ = json.loads((folder / "state.json").read_text())["lease"].partition(":")
        self.assertTrue(self.change_as_user(folder / "state.json", lease=f"{file}:{lease['id']}"))

        def holders():
            devices = self.get("nodes/a")["node"]["devices"]
            return [(holder["kind"], holder["user"]) for holder in next(row for row in devices if row["id"] == device)["holders"]]
        self.until(lambda: holders(), self.situation)
        self.stays(lambda: holders() == [("lease", "root")])

    def test_long_texts_of_a_job_do_not_silence_its_node(self):
        self.add()
        self.apply(self.serve_as("mine", "svc"), wait=False)
        self.until_ready("mine", 1)
        folder = self.folder_of("mine")
        state = folder / "state.json"
        for size in (15_000_000, 20_000):
            self.assertTrue(self.change_as_user(state, reason="A" * size))
            self.until_reports("a")
            self.assertLess(len(self.replicas("mine")[0].get("reason", "")), 2000)
        self.assertEqual(self.command("delete", "mine").returncode, 0)
        self.until_nothing_runs()

    def test_a_secret_that_is_no_plain_text_is_refused_and_the_others_go_on(self):
        secrets = self.folder / "secrets"
        secrets.mkdir()
        os.mkfifo(secrets / "pipe")
        (secrets / "nul").write_bytes(b"a\0b")
        (secrets / "long").write_bytes(b"a" * 100_000)
        (secrets / "good").write_text("fine\n")
        self.add()
        self.apply(*(self.serve_as(name, secrets={"A": f"file:{secrets}/{name}"}) for name in ("pipe", "nul", "long", "good")), wait=False)
        self.until_ready("good", 1)
        self.until_said("pipe", "pipe is not a file")
        self.until_said("nul", "contains a NUL byte")
        self.until_said("long", "File too large")

    def test_limits_that_do_not_hold_are_said_to_be_absent(self):
        """Limits hold only if the user's systemd runs and has the controllers; tests/scope_test.py tests that berth uses it."""
        self.add()
        self.apply(self.serve_as("mine", "svc", host_memory="1G", cpus=0.5), self.serve_as("free", "svc"), wait=False)
        self.until_ready("mine", 1)
        self.until_said("mine", "host_memory or cpus is not enforced: its user has no running systemd")
        self.until_ready("free", 1)
        self.assertNotIn("limits", self.reason_text("free"))

    def test_folders_that_users_cannot_reach_are_named(self):
        closed = self.folder / "closed"
        closed.mkdir(mode=0o700)
        node = self.add_node("a", options=["--agent-file", str(self.rules)], runtime=closed)
        self.assertEqual(node.agent.wait(timeout=30), 1)
        self.assertIn(f"users in the agent's file cannot reach their jobs: they cannot enter {closed}", " ".join(node.log.read_text().split()))
        # It has not joined: its token is still good, in another folder too.
        node.runtime = self.folder / "shared"
        node.runtime.mkdir()
        node.runtime.chmod(0o1777)
        node.start((node.folder / "token").read_text().strip())
        self.until_healthy("a")


if __name__ == "__main__":
    in_own_mounts("fleet_users")
    unittest.main(verbosity=1)
