"""docs/guide/story.md, checked against a real run: every command of the page is run, in order, and prints what the page says.

A line `head$ command` in a console block runs on that machine; what follows is its output. Commands that only read are
repeated until their output matches the page. `<!-- test: ... -->` is a fault, or a check of what no command shows: a method
below. Times, ages, ports and the folder of the test differ in every run and are not compared.

With `--write` after the usual arguments the page gets the output of this run instead.
"""
import os
import re
import subprocess
import sys
import threading
import time
import unittest

WRITE = "--write" in sys.argv and not sys.argv.remove("--write")

from berth_case import BERTH, ROOT  # noqa: E402: it takes the arguments that are left
from fleet_case import Fleet  # noqa: E402

PAGE = ROOT / "docs/guide/story.md"
# Commands that only read; a fleet may reach the state on the page a moment later.
LOOKS = ("status", "nodes", "replicas", "deployments", "events", "why", "rollout status", "logs")
VARIES = [
    (r"time=\S+", "time=TIME"), (r"actor=server:\S+", "actor=server:HEAD"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME"), (r"\b\d+(\.\d+)? (ms|s|min|h)\b", "AGE"), (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
    (r"\b\d{4,5} +(\d+) +AGE", r"PORT \1 AGE"), (r"\S*/server-\d+/", "/run/berth/server/"), (r"\b0\.\d+\.\d+\S*", "VERSION"),
    (r"\d+ +\d+\.\d [GT]iB +AGE +VERSION", "CPUS RAM AGE VERSION"), (r"server \S+, ", "server HEAD, "),
    # The progress of an update depends on the moment.
    (r"hello: updating.*\n.*updated", "hello: updating"),
]
# Values as on a reader's own machine.
SHOWN = [(r"actor=server:\S+", "actor=server:head"), (r"127\.0\.0\.1:\d+", "127.0.0.1:8080"), (r"\S*/server-\d+/", "/run/user/1000/berth/server-1000/"), (r"; server \S+,", "; server head,")]


def same(text):
    """The text that must be equal, without varying parts and the width of columns."""
    for pattern, word in VARIES:
        text = re.sub(pattern, word, text)
    return [re.sub(r"\s+", " ", line).strip() for line in text.strip().splitlines()]


class Story(Fleet):
    def test_the_page_is_what_happens(self):
        # Commands find `berth` and their files as on the page; machines have two GPUs and no other accelerator.
        self.vendors = self.folder / "none"
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "berth").symlink_to(BERTH)
        self.server_output = (self.folder / "server.log").read_text()
        self.kept = {}
        lines, out = PAGE.read_text().splitlines(), []
        position = 0
        while position < len(lines):
            line = lines[position]
            out.append(line)
            position += 1
            if directive := re.fullmatch(r"<!-- test: (.*) -->", line):
                words = directive[1].split()
                getattr(self, words[0].replace("-", "_"))(*words[1:])
            elif command := re.fullmatch(r"([\w-]+)\$ (.*)", line):
                expected = []
                while not re.match(r"```|[\w-]+\$ ", lines[position]):
                    expected.append(lines[position])
                    position += 1
                out += self.check(command[1], command[2], "\n".join(expected)).splitlines()
        if WRITE:
            PAGE.write_text("\n".join(out) + "\n")

    def check(self, machine, command, expected):
        """Runs the command and returns its output, which must be that of the page."""
        deadline = time.monotonic() + (8 if WRITE else 60)
        looks = command.startswith(tuple(f"berth {verb}" for verb in LOOKS))
        while True:
            output = self.run_on(machine, command)
            if same(output) == same(expected):
                return expected
            if not looks or time.monotonic() > deadline:
                if WRITE:
                    for pattern, word in SHOWN:
                        output = re.sub(pattern, word, output)
                    return output
                self.fail(f"{machine}$ {command}\n{output}\nis not what docs/guide/story.md says; story_test.py --write takes it over\n\n{same(output)}\n{same(expected)}{self.situation()}")
            time.sleep(0.2)

    def run_on(self, machine, command):
        if command == "berth serve --no-agent 2> server.log &":  # which setUp has done
            (self.folder / "server.log").write_text(self.server_output)
            return ""
        if join := re.fullmatch(r"berth agent --join .* --token-file (\S+) 2> agent.log &", command):
            node = self.make_node(machine)
            node.start((self.folder / join[1]).read_text().strip())
            self.until_healthy(machine)
            return ""  # its log is in a file
        where = self.nodes[machine].environment() if machine in self.nodes else self.environment(BERTH_RUNTIME_DIR=str(self.folder / "server"))
        done = subprocess.run(["sh", "-c", command], cwd=self.folder, capture_output=True, text=True, timeout=120,
                              env={**where, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "COLUMNS": "110"})
        return done.stdout + done.stderr

    # Checks of statements on the page.

    def remember(self, name):
        """The current incarnations and processes, for `kept`."""
        self.kept[name] = self.until_settled()

    def until_settled(self):
        def settled():
            replicas = self.get("replicas?deployment=hello")["replicas"]
            if all(replica["state"] == "ready" and replica["current"] for replica in replicas):
                return {replica["name"]: (replica["generation"], replica["job"], replica["started_at_ms"]) for replica in replicas}
            return None
        return self.until(settled, self.situation)

    def same_as(self, name, *replicas):
        """These replicas are unchanged: the same incarnation, the same process."""
        now = self.until_settled()
        for replica in replicas:
            self.assertEqual(now[replica], self.kept[name][replica], replica)

    def replaced_since(self, name, *replicas):
        now = self.until_settled()
        self.assertEqual(sorted(replica for replica in now if now[replica] != self.kept[name].get(replica)), sorted(replicas))

    def watch(self):
        """From now on asks every replica over and over, for `never_fewer_than`."""
        self.fewest, self.most, self.looks, self.watching = 99, 0, 0, True

        def ask():
            while self.watching:
                replicas = self.get("replicas?deployment=hello")["replicas"]
                answering = [replica["replica"] for replica in replicas if "port" in replica and self.answer_of(replica["port"])]
                self.fewest, self.most = min(self.fewest, len(set(answering))), max(self.most, len(replicas))
                self.looks += 1
        self.watcher = threading.Thread(target=ask)
        self.watcher.start()
        self.addCleanup(setattr, self, "watching", False)

    def never_fewer_than(self, count):
        """At least `count` replicas answered at any moment since `watch`, and at most one more existed."""
        self.watching = False
        self.watcher.join()
        self.assertGreater(self.looks, 0)
        self.assertEqual(self.fewest, int(count))
        self.assertLessEqual(self.most, int(count) + 1)

    def lose_gpu_of(self, replica):
        """The replica's GPU falls off the bus, for every process of its machine."""
        hit = next(row for row in self.get("replicas")["replicas"] if row["name"] == replica)
        self.nodes[hit["node"]].lose_gpu(hit["devices"][0])

    def each_has_its_own_gpu(self):
        replicas = self.get("replicas?deployment=hello")["replicas"]
        devices = [(replica["node"], device) for replica in replicas for device in replica["devices"]]
        self.assertEqual(len(devices), len(set(devices)))
        for replica in replicas:
            leases = [device["id"] for lease in self.nodes[replica["node"]].leases() for device in lease["devices"]]
            self.assertIn(replica["devices"][0], leases, "the ledger of its machine has the GPU")

    def answers_name(self, text):
        """Every replica answers with this word, which names the desired version."""
        self.until_settled()
        for replica in self.get("replicas?deployment=hello")["replicas"]:
            self.assertIn(text, self.answer_of(replica["port"]), replica["name"])

    def holds_nothing(self, node):
        self.until(lambda: self.nodes[node].leases() == [], self.situation)

    def nothing_is_left(self):
        self.until_nothing_runs()
        for node in self.nodes.values():
            self.assertEqual(node.jobs(), {}, "the folders of its jobs are gone")
            self.assertIsNone(node.agent.poll(), "its agent still runs")


if __name__ == "__main__":
    unittest.main()
