#!/usr/bin/env python3
"""Requests are observable: ids, the log, metrics, rates, records of single requests, and the route that a request would take, with real processes."""
import json
import os
import pathlib
import re
import signal
import threading
import time
import unittest

from berth_case import ROOT
from gateway_case import Gateway
from openapi_check import Document


class Observed(Gateway):
    gateway_more = ("--access-log", "all")

    def deployment(self, name="app"):
        return next(row for row in self.get("endpoints")["deployments"] if row["name"] == name)

    def test_a_request_is_found_in_metrics_rates_the_log_and_by_its_id(self):
        document = Document.read(ROOT / "docs/reference/openapi.json")
        self.add_nodes("a")
        self.apply(self.app(serving={"open": False}), self.app("other", replicas=1))
        token = json.loads(self.command("token", "add", "call", "--deployment", "app", "--name", "me", "--json").stdout)
        key, caller = token["token"], token["id"]
        bearer = {"authorization": f"Bearer {key}"}
        self.until_answered("/app/x", 2, headers=bearer)
        status, text, headers = self.ask_for("/app/x?secret=words", headers={**bearer, "x-request-id": "order-7", "cookie": "secret=words"})
        self.assertEqual((status, headers["x-request-id"]), (200, "order-7"))
        self.assertEqual({name.lower(): value for name, value in json.loads(text)["headers"].items()}["x-request-id"], "order-7")
        self.assertEqual(self.ask_for("/app/x", headers={"x-request-id": "stranger"})[0], 401)
        self.assertRegex(self.ask_for("/nowhere")[2]["x-request-id"], "^[0-9a-f]{16}$")

        self.until(lambda: (self.metric("berth_requests_total", deployment="app", outcome="2xx") or 0) > 2, "the metrics")
        self.until(lambda: self.metric("berth_requests_rejected_total", reason="no_key") == 1, "what was rejected")
        self.assertGreater(self.metric("berth_request_seconds_bucket", deployment="app", le="+Inf"), 2)
        self.assertGreater(self.metric("berth_caller_requests_total", caller=caller, outcome="2xx"), 2)

        # Rates are absent until they are known, which takes a moment.
        def has_rate():
            self.ask_for("/app/x", headers=bearer)
            traffic = self.deployment().get("traffic", {})
            return traffic.get("requests_per_s", 0) > 0 and traffic.get("first_byte_s_p99", 0) > 0
        self.until(has_rate, lambda: self.deployment())
        listed = self.command("endpoints").stdout
        self.assertRegex(listed, r"(?m)^app +[\d.]+ ")
        self.assertRegex(listed, rf"(?m)^{caller} +me +app +[\d.]+ +0 ")
        shown, = [row for row in self.get("endpoints")["callers"] if row["id"] == caller]
        self.assertEqual((shown["name"], shown["deployment"]), ("me", "app"))
        self.assertGreater(shown["traffic"]["total_s_p99"], 0)
        for name in ("berth_caller_first_byte_seconds", "berth_caller_request_seconds"):
            self.until(lambda name=name: (self.metric(name, caller=caller, quantile="0.99") or 0) > 0, name)
        self.assertEqual(self.metric("berth_caller_requests_waiting", caller=caller), 0)
        self.assertEqual(self.metric("berth_caller_request_retries_total", caller=caller), 0)

        shown = self.command("why", "request", "order-7")
        self.assertRegex(shown.stdout, r"request order-7 was answered with 200 by app/[01]#\d+\n")
        self.assertIn(f"from caller {caller}, for app", shown.stdout)
        self.assertRegex(shown.stdout, r"app/[01]#\d+ +winner +\d+ +32\n")
        record, = json.loads(self.command("why", "request", "order-7", "--json").stdout)["requests"]
        self.assertEqual((record["outcome"], record["status"], record["caller"], len(record["candidates"])), ("answered", 200, caller, 2))
        self.assertIn("was rejected with 401", self.command("why", "request", "stranger").stdout)
        self.assertRefused(self.command("why", "request", "none"), 2, 'no record of request "none"')
        self.assertRefused(self.command("why", "request"), 2, "no request id was given")
        read = self.token("read")
        self.assertEqual(self.ask("GET", "/api/v1/requests/order-7", token=read)[0], 403, "this needs the role operate")

        going = self.command("why", "request", "--path", "/app/y")
        self.assertRegex(going.stdout, r"the request is for app and would go to app/[01]#\d+\nthe deployment was found by its address\n")
        self.assertIn("runner-up", going.stdout)
        self.assertIn("would get a 404", self.command("why", "request", "--path", "/nowhere").stdout)
        for method, path, body in (("GET", "requests/order-7", None), ("GET", "requests/none", None), ("GET", "endpoints", None),
                                   ("POST", "route", {"path": "/app"}), ("POST", "route", {"deployment": "none"}), ("POST", "route", {})):
            status, kind, text = self.ask(method, f"/api/v1/{path}", body)
            self.assertEqual(document.check_answer(method, f"/api/v1/{path}", status, kind, text), [], path)

        log = (self.folder / "server.log").read_text()
        self.assertRegex(log, rf"request=order-7 caller={caller} deployment=app replica=app/[01]#\d+ status=200 wait_ms=")
        for place, text in (("the log", log), ("the metrics", self.ask("GET", "/metrics")[2]), ("the record", json.dumps(record))):
            self.assertNotIn(key, text, place)
            self.assertNotIn("secret", text, place)

    def test_a_replica_that_dies_is_shown_and_a_gateway_that_is_gone_counts_no_more(self):
        self.add_nodes("a")
        self.apply(self.app(replicas=1))
        self.until_answered("/app/x", 1)
        failed = {}

        def ask():
            failed["status"], _, failed["headers"] = self.ask_for("/app/exit", headers={"x-request-id": "broken"})
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        self.assertEqual((failed["status"], failed["headers"]["x-request-id"]), (502, "broken"))
        self.until(lambda: self.metric("berth_requests_total", deployment="app", outcome="failed") == 1, "the failure")
        shown = self.command("why", "request", "broken").stdout
        self.assertRegex(shown, r"request broken failed at app/0#\d+: .*; the client got 502")
        self.assertIn("replicas tried", shown)
        self.assertIn("traffic", self.deployment())
        gateway, = [pid for pid, words in self.processes().items() if words.startswith("berth gateway ")]
        os.kill(gateway, signal.SIGSTOP)
        try:
            began = time.monotonic()
            self.until(lambda: "traffic" not in self.deployment(), "its report is too old")
            self.assertLess(time.monotonic() - began, 10)
            self.assertIsNone(self.metric("berth_requests_total", deployment="app"))
            self.assertIn("no gateway has reported", self.command("why", "request", "--deployment", "app").stdout)
        finally:
            os.kill(gateway, signal.SIGCONT)
        self.until(lambda: "traffic" in self.deployment(), "it reports again")

    def test_what_ends_in_a_gateway_that_another_has_replaced_is_counted_once(self):
        self.add_nodes("a")
        self.apply(self.app(replicas=1))
        self.until_answered("/app/x", 1)
        got = {}

        def read():
            got["status"], got["text"], _ = self.ask_for("/app/slow/200", headers={"x-request-id": "long"})
        thread = threading.Thread(target=read)
        thread.start()
        answered = {"deployment": "app", "outcome": "2xx"}
        self.until(lambda: (self.metric("berth_requests_in_flight", deployment="app") or 0) == 1, "the stream")
        old = self.process_of("berth gateway ")
        self.until(lambda: self.metric("berth_requests_total", **answered), "the metrics")
        self.replace_gateway()
        self.until(lambda: "leaving=" in self.ask("GET", "/metrics")[2], "the old one reports")
        self.assertEqual(self.deployment()["traffic"]["in_flight"], 1, "the stream at the old gateway")
        self.until(lambda: self.get("endpoints")["gateways"][0]["reports"], "the new one reports too")
        self.assertEqual(self.ask_for("/app/x", headers={"x-request-id": "short"})[0], 200)

        def leaving():
            return sum(float(line.rsplit(" ", 1)[1]) for line in self.ask("GET", "/metrics")[2].splitlines()
                       if line.startswith("berth_requests_total{") and "leaving=" in line and 'outcome="2xx"' in line)
        before = leaving()
        self.assertGreater(before, 0)
        self.until(lambda: leaving() == before + 1, self.situation)
        thread.join()
        self.assertWhole(got, 200)
        self.until(lambda: self.command("why", "request", "long").returncode == 0, "its record")
        self.assertIn("was answered with 200", self.command("why", "request", "long").stdout)
        self.assertIn("was answered with 200", self.command("why", "request", "short").stdout)
        self.until(lambda: old not in self.processes(), "the old one has ended")
        self.until(lambda: self.metric("berth_requests_total", **answered) == 1, "those of the new one alone")

    def test_a_report_is_bounded_and_taken_from_gateways_alone(self):
        own = next(pathlib.Path(self.folder).rglob("gateway-*/*/credential")).read_text().strip()
        empty = {"started_at_ms": 1, "deployments": [], "replicas": [], "callers": [], "requests": []}

        def put(token, **more):
            return self.ask("PUT", "/api/v1/gateway/report", {"report": {**empty, **more}}, token=token)[0]
        for role in ("read", "operate", "deploy"):
            self.assertEqual(put(self.token(role)), 403, role)
        record = {"id": "forged", "at_ms": 1, "outcome": "failed", "reason": "x" * 100_000, "waited_us": 0, "total_us": 0, "tries": 0}
        self.assertEqual(put(own, requests=[record]), 200)
        self.assertLess(len(self.ask("GET", "/api/v1/requests/forged")[2]), 2000, "a long reason is shortened")
        record["reason"] = "x"
        for more in ({"requests": 201 * [record]}, {"requests": [{**record, "id": "x" * 65}]}, {"deployments": [{"name": "x" * 400}]},
                     {"deployments": 1001 * [{"name": "x"}]}, {"replicas": [{"name": "x", "total": {"counts": 23 * [1], "sum_us": 1}}]},
                     {"callers": [{"name": "x", "rejected": {f"r{i}": 1 for i in range(33)}}]}, {"unconnected_nodes": 1001 * ["a"]}):
            self.assertEqual(put(own, **more), 400, str(more)[:60])

    def test_a_node_without_a_connection_to_the_gateway_is_named_with_what_to_do(self):
        self.add_nodes("a")
        own = next(pathlib.Path(self.folder).rglob("gateway-*/*/credential")).read_text().strip()
        report = {"started_at_ms": 1, "deployments": [], "replicas": [], "callers": [], "requests": [], "unconnected_nodes": ["a", "unknown"]}
        says = r"gateway \S+: node a has no connection to it, so its replicas get no requests from this gateway; make sure that a can connect to (127\.0\.0\.1:|port )\d+"
        for verb in ("status", "endpoints"):
            # The real gateway, which reports under the same name, has a connection to it.
            self.until(lambda: self.ask("PUT", "/api/v1/gateway/report", {"report": report}, token=own)[0] == 200
                       and re.search(says, " ".join(self.command(verb).stdout.split())), f"the warning of berth {verb}")
        self.until(lambda: "no connection to it" not in self.command("status").stdout, "what the real gateway reports counts again")


class Lines(Gateway):
    def test_without_a_word_only_failures_are_in_the_log(self):
        self.add_nodes("a")
        self.apply(self.app(replicas=1))
        self.until_answered("/app/x", 1)
        self.ask_for("/app/exit", headers={"x-request-id": "broken"})
        self.until(lambda: "request=broken" in (self.folder / "server.log").read_text(), "the line")
        log = (self.folder / "server.log").read_text()
        self.assertRegex(log, r'level=warning msg="the request failed" request=broken caller=local deployment=app replica=app/0#\d+ status=502')
        self.assertNotIn("the request was answered", log)
        self.assertRefused(self.command("gateway", "--join", "http://127.0.0.1:1", "--access-log", "some"), 2, "none, failed or all")
        self.assertRefused(self.command("serve", "--access-log", "some"), 2, "none, failed or all")


if __name__ == "__main__":
    unittest.main()
