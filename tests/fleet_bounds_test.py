"""The server accepts only what it can store and decide on, and no node, deployment or damaged entry affects the others."""
import http.client
import json
import shutil
import sqlite3
import subprocess
import threading
import time
import unittest

from berth_case import BERTH, needs_sqlite
from fleet_case import Fleet, ForgedNode


class BoundsAtAcceptance(Fleet):
    """Everything that `apply` accepts is committed, and another deployment still gets its place."""

    def assertOthersArePlaced(self, *others):
        self.apply(*others, self.web(text=str(time.monotonic())), wait=False, status=None)
        revision = self.get("deployments/web")["deployment"]["revision"]
        self.until_ready("web", 1, lambda replica: replica["revision"] == revision)
        status = self.get("status")
        self.assertNotIn("problem", status)
        self.assertNotIn("warnings", status)
        self.assertEqual(self.ask("GET", "/readyz")[0], 200)

    @needs_sqlite
    def test_many_replicas_on_one_node(self):
        self.add_nodes("a")
        forged = ForgedNode(self, "big", cpus=10_000, memory=1 << 50, labels={"size": "big"})
        forged.report()
        many = {"name": "many", "cpu": True, "replicas": 6000, "node_selector": {"size": "big"}, "command": ["/bin/sleep", "1000"]}
        self.apply(many, wait=False)
        self.until(lambda: len(self.get("replicas?deployment=many")["replicas"]) == 6000 and forged.report(), self.situation)
        self.assertOthersArePlaced(many)
        # A server that is started again reads it.
        self.server.kill()
        self.server.wait()
        self.serve()
        self.assertEqual(len(self.get("replicas?deployment=many")["replicas"]), 6000)
        self.assertOthersArePlaced(many)

    def test_what_is_too_large_is_refused_at_once(self):
        self.add_nodes("a")
        sleep = {"name": "large", "cpu": True, "command": ["/bin/sleep", "1000"]}
        for what, words in (({"replicas": 1_000_000}, ("from 0 to 10000",)),
                            ({"environment": {"TEXT": "x" * 300_000}}, ("large", "256 KiB", "file")),
                            ({"environment": {"TEXT": "x" * 100_000}, "replicas": 2000}, ("24576 KiB", "fewer replicas"))):
            self.assertRefused(self.command("apply", self.write_project({**sleep, **what})), 2, *words)
        project = [{**sleep, "name": f"d{number}", "replicas": 10_000} for number in range(6)]
        self.assertRefused(self.command("apply", self.write_project(*project)), 2, "60000 replicas", "the maximum is 50000")
        status, _, text = self.ask("PUT", "/api/v1/project", {"project": {"cluster": {"name": "lab"}, "deployments": [
            {"name": "large", "cpu": True, "command": ["/bin/sleep", "1"], "replicas": 10_001}]}})
        self.assertEqual((status, "it must be at most 10000" in text), (400, True), text)
        self.assertEqual(self.get("project")["version"], 0, "nothing was changed")
        self.assertOthersArePlaced()

    def test_large_settings_are_updated_paused_and_undone(self):
        self.add_nodes("a")
        for turn in range(12):
            large = self.web("large", text="x" * 110_000 + str(turn))
            self.apply(large, wait=False, status=None)
        status, _, text = self.ask("POST", "/api/v1/deployments/large/rollout", {"action": "pause", "reason": "r" * 501})
        self.assertEqual((status, "longer than 500 bytes" in text), (400, True), text)
        for body in ({"action": "pause", "reason": "\x01" * 500}, {"action": "resume"}, {"action": "undo"}):
            status, _, text = self.ask("POST", "/api/v1/deployments/large/rollout", body)
            self.assertEqual(status, 200, text)
        self.assertOthersArePlaced(large)

    def test_a_plan_of_the_largest_deployment_has_bounds(self):
        self.add_nodes("a")
        most = {"name": "most", "gpus": 1, "replicas": 10_000, "command": ["/bin/sleep", "1000"]}
        file = self.write_project(most)
        answer = self.command("plan", file, "--server", "--json")
        self.assertEqual(answer.returncode, 3, answer.stderr)
        self.assertLess(len(answer.stdout), 8 << 20)


