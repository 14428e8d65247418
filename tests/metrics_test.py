#!/usr/bin/env python3
"""docs/operate/metrics.md is what a server and its gateway export, by name, type and labels; the alert rules and the dashboard use what it lists, and
Prometheus' own promtool accepts all of them."""
import functools
import json
import re
import subprocess
import unittest

from berth_case import ROOT
from fleet_case import ForgedNode
from gateway_case import Gateway, program

RULES = ROOT / "contrib" / "prometheus" / "berth.rules.yml"
DASHBOARD = ROOT / "contrib" / "grafana" / "berth.json"
PARTS = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}


def parse(text):
    """The types by name, and the lines as (name, labels, value)."""
    types = dict(re.findall(r"(?m)^# TYPE (\S+) (\S+)$", text))
    lines = [(name, dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")), float(value))
             for name, labels, value in re.findall(r"(?m)^([a-z_]+)(?:\{(.*)\})? (\S+)$", text)]
    return types, lines


def metric_of(line, types):
    """The metric that a line belongs to: lines of histograms and summaries have suffixes."""
    for kind, endings in PARTS.items():
        for ending in endings:
            if types.get(line.removesuffix(ending)) == kind:
                return line.removesuffix(ending)
    return line


@functools.cache
def documented():
    """The type and labels of each metric on the page."""
    page, = (ROOT / "docs").rglob("metrics.md")
    found = {}
    for names, kind, labels in re.findall(r"(?m)^\| (`berth_.*?) \| (\w+) \|(.*?)\|", page.read_text()):
        for name in re.findall(r"`(\w+)`", names):
            assert name not in found, f"{name} is documented twice"
            found[name] = (kind, set(re.findall(r"`(\w+)`", labels)))
    return found


class Live(Gateway):
    def setUp(self):
        super().setUp()
        self.scrapes, self.last_report = [], None

    def scrape(self):
        if self.last_report:
            self.last_report()  # a node without reports is soon lost
        status, kind, text = self.ask("GET", "/metrics")
        self.assertEqual((status, kind), (200, "text/plain; version=0.0.4; charset=utf-8"))
        self.scrapes.append(text)
        return text

    def values(self, name, **labels):
        return [value for line, has, value in parse(self.scrape())[1] if line == name and labels.items() <= has.items()]

    def forge(self):
        """A node that reports everything that a node can report, with one replica and a queue of two jobs."""
        self.forged = ForgedNode(self, "forged", labels={"kind": "forged"})
        self.inventory = [{"id": "GPU-f", "backend": "cuda", "memory_bytes_total": 80 << 30, "health": "healthy"}]
        self.gpu = {**self.inventory[0], "name": "H100", "intent": "in_service", "holders": [{"kind": "foreign", "name": "x"}], "sample_age_ms": 10,
                    "memory_bytes_free": 60 << 30, "memory_bytes_berth": 1 << 30, "memory_bytes_foreign": 18 << 30, "memory_bytes_unattributed": 1 << 30,
                    "memory_bytes_promised": 1 << 30, "utilization": 0.5, "memory_utilization": 0.25, "power_watts": 350.5, "power_limit_watts": 700,
                    "temperature_celsius": 61, "memory_temperature_celsius": 70, "clock_mhz": 1980, "throttle_reasons": ["power cap"],
                    "ecc_corrected": 3, "ecc_uncorrected": 0, "remapped_rows": 1}
        job = {"kind": "job", "user": "ann", "command": "secret words", "state": "waiting", "devices": [], "exclusive": True, "devices_wanted": 2}
        self.jobs = [{**job, "name": "first", "place": 1, "age_s": 90}, {**job, "name": "second", "place": 2, "age_s": 30}]
        self.report()

    def report(self, replicas=(), **gpu):
        self.last_report = lambda: self.forged.report(self.inventory, replicas=replicas, devices=[{**self.gpu, **gpu}], leases=self.jobs)
        self.last_report()

    def report_replica(self, failures):
        replica = self.replicas("odd")[0]
        self.report([{"deployment": "odd", "replica": 0, "generation": replica["generation"], "state": "ready", "reason": "", "failures": failures,
                      "started_at_ms": 1000, "memory_bytes_peak": 5 << 30}])

    def fill(self):
        """Waits until each metric has a line."""
        self.add_nodes("a")
        self.apply(self.app(serving={"open": False}))
        self.forge()
        self.others = (self.web("odd", replicas=1, node_selector={"kind": "forged"}),
                       self.app("far", node_selector={"kind": "moon"}, serving={"queue_timeout": "100ms"}))
        self.apply(self.app(serving={"open": False}), *self.others, wait=False, status=None)
        self.until(lambda: self.replicas("odd"), self.situation)
        self.report_replica(failures=0)
        self.until(lambda: self.ask_for("/far/x")[0] == 503, "no replica is ready")
        token = json.loads(self.command("token", "add", "call", "--deployment", "app", "--per-second", "1", "--json").stdout)
        key, caller = {"authorization": f"Bearer {token['token']}"}, token["id"]
        self.until(lambda: self.ask_for("/app/x", headers=key)[0] == 200, self.situation)
        self.until(lambda: self.ask_for("/app/x", headers=key)[0] == 429, "too many a second")
        self.assertEqual(self.ask_for("/app/x")[0], 401)
        self.until(lambda: self.values("berth_requests_rejected_total", reason="no_key"), "what was rejected")

        def has_times():
            self.ask_for("/app/x", headers=key)
            return self.values("berth_caller_request_seconds", caller=caller) and self.values("berth_replica_request_seconds", deployment="app")
        self.until(has_times, "the times of a caller")

    def test_the_page_lists_what_a_fleet_exports(self):
        self.fill()
        self.apply(self.app(), *self.others, wait=False, status=None)
        self.until(lambda: self.is_answered("/app/x"), "open to everybody")
        finish = self.stream(100)
        self.replace_gateway()
        self.until(lambda: "leaving=" in self.scrape(), "the gateway that leaves")
        finish()
        self.report_replica(failures=0)
        self.until(lambda: self.values("berth_replica_state", deployment="odd"), "the replica")
        exported, labels = {}, {}
        for text in self.scrapes:
            types, lines = parse(text)
            self.assertEqual(len({(name, tuple(sorted(has.items()))) for name, has, _ in lines}), len(lines), "a line appears twice")
            exported.update(types)
            for name, has, _ in lines:
                metric = metric_of(name, types)
                self.assertIn(metric, types, "a line without a type")
                labels.setdefault(metric, set()).update(has)
        self.assertEqual({name: kind for name, (kind, _) in documented().items()}, exported)
        differs = {name: (sorted(has), sorted(labels.get(name, ()))) for name, (_, has) in documented().items() if has != labels.get(name, set())}
        self.assertEqual(differs, {}, "labels on the page, and exported labels")
        for text in self.scrapes:
            self.assertNotIn("secret", text)

    def test_what_is_counted_and_what_is_not_known(self):
        self.add_nodes("a")
        self.forge()
        self.apply(self.web("odd", replicas=1, node_selector={"kind": "forged"}), self.web("far", node_selector={"kind": "moon"}), wait=False, status=None)
        self.until(lambda: self.replicas("odd"), self.situation)
        of_gpu = {"node": "forged", "device": "GPU-f"}
        self.assertEqual(self.values("berth_gpu_temperature_celsius", **of_gpu), [61])
        self.assertEqual(self.values("berth_gpu_clock_hertz", **of_gpu), [1.98e9])
        self.assertEqual(self.values("berth_gpu_throttled", **of_gpu), [1])
        self.assertEqual(self.values("berth_gpu_memory_used_bytes", owner="foreign", **of_gpu), [18 << 30])
        self.assertEqual(self.values("berth_gpus", node="a", use="free"), [2], "processors are not GPUs")
        self.assertEqual(self.values("berth_gpus", node="forged", use="in_use"), [1])
        self.assertEqual(self.values("berth_jobs", node="forged", state="waiting"), [2])
        self.assertEqual(self.values("berth_jobs", node="a", state="waiting"), [0])
        self.assertEqual(self.values("berth_queue_devices_wanted", node="forged"), [4])
        self.assertEqual(self.values("berth_queue_longest_wait_seconds", node="forged"), [90])
        self.assertEqual(self.values("berth_queue_longest_wait_seconds", node="a"), [], "nothing is waiting")
        self.assertEqual(self.values("berth_queue_front_seconds", node="a"), [])
        self.until(lambda: self.values("berth_queue_front_seconds", node="forged") > [0], "time passes")
        self.until(lambda: self.values("berth_replicas_pending", deployment="far") == [1], self.scrape)
        self.assertEqual(self.values("berth_deployment_state", deployment="far", state="pending"), [1])
        # Restarts are counted from one report to the next, over all incarnations.
        for failures, restarts in ((0, 0), (2, 2), (2, 2), (0, 2), (1, 3)):
            self.report_replica(failures)
            self.assertEqual(self.values("berth_replica_restarts_total", replica="odd/0"), [restarts])
        self.assertEqual(self.values("berth_replica_memory_peak_bytes", replica="odd/0"), [5 << 30])
        self.assertEqual(self.values("berth_replica_devices", replica="odd/0"), [1])
        # A lost GPU has a health but no measurements, whatever was measured last.
        self.report(health="lost")
        self.assertEqual(self.values("berth_gpu_health", health="lost", **of_gpu), [1])
        self.assertEqual(self.values("berth_gpu_health", health="healthy", **of_gpu), [])
        self.assertEqual(self.values("berth_gpus", node="forged", use="unavailable"), [1])
        for name in ("berth_gpu_temperature_celsius", "berth_gpu_memory_free_bytes", "berth_gpu_utilization_ratio"):
            self.assertEqual(self.values(name, **of_gpu), [], name)
        # A GPU with old telemetry, or whose driver does not report values, has none either.
        self.report(sample_age_ms=60_000)
        self.assertEqual(self.values("berth_gpu_temperature_celsius", **of_gpu), [])
        self.assertGreaterEqual(self.values("berth_gpu_sample_age_seconds", **of_gpu), [60])
        self.gpu.pop("power_watts")
        self.report()
        self.assertEqual((self.values("berth_gpu_power_watts", **of_gpu), self.values("berth_gpu_temperature_celsius", **of_gpu)), ([], [61]))
        self.command("cordon", "node/forged")
        self.assertEqual(self.values("berth_gpu_intent", intent="cordoned", **of_gpu), [1])
        self.assertEqual(self.values("berth_node_up", node="forged"), [1])
        self.assertEqual(len(self.values("berth_store_commit_seconds_count")), 1)
        self.assertGreater(self.values("berth_server_connections_limit"), self.values("berth_server_connections"))

    @unittest.skipUnless(program("promtool"), "needs promtool, which ./setup --strict installs")
    def test_promtool_accepts_the_metrics(self):
        self.fill()
        checked = subprocess.run([program("promtool"), "check", "metrics"], input=self.scrape(), capture_output=True, text=True)
        self.assertEqual((checked.returncode, checked.stderr), (0, ""))


@unittest.skipUnless(program("promtool"), "needs promtool, which ./setup --strict installs")
class Promtool(unittest.TestCase):
    def promtool(self, *words):
        done = subprocess.run([program("promtool"), *words], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("FAILED", done.stdout)

    def test_rules(self):
        self.promtool("check", "rules", str(RULES))
        self.promtool("test", "rules", str(RULES.with_suffix("").with_suffix(".rules.test.yml")))


class Expressions(unittest.TestCase):
    """Compares the metrics that rules and dashboard use with the page."""

    def assertDocumented(self, text, where):
        types = {name: kind for name, (kind, _) in documented().items()}
        used = {metric_of(name, types) for name in re.findall(r"\bberth_\w+", text)}
        self.assertGreater(len(used), 10, where)
        self.assertEqual(used - set(types), set(), f"{where} uses metrics that docs/operate/metrics.md does not list")
        for name, labels in re.findall(r"\b(berth_\w+)\{(.*?)\}", text):
            asked = set(re.findall(r"(\w+)\s*=~?", re.sub(r'"[^"]*"', "", labels.replace('\\"', '"'))))
            self.assertLessEqual(asked, documented()[metric_of(name, types)][1], f"{where}: labels of {name}")

    def test_rules(self):
        text = RULES.read_text()
        self.assertDocumented(text, RULES.name)
        for alert in re.findall(r"alert: (\w+)", text):
            self.assertIn(alert, RULES.with_name("berth.rules.test.yml").read_text(), "each alert has a test")

    def test_dashboard(self):
        panels = json.loads(DASHBOARD.read_text())["panels"]
        expressions = [target["expr"] for panel in panels for target in panel.get("targets", [])]
        self.assertDocumented("\n".join(expressions), DASHBOARD.name)
        for panel in panels:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])
            self.assertTrue(panel["type"] == "row" or panel["targets"], panel["title"])


if __name__ == "__main__":
    unittest.main()
