#!/usr/bin/env python3
"""Each failure at a gateway becomes one event, however many requests it affects: bad answers, skipped replicas, ports of other programs, requests
that cannot be forwarded, and silent gateways. With real processes."""
import contextlib
import http.client
import json
import os
import signal
import socket
import sys
import unittest

from gateway_case import Gateway

# Answers in HTTP. While the file exists, replica 0 answers with its content and closes the connection, or does not answer if the file is empty.
REPLICA = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    connection = listener.accept()[0]
    while data := connection.recv(65536):
        if os.path.exists(sys.argv[2]) and os.environ["BERTH_REPLICA"].endswith("/0"):
            if not (bad := open(sys.argv[2], "rb").read()):
                continue
            connection.sendall(bad)
            break
        connection.sendall(b"HTTP/1.1 200 OK\\r\\ncontent-length: 5\\r\\n\\r\\nhello")
    connection.close()
"""


class Events(Gateway):
    def setUp(self):
        super().setUp()
        self.add_nodes("a")

    def events(self, subject, words=""):
        return [event for event in self.get(f"events?limit=1000&subject={subject.replace('/', '%2F')}")["events"] if words in event["text"]]

    def until_event(self, subject, words):
        self.until(lambda: self.events(subject, words), lambda: f"{words}: {self.get('events?limit=20')['events']} {self.situation()}")
        return self.events(subject, words)

    def own(self):
        """The gateway as a subject of events."""
        return "gateway/" + self.get("endpoints")["gateways"][0]["name"]

    def odd(self, name, bad, **more):
        """A deployment whose replica 0 answers badly while that file exists."""
        program = self.folder / "replica.py"
        program.write_text(REPLICA)
        return {**self.loaded(name, **more), "command": [sys.executable, "-SE", str(program), "{port}", str(bad)]}

    def test_an_answer_that_is_late_or_incomplete_is_an_event_of_its_replica(self):
        late, part = self.folder / "late", self.folder / "part"
        self.apply(self.odd("late", late, serving={"first_byte_timeout": "1s"}), self.odd("part", part))
        for name in ("late", "part"):
            self.until(lambda name=name: self.is_answered(f"/{name}"), self.situation)
        late.touch()
        status, text, _ = self.ask_for("/late")
        self.assertEqual(status, 504, text)
        self.until_event("late/0", "it sent nothing for too long")
        part.write_bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhello")
        with self.assertRaises(http.client.IncompleteRead):
            self.ask_for("/part")
        self.until_event("part/0", "failed at part/0")

    def test_a_replica_that_does_not_speak_http_is_left_out_and_comes_back(self):
        bad = self.folder / "bad"
        self.apply(self.odd("odd", bad, replicas=2))
        self.until(lambda: self.is_answered("/odd"), self.situation)
        bad.write_bytes(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
        statuses = set()

        def is_left_out():
            statuses.update(self.ask_for("/odd")[0] for _ in range(10))
            return self.events("odd/0", "skips it")
        self.until(is_left_out, self.situation)
        self.assertEqual(statuses, {200, 502})
        first, = self.events("odd/0", "a request of the gateway")
        self.assertEqual((first["kind"], first["actor"]), ("failed", self.own().replace("/", ":")))
        self.assertRegex(first["text"], r"failed at odd/0#\d+: .")
        left_out, = self.events("odd/0", "skips it")
        self.assertRegex(left_out["text"], r"odd/0#\d+ failed 5 times in a row; the gateway \S+ skips it for 1 s at first and .*: .")
        bad.unlink()

        def is_back():
            self.ask_for("/odd")
            return self.events("odd/0", "again after")
        self.until(is_back, self.situation)
        self.assertEqual(self.events("odd/0", "again after")[0]["kind"], "ready")
        self.assertEqual(len(self.events("odd/0", "skips it")), 1, "it was left out until it answered")
        shown = self.command("events", "--subject", "odd/0").stdout
        self.assertIn("skips it", shown)
        self.assertEqual(self.events("odd/1", "gateway"), [], "the other replica is not affected")

    def test_a_port_that_another_process_has_taken_is_named(self):
        note = self.folder / "port"
        command = ["/bin/sh", "-c", f"echo {{port}} >{note}.new && mv {note}.new {note} && exec sleep 600"]
        self.apply({"name": "stolen", "cpu": True, "command": command, "serving": {"path": "/stolen", "open": True}})
        self.until(note.exists, self.situation)
        with socket.create_server(("127.0.0.1", int(note.read_text()))):
            self.until(lambda: self.ask_for("/stolen")[0] == 502, self.situation)
            text = self.ask_for("/stolen")[1]
        self.assertIn("belongs to another process", json.loads(text)["error"]["message"])
        event, = self.until_event("stolen/0", "a request of the gateway")
        self.assertIn("belongs to another process", event["text"])

    def test_requests_that_cannot_be_passed_on_are_one_event_for_each_reason(self):
        strict = {"path": "/app", "open": True, "key": "json:user", "affinity": "strict"}
        idle = {"name": "idle", "cpu": True, "replicas": 0, "command": ["sleep", "{port}"], "serving": {"path": "/idle", "open": True, "on_capacity_exhausted": "reject"}}
        self.apply(self.loaded("app", replicas=1, serving=strict), idle, wait=False)
        self.until(lambda: self.ask_for("/app/echo", '{"user":"a"}')[0] == 200, self.situation)
        for body in ("{}", '{"user":""}', '{"user":"%s"}' % ("x" * 2000), '{"user":"a","user":"b"}', "no json", '{"user":"a\0b"}'):
            status, text, _ = self.ask_for("/app/echo", body)
            self.assertEqual(status, 400, body[:40])
            self.assertTrue(json.loads(text)["error"]["message"], body[:40])
        self.assertEqual(self.ask_for("/app/echo", '{"user":"%s"}' % ("x" * 1_000_000))[0], 413)
        self.assertEqual(self.ask_for("/idle")[0], 503)
        for _ in range(5):
            self.assertEqual(self.ask_for("/nowhere")[0], 404)
        for header in (b"x: " + b"x" * 1_000_000, b"x: \0"):
            with socket.create_connection(("127.0.0.1", self.gateway), timeout=10) as connection, contextlib.suppress(ConnectionError):
                connection.sendall(b"GET /app HTTP/1.1\r\nhost: localhost\r\n" + header + b"\r\n\r\n")
                connection.recv(1)
        for subject, words in (("app", "with 400: they are malformed, or their key is missing"), ("app", "with 413: their bodies are too long"),
                               ("idle", "with 503: it has no ready and connected replica"), (self.own(), "with 404: no deployment matches their address"),
                               (self.own(), "with 431: their bodies are too long to be searched, or their headers are too long"), (self.own(), "with 400: they are malformed")):
            event, = self.until_event(subject, words)
            self.assertEqual(event["kind"], "refused")
            self.assertRegex(event["text"], r"berth why request [0-9a-f]{16}\)$")

    def test_routes_that_conflict_are_refused_or_an_event(self):
        same = [self.loaded(name, replicas=1, serving={"path": "/same"}) for name in ("one", "two")]
        self.assertRefused(self.command("apply", self.write_project(*same)), 2, "have the same host and path")
        self.apply(*[self.loaded(name, replicas=1, model="llama") for name in ("one", "two")], wait=False)
        project = next(event["subject"] for event in self.get("events?limit=1000")["events"] if event["kind"] == "applied")
        event, = self.until_event(project, "llama")
        self.assertIn("the model llama is served by one and two", event["text"])
        self.until(lambda: self.ask_for("/v1/chat/completions", '{"model":"llama"}')[0] == 400, self.situation)

    def test_a_gateway_that_is_silent_is_lost_and_says_when_it_is_back(self):
        self.apply(self.loaded(replicas=1))
        self.until_answered("/app/echo")
        self.until(lambda: self.get("endpoints")["gateways"][0]["reports"], self.situation)
        gateway = self.process_of("berth gateway ")
        os.kill(gateway, signal.SIGSTOP)
        try:
            lost, = self.until_event(self.own(), "is lost")
            self.assertEqual(lost["kind"], "failed")
        finally:
            os.kill(gateway, signal.SIGCONT)
        event, = self.until_event(self.own(), "reports again")
        self.assertRegex(event["text"], r"reports again after \d+ s without this server, during which it used its last known state")


if __name__ == "__main__":
    unittest.main()
