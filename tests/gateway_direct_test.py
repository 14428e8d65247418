#!/usr/bin/env python3
"""Replicas that gateways connect to directly: they answer and stream without a relay, an update loses no request, the death of a replica is
reported or made up for by a retry, and the server alone determines the address of a node."""
import contextlib
import json
import os
import re
import signal
import threading
import unittest

from berth_case import needs_sqlite
from fleet_case import ForgedNode, free_port
from gateway_case import Gateway

WHERE = "{address}:{port}"


def count_lines(folder):
    """The number of lines in all files of the folder."""
    return sum(file.read_bytes().count(b"\n") for file in folder.iterdir())


class Direct(Gateway):
    def direct(self, **more):
        return self.app(where=WHERE, serving={"reach": "direct"}, **more)

    def endpoints(self, name="app"):
        """The endpoints of the deployment, by name."""
        deployment, = (row for row in self.get("endpoints")["deployments"] if row["name"] == name)
        return {endpoint["name"]: endpoint for endpoint in deployment["endpoints"]}

    def test_replicas_answer_and_stream_while_the_relay_stands_still(self):
        self.add_nodes("a")
        self.apply(self.direct(), self.app("other", where=WHERE, replicas=1))
        self.until_answered("/app/x", 2)
        self.until_answered("/other/x")
        relay = self.process_of("berth relay ")
        os.kill(relay, signal.SIGSTOP)
        stream = self.stream(20)
        body = json.dumps({"text": "x" * 100_000})
        for _ in range(10):
            status, text, _ = self.ask_for("/app/x", body, {"x-berth-to": "other/0#1"})
            self.assertEqual((status, json.loads(text)["body"]), (200, body))
            self.assertFalse([name for name in json.loads(text)["headers"] if name.lower().startswith("x-berth")])
        self.assertWhole(stream(), 20)
        with contextlib.suppress(ProcessLookupError):  # the agent kills a relay that is stopped for ten seconds
            os.kill(relay, signal.SIGCONT)
        for endpoint in self.endpoints().values():
            self.assertRegex(endpoint["address"], r"^127\.0\.0\.1:\d+$")
        self.assertNotIn("address", next(iter(self.endpoints("other").values())))
        self.assertRegex(self.command("endpoints").stdout, r"app/0#\d+ +ready +a +127\.0\.0\.1:\d+")

    def test_an_update_and_a_change_of_the_way_lose_no_request(self):
        self.add_nodes("a", "b")
        self.apply(self.app(where=WHERE, spread="one_per_node"))
        self.until_answered("/app/x", 2)
        before = set(self.endpoints())
        stops = [self.watch(), self.watch("/app/slow/10")]
        for text in "v1", "v2":  # from the relay to direct connections, and then another program
            self.apply(self.direct(text=text, spread="one_per_node"))
            self.until(lambda text=text: json.loads(self.ask_for("/app/x")[1])["text"] == text, "the update")
            self.until(lambda: len(self.endpoints()) == 2 and all(row["state"] == "ready" and row.get("address") for row in self.endpoints().values())
                       and not before & set(self.endpoints()), self.situation)
            before = set(self.endpoints())
        for stop in stops:
            answers = stop()
            self.assertEqual(set(answers), {200}, len(answers))

    def asked(self, count, path):
        """Sends that many requests at once; returns a function that waits for their answers."""
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(self.ask_for(path)[0])) for _ in range(count)]
        for thread in threads:
            thread.start()
        return lambda: ([thread.join() for thread in threads], answers)[1]

    def test_requests_of_a_killed_replica_are_answered_with_502_or_by_another(self):
        self.add_nodes("a")
        journal = self.folder / "seen"
        journal.mkdir()
        more = {"where": WHERE, "journal": journal, "serving": {"reach": "direct"}, "replicas": 2}
        self.apply(self.loaded("once", **more), self.loaded("twice", idempotent=True, **more))
        for name, statuses in ("once", [200, 502]), ("twice", [200]):
            self.until_answered(f"/{name}/echo", 2)
            begun = count_lines(journal)
            answers = self.asked(8, f"/{name}/after/1500")
            self.until(lambda begun=begun: count_lines(journal) == begun + 8, "the requests have begun")
            os.kill(self.replica_processes(name)[f"{name}/0"], signal.SIGKILL)
            got = answers()
            self.assertEqual(sorted(set(got)), statuses, got)
            # The other replica answers until it is back.
            self.assertEqual({self.ask_for(f"/{name}/echo")[0] for _ in range(20)}, {200})
            self.until_answered(f"/{name}/echo", 2)

    @needs_sqlite
    def test_a_server_that_was_killed_does_not_make_addresses_forgotten(self):
        self.add_nodes("a")
        self.apply(self.direct())
        self.until_answered("/app/x", 2)
        stop = self.watch()
        self.server.kill()
        self.server.wait()
        before = len(re.findall("is connected to its server", (self.folder / "server.log").read_text()))
        self.serve()
        self.until_healthy("a")
        self.until(lambda: len(re.findall("the gateway is connected to its server", (self.folder / "server.log").read_text())) > before, "the gateway reaches the server again")
        answers = stop()
        self.assertEqual(set(answers), {200}, len(answers))

    def test_a_program_that_is_not_told_where_to_listen_is_refused(self):
        answer = self.command("apply", self.write_project(self.app(serving={"reach": "direct"})))
        self.assertRefused(answer, 2, "{address} and {port}")


