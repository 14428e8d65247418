#!/usr/bin/env python3
"""A gateway beside nginx, in the same run and in turns: both take TLS connections and keep those to the same replicas. The gateway also checks
keys, finds the deployment by the model in the body, and goes through a relay, whose processor time is told separately.

  cpu_per_request       processor time of the process for each request (wrk, 16 connections)
  cpu_per_event         for each event of streams of 20 events (40 streams at a time)
  p99_200_per_second    from the moment at which a request is due, at 200 requests per second
  memory_growth         memory at the end of a mixed load over that at a fifth of it
  idle_connections_5000 memory of the process with that many idle connections, each of which had a request

usage: gateway_bench.py BERTH ROOT DOUBLE [CASE] [--rounds N] [--seconds N] [--memory-seconds N] [--json] [--check]

CASE keeps the cases whose name contains it. The status is 0 even if a goal is missed, unless --check is given.
Needs nginx, wrk and openssl; where one is missing, it says so and measures nothing."""
import argparse
import asyncio
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests"))

from fleet_case import free_port  # noqa: E402
from gateway_case import Gateway, cpu_s, program, rss_bytes  # noqa: E402
from http_load import Client, Connection, at_rate, for_seconds, percentile  # noqa: E402

MIB = 1 << 20
CONNECTIONS, RATE, IDLE = 16, 200, 5000
STREAMS, EVENTS, EVENT_MS = 40, 20, 20
STREAM_PATH = f"/stream/{EVENTS}/{EVENT_MS}"
GOALS = {"cpu_per_request": 2.5, "cpu_per_event": 2.0, "p99_200_per_second": 1.3, "memory_growth": 1.05, "idle_connections_5000": 150}


class Proxy:
    """Where requests go, and the processes that pass them on."""

    def __init__(self, port, *pids):
        self.port, self.pids = port, pids

    def cpu_s(self):
        return sum(map(cpu_s, self.pids))

    def rss_bytes(self):
        return sum(map(rss_bytes, self.pids))


