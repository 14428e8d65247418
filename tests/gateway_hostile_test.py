#!/usr/bin/env python3
"""Input that no honest client or replica sends, at a real gateway: a bad request gets an error or a closed connection and never reaches a replica, and
no part of a bad answer reaches another client.
"""
import contextlib
import json
import select
import socket
import threading
import time
import unittest

from gateway_case import Gateway
from gateway_hostile_corpus import ANSWERS, BODIES, PASSED, REQUESTS, TRICKS

# Records all that it gets. Answers as the last part of the path says, from a file of answers, otherwise with the request.
REPLICA = """
import json, os, socket, sys, threading
answers = {name: bytes.fromhex(text) for name, text in json.load(open(sys.argv[3])).items()}
journal = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
def length_of(head):
    return next((int(line.split(b":")[1]) for line in head.lower().split(b"\\r\\n") if line.startswith(b"content-length:")), 0)
def serve(connection):
    data = b""
    while True:
        while b"\\r\\n\\r\\n" not in data:
            more = connection.recv(65536)
            if not more:
                return
            os.write(journal, more)
            data += more
        head, _, data = data.partition(b"\\r\\n\\r\\n")
        is_chunked = b"transfer-encoding: chunked" in head.lower()
        while (b"0\\r\\n\\r\\n" not in data) if is_chunked else len(data) < length_of(head):
            more = connection.recv(65536)
            if not more:
                os.write(journal, b"[a body was cut off]")
                return
            os.write(journal, more)
            data += more
        data = b"" if is_chunked else data[length_of(head):]
        name = head.split(b" ")[1].split(b"/")[-1].decode("latin-1")
        if name == "silent":
            connection.recv(1)
            os.write(journal, b"[the silent one was left]")
            return
        if name in answers:
            connection.sendall(answers[name])
            if not name.startswith("kept"):
                return
            continue
        connection.sendall(b"HTTP/1.1 200 OK\\r\\ncontent-length: %d\\r\\n\\r\\n%s" % (len(head), head))
def run(connection):
    try:
        serve(connection)
    except OSError:
        pass
    connection.close()
host, _, port = sys.argv[1].rpartition(":")
listener = socket.create_server((host or "127.0.0.1", int(port)), backlog=100)
while True:
    threading.Thread(target=run, args=(listener.accept()[0],), daemon=True).start()
"""


class Hostile(Gateway):
    """The replica is reached through the relay of its node."""
    is_direct = False

    def setUp(self):
        super().setUp()
        self.add_nodes("a")
        self.recorder, self.answers, self.seen = (self.folder / name for name in ("recorder.py", "answers.json", "seen"))
        self.recorder.write_text(REPLICA)
        self.answers.write_text(json.dumps({name: data.hex() for name, (data, *_) in ANSWERS.items()}))
        self.apply(self.recording("app", self.is_direct, model="m"))
        self.until(lambda: self.is_answered("/app/first"), self.situation)

    def recording(self, name, is_direct, **more):
        """A deployment of one replica that records what it gets."""
        where, serving = ("{address}:{port}", {"reach": "direct"}) if is_direct else ("{port}", {})
        command = ["python3", "-SE", str(self.recorder), where, str(self.seen), str(self.answers)]
        return {**self.loaded(name, replicas=1, serving=serving, **more), "command": command}

    def exchange(self, data, seconds=10, close=False):
        """All that is received until the gateway closes the connection, for `seconds` at most. `close`: shuts down sending if nothing comes."""
        with socket.create_connection(("127.0.0.1", self.gateway), timeout=seconds) as connection:
            got = b""
            try:
                connection.sendall(data)
                if close and not select.select([connection], [], [], 0.3)[0]:
                    connection.shutdown(socket.SHUT_WR)
                while more := connection.recv(65536):
                    got += more
                    if close and not select.select([connection], [], [], 0.3)[0]:
                        connection.shutdown(socket.SHUT_WR)
            except TimeoutError:
                got += b"[the connection is still open]"
            except OSError:
                pass  # reset, with what came before
            return got


