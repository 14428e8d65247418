"""A program of another user on the port of a server that is down: it gets no token, and no agent follows it.

usage: tests/fake_server_test.py BERTH ROOT DOUBLE"""
import http.server
import json
import os
import socketserver
import threading
import unittest

from berth_case import needs_sqlite
from fleet_case import Fleet

EPOCH = 2 ** 60


class FakeServer(socketserver.ThreadingTCPServer):
    """Answers every request of an agent or a command like a server, and keeps all received bytes."""
    allow_reuse_address, daemon_threads = True, True

    def __init__(self, port, orders):
        self.received, self.connections, self.requests, self.orders = b"", 0, 0, orders
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                fake.connections += 1
                super().setup()
                read = self.rfile.readline

                def keep(*arguments):
                    data = read(*arguments)
                    fake.received += data
                    return data
                self.rfile.readline = keep

            def answer(self):
                fake.requests += 1
                fake.received += self.rfile.read(int(self.headers.get("Content-Length", 0)))
                body = {"schema": 1, "epoch": EPOCH, "revision": EPOCH, "now_at_ms": 0, "node": "a", "id": "t9", "token": "berth_fake", "nodes": []}
                text = json.dumps(fake.orders if "/agent/assignments" in self.path else body).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = answer

            def log_message(self, *_):
                pass
        super().__init__(("127.0.0.1", port), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def end(self):
        self.shutdown()
        self.server_close()


@needs_sqlite
class OnThePortOfAServer(Fleet):
    def token_file(self, role):
        path = self.folder / f"{role}.token"
        path.write_text(self.token(role) + "\n")
        path.chmod(0o600)
        return path

    def squat(self, orders):
        """The server is down, and its port is taken."""
        self.server.terminate()
        self.server.wait()
        fake = FakeServer(self.port, orders)
        self.addCleanup(fake.server_close)
        return fake

    def assertGotNothing(self, fake, *files):
        for file in files:
            self.assertNotIn(file.read_text().strip().encode(), fake.received, file.name)
        self.assertNotIn(b"authorization", fake.received.lower())

    def test_an_agent_gives_it_nothing_and_does_not_obey(self):
        a, = self.add_nodes("a")
        self.apply(self.web())
        replica = self.until_ready("web", 1)[0]
        credential, = a.runtime.glob("agent-*/a/credential")
        status, _, text = self.ask("GET", "/api/v1/agent/assignments", token=credential.read_text().strip())
        self.assertEqual(status, 200, text)
        orders, marker = json.loads(text), self.folder / "obeyed"
        self.assertEqual(len(orders["orders"]), 1, text)
        orders |= {"epoch": EPOCH, "revision": EPOCH}
        text = json.dumps(orders).replace(json.dumps(self.web()["command"])[1:-1], json.dumps(["touch", str(marker)])[1:-1])
        self.assertIn(str(marker), text)
        epoch_file, = a.runtime.glob("agent-*/a/epoch")
        for generation in (replica["generation"], replica["generation"] + 1):  # the same replica, and a new one
            fake = self.squat(json.loads(text.replace(f'"generation": {replica["generation"]}', f'"generation": {generation}')))
            self.until(lambda: fake.connections + fake.requests >= 6, self.situation)
            fake.end()
            self.assertGotNothing(fake, credential)
            self.assertNotIn(b"/api/v1/agent", fake.received, "not even the path of a request was sent")
            self.assertFalse(marker.exists(), "orders of a stranger were obeyed")
            self.assertLess(int(epoch_file.read_text()), 100, "the epoch of a stranger was stored")
            self.assertIn("does not prove that it knows this token", a.log.read_text())
            self.serve()
            self.until_healthy("a")
        self.assertEqual(self.until_ready("web", 1)[0]["generation"], replica["generation"], "the replica was not touched")
        self.apply(self.web(replicas=2))
        self.until_ready("web", 2)

    def test_commands_give_it_nothing(self):
        deploy, join = self.token_file("deploy"), self.token_file("join")
        url = f"http://127.0.0.1:{self.port}"
        answer = self.berth("nodes", "--server", url, BERTH_TOKEN_FILE=str(deploy))
        self.assertEqual(answer.returncode, 0, answer.stderr)
        fake = self.squat({})
        for host in ("127.0.0.1", "localhost"):
            answer = self.berth("nodes", "--server", f"http://{host}:{self.port}", BERTH_TOKEN_FILE=str(deploy))
            self.assertRefused(answer, 1, "does not prove that it knows this token", "another program that listens on this port")
        project = self.write_project(self.web())
        self.assertRefused(self.berth("apply", project, "--server", url, BERTH_TOKEN_FILE=str(deploy)), 1, "does not prove that it knows this token")
        answer = self.berth("agent", "--join", url, "--name", "a", "--token-file", str(join))
        self.assertRefused(answer, 1, "does not prove that it knows this token")
        fake.end()
        self.assertGreaterEqual(fake.connections, 4)
        self.assertGotNothing(fake, deploy, join)
        self.assertFalse(list(self.runtime.glob(f"agent-{os.geteuid()}/a/credential")), "the agent has not joined a stranger")
        self.serve()
        self.assertEqual(self.berth("nodes", "--server", url, BERTH_TOKEN_FILE=str(deploy)).returncode, 0)


if __name__ == "__main__":
    unittest.main()
