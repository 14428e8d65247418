#!/usr/bin/env python3
"""A gateway with more work than its replicas can do, on real processes: the replicas stay busy, waiting requests are bounded in number and
time, callers get their shares whatever they send, and a thousand slow readers or writers cost little memory and do not affect others.

usage: tests/gateway_overload.py BERTH ROOT DOUBLE [SECONDS]   by default 60 seconds at three times the capacity"""
import asyncio
import collections
import contextlib
import json
import random
import resource
import socket
import sys
import time
import unittest

SECONDS = int(sys.argv.pop(4)) if len(sys.argv) > 4 else 60

from berth_case import QUIET  # noqa: E402  (reads the arguments)
from gateway_case import Gateway, rss_bytes  # noqa: E402
from http_load import Background, Client, at_rate, for_seconds, percentile  # noqa: E402

MIB = 1 << 20
REPLICAS, CONCURRENT, SERVICE_MS = 2, 8, 100
CAPACITY = REPLICAS * CONCURRENT * 1000 // SERVICE_MS  # per second
# Share of the replicas' capacity; on a busy machine the load itself is late.
SHARE_MIN = 0.9 if QUIET else 0.5
SLOW = 1000


class Overload(Gateway):
    def begin(self, **serving):
        self.add_nodes("a", "b")
        app = self.loaded(replicas=REPLICAS, spread="one_per_node", serving={"max_concurrent": CONCURRENT, **serving})
        self.apply(app, self.loaded("other", replicas=REPLICAS, spread="one_per_node", serving={"max_concurrent": 2 * SLOW}))
        self.until_answered("/app/echo", REPLICAS, headers=self.key_of("first") if "open" in serving else {})
        self.until_answered("/other/echo", REPLICAS)
        self.pid = self.process_of("berth gateway ")
        self.rss_before = rss_bytes(self.pid)

    def key_of(self, name, weight=1):
        answer = self.command("token", "add", "call", "--deployment", "app", "--name", name, "--weight", str(weight))
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return {"authorization": f"Bearer {answer.stdout.strip()}"}

    def grown_mib(self):
        return (rss_bytes(self.pid) - self.rss_before) / MIB


