"""Shared by tests of an agent that root runs for other users: a user `svc`, a separate user database, and ways to act as a user."""
import json
import os
import pathlib
import subprocess
import sys

from fleet_case import Fleet

UID, GID, EXTRA, STRANGER = 5077, 5077, 5078, 5079


def is_open(path):
    """Whether every user can execute the file."""
    return path.exists() and all(parent.stat().st_mode & 1 for place in (path, path.resolve()) for parent in (place, *place.parents))


# The test's Python may be in root's own folder.
PYTHON = next((path for path in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3") if is_open(pathlib.Path(path))), sys.executable)


def as_user(uid):
    return ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")


class UsersCase(Fleet):
    """One node, whose owner allows the user `svc`. The user database is of the test's own."""

    def setUp(self):
        super().setUp()
        self.home = self.folder / "home"
        self.home.mkdir()
        os.chown(self.home, UID, GID)
        for file, lines in (("passwd", f"svc:x:{UID}:{GID}::{self.home}:/bin/sh\nother:x:{STRANGER}:{STRANGER}::/:/bin/sh\n"),
                            ("group", f"svc:x:{GID}:\nextra:x:{EXTRA}:svc\n")):
            path = self.folder / file
            path.write_text(pathlib.Path("/etc", file).read_text() + lines)
            subprocess.run(["mount", "--bind", str(path), f"/etc/{file}"], check=True)
            self.addCleanup(subprocess.run, ["umount", f"/etc/{file}"], check=True)
        # All users may pass: the ledger of the machine is in a folder for all users, like /run/berth.
        self.folder.chmod(0o711)
        self.journal.chmod(0o1777)
        self.program.chmod(0o644)
        self.tools = self.folder / "tools"
        self.tools.mkdir()
        (self.tools / "serve").write_text(f"#!/bin/sh\n{{ id -u; id -G; echo $HOME; pwd; }} > {self.journal}/$1\nexec sleep 600\n")
        (self.tools / "serve").chmod(0o755)
        (self.tools / "link").symlink_to("/bin/sh")
        self.rules = self.folder / "agent.toml"
        self.rules.write_text(f'users = ["svc"]\ncommands = ["{self.tools}/", "/usr/bin/env", "/bin/test"]\nvariables = ["A"]\nsecret_folders = ["{self.folder}/secrets"]\n')

    def add(self):
        runtime = self.folder / "shared"
        runtime.mkdir()
        runtime.chmod(0o1777)
        node = self.add_node("a", options=["--agent-file", str(self.rules)], runtime=runtime)
        node.folder.chmod(0o711)
        node.script.chmod(0o644)
        self.until_healthy("a")
        return node

    def serve_as(self, name, user=None, **more):
        return {"name": name, "gpus": 1, "memory": "1GiB", "command": [f"{self.tools}/serve", name], **({"user": user} if user else {}),
                **more}

    def reason_text(self, name):
        """The output of `why replica`, without line breaks."""
        return " ".join(self.command("why", "replica", f"{name}/0").stdout.split())

    def until_said(self, name, *words):
        return self.until(lambda: (text := self.reason_text(name)) and all(word in text for word in words) and text,
                          lambda: self.reason_text(name) + self.situation())

    def folder_of(self, name):
        """The folder of the one job of a deployment."""
        found = []
        for file in (self.folder / "shared").glob("agent-0/a/jobs/j*/job.json"):
            if json.loads(file.read_text())["name"].startswith(f"{name}."):
                found.append(file.parent)
        self.assertEqual(len(found), 1, found)
        return found[0]

    def change_as_user(self, path, **values):
        """Overwrites one of the job's files as its user, if possible. `labels__port`: a member of a nested object."""
        text = json.loads(path.read_text())
        for name, value in values.items():
            inner, _, last = name.rpartition("__")
            (text[inner] if inner else text)[last] = value
        # In one step, like the supervisor: an empty state would mean a waiting job.
        write = "import os, sys; file = os.open(sys.argv[1], os.O_WRONLY); os.write(file, sys.stdin.buffer.read().ljust(os.fstat(file).st_size))"
        return subprocess.run([*as_user(UID), PYTHON, "-c", write, str(path)],
                              input=json.dumps(text), text=True, stderr=subprocess.DEVNULL, check=False).returncode == 0

    def stays(self, condition):
        """Checks that the condition holds while the node reports three times."""
        self.until_reports("a", holds=condition)