class BadRequests(Hostile):
    def assertRefused(self, data, marker):
        answer = self.exchange(data, close=True)
        self.assertTrue(not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")), (data[:300], answer[:300]))
        self.assertEqual(answer.count(b"HTTP/1.1 "), 1 if answer else 0, (data[:300], answer[:600]))
        self.assertNotIn(b"[the connection is still open]", answer, data[:300])
        self.assertNotIn(marker, self.seen.read_bytes(), (data[:300], answer[:300]))
        if body := answer.partition(b"\r\n\r\n")[2]:
            self.assertNotIn("\n", json.loads(body)["error"]["message"], "one sentence in UTF-8")

    def test_are_refused_and_never_reach_a_replica(self):
        for number, text in enumerate(REQUESTS):
            with self.subTest(text=text[:200]):
                marker = b"bad-%d-" % number
                self.assertRefused(text.replace(b"MARK", marker), marker)
        self.assertTrue(self.is_answered("/app/after"))
        self.assertIn(b"/app/after", self.seen.read_bytes())

    def test_bodies_that_name_no_model_clearly_are_refused(self):
        for number, (body, status) in enumerate(BODIES):
            with self.subTest(body=body[:100]):
                marker = b"bad-%d-" % number
                data = b"POST /v1/%s HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%s" % (marker, len(body), body)
                answer = self.exchange(data.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1))
                self.assertTrue(answer.startswith(b"HTTP/1.1 %d " % status), answer[:300])
                self.assertNotIn(marker, self.seen.read_bytes())

    def test_what_is_odd_and_valid_is_passed_on_once_and_plainly(self):
        for number, (text, passed) in enumerate(PASSED):
            with self.subTest(text=text[:200]):
                marker = b"odd-%d-" % number
                answer = self.exchange(text.replace(b"MARK", marker))
                self.assertTrue(answer.startswith(b"HTTP/1.1 200 "), answer[:300])
                self.assertEqual(self.seen.read_bytes().count(marker), passed, answer)

    def test_headers_of_others_and_of_berth_do_not_reach_a_replica(self):
        for header, inside in TRICKS:
            with self.subTest(header=header):
                answer = self.exchange(b"GET /app/trick HTTP/1.1\r\nhost: localhost\r\n" + header + b"\r\nconnection: close\r\n\r\n")
                self.assertTrue(answer.startswith(b"HTTP/1.1 200 "), answer[:300])
                passed = answer.partition(b"\r\n\r\n")[2].lower()
                self.assertNotIn(b"planted", passed)
                self.assertIn(inside, passed)

    def test_a_relay_that_proves_nothing_is_refused(self):
        answer = self.exchange(b"POST /.berth/relay HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: berth-relay-1\r\nx-berth-node: a\r\ncontent-length: 0\r\n\r\n")
        self.assertTrue(answer.startswith(b"HTTP/1.1 403 "), answer)

    def test_trailers_reach_no_replica(self):
        answer = self.exchange(b"POST /app/trailer HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\ntrailer: x-berth-to\r\n\r\n"
                               b"4\r\nabcd\r\n0\r\nx-berth-to: planted\r\nx-forwarded-for: planted\r\n\r\n")
        self.assertTrue(answer.startswith(b"HTTP/1.1 200 "), answer)
        self.assertIn(b"/app/trailer", self.seen.read_bytes())
        self.assertNotIn(b"planted", self.seen.read_bytes())


class BadRequestsToDirect(BadRequests):
    is_direct = True