class Bounded(Overload):
    def flood(self, seconds):
        """Sends three times the capacity."""
        async def run():
            client = Client(self.gateway)
            try:
                return await at_rate(3 * CAPACITY, for_seconds(seconds), lambda number: client.ask(f"/app/after/{SERVICE_MS}", b"%d" % number, {"x-berth-explain": "1"}))
            finally:
                client.close()
        outcomes = asyncio.run(run())
        statuses = collections.Counter(outcome.problem or outcome.answer.status for outcome in outcomes)
        answered = [outcome for outcome in outcomes if not outcome.problem and outcome.answer.status == 200]
        self.assertEqual(set(statuses) - {200, 429}, set(), statuses)
        for outcome in answered:
            self.assertEqual(json.loads(outcome.answer.body)["body"], str(outcome.number))
        self.assertTrue(all("retry-after" in outcome.answer.headers for outcome in outcomes if outcome.answer.status == 429))
        # The requests that wait at the end are answered after it.
        time_s = max(outcome.due + outcome.took for outcome in outcomes) - outcomes[0].due
        share = len(answered) / (CAPACITY * time_s)
        waits_ms = [int(outcome.answer.headers["x-berth-wait-ms"]) for outcome in answered]
        refused_s = [outcome.took for outcome in outcomes if outcome.answer.status == 429]
        print(f"three times the capacity for {seconds} s: {dict(statuses)}, {100 * share:.1f} % of what the replicas can do, "
              f"longest wait {max(waits_ms)} ms, slowest refusal {1000 * max(refused_s):.0f} ms, memory grew by {self.grown_mib():.1f} MiB", flush=True)
        self.assertGreater(share, SHARE_MIN)
        self.assertLess(self.grown_mib(), 64)
        return waits_ms, refused_s

    def test_by_time(self):
        self.begin(queue_timeout="2s", queue_max=10000)
        waits_ms, refused_s = self.flood(SECONDS)
        self.assertLess(max(waits_ms), 2200 if QUIET else 10_000)
        self.assertGreater(percentile(waits_ms, 0.5), 500, "few requests waited: this is not an overload")
        self.assertQuick(max(refused_s), 2.5)

    def test_by_number(self):
        self.begin(queue_timeout="30s", queue_max=CAPACITY // 4)
        waits_ms, refused_s = self.flood(SECONDS)
        self.assertLess(max(waits_ms), 600 if QUIET else 10_000, "work for a quarter of a second may wait")
        self.assertQuick(percentile(refused_s, 0.99), 0.5, "a request that may not wait is refused at once")


class Shares(Overload):
    def compete(self, *callers):
        """Each caller (key, connections) sends one request after another on each connection. Returns the answers per second."""
        seconds = max(5, SECONDS // 6)

        async def run():
            answered, client, ends, dice = [0] * len(callers), Client(self.gateway), for_seconds(seconds), random.Random(1)

            async def go_on(caller, key):
                while not ends():
                    # Requests differ, so that replicas do not become free all at the same moment, again and again.
                    answer = await client.ask(f"/app/after/{dice.randint(SERVICE_MS // 2, SERVICE_MS * 3 // 2)}", b"x", key)
                    self.assertEqual(answer.status, 200, answer.body)
                    answered[caller] += not ends()
            await asyncio.gather(*(go_on(caller, key) for caller, (key, connections) in enumerate(callers) for _ in range(connections)))
            client.close()
            return answered
        return [count / seconds for count in asyncio.run(run())]

    def test_a_hundred_connections_get_no_more_than_their_share(self):
        self.begin(open=False)
        many, equal, heavy = self.key_of("many"), self.key_of("equal"), self.key_of("heavy", weight=3)
        self.until_answered("/app/echo", REPLICAS, headers=heavy)
        for name, key, connections, weight in (("an equal weight", equal, 16, 1), ("three times its weight", heavy, 24, 3)):
            of_many, of_few = self.compete((many, 100), (key, connections))
            share = of_few / (of_many + of_few) / (weight / (weight + 1))
            print(f"100 connections and {connections} of a caller with {name}: {of_many:.0f} and {of_few:.0f} per second, {100 * share:.1f} % of its share", flush=True)
            self.assertGreater(share, SHARE_MIN)
            self.assertGreater(of_many + of_few, SHARE_MIN * CAPACITY)
        alone, = self.compete((equal, 4))
        _, beside = self.compete((many, 100), (equal, 4))
        print(f"a caller with 4 connections: {alone:.0f} per second alone, {beside:.0f} beside 100 of another", flush=True)
        self.assertGreater(beside / alone, SHARE_MIN)


class Slow(Overload):
    """Slow connections, and requests of others at the same time."""

    def setUp(self):
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        super().setUp()

    async def open_slow(self, text):
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(slow, ("127.0.0.1", self.gateway))
        await loop.sock_sendall(slow, text)
        return slow

    async def others(self, seconds):
        """How long requests of others take meanwhile, in milliseconds."""
        client = Client(self.gateway)
        outcomes = await at_rate(50, for_seconds(seconds), lambda number: client.ask("/app/echo", b"%d" % number))
        client.close()
        self.assertEqual([outcome for outcome in outcomes if outcome.problem or outcome.answer.status != 200], [])
        return percentile([1000 * outcome.took for outcome in outcomes], 0.99)

    def beside(self, what, text, go_on):
        """Opens slow connections, and calls `go_on(connection)` for each of them once a second."""
        self.begin()
        seconds = max(10, SECONDS // 3)

        async def run():
            alone_ms = await self.others(5)
            began, slow, grown = time.monotonic(), [], []
            for _ in range(SLOW // 50):
                slow += await asyncio.gather(*(self.open_slow(text) for _ in range(50)))
            opened_s = time.monotonic() - began

            async def drip():
                while True:
                    for number, connection in enumerate(slow):
                        with contextlib.suppress(OSError):  # it is closed, or not ready
                            go_on(connection)
                        if number % 50 == 0:
                            await asyncio.sleep(0)
                    grown.append(self.grown_mib())
                    await asyncio.sleep(1)
            dripping = asyncio.ensure_future(drip())
            await self.others(5)  # while the buffers of the sockets fill
            p99_ms = await self.others(seconds)
            dripping.cancel()
            for connection in slow:
                connection.close()
            print(f"{SLOW} slow {what}, opened in {opened_s:.1f} s: memory grew by {max(grown):.1f} MiB at most; p99 of others {p99_ms:.1f} ms, "
                  f"{alone_ms:.1f} ms without them", flush=True)
            self.assertLess(max(grown), 128)
            self.assertLess(p99_ms, 50 + 2 * alone_ms if QUIET else 5000)
        asyncio.run(run())
        # The slow requests are gone, also at the replicas.
        self.until(lambda: json.loads(self.ask_for("/other/echo")[1])["body"] == "", self.situation)

    def test_large_answers_to_fast_readers(self):
        self.begin()

        async def download(ends):
            client, count = Client(self.gateway), 0
            while not ends():
                count += len((await client.ask(f"/other/large/{64 * MIB}")).body)
            client.close()
            return count

        async def run():
            alone_ms = await self.others(5)
            seconds = max(10, SECONDS // 6)
            loads = [Background(download) for _ in range(4)]
            p99_ms = await self.others(seconds)
            count = sum(await asyncio.gather(*(asyncio.to_thread(load.stop) for load in loads)))
            print(f"four clients that read {count / MIB / seconds:.0f} MiB per second: p99 of others {p99_ms:.1f} ms, {alone_ms:.1f} ms without them", flush=True)
            self.assertLess(self.grown_mib(), 64)
            self.assertLess(p99_ms, 200 + 2 * alone_ms if QUIET else 5000)
        asyncio.run(run())

    def test_readers(self):
        self.beside("readers", f"GET /other/large/{4 * MIB} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode(), lambda connection: connection.recv(512))

    def test_writers_of_bodies(self):
        self.beside("writers of bodies", b"POST /other/echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 60000\r\n\r\n" + b"x" * 1000, lambda connection: connection.send(b"x"))

    def test_writers_of_long_bodies(self):
        self.beside("writers of long bodies", b"POST /other/echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 6000000\r\n\r\n" + b"x" * 1000,
                    lambda connection: connection.send(b"x"))

    def test_writers_of_headers(self):
        self.beside("writers of headers", b"GET /other/echo HTTP/1.1\r\nhost: localhost\r\nx-slow: ", lambda connection: connection.send(b"x"))


if __name__ == "__main__":
    unittest.main()