class Addresses(Gateway):
    def test_what_a_node_claims_has_no_effect(self):
        liar = ForgedNode(self, "liar", cpus=8, memory=1 << 30, address="203.0.113.9")
        liar.report(address="203.0.113.9")
        self.apply(self.app(where=WHERE, serving={"reach": "direct"}, replicas=1), wait=False)

        def orders():
            liar.report(address="203.0.113.9")
            status, _, text = self.ask("GET", "/api/v1/agent/assignments", token=liar.credential)
            self.assertEqual(status, 200, text)
            return [order["assigned"] for order in json.loads(text)["orders"]]
        self.until(orders, self.situation)
        assigned, = orders()
        key = {name: assigned[name] for name in ("deployment", "replica", "generation")}
        answer = liar.report(address="203.0.113.9", replicas=[{**key, "state": "ready", "port": 4242, "address": "203.0.113.9", "host": "203.0.113.9"}])
        self.assertEqual(answer["address"], "127.0.0.1")
        endpoint, = self.get("endpoints")["deployments"][0]["endpoints"]
        self.assertEqual(endpoint["address"], "127.0.0.1:4242")
        self.assertNotIn("203.0.113.9", self.ask("GET", "/api/v1/endpoints")[2])


class Named(Gateway):
    """With addresses of nodes in the server's file."""

    def serve(self, *options):
        self.gateway_port = free_port()
        (self.folder / "server.toml").write_text(
            f'listen = ["127.0.0.1:{self.port}"]\ngateway = "127.0.0.1:{self.gateway_port}"\n[addresses]\na = "127.0.0.2"\n')
        self.gateway_options = ()
        self.start_server("--config", str(self.folder / "server.toml"), *options)
        self.until(self.find_gateway, "the gateway takes requests")

    def test_the_file_of_the_server_says_where_a_node_is(self):
        self.add_nodes("a")
        self.apply(self.app(where=WHERE, serving={"reach": "direct"}, replicas=1))
        self.until_answered("/app/x")
        endpoint, = self.get("endpoints")["deployments"][0]["endpoints"]
        self.assertRegex(endpoint["address"], r"^127\.0\.0\.2:\d+$")
        (self.folder / "bad.toml").write_text('[addresses]\na = "node-a"\n')
        self.assertRefused(self.command("serve", "--config", str(self.folder / "bad.toml")), 2, "not the IP address of a node")


if __name__ == "__main__":
    unittest.main()