class SlowRequests(Hostile):
    # The text before the client stops, and the piece that it then sends every 100 ms.
    BEGUN = {"nothing": (b"", b""), "a line": (b"GET /app/slow HT", b""), "a header": (b"GET /app/slow HTTP/1.1\r\nhost: localhost\r\nx: ", b""),
             "a body": (b"POST /app/slow HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nabc", b""),
             "a model": (b"POST /v1/slow HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{\"mod", b""),
             "a chunk": (b"POST /v1/slow HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"m", b""),
             "letters of a line": (b"GET /app/slow", b"y"), "letters of a header": (b"GET /app/slow HTTP/1.1\r\nhost: localhost\r\nx: ", b"y"),
             "many headers": (b"GET /app/slow HTTP/1.1\r\nhost: localhost\r\n", b"x: y\r\n")}
    # Too long to be buffered, so that a replica gets the first part.
    LONG = {f"a long body for {name}": b"POST /%s/long HTTP/1.1\r\nhost: localhost\r\ncontent-length: 200000\r\n\r\n" % name.encode() + b"x" * 70_000 for name in ("app", "direct")}

    def trickle(self, begun, piece):
        """Like exchange(), with a client that continues to send."""
        with socket.create_connection(("127.0.0.1", self.gateway)) as connection:
            got, ends = b"", time.monotonic() + 90
            try:
                connection.sendall(begun)
                while time.monotonic() < ends:
                    if select.select([connection], [], [], 0.1)[0]:
                        if not (more := connection.recv(65536)):
                            return got
                        got += more
                    elif piece:
                        connection.sendall(piece)
                return got + b"[the connection is still open]"
            except OSError:
                return got

    def test_are_ended(self):
        self.apply(self.recording("app", False, model="m"), self.recording("direct", True))
        self.until(lambda: self.is_answered("/direct/first"), self.situation)
        got, began = {}, time.monotonic()
        all_begun = {**self.BEGUN, **{name: (data, b"") for name, data in self.LONG.items()}}
        threads = [threading.Thread(target=lambda name=name, begun=begun: got.update({name: self.trickle(*begun)})) for name, begun in all_begun.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(set(got), set(all_begun))
        for name, answer in got.items():
            self.assertNotIn(b"still open", answer, name)
            self.assertTrue(not answer or answer.startswith(b"HTTP/1.1 408 "), (name, answer))
        self.assertQuick(time.monotonic() - began, 65)
        self.assertNotIn(b"/slow", self.seen.read_bytes())
        self.until(lambda: self.seen.read_bytes().count(b"[a body was cut off]") == len(self.LONG), "the replicas are rid of them too")


class Limits(Hostile):
    def test_of_connections_and_headers_are_options_of_the_gateway(self):
        self.replace_gateway("--connections", "16", "--header-timeout", "1s")
        began = time.monotonic()
        self.assertEqual(self.exchange(b"GET /app/slow HTTP/1.1\r\nhost: localhost\r\nx: ").split(b" ")[1:2], [b"408"])
        self.assertLess(time.monotonic() - began, 9, "the time without this option is 10 s")
        with contextlib.ExitStack() as all_of_them:
            taken = [all_of_them.enter_context(socket.create_connection(("127.0.0.1", self.gateway))) for _ in range(20)]
            self.until(lambda: any(select.select(taken, [], [], 0)[0]), "one of 20 connections was turned away")
        self.until(lambda: self.is_answered("/app/after"), self.situation)


class BadReplicas(Hostile):
    def test_of_a_bad_answer_the_client_gets_a_sentence_and_others_get_nothing(self):
        for name, (_, status, words) in ANSWERS.items():
            with self.subTest(name=name):
                answer = self.exchange(b"GET /app/%s HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n" % name.encode())
                head, _, body = answer.partition(b"\r\n\r\n")
                self.assertEqual(head.split(b" ")[1:2], [b"%d" % status], answer[:300])
                self.assertNotIn(b"planted", answer)
                self.assertNotIn(b"still open", answer)
                if status == 502:
                    message = json.loads(body)["error"]["message"]
                    self.assertRegex(message, r"^the replica app/0#\d+ did not answer: ")
                    self.assertIn(words, message)
                    self.assertNotIn("\n", message)
                # The next requests get their own answers.
                for other in (b"next-1", b"next-2"):
                    after = self.exchange(b"GET /app/%s HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n" % other)
                    self.assertTrue(after.startswith(b"HTTP/1.1 200 ") and b"GET /app/" + other in after, (name, after[:300]))

    def test_a_replica_that_does_not_answer_is_left_when_its_client_goes(self):
        with socket.create_connection(("127.0.0.1", self.gateway)) as connection:
            connection.sendall(b"GET /app/silent HTTP/1.1\r\nhost: localhost\r\n\r\n")
            self.until(lambda: b"/app/silent" in self.seen.read_bytes(), self.situation)
        self.until(lambda: b"[the silent one was left]" in self.seen.read_bytes(), self.situation)
        self.assertTrue(self.is_answered("/app/after"))


class BadDirectReplicas(BadReplicas):
    is_direct = True


if __name__ == "__main__":
    unittest.main()
