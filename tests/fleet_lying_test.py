"""A node that lies: it reports devices of other nodes, a thousand devices that come and go, invalid rows and names of other nodes. Two honest
nodes still get replicas and rollouts, keep their history and are shown correctly."""
import json
import unittest

from fleet_case import Fleet, ForgedNode
from openapi_check import Document


class LyingNode(Fleet):
    def setUp(self):
        super().setUp()
        self.add_nodes("m", "n")
        self.apply(self.web(replicas=2))
        self.until_ready("web", 2)
        self.ids = [device["id"] for name in "mn" for device in self.get(f"nodes/{name}")["node"]["devices"]]
        self.evil = ForgedNode(self, "evil", cpus=8, memory=1 << 40)

    def device(self, id, **more):
        return {"id": id, "backend": "cuda", "memory_bytes_total": 80 << 30, "health": "healthy", **more}

    def assertHonestNodesWork(self, text):
        """Honest nodes roll out and are shown with all of their devices, as the API describes."""
        self.apply(self.web(text=text, replicas=2), wait=False)
        revision = self.get("deployments/web")["deployment"]["revision"]
        self.until_ready("web", 2, lambda replica: replica["revision"] == revision and replica["node"] in "mn")
        self.assertEqual({answer.split()[1] for answer in self.answering().values()}, {text})
        shown = [device["id"] for name in "mn" for device in self.get(f"nodes/{name}")["node"]["devices"]]
        self.assertEqual(shown, self.ids)
        status = self.get("status")
        self.assertNotIn("problem", status)
        document = Document(json.loads(self.ask("GET", "/api/v1/openapi.json")[2]))
        for path in "status", "nodes", "jobs", "replicas", "deployments", "events":
            status, kind, text = self.ask("GET", f"/api/v1/{path}")
            self.assertEqual(document.check_answer("GET", f"/api/v1/{path}", status, kind, text), [], path)

    def test_devices_of_other_nodes_reported_as_lost(self):
        self.evil.report([self.device(id, health="lost") for id in self.ids], devices=[self.device(id, health="lost") for id in self.ids])
        self.assertHonestNodesWork("v2")
        # A node that reports the same ids as healthy and free gets no replica that other nodes could run.
        self.evil.report([self.device(id) for id in self.ids], devices=[self.device(id) for id in self.ids])
        for name in "mn":
            self.assertEqual({device["health"] for device in self.get(f"nodes/{name}")["node"]["devices"]}, {"healthy"})

    def test_a_thousand_flipping_devices(self):
        before = self.get("events?limit=1000")["events"]
        people = self.get("events?people=1&limit=1000")["events"]
        self.assertIn("applied", {event["kind"] for event in people})
        for turn in range(30):
            health = "lost" if turn % 2 else "healthy"
            self.evil.report([self.device(f"GPU-{number}", health=health) for number in range(1024)])
            self.ask("GET", "/api/v1/status")  # which follows a decision
        self.assertHonestNodesWork("v3")
        after = []
        while page := self.get(f"events?limit=1000&after={after[-1]['id'] if after else 0}")["events"]:
            after += page
        self.assertEqual([event for event in after if event["id"] <= before[-1]["id"]], before, "no earlier event was removed")
        of_evil = [event for event in after if event["subject"] == "node/evil" and event["kind"] == "device"]
        self.assertLessEqual(len(of_evil), 1000)
        self.assertTrue(any("further ones are left out" in event["text"] for event in after))
        self.assertEqual(self.get("events?people=1&limit=1000")["events"][:len(people)], people)
        self.assertIn("version 1 of the project", self.command("events", "--people").stdout)

    def test_rows_that_are_none_and_names_of_others(self):
        lease = {"kind": "lease", "name": "7", "user": "ann", "command": "train", "state": "running", "devices": [], "exclusive": False, "age_s": 1}
        self.evil.report([], devices=[self.device("GPU-e", holders=[None]), {"backend": "cuda"}, None, 7, self.device("GPU-f\x1b[2J"), self.device("GPU-g"),
                                      self.device("GPU-g"), self.device("GPU-h", name="x" * 100_000, node="m", labels={"a": 1})],
                         leases=[{**lease, "node": "m"}, {**lease, "kind": "replica"}, None, {**lease, "devices": [None]}])
        node = self.get("nodes/evil")["node"]
        self.assertEqual([device["id"] for device in node["devices"]], ["GPU-g"])
        self.assertIn("7 of its devices are not valid", node["problem"])
        self.assertEqual([job["node"] for job in self.get("jobs")["jobs"]], ["evil"], "a row belongs to its reporter")
        warnings = {warning["subject"]: warning["text"] for warning in self.get("status")["warnings"]}
        self.assertEqual(list(warnings), ["node/evil"])
        self.assertIn("node/evil: 7 of its devices are not valid", " ".join(self.command("status").stdout.split()))
        log = self.folder / "server.log"
        self.until(lambda: "are not valid" in log.read_text(), "it is in the log")
        self.assertHonestNodesWork("v4")
        self.assertEqual(log.read_text().count("are not valid"), 1, "one message about this node")
        # Reports in the name of another node, and unreadable reports.
        self.evil.about["name"] = "m"
        self.evil.report(status=403)
        self.assertIn("it is about m", self.get("nodes/evil")["node"]["problem"])
        self.evil.about.pop("name")
        self.evil.report([{"id": 7}], status=400)
        self.assertIn("was refused", self.get("nodes/evil")["node"]["problem"])
        self.evil.report()
        self.assertNotIn("warnings", self.get("status"))
        self.assertHonestNodesWork("v5")


if __name__ == "__main__":
    unittest.main(verbosity=1)
