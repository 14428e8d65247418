#!/usr/bin/env python3
"""A node, or its gateway, loses its power or network while requests are under way: the requests end soon. Programs that only pause lose nothing.

Each node is in a network namespace of its own; its link is cut, so that neither side receives anything from the other."""
import http.client
import json
import os
import pathlib
import re
import ssl
import threading
import time
import unittest

from fleet_case import free_port, in_own_network
from fleet_faults_test import HEAD, Networked, run
from gateway_case import Gateway

LOST_S = 15  # a machine is lost after 12 s without a sign of life
PAUSE_S = 30  # longer than that, and than clients may pause by default
LARGE, EVENTS = 200_000_000, 30_000  # more than all sockets on the way hold


class Lost(Networked, Gateway):
    def setUp(self):
        # This test's network would still exist in the next test.
        self.addCleanup(run, "ip", "link", "delete", "fleet")
        super().setUp()

    def network(self):
        """The server and its gateway are in the network of the test."""
        return super().network() if hasattr(self, "head") else os.getpid()

    def serve(self, *options):
        self.gateway_options = ("--gateway", f"0.0.0.0:{free_port()}")
        super().serve(*options)

    def find_gateway(self):
        found = re.findall(r"takes requests at https://0\.0\.0\.0:(\d+)", self.log())
        self.gateway = int(found[-1]) if found else None
        return self.gateway

    def connect(self):
        connection = http.client.HTTPSConnection("127.0.0.1", self.gateway, timeout=120, context=ssl._create_unverified_context())
        self.addCleanup(connection.close)
        return connection

    def in_thread(self, function):
        """A function that waits for its result, or its error, and the seconds that it took from now on."""
        got, began = {}, time.monotonic()

        def work():
            try:
                got["result"] = function()
            except (OSError, http.client.HTTPException) as error:
                got["result"] = error
            got["ended"] = time.monotonic()
        thread = threading.Thread(target=work, daemon=True)
        thread.start()

        def wait(since=began):
            thread.join(120)
            self.assertFalse(thread.is_alive(), "the call hangs")
            return got["result"], got["ended"] - since
        return wait

    def in_flight(self, deployment):
        """The requests in flight at each replica, according to the gateway."""
        endpoints = next(row["endpoints"] for row in self.get("endpoints")["deployments"] if row["name"] == deployment)
        return [endpoint.get("traffic", {}).get("in_flight", 0) for endpoint in endpoints]

    def connections_to(self, node, port):
        """The connections of a node's relay to a replica there."""
        table = pathlib.Path(f"/proc/{self.nodes[node].network}/net/tcp").read_text().splitlines()[1:]
        return sum(1 for line in table if line.split()[2].endswith(f":{port:04X}") and line.split()[3] == "01")

    def test_a_node_without_power(self):
        self.add_nodes("a")
        on_a = [self.loaded("app"), self.loaded("direct", where="{address}:{port}", serving={"reach": "direct"})]
        self.apply(*on_a)
        self.add_nodes("b")
        self.apply(*on_a, self.loaded("twice", replicas=2, spread="one_per_node", idempotent=True))
        for path, count in (("/app/echo", 1), ("/direct/echo", 1), ("/twice/echo", 2)):
            self.until_answered(path, count)
        port = self.until_ready("app", 1)[0]["port"]
        on_b, = (f"twice/{index}" for index, replica in self.until_ready("twice", 2).items() if replica["node"] == "b")
        again = [self.in_thread(lambda: self.ask_for("/twice/after/10000")) for _ in range(4)]
        quiet = [self.in_thread(lambda path=path: self.ask_for(path)) for path in ("/app/after/90000", "/direct/after/90000")]
        stream = self.in_thread(lambda: self.ask_for("/app/stream/100000/20"))
        self.until(lambda: [self.in_flight(name) for name in ("app", "direct", "twice")] == [[2], [1], [2, 2]], self.situation)
        self.set_link("a", "down")
        cut_at = time.monotonic()
        late = self.in_thread(lambda: self.ask_for("/app/echo"))
        for wait in (*quiet, late):
            answer, took_s = wait(cut_at)
            self.assertEqual(answer[0], 502, answer)
            self.assertIn("its machine does not answer", answer[1])
            self.assertQuick(took_s, LOST_S, "a request on a node that is gone")
        cut, took_s = stream(cut_at)
        self.assertIsInstance(cut, http.client.IncompleteRead)
        self.assertQuick(took_s, LOST_S, "a stream from a node that is gone")
        # The relay has lost its gateway, so it ends the requests at its replica.
        self.until(lambda: self.connections_to("a", port) == 0, "the relay ends the requests of a gateway that is gone")
        self.assertQuick(time.monotonic() - cut_at, LOST_S + 5, "the requests of a gateway that is gone")
        for wait in again:
            answer, _ = wait()
            self.assertEqual((answer[0], json.loads(answer[1])["replica"]), (200, on_b))

    def test_programs_that_pause(self):
        self.add_nodes("c")  # the link of another test's node may still be there
        self.apply(self.loaded("app"))
        self.until_answered("/app/echo")
        self.replace_gateway("--client-timeout", "10m")
        readers = [self.connect() for _ in range(2)]
        readers[0].request("GET", f"/app/large/{LARGE}")
        readers[1].request("POST", f"/app/stream/{EVENTS}/0", b"x" * 1000)
        writer = self.connect()
        writer.putrequest("POST", "/app/echo")
        writer.putheader("content-length", "1000")
        writer.endheaders(b"x" * 500)
        answers = [reader.getresponse() for reader in readers]
        begun = [answer.read(100_000) for answer in answers]
        time.sleep(PAUSE_S)  # longer than clients may pause by default
        writer.send(b"x" * 500)
        self.assertEqual(json.loads(writer.getresponse().read())["body"], "x" * 1000)
        large, events = (beginning + answer.read() for beginning, answer in zip(begun, answers))
        self.assertEqual(len(large), LARGE)
        self.assertEqual(events.count(b"data: "), EVENTS)


if __name__ == "__main__":
    in_own_network("gateway_lost", "10.76.0.1")
    unittest.main(verbosity=1)
