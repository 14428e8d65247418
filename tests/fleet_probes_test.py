"""Probes of real replicas: what a replica answers decides whether it is ready, and whether it is restarted."""
import sys
import unittest

from fleet_case import Fleet

# Answers every request with the status in a file, and records its process.
REPLICA = """
import http.server, os, pathlib, sys
folder = pathlib.Path(sys.argv[2])
(folder / f"pid.{os.getpid()}").touch()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int((folder / self.path.strip("/")).read_text()))
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *arguments):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


class Probes(Fleet):
    def setUp(self):
        super().setUp()
        self.program.write_text(REPLICA)
        self.add_nodes("a")

    def answer(self, probe, status):
        (self.journal / f"{probe}.new").write_text(str(status))
        (self.journal / f"{probe}.new").rename(self.journal / probe)

    def served(self):
        """The processes of the replica that have ever answered."""
        return len(list(self.journal.glob("pid.*")))

    def deployment(self, **probes):
        return {"name": "web", "gpus": 1, "command": [sys.executable, "-SE", str(self.program), "{port}", str(self.journal)], "stop_grace": "2s",
                **{name: {"http": f"/{name}", "every": "100ms", "timeout": "20s", **more} for name, more in probes.items()}}

    def state(self):
        return (self.replicas().get(0) or {"state": "absent"})

    def test_a_replica_that_answers_with_an_error_is_not_ready(self):
        self.answer("readiness", 503)
        self.apply(self.deployment(readiness={"failures": 2}), wait=False)
        self.until(lambda: "answers with status 503" in self.state().get("reason", ""), self.situation)
        self.assertEqual(self.state()["state"], "starting")
        self.answer("readiness", 200)
        self.until_ready("web", 1)
        # Once ready, it is unready while it fails; within the 5 min of unready_within it is not restarted.
        self.answer("readiness", 404)
        self.until(lambda: self.state()["state"] == "unready" and "answers with status 404" in self.state()["reason"], self.situation)
        self.answer("readiness", 204)
        self.until_ready("web", 1)
        self.assertEqual(self.served(), 1)

    def test_a_replica_that_was_ready_and_stays_unready_is_restarted(self):
        self.answer("readiness", 200)
        self.apply({**self.deployment(readiness={"failures": 2}), "unready_within": "500ms"}, wait=False)
        before = self.until_ready("web", 1)[0]
        self.answer("readiness", 500)
        self.until(lambda: self.served() > 1, self.situation)
        self.answer("readiness", 200)
        after = self.until_ready("web", 1)[0]
        self.assertEqual(after["generation"], before["generation"], "its node started it again; the server placed no other")
        self.assertNotEqual(after["job"], before["job"])
        self.assertGreaterEqual(after["failures"], 1)
        why = " ".join(self.command("why", "replica", "web/0").stdout.split())
        self.assertIn("it was ready, and then its readiness probe failed for 500 ms: GET /readiness answers with status 500", why)

    def test_a_replica_whose_liveness_probe_fails_is_restarted(self):
        self.answer("readiness", 200)
        # Fails from its start: it counts although only the other probe has ever succeeded.
        self.answer("liveness", 200)
        self.apply(self.deployment(readiness={}, liveness={"failures": 2}), wait=False)
        before = self.until_ready("web", 1)[0]
        self.answer("liveness", 500)
        self.until(lambda: self.served() > 1, self.situation)
        self.until(lambda: "its liveness probe failed" in self.state().get("reason", "") or self.state()["state"] == "backing_off", self.situation)
        self.answer("liveness", 200)
        after = self.until_ready("web", 1)[0]
        self.assertEqual(after["generation"], before["generation"], "its node started it again; the server placed no other")
        self.assertNotEqual(after["job"], before["job"])
        self.assertGreaterEqual(after["failures"], 1)
        self.assertEqual(self.command("delete", "web").returncode, 0)
        self.until_nothing_runs()


if __name__ == "__main__":
    unittest.main(verbosity=1)