@needs_sqlite
class DamagedStore(Fleet):
    def damage(self, key):
        database = sqlite3.connect(self.store)
        with database:
            changed = database.execute("update entries set value = substr(value, 1, length(value) / 2) where key like ?", (key,)).rowcount
        database.close()
        self.assertEqual(changed, 1, key)

    def test_a_damaged_record_is_named_and_stops_no_other(self):
        self.add_nodes("a", "b", "c")
        self.apply(self.web(), self.web("other"), self.web("third"))
        before, places = self.pids("other"), self.replicas("other")
        node = next(name for name in "abc" if name != places[0]["node"])
        self.server.terminate()
        self.server.wait()
        self.damage("state/deployment/other/%")
        self.damage(f"state/node/{node}")
        self.damage("state/assigned/%/third/0/%")
        self.serve()
        warnings = {warning["subject"]: warning["text"] for warning in self.get("status")["warnings"]}
        self.assertIn("cannot be read", warnings["store"])
        self.assertIn("and 2 others", warnings["store"])
        self.assertIn("stay as they are", warnings["deployment/other"])
        text = self.command("status").stdout
        self.assertIn("deployment/other", text)
        self.until_healthy("a", "b", "c")
        self.assertEqual(self.get(f"nodes/{node}")["node"]["intent"], "cordoned")
        # Undamaged deployments are still decided, the replica whose record is lost is replaced, and the deployment serves.
        self.assertEqual(self.command("uncordon", f"node/{node}").returncode, 0)
        self.until_ready("third", 1)
        self.assertEqual(self.pids("other"), before)
        # Another apply repairs everything.
        self.apply(self.web(), self.web("other"), self.web("third"), self.web("fourth"))
        self.until_ready("other", 1)
        self.assertNotIn("warnings", self.get("status"))


@needs_sqlite
class StoreFile(Fleet):
    def test_a_path_with_a_mistake_is_not_an_empty_fleet(self):
        serve = ("serve", "--no-agent", "--gateway", "none", "--listen", "127.0.0.1:0", "--store")
        other = {"BERTH_RUNTIME_DIR": str(self.folder / "other")}
        for missing in (self.folder / "typo" / "store.db", self.store.parent / "stroe.db"):
            self.assertRefused(self.berth(*serve, f"sqlite:{missing}", **other), 2, f"there is no store {missing}; correct the path, or add --create")
            self.assertFalse(missing.exists())
        settings = self.folder / "server.toml"
        settings.write_text(f'listen = ["127.0.0.1:0"]\nstore = "sqlite:{missing}"\n')
        self.assertRefused(self.berth("serve", "--no-agent", "--gateway", "none", "--config", str(settings), **other), 2, "--gateway")
        self.assertRefused(self.berth("serve", "--no-agent", "--config", str(settings), **other), 2, f"there is no store {missing}")
        self.assertFalse(missing.exists())
        # A folder is never created.
        missing = self.folder / "typo" / "store.db"
        self.assertRefused(self.berth(*serve, f"sqlite:{missing}", "--create", **other), 2, "there is no folder", str(missing.parent))
        self.assertFalse(missing.parent.exists())
        # A new store is created with --create, and exists the next time.
        new = self.store.parent / "new.db"
        for options in (["--create"], []):
            self.server.terminate()
            self.assertEqual(self.server.wait(timeout=30), 0)
            self.serve("--store", f"sqlite:{new}", *options)
        self.assertTrue(new.exists())

    def test_a_foreign_file_is_not_touched(self):
        notes = self.folder / "notes.txt"
        notes.write_text("mine")
        notes.chmod(0o644)
        serve = ("serve", "--no-agent", "--gateway", "none", "--listen", "127.0.0.1:0", "--store")
        self.assertRefused(self.berth(*serve, f"sqlite:{notes}", BERTH_RUNTIME_DIR=str(self.folder / "other")), 1, "is not a Berth store")
        self.assertRefused(self.command("store", "backup", str(notes)), 2, "already exists", "another name")
        self.assertRefused(self.command("store", "backup", str(self.folder / "new.backup"), "--store", f"sqlite:{notes}"), 1, "is not a Berth store")
        self.assertEqual((notes.read_text(), notes.stat().st_mode & 0o777), ("mine", 0o644))


class Nodes(Fleet):
    @needs_sqlite
    def test_a_node_is_deleted(self):
        a, b = self.add_nodes("a", "b", gpus=1)
        self.apply(self.web())
        place = self.until_ready("web", 1)[0]["node"]
        other = {"a": "b", "b": "a"}[place]
        self.assertRefused(self.command("delete", "node/none"), 2, 'no node "none"')
        self.assertRefused(self.command("delete", f"node/{place}"), 1, "is connected and runs replicas", f"berth drain node/{place}")
        self.assertRefused(self.command("delete", f"node/{other}"), 1, "is connected and not drained", f"berth drain node/{other}")
        read = self.token("read")
        self.assertEqual(self.ask("DELETE", f"/api/v1/nodes/{place}", token=read)[0], 403)
        self.assertEqual(self.command("drain", f"node/{place}").returncode, 0)
        self.until_ready("web", 1, lambda replica: replica["node"] == other)
        self.assertEqual(self.command("delete", f"node/{place}").returncode, 0)
        self.assertEqual([node["name"] for node in self.get("nodes")["nodes"]], [other])
        self.assertEqual(self.get("nodes")["nodes"][0]["name"], other)
        event = [event for event in self.get("events")["events"] if event["text"] == f"{place} was removed"]
        self.assertEqual([row["kind"] for row in event], ["node"])
        # Its credential is removed too, also after a restart of the server.
        removed = self.nodes[place]
        self.until(lambda: "token" in removed.log.read_text(), lambda: removed.log.read_text())
        self.server.kill()
        self.server.wait()
        self.serve()
        self.until_healthy(other)
        self.assertEqual([node["name"] for node in self.get("nodes")["nodes"]], [other])
        # With a new token the node joins again and is in service.
        removed.kill()
        shutil.rmtree(removed.runtime)
        removed.start(self.token("join"))
        self.until_healthy(place)
        self.assertEqual(self.get(f"nodes/{place}")["node"]["intent"], "in_service")
        self.apply(self.web(replicas=2))
        self.until_ready("web", 2)


