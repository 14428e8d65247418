#!/usr/bin/env python3
"""Who may send which requests to a real server, and for how long. In a network of its own, where the machine has an address besides loopback.

usage: tests/server_access_test.py BERTH ROOT DOUBLE"""
import http.client
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import time
import unittest

ADDRESS = "10.77.0.1"
if "BERTH_TEST_NETWORK" not in os.environ:
    tools = all(map(shutil.which, ("unshare", "ip", "openssl")))
    own_network = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    if not tools or subprocess.run([*own_network, "true"], capture_output=True).returncode != 0:
        print("[  SKIPPED ] server_access: needs ip, openssl and a network namespace")
        sys.exit(77)
    network = f"ip link set lo up && ip address add {ADDRESS}/32 dev lo && exec \"$@\""
    os.environ["BERTH_TEST_NETWORK"] = ADDRESS
    os.execvp("unshare", [*own_network, "sh", "-ec", network, "sh", sys.executable, *sys.argv])

from fleet_case import Fleet  # noqa: E402  (reads the arguments)


class ServerAccess(Fleet):
    def setUp(self):
        super().setUp()
        self.end(self.server)
        self.certificate, key = self.folder / "head.pem", self.folder / "head.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=head",
                        "-addext", f"subjectAltName=IP:{ADDRESS}", "-keyout", key, "-out", self.certificate], check=True, capture_output=True)
        key.chmod(0o600)
        self.secure = ["--listen", f"{ADDRESS}:8443", "--tls-certificate", str(self.certificate), "--tls-key", str(key)]
        self.serve(*self.secure)

    def end(self, process):
        process.terminate()
        process.wait()

    def connection(self):
        return http.client.HTTPSConnection(ADDRESS, 8443, timeout=30, context=ssl.create_default_context(cafile=str(self.certificate)))

    def ask_from_outside(self, method, path, token=None, body=None, cookie=None):
        connection = self.connection()
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {}) | ({"Cookie": cookie} if cookie else {})
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, answer.headers, text

    def test_others_need_a_token_for_everything_that_tells_something(self):
        self.assertEqual(self.ask_from_outside("GET", "/healthz")[0], 200)
        for path in ("/metrics", "/api/v1/status", "/api/v1/openapi.json"):
            status, _, text = self.ask_from_outside("GET", path)
            self.assertEqual(status, 401, path)
            self.assertNotIn("berth_nodes", text)
        status, _, text = self.ask_from_outside("GET", "/metrics", self.token("read"))
        self.assertEqual(status, 200)
        self.assertIn("berth_", text)
        self.assertEqual(self.ask_from_outside("GET", "/metrics", self.token("join"))[0], 403)

    def open_session(self, token):
        status, headers, text = self.ask_from_outside("POST", "/api/v1/login", body={"token": token})
        self.assertEqual(status, 200, text)
        cookie = headers["Set-Cookie"]
        for word in ("HttpOnly", "SameSite=Strict", "Secure"):
            self.assertIn(word, cookie)
        return cookie.partition(";")[0]

    def test_what_a_token_began_ends_with_it(self):
        status, _, text = self.ask("POST", "/api/v1/tokens", {"role": "read"})
        made = json.loads(text)
        cookie = self.open_session(made["token"])
        self.assertEqual(self.ask_from_outside("GET", "/api/v1/status", cookie=cookie)[0], 200)
        stream = self.connection()
        stream.request("GET", "/api/v1/stream", headers={"Cookie": cookie})
        events = stream.getresponse()
        self.assertIn(b"event: change", events.readline())
        self.revoke(made)
        self.assertEqual(self.ask_from_outside("GET", "/api/v1/status", cookie=cookie)[0], 401)
        begin = time.monotonic()
        events.read()  # until the server ends it
        self.assertLess(time.monotonic() - begin, 10)
        stream.close()

    def revoke(self, token):
        self.assertEqual(self.ask("DELETE", f"/api/v1/tokens/{token['id']}")[0], 200)

    def test_a_reader_of_output_ends_with_its_token(self):
        address = (f"https://{ADDRESS}:8443", "--ca", str(self.certificate))
        node = self.make_node("a", options=address[1:])
        node.url = address[0]
        node.start(self.token("join"))
        self.until_healthy("a")
        self.apply({"name": "talk", "cpu": True, "command": ["sh", "-c", "echo said; exec sleep 600"]})
        made, other = (json.loads(self.ask("POST", "/api/v1/tokens", {"role": "operate"})[2]) for _ in range(2))
        readers = []
        for token in (made, other):
            file = self.folder / f"{token['id']}.token"
            file.write_text(token["token"] + "\n")
            file.chmod(0o600)
            reader = self.start("logs", "-f", "talk/0", "--server", *address, BERTH_TOKEN_FILE=str(file))
            self.assertEqual(reader.stdout.readline(), "said\n", reader.stderr.read() if reader.poll() is not None else "")
            readers.append(reader)
        self.revoke(made)
        out, err = readers[0].communicate(timeout=30)
        self.assertEqual((out, readers[0].returncode), ("", 0), err)
        self.assertIn("a valid token is required", err)
        self.assertIsNone(readers[1].poll(), "the token of the other reader is valid")

    def test_a_session_ends_when_its_token_expires(self):
        for seconds in (2, 8, 32, 128):  # a busy machine may take longer than the first of them
            cookie = self.open_session(self.token("read", ttl_s=seconds))
            if self.ask_from_outside("GET", "/api/v1/status", cookie=cookie)[0] == 200:
                break
        else:
            self.fail("no session works")
        self.until(lambda: self.ask_from_outside("GET", "/api/v1/status", cookie=cookie)[0] == 401, "the session ends", seconds + 60)

    def test_nobody_takes_the_name_of_a_node_while_the_server_restarts(self):
        joined = self.ask_from_outside("POST", "/api/v1/agent/join", self.token("join"), {"node": "a"})
        self.assertEqual(joined[0], 200, joined[2])
        credential = json.loads(joined[2])["token"]
        self.end(self.server)
        self.serve(*self.secure)
        status, _, text = self.ask_from_outside("POST", "/api/v1/agent/join", self.token("join"), {"node": "a"})
        self.assertEqual(status, 409, text)
        self.assertIn("already exists", text)
        self.assertEqual(self.ask_from_outside("GET", "/api/v1/agent/assignments", credential)[0], 200)

    def test_an_agent_sends_no_token_over_a_network_unencrypted(self):
        listener = socket.create_server((ADDRESS, 9000))
        listener.settimeout(0.5)
        self.addCleanup(listener.close)
        token = self.folder / "join.token"
        token.write_text("b-secret\n")
        token.chmod(0o600)
        joined = self.runtime / f"agent-{os.geteuid()}" / "b"
        joined.mkdir(parents=True)
        for folder in (self.runtime, joined.parent, joined):
            folder.chmod(0o700)
        (joined / "credential").write_text("b-secret\n")
        for name, more in (("a", ("--token-file", str(token))), ("b", ())):  # a node that joins, and one that has joined
            for address in (ADDRESS, f"127.0.0.1.{ADDRESS}"):
                answer = self.berth("agent", "--join", f"http://{address}:9000", "--name", name, *more)
                self.assertRefused(answer, 2, f"a token is not sent to http://{address}:9000, because the connection is not encrypted", "https://")
        with self.assertRaises(TimeoutError):
            listener.accept()

    def test_a_token_to_join_is_its_owners_alone(self):
        token = self.folder / "join.token"
        token.write_text(self.token("join"))
        token.chmod(0o644)
        answer = self.berth("agent", "--join", f"https://{ADDRESS}:8443", "--ca", str(self.certificate), "--name", "a", "--token-file", str(token))
        self.assertRefused(answer, 2, "is open to other users", f"chmod 600 {token}")


if __name__ == "__main__":
    unittest.main()
