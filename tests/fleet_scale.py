#!/usr/bin/env python3
"""A real server with a large fleet: 200 nodes of 8 GPUs report to it over HTTP every two seconds, as agents do, and 2,000 replicas are
deployed from scratch. This program plays the nodes and measures the server: its processor time until all replicas are ready, how long
it takes to find new places for those of a lost node, what it costs when nothing happens, and how long others wait for answers.

usage: tests/fleet_scale.py BERTH ROOT DOUBLE [NODES]"""
import http.client
import json
import os
import pathlib
import sys
import threading
import time
import unittest

NODES = int(sys.argv.pop(4)) if len(sys.argv) > 4 else 200
GPUS, MEMORY = 8, 80 << 30

from fleet_case import Fleet  # noqa: E402  (reads the arguments)


class FakeNode:
    """Reports as an agent does, and takes every order at once."""

    def __init__(self, number, token):
        self.name, self.token = f"node-{1000 + number}", token
        devices = [{"id": f"GPU-{1000 + number}-{gpu}", "backend": "cuda", "name": "H200", "ordinal": gpu, "memory_bytes_total": MEMORY,
                    "capability": "9.0", "memory_domain": f"GPU-{1000 + number}-{gpu}", "health": "healthy", "intent": "in_service"} for gpu in range(GPUS)]
        self.inventory = {"format": 1, "node": {"name": self.name, "memory": 1 << 40, "cpus": 64, "egress": False}, "devices": devices, "links": []}
        self.epoch = self.revision = self.number = 0
        self.orders = []

    def report(self, ask):
        replicas = [{"deployment": order["deployment"], "replica": order["replica"], "generation": order["generation"],
                     "state": "gone" if order.get("stopping") else "ready", "port": 9000} for order in self.orders]
        self.number += 1
        answer = ask("POST", "/api/v1/agent/report", self.token, {
            "schema": 1, "agent": self.name, "boot": "1", "version": "test", "number": self.number, "now_at_ms": int(time.time() * 1000),
            "epoch": self.epoch, "revision": self.revision, "inventory": self.inventory, "replicas": replicas})
        if (answer["epoch"], answer["revision"]) != (self.epoch, self.revision):
            orders = ask("GET", "/api/v1/agent/assignments", self.token)
            self.epoch, self.revision = orders["epoch"], orders["revision"]
            self.orders = [order["assigned"] for order in orders["orders"]]


class Scale(Fleet):
    def ask_over(self, connection):
        def ask(method, path, token, body=None):
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == 200, (method, path, answer.status, text[:500])
            return json.loads(text)
        return ask

    def setUp(self):
        super().setUp()
        self.ends, self.lost = threading.Event(), set()
        ask = self.ask_over(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60))
        self.fakes = [FakeNode(n, ask("POST", "/api/v1/agent/join", self.token("join"), {"node": f"node-{1000 + n}"})["token"])
                      for n in range(NODES)]
        self.reader = self.token("read")
        self.reports = threading.Thread(target=self.run_nodes, args=(ask,))
        self.reports.start()
        self.addCleanup(lambda: (self.ends.set(), self.reports.join()))

    def run_nodes(self, ask):
        while not self.ends.is_set():
            begin = time.monotonic()
            for node in self.fakes:
                if node.name not in self.lost:
                    node.report(ask)
            self.ends.wait(max(0, 2 - (time.monotonic() - begin)))

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.server.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def until_so(self, condition, seconds):
        """Waits for the condition. Returns the time that it took and the waiting time of each request."""
        begin, waits = time.monotonic(), []
        while True:
            asked = time.monotonic()
            status = self.get("status")
            waits.append(time.monotonic() - asked)
            if condition(status):
                return time.monotonic() - begin, sorted(waits)
            self.assertLess(time.monotonic() - begin, seconds, json.dumps(status)[:2000])
            time.sleep(0.05)

    def test_many_nodes(self):
        deployments = NODES * 5 // 2
        self.until_so(lambda status: all(node.number > 1 for node in self.fakes), 60)
        spec = {"replicas": 4, "gpus": 1, "command": ["/bin/sleep", "1000"]}
        shared = {"memory": "20G", "spread": "pack"}
        project = self.write_project(*({"name": f"service-{1000 + d}", **spec, **(shared if d % 2 == 0 else {})} for d in range(deployments)))
        before = self.cpu_s()
        begin = time.monotonic()
        answer = self.command("apply", project)
        self.assertEqual(answer.returncode, 0, answer.stdout[-3000:] + answer.stderr)
        applied_s = time.monotonic() - begin
        total = 4 * deployments
        ready_s, waits = self.until_so(lambda status: sum(deployment["ready"] for deployment in status["deployments"]) == total, 120)
        empty_s = self.cpu_s() - before
        print(f"{NODES} nodes, {NODES * GPUS} GPUs, {total} replicas: apply answers after {applied_s:.2f} s, all ready after {applied_s + ready_s:.2f} s, "
              f"{empty_s:.2f} s of processor time of the server; longest wait for an answer {max(waits):.3f} s")
        before, begin = self.cpu_s(), time.monotonic()
        time.sleep(10)
        print(f"nothing changes: {100 * (self.cpu_s() - before) / (time.monotonic() - begin):.1f} % of a core")
        lost = self.fakes[0]
        held = len(lost.orders)
        self.lost.add(lost.name)
        silent_s, waits = self.until_so(
            lambda status: status["nodes"]["lost"] == 1 and sum(deployment["ready"] for deployment in status["deployments"]) == total, 90)
        print(f"a node with {held} replicas is silent: all ready again {silent_s:.2f} s after its last report, of which the server waits 30 s; "
              f"longest wait for an answer {max(waits):.3f} s")
        self.assertLess(empty_s, 5 * NODES / 200, "the limit: five seconds of one core for 200 nodes")
        self.assertLess(silent_s, 36, "30 s, then two turns of the nodes' reports and a plan")


if __name__ == "__main__":
    unittest.main()