@needs_sqlite
class Restored(Fleet):
    def test_a_fleet_that_lives_goes_back_to_its_backup(self):
        """docs/operate/operations.md: replicas that were placed after the backup are stopped, those in the backup are started."""
        self.add_nodes("a", gpus=3)
        self.apply(self.web("stays"), self.web("removed"))
        stays, removed = self.pids("stays"), self.pids("removed")
        epoch, version = self.get("status")["epoch"], self.get("project")["version"]
        backup = str(self.folder / "fleet.backup")
        self.assertEqual(self.command("store", "backup", backup).returncode, 0)
        self.apply(self.web("stays"), self.web("later"))
        self.until(lambda: not self.pids("removed"), self.situation)
        self.until_ready("later", 1)
        self.server.terminate()
        self.server.wait()
        self.assertRefused(self.command("store", "restore", backup), 2, "is not empty", "replace the contents of this one with --replace")
        answer = self.command("store", "restore", backup, "--replace")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.serve()
        self.until(lambda: not self.pids("later"), self.situation)
        self.until_ready("removed", 1)
        self.until_ready("stays", 1)
        self.assertEqual(self.pids("stays"), stays, "the replica never stopped")
        self.assertNotEqual(self.pids("removed"), removed)
        self.assertEqual({deployment["name"] for deployment in self.get("deployments")["deployments"]}, {"stays", "removed"})
        self.assertGreaterEqual(self.get("status")["epoch"], epoch + 1_000_000)
        self.assertGreaterEqual(self.get("project")["version"], version + 1_000_000)
        # The agent obeys, and nothing holds a device twice.
        self.apply(self.web("stays", text="v2"), self.web("removed"), self.web("new"))
        self.until_ready("new", 1)
        self.assertEqual(len({device for name in ("stays", "removed", "new") for device in self.replicas(name)[0]["devices"]}), 3)


class Access(Fleet):
    def test_an_undo_needs_more_than_operate(self):
        self.add_nodes("a")
        self.apply(self.web(text="v1"))
        self.apply(self.web(text="v2"))
        operate = self.token("operate")
        path = "/api/v1/deployments/web/rollout"
        status, _, text = self.ask("POST", path, {"action": "undo"}, operate)
        self.assertEqual((status, "deploy" in text, "ask for another token" in text), (403, True, True), text)
        for action in "pause", "resume":
            self.assertEqual(self.ask("POST", path, {"action": action}, operate)[0], 200)
        self.assertIn("v2", str(self.get("deployments/web")["deployment"]["spec"]["command"]), "nothing was undone")
        self.assertEqual(self.ask("POST", path, {"action": "undo"}, self.token("deploy"))[0], 200)
        self.assertIn("v1", str(self.get("deployments/web")["deployment"]["spec"]["command"]))

    def test_a_node_cannot_write_into_a_reader_of_another(self):
        self.add_nodes("a")
        self.apply({"name": "talk", "gpus": 1, "command": ["/bin/sh", "-c", "while :; do echo tick; sleep 0.1; done"]})
        evil = ForgedNode(self, "evil")
        evil.report()
        reader = subprocess.Popen([BERTH, "logs", "-f", "talk/0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env=self.environment(BERTH_RUNTIME_DIR=str(self.folder / "server")))
        self.started.append(reader)
        lines = []
        threading.Thread(target=lambda: [lines.append(line) for line in reader.stdout], daemon=True).start()
        self.until(lambda: len(lines) > 3, "the reader reads")
        for number in range(1, 400):
            for query in "", "?end=1", "?refused=1":
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
                connection.request("POST", f"/api/v1/agent/logs/l{number}{query}", "FORGED\n", {"Authorization": f"Bearer {evil.credential}", "Content-Type": "text/plain"})
                answer = connection.getresponse()
                self.assertEqual(json.loads(answer.read()).get("open"), False)
                connection.close()
        seen = len(lines)
        self.until(lambda: len(lines) > seen + 3, lambda: f"the reader reads on: {lines[-3:]}")
        self.assertIsNone(reader.poll())
        self.assertNotIn("FORGED", "".join(lines))


if __name__ == "__main__":
    unittest.main(verbosity=1)
