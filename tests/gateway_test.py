#!/usr/bin/env python3
"""Requests through a gateway that a server has started: they reach replicas on several nodes, keys are checked, and neither an update nor the
death of the server, an agent or the gateway loses more than it must."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import time
import unittest

from berth_case import ROOT, needs_sqlite
from fleet_case import ForgedNode, free_port
from gateway_case import Gateway
from openapi_check import Document


class Requests(Gateway):
    def test_reach_replicas_of_two_nodes_by_path_model_and_name(self):
        self.add_nodes("a", "b")
        self.apply(self.app(spread="one_per_node", model="llama"), self.app("unix", where="{socket}"))
        self.until_answered("/app/x", 2)
        self.until_answered("/unix/x", 2)
        body = json.dumps({"model": "llama", "stream": False})
        status, text, _ = self.ask_for("/v1/chat/completions", body)
        self.assertEqual((status, json.loads(text)["body"]), (200, body))
        status, text, headers = self.ask_for("/any", headers={"x-berth-deployment": "app", "x-berth-explain": "1", "authorization": "", "cookie": "berth-1=x; own=y"})
        self.assertEqual(status, 401, "an empty key is not a key")
        status, text, headers = self.ask_for("/any", headers={"x-berth-deployment": "app", "x-berth-explain": "1", "cookie": "berth-1=x; own=y"})
        self.assertRegex(headers["x-berth-replica"], r"app/[01]#\d+")
        seen = {name.lower(): value for name, value in json.loads(text)["headers"].items()}
        self.assertEqual(seen["cookie"], "own=y")
        self.assertFalse([name for name in seen if name.startswith("x-berth")])
        self.assertEqual(self.ask_for("/nowhere")[0], 404)
        self.assertIn("llama", self.ask_for("/v1/models")[1])
        listed = self.command("endpoints")
        self.assertRegex(listed.stdout, r"gateway \S+ at 127\.0\.0\.1:\d+")
        self.assertEqual(len(re.findall(r"(?:app|unix)/[01]#\d+ +ready", listed.stdout)), 4, listed.stdout)

    def test_need_a_key_that_is_refused_soon_after_it_was_revoked(self):
        self.add_nodes("a")
        self.apply(self.app(serving={"open": False}), self.app("other", replicas=1))
        self.assertRefused(self.command("token", "add", "call"), 2, "--deployment")
        self.assertRefused(self.command("token", "add", "call", "--deployment", "none"), 2, "none")
        for limit in ("--per-second", "--concurrent"):
            self.assertRefused(self.command("token", "add", "call", "--deployment", "app", limit, "0"), 2, limit, "1 to 1000000")
        added = self.command("token", "add", "call", "--deployment", "app", "--name", "me", "--json")
        token = json.loads(added.stdout)
        bearer = {"authorization": f"Bearer {token['token']}"}
        self.until_answered("/app/x", 2, headers=bearer)
        self.assertEqual(self.ask_for("/app/x")[0], 401)
        self.assertEqual(self.ask_for("/other/x", headers=bearer)[0], 403)
        # Only keys with the right role see which replica answered.
        self.assertIsNone(self.ask_for("/app/x", headers={**bearer, "x-berth-explain": "1"})[2]["x-berth-replica"])
        trusted = self.command("token", "add", "call", "--deployment", "app", "--explain").stdout.strip()
        explained = {"authorization": f"Bearer {trusted}", "x-berth-explain": "1"}
        self.until(lambda: (self.ask_for("/app/x", headers=explained)[2]["x-berth-replica"] or "").startswith("app/"), self.situation)
        # A key of one kind is not valid as another.
        control = self.command("token", "add", "deploy").stdout.strip()
        self.assertEqual(self.ask_for("/app/x", headers={"authorization": f"Bearer {control}"})[0], 401)
        for path in ("/api/v1/status", "/api/v1/gateway/endpoints", "/api/v1/agent/assignments"):
            self.assertIn(self.ask("GET", path, token=token["token"])[0], (401, 403), path)
        self.assertEqual(self.ask("GET", "/api/v1/gateway/endpoints", token=control)[0], 403)
        self.assertNotIn(token["token"], (self.folder / "server.log").read_text())
        # This holds at every gateway: another one has joined.
        trust, (_, edge) = self.make_certificate(), self.start_edge()

        def at_edge():
            connection = http.client.HTTPSConnection("localhost", edge, timeout=20, context=trust)
            try:
                connection.request("GET", "/app/x", headers=bearer)
                return connection.getresponse().status
            except OSError:
                return None  # it has not started yet
            finally:
                connection.close()
        self.until(lambda: at_edge() == 200, lambda: (self.folder / "edge.log").read_text() + self.situation())
        self.assertEqual(self.ask_for("/app/x", headers=bearer)[0], 200)
        self.assertEqual(self.command("token", "remove", token["id"]).returncode, 0)
        began = time.monotonic()
        self.until(lambda: self.ask_for("/app/x", headers=bearer)[0] == at_edge() == 401, "the key is refused")
        self.assertQuick(time.monotonic() - began, 2, "a revoked key is refused by both gateways within 2 s")

    def test_of_a_key_share_its_limits_over_the_gateways_that_report(self):
        self.add_nodes("a")
        self.apply(self.app(serving={"open": False, "max_concurrent": 8}))
        token = self.command("token", "add", "call", "--deployment", "app", "--concurrent", "2").stdout.strip()
        bearer = {"authorization": f"Bearer {token}"}

        def statuses(count):
            """The statuses of that many streams at once, at the gateway of the server."""
            connections = [self.connect() for _ in range(count)]
            try:
                for connection in connections:
                    connection.request("GET", "/app/slow/1000", headers=bearer)
                    connection.status = connection.getresponse().status
                return [connection.status for connection in connections]
            finally:
                for connection in connections:
                    connection.close()
        self.until(lambda: statuses(3) == [200, 200, 429], self.situation)
        self.make_certificate()
        edge, _ = self.start_edge()
        self.until(lambda: statuses(2) == [200, 429], lambda: (self.folder / "edge.log").read_text() + self.situation())
        edge.kill()
        self.until(lambda: statuses(3) == [200, 200, 429], self.situation)


class Credentials(Gateway):
    @staticmethod
    def routes(document):
        """Each method and path of the API that needs a role."""
        for route, methods in document.document["paths"].items():
            for method, about in methods.items():
                if method in ("get", "put", "post", "delete") and "x-role" in about:
                    yield method.upper(), re.sub(r"{\w+}", "1", route)

    def test_of_callers_nodes_and_people_open_nothing_that_is_not_theirs(self):
        self.add_nodes("a")
        self.apply(self.app(replicas=1, serving={"open": False}))
        added = json.loads(self.command("token", "add", "call", "--deployment", "app", "--json").stdout)
        bearer = {"authorization": f"Bearer {added['token']}"}
        self.until_answered("/app/x", headers=bearer)
        for method, path in self.routes(Document.read(ROOT / "docs/reference/openapi.json")):
            self.assertIn(self.ask(method, path, {} if method != "GET" else None, token=added["token"])[0], (401, 403), f"{method} {path}")
        node = ForgedNode(self, "forged").credential
        for path in ("endpoints", "address", "certificate", "report"):
            for method in ("GET", "PUT", "POST"):
                self.assertIn(self.ask(method, f"/api/v1/gateway/{path}", {} if method != "GET" else None, token=node)[0], (403, 404, 405), f"{method} {path}")
        own = next(pathlib.Path(self.folder).rglob("gateway-*/*/credential")).read_text().strip()
        for secret in (node, own, self.token("deploy"), self.token("join")):
            for headers in ({"authorization": f"Bearer {secret}"}, {"x-api-key": secret}, {"cookie": f"berth-{self.port:08x}={secret}"}):
                self.assertEqual(self.ask_for("/app/x", headers=headers)[0], 401, headers)
        # The server accepts a session of the page, whose cookie browsers send to every port of this machine.
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as browser:
            browser.request("POST", "/api/v1/login", json.dumps({"token": self.token("deploy")}), {"content-type": "application/json"})
            answer = browser.getresponse()
            session = {"cookie": answer.headers["set-cookie"].partition(";")[0], "berth-session-secret": json.loads(answer.read())["session_secret"]}
            browser.request("GET", "/api/v1/tokens", headers=session)
            self.assertEqual(browser.getresponse().status, 200)
        self.assertEqual(self.ask_for("/app/x", headers=session)[0], 401)
        # The path of relays accepts only connections that a relay has proven, not tokens in headers.
        for headers in (bearer, {"authorization": f"Bearer {node}"}, {"authorization": f"Bearer {own}"}):
            self.assertEqual(self.ask_for("/.berth/relay", headers={**headers, "connection": "upgrade", "upgrade": "berth-relay-1"})[0], 403)

    def test_of_a_gateway_open_what_it_needs_and_nothing_else(self):
        document = Document.read(ROOT / "docs/reference/openapi.json")
        self.add_nodes("a")
        self.apply(self.app(replicas=1))
        asked = self.command("token", "add", "join", "--gateway").stdout.strip()
        self.assertEqual(self.ask("POST", "/api/v1/agent/join", {"node": "edge"}, token=asked)[0], 403, "a node cannot join with it")
        plain = self.command("token", "add", "join").stdout.strip()
        self.assertEqual(self.ask("POST", "/api/v1/agent/join", {"node": "edge", "gateway": True}, token=plain)[0], 403)
        status, _, text = self.ask("POST", "/api/v1/agent/join", {"node": "edge", "gateway": True}, token=asked)
        self.assertEqual(status, 200, text)
        self.assertEqual(self.ask("POST", "/api/v1/agent/join", {"node": "edge2", "gateway": True}, token=asked)[0], 401, "the token can be used once")
        edge = json.loads(text)["token"]
        for path, method, body in (("address", "PUT", {"port": 9, "host": "127.0.0.1"}), ("endpoints", "GET", None)):
            status, kind, text = self.ask(method, f"/api/v1/gateway/{path}", body, token=edge)
            self.assertEqual((status, document.check_answer(method, f"/api/v1/gateway/{path}", status, kind, text)), (200, []))
        for method, path in self.routes(document):
            if "/gateway/" not in path:
                self.assertEqual(self.ask(method, path, {} if method != "GET" else None, token=edge)[0], 403, f"{method} {path}")
        # Each gateway and relay share a separate key: the server's own gateway has others.
        own = next(pathlib.Path(self.folder).rglob("gateway-*/*/credential")).read_text().strip()
        keys = [{relay["key"] for relay in json.loads(self.ask("GET", "/api/v1/gateway/endpoints", token=token)[2])["relays"]}
                for token in (edge, own)]
        self.assertEqual(len(keys[0]), 1)
        self.assertFalse(keys[0] & keys[1])


class Lasting(Gateway):
    """Runs requests one after another, and a stream, during a change."""

    def test_an_update_loses_no_request_and_cuts_no_stream(self):
        self.add_nodes("a", "b")
        self.apply(self.app(spread="one_per_node"))
        self.until_answered("/app/x", 2)
        streams, stop = [self.stream(80) for _ in range(4)], self.watch()
        self.apply(self.app(text="v2", spread="one_per_node"))
        self.until(lambda: json.loads(self.ask_for("/app/x")[1])["text"] == "v2", "the update")
        self.until(lambda: len(self.replicas("app")) == 2, self.situation)
        answers = stop()
        self.assertEqual(set(answers), {200}, len(answers))
        for stream in streams:
            self.assertWhole(stream(), 80)

    @needs_sqlite
    def test_the_deaths_of_server_and_agent_are_not_noticed_and_that_of_the_gateway_soon_is_over(self):
        a, = self.add_nodes("a")
        self.apply(self.app())
        self.until_answered("/app/x", 2)
        stream, stop = self.stream(60), self.watch()
        self.server.kill()
        self.server.wait()
        a.kill()
        self.until(lambda: "snapshot_age_s=" in (self.folder / "server.log").read_text(), "the gateway says how old its state is")
        before = len(re.findall("is connected to its server", (self.folder / "server.log").read_text()))
        self.serve()
        a.start()
        self.until_healthy("a")
        self.until(lambda: len(re.findall("the gateway is connected to its server", (self.folder / "server.log").read_text())) > before, "the gateway reaches the server again")
        answers = stop()
        self.assertEqual(set(answers), {200}, len(answers))
        self.assertWhole(stream(), 60)
        self.assertNotIn("the gateway ended", (self.folder / "server.log").read_text(), "the gateway of the killed server continues")
        port = self.gateway
        os.kill(self.process_of("berth gateway "), signal.SIGKILL)
        self.until(lambda: self.find_gateway() == port and self.is_answered("/app/x"), self.situation)

    def test_a_new_gateway_takes_the_place_of_the_one_that_runs_without_a_pause(self):
        self.add_nodes("a")
        self.apply(self.app())
        self.until_answered("/app/x", 2)
        old = self.process_of("berth gateway ")
        stream, stop = self.stream(160), self.watch()
        # A gateway that cannot serve changes nothing.
        self.assertRefused(self.command(*self.gateway_words(), "--listen", f"127.0.0.1:{self.port}"), 1, "in use")
        second = self.replace_gateway()
        self.until_answered("/app/x", 2)
        self.assertIn(old, self.processes(), "the new gateway answers while the old one still has its stream")
        self.assertWhole(stream(), 160)
        self.until(lambda: old not in self.processes(), "the old one has ended")
        self.assertIsNone(second.poll())
        self.until_answered("/app/x", 2)
        answers = stop()
        self.assertEqual(set(answers), {200}, len(answers))
        self.assertIsNone(second.poll())

    def test_a_relay_that_is_asked_to_end_is_replaced_and_finishes_its_requests(self):
        self.add_nodes("a")
        self.apply(self.app())
        self.until_answered("/app/x", 2)
        old, before = self.process_of("berth relay "), set(self.processes())
        stream, stop = self.stream(160), self.watch()
        os.kill(old, signal.SIGTERM)
        self.until(lambda: any(line.startswith("berth relay ") and pid not in before for pid, line in self.processes().items()), self.situation)
        self.until_answered("/app/x", 2)
        self.assertIn(old, self.processes(), "the new gateway answers while the old one still has its stream")
        self.assertWhole(stream(), 160)
        self.until(lambda: old not in self.processes(), "the old one has ended")
        answers = stop()
        self.assertEqual(set(answers), {200}, len(answers))

    def test_a_client_that_is_about_to_ask_is_answered_by_a_gateway_that_leaves(self):
        self.add_nodes("a")
        self.apply(self.app())
        self.until_answered("/app/x", 2)
        with socket.create_connection(("127.0.0.1", self.gateway), timeout=60) as client:
            client.sendall(b"GET /app/x HTTP/1.1\r\n")
            self.until_answered("/app/x", 2)  # by then the gateway has read the line above
            os.kill(self.process_of("berth gateway "), signal.SIGTERM)
            self.until(lambda: not self.is_taken(self.gateway), "the gateway takes no connections")
            client.sendall(b"host: localhost\r\n\r\n")
            self.assertTrue(client.recv(1000).startswith(b"HTTP/1.1 200 "))

    @staticmethod
    def is_taken(port):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    @needs_sqlite
    def test_a_restarted_server_has_a_gateway_that_answers_at_another_address_while_the_old_one_has_a_stream(self):
        self.add_nodes("a")
        self.apply(self.app())
        self.until_answered("/app/x", 2)
        old, stream = self.process_of("berth gateway "), self.stream(400)
        self.until(lambda: json.loads(self.command("endpoints", "--json").stdout)["deployments"][0].get("traffic", {}).get("in_flight"), "the stream")
        self.server.terminate()
        self.server.wait()
        port = free_port()
        self.gateway_options = ("--gateway", f"127.0.0.1:{port}")
        self.serve()
        self.until(lambda: self.find_gateway() == port, "the new gateway")
        self.until_answered("/app/x", 2)
        self.assertIn(old, self.processes(), "the old gateway still has its stream")
        # The old gateway reconnects to the server, but its address is not used.
        self.until(lambda: "is connected to its server" in (self.folder / "server.log").read_text(), "the old one reaches the server")
        self.assertIn(f"at 127.0.0.1:{port}", self.command("endpoints").stdout)
        self.assertWhole(stream(), 400)
        self.until(lambda: old not in self.processes(), "the old one has ended")
        self.assertIn(f"at 127.0.0.1:{port}", self.command("endpoints").stdout)
        self.until_answered("/app/x", 2)

    @needs_sqlite
    def test_a_restarted_server_has_a_gateway_at_the_same_address_that_can_be_replaced_while_the_old_one_has_a_stream(self):
        self.add_nodes("a")
        self.apply(self.app())
        self.until_answered("/app/x", 2)
        old, stream = self.process_of("berth gateway "), self.stream(400)
        self.until(lambda: json.loads(self.command("endpoints", "--json").stdout)["deployments"][0].get("traffic", {}).get("in_flight"), "the stream")
        self.server.terminate()
        self.server.wait()
        self.serve()
        self.until(lambda: self.log().count("takes requests at") == 2, self.situation)
        self.until_answered("/app/x", 2)
        self.replace_gateway()
        self.until_answered("/app/x", 2)
        self.assertIn(old, self.processes(), "the old gateway still has its stream")
        self.assertWhole(stream(), 400)

    def test_a_client_with_a_kept_connection_is_answered_by_the_gateway_that_leaves(self):
        self.add_nodes("a")
        self.apply(self.app())
        self.until_answered("/app/x", 2)
        old = self.process_of("berth gateway ")
        client = http.client.HTTPConnection("127.0.0.1", self.gateway, timeout=20)
        self.addCleanup(client.close)
        for closes in (None, "close"):
            client.request("GET", "/app/x")
            answer = client.getresponse()
            answer.read()
            self.assertEqual((answer.status, answer.headers["connection"]), (200, closes))
            if not closes:
                self.replace_gateway()
        self.until(lambda: old not in self.processes(), "the old one has ended")


class Failing(Gateway):
    """A gateway that cannot serve."""

    def is_taken_text(self, port):
        return f"port {port} of 127.0.0.1 is in use by another process"

    @needs_sqlite
    def test_a_new_gateway_that_cannot_serve_leaves_the_place_to_the_one_that_runs(self):
        self.add_nodes("a")
        self.apply(self.app())
        self.until_answered("/app/x", 2)
        old, stop = self.process_of("berth gateway "), self.watch()
        self.server.kill()
        self.server.wait()
        with socket.create_server(("127.0.0.1", free_port())) as other:
            port = other.getsockname()[1]
            self.gateway_options = ("--gateway", f"127.0.0.1:{port}")
            self.serve()
            self.until(lambda: self.is_taken_text(port) in self.log(), self.situation)
            # The next server does not take it for a gateway at the new address either.
            self.server.kill()
            self.server.wait()
            self.serve()
            self.until(lambda: self.log().count(self.is_taken_text(port)) > 1, self.situation)
            self.until_healthy("a")
            self.until_answered("/app/x", 2)
            self.assertIn(old, self.processes())
            answers = stop()
            self.assertEqual(set(answers), {200}, len(answers))
        self.until(lambda: self.find_gateway() == port, self.situation)
        self.until_answered("/app/x", 2)
        self.until(lambda: old not in self.processes(), "the old one has ended")
        self.assertEqual(self.log().count(self.is_taken_text(port)), 2, "once for each server")

    def test_that_another_program_has_its_port_is_one_warning_and_it_serves_when_the_port_is_free(self):
        self.server.terminate()
        self.server.wait()
        self.until(lambda: not [line for line in self.processes().values() if line.startswith("berth gateway ")], "the gateway ended")
        begin = len(self.log())
        with socket.create_server(("127.0.0.1", self.gateway)):
            self.serve()
            self.until(lambda: self.is_taken_text(self.gateway) in self.log(), self.situation)
            self.until(lambda: "it does not report and may not be running" in self.command("status").stdout, self.situation)
            self.assertRegex(self.command("endpoints").stdout, "there is no gateway|does not report")
            event, = [row for row in self.get("events?limit=1000")["events"] if self.is_taken_text(self.gateway) in row["text"]]
            self.assertEqual((event["kind"], event["subject"].split("/")[0]), ("failed", "gateway"))
        self.until(lambda: "takes requests at" in self.log()[begin:], self.situation)
        self.until(lambda: "does not report" not in self.command("status").stdout + self.command("endpoints").stdout, self.situation)
        warnings = [line for line in self.log()[begin:].splitlines() if self.is_taken_text(self.gateway) in line or "the gateway ended" in line]
        self.assertEqual(len(warnings), 1, warnings)
        self.assertIn("--gateway ADDRESS", warnings[0])


if __name__ == "__main__":
    unittest.main()