class Bench(Gateway):
    def setUp(self):
        super().setUp()
        self.cases = []
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        self.add_nodes("a")
        conf = self.folder / "replica.conf"
        self.write_conf("replica.conf", conf, PORT="@PORT@")  # the node chooses it
        start = f"sed 's/@PORT@/{{port}}/' {conf} >{conf}.own && exec {program('nginx')} -c {conf}.own -e {self.folder}/replica.log"
        serving = {"open": False, "max_concurrent": 1000}
        requests = {**self.loaded("requests", serving=serving), "command": ["/bin/sh", "-c", start]}
        self.apply(requests, self.loaded("streams", serving=serving))
        self.keys = {name: self.command("token", "add", "call", "--deployment", name).stdout.strip() for name in ("requests", "streams")}
        ports = {replica["deployment"]: replica["port"] for replica in self.get("replicas")["replicas"]}
        self.tls = self.make_certificate()
        process, port = self.start_edge()
        self.ours = Proxy(port, process.pid)
        self.relay = self.process_of("berth relay ")
        self.peer = self.start_nginx(ports)
        self.body = json.dumps({"model": "requests", "messages": [{"role": "user", "content": "Say hello. " * 20}]}).encode()
        for proxy in (self.ours, self.peer):
            self.until(lambda: self.answers(proxy), self.situation)

    def write_conf(self, name, path, **words):
        text = (HERE / name).read_text()
        for word, value in {"FOLDER": self.folder, **words}.items():
            text = text.replace(f"@{word}@", str(value))
        path.write_text(text)

    def start_nginx(self, ports):
        port, conf = free_port(), self.folder / "nginx.conf"
        self.write_conf("nginx.conf", conf, PORT=port, REQUESTS=ports["requests"], STREAMS=ports["streams"])
        user = ["-g", "user root;"] if os.geteuid() == 0 else []
        process = self.spawn("nginx.log", program("nginx"), "-c", str(conf), "-e", str(self.folder / "nginx_error.log"), *user)
        # Before what is left is killed: a master that is killed leaves its worker behind.
        self.addCleanup(process.wait, timeout=20)
        self.addCleanup(process.terminate)

        def workers():
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            return list(map(int, children))
        return Proxy(port, *self.until(workers, lambda: (self.folder / "nginx.log").read_text()))

    def answers(self, proxy):
        async def ask():
            client = Client(proxy.port, self.tls)
            try:
                return [await self.request(client), await self.stream(client)]
            finally:
                client.close()
        try:
            return all(answer.status == 200 for answer in asyncio.run(ask()))
        except OSError:
            return False

    async def request(self, client):
        return await client.ask("/v1/chat/completions", self.body, {"authorization": f"Bearer {self.keys['requests']}", "content-type": "application/json"})

    async def stream(self, client):
        return await client.ask(STREAM_PATH, b'{"model": "streams", "stream": true}', {"authorization": f"Bearer {self.keys['streams']}"})

    # What is measured.

    def in_turns(self, measure):
        """Medians of what it gives for ours and the peer, over the rounds."""
        found = [(measure(self.ours), measure(self.peer)) for _ in range(OPTIONS.rounds)]
        return [[statistics.median(values) for values in zip(*of_one)] for of_one in zip(*found)]

    def add(self, name, ours, peer, unit, **more):
        ratio = ours / peer if peer else None
        self.cases.append({"case": name, "ours": ours, "peer": peer, "unit": unit, "ratio": ratio, "better": "lower", "goal": GOALS[name],
                           "met": (ratio or ours) <= GOALS[name], **more})

    def wrk(self, proxy):
        before, relay = proxy.cpu_s(), cpu_s(self.relay)
        run = subprocess.run(["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{OPTIONS.seconds}s", "-s", str(HERE / "post.lua"), f"https://127.0.0.1:{proxy.port}"],
                             capture_output=True, text=True, check=True, env={**os.environ, "BENCH_BODY": self.body.decode(), "BENCH_KEY": self.keys["requests"]})
        if found := re.search(r"Socket errors.*|Non-2xx.*", run.stdout):
            self.fail(f"wrk: {found[0]}")
        count = int(re.search(r"(\d+) requests in", run.stdout)[1])
        return 1e6 * (proxy.cpu_s() - before) / count, 1e6 * (cpu_s(self.relay) - relay) / count, count / OPTIONS.seconds

    def cpu_per_request(self):
        ours, peer = self.in_turns(self.wrk)
        self.add("cpu_per_request", ours[0], peer[0], "us", relay=ours[1], per_second=ours[2], peer_per_second=peer[2])

    def streams(self, proxy):
        async def run():
            client, ends, events = Client(proxy.port, self.tls), for_seconds(OPTIONS.seconds), 0

            async def go_on():
                nonlocal events
                while not ends():
                    answer = await self.stream(client)
                    self.assertEqual((answer.status, answer.body.count(b"data: ")), (200, EVENTS))
                    events += EVENTS
            await asyncio.gather(*(go_on() for _ in range(STREAMS)))
            client.close()
            return events
        before, relay = proxy.cpu_s(), cpu_s(self.relay)
        events = asyncio.run(run())
        return 1e6 * (proxy.cpu_s() - before) / events, 1e6 * (cpu_s(self.relay) - relay) / events

    def cpu_per_event(self):
        ours, peer = self.in_turns(self.streams)
        self.add("cpu_per_event", ours[0], peer[0], "us", relay=ours[1])

    def load(self, proxy, ends, ask):
        async def run():
            client = Client(proxy.port, self.tls)
            outcomes = await at_rate(RATE, ends, lambda number: ask(client, number))
            client.close()
            return outcomes
        outcomes = asyncio.run(run())
        wrong = [outcome for outcome in outcomes if outcome.problem or outcome.answer.status != 200]
        self.assertEqual(wrong, [], f"{len(wrong)} of {len(outcomes)}")
        return outcomes

    def p99_200_per_second(self):
        def measure(proxy):
            took = [1000 * outcome.took for outcome in self.load(proxy, for_seconds(OPTIONS.seconds), lambda client, _: self.request(client))]
            return percentile(took, 0.99), percentile(took, 0.5)
        ours, peer = self.in_turns(measure)
        self.add("p99_200_per_second", ours[0], peer[0], "ms", p50=ours[1], peer_p50=peer[1])

    def idle_connections_5000(self):
        async def run(proxy):
            opened, limit = [], asyncio.Semaphore(32)

            async def open_one():
                async with limit:
                    connection = await Connection.open(proxy.port, self.tls)
                    opened.append(connection)
                    await connection.send("/v1/chat/completions", self.body, {"authorization": f"Bearer {self.keys['requests']}"})
                    self.assertEqual((await connection.receive()).status, 200)
            await asyncio.gather(*(open_one() for _ in range(IDLE)))
            await asyncio.sleep(1)
            self.assertEqual([connection for connection in opened if connection.reader.at_eof()], [], "an idle connection was closed")
            held = proxy.rss_bytes() / MIB
            for connection in opened:
                connection.close()
            return held
        before = self.ours.rss_bytes() / MIB
        self.add("idle_connections_5000", asyncio.run(run(self.ours)), None, "MiB", before=before, nginx=asyncio.run(run(self.peer)))

    def memory_growth(self):
        """Requests, streams and new connections; the largest of the samples within a fifth counts."""
        samples = []

        async def ask(client, number):
            if number % RATE == 0:
                samples.append(self.ours.rss_bytes() / MIB)
            if number % 10 == 0:
                return await self.stream(client)
            if number % 10 == 1:
                client = Client(self.ours.port, self.tls)
                try:
                    return await self.request(client)
                finally:
                    client.close()
            return await self.request(client)
        self.load(self.ours, for_seconds(OPTIONS.memory_seconds), ask)
        fifth = max(1, len(samples) // 5)
        begin, end = max(samples[fifth:2 * fifth]), max(samples[-fifth:])
        self.add("memory_growth", end / begin, None, "x", begin_mib=begin, end_mib=end, seconds=OPTIONS.memory_seconds)

    def measure(self):
        for name in GOALS:
            if OPTIONS.case in name:
                began = time.monotonic()
                getattr(self, name)()
                if not OPTIONS.json:
                    print_row(self.cases[-1], time.monotonic() - began)


def number(value):
    return "" if value is None else f"{value:,.2f}"


COLUMNS = "{:<22} {:>10} {:>10} {:<4} {:>6}  {:<14} {:<7} {}"


def print_row(case, took_s):
    known = ("case", "ours", "peer", "unit", "ratio", "better", "goal", "met")
    more = ", ".join(f"{key} {number(value)}" for key, value in case.items() if key not in known)
    print(COLUMNS.format(case["case"], number(case["ours"]), number(case["peer"]), case["unit"], number(case["ratio"]), f"at most {case['goal']:g}",
                         "met" if case["met"] else "missed", f"{more} ({took_s:.0f} s)"), flush=True)


def main():
    cases = []
    if missing := [name for name in ("nginx", "wrk", "openssl") if not program(name)]:
        print(f"note: the gateway was not measured, since this is not installed: {', '.join(missing)} (./setup installs it)")
    else:
        if not OPTIONS.json:
            print(COLUMNS.format("case", "gateway", "nginx", "unit", "ratio", "goal", "", "more"), flush=True)
        result = unittest.TestResult()
        bench = Bench("measure")
        bench.run(result)
        for _, text in result.errors + result.failures:
            print(text, file=sys.stderr)
        if not result.wasSuccessful():
            return 1
        cases = bench.cases
    print(json.dumps({"bench": "gateway", "cases": cases}))
    return 1 if OPTIONS.check and not (cases and all(case["met"] for case in cases)) else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="?", default="")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4, help="of each measurement")
    parser.add_argument("--memory-seconds", type=int, default=30)
    parser.add_argument("--json", action="store_true", help="print no table")
    parser.add_argument("--check", action="store_true", help="end with 1 if a case misses its goal, or nothing was measured")
    OPTIONS = parser.parse_args()
    sys.exit(main())
