#!/usr/bin/env python3
"""A gateway under steady load, a quarter of it streams, on real processes.

While a node drains, an update runs, the server is killed, an agent restarts and a gateway takes the place of another, every request is answered exactly once and with the right
content, and no stream is cut. Where a replica, a relay or the gateway itself is killed, what was under way there fails as docs/operate/gateway.md says, and nothing else.

usage: tests/gateway_storm.py BERTH ROOT DOUBLE [SECONDS [RATE]]   by default 120 seconds and 200 requests per second"""
import collections
import json
import os
import re
import signal
import sys
import time
import unittest

SECONDS = int(sys.argv.pop(4)) if len(sys.argv) > 4 else 120
RATE = int(sys.argv.pop(4)) if len(sys.argv) > 4 else 200

from berth_case import QUIET  # noqa: E402  (reads the arguments)
from fleet_case import is_alive  # noqa: E402
from gateway_case import Gateway  # noqa: E402
from http_load import Background, Client, at_rate  # noqa: E402

EVENTS, EVENT_MS = 20, 50
# The time until closed connections are noticed after a process died; requests may still go there.
NOTICED_S = 1 if QUIET else 10
HANGS_S = 30


def is_stream(number):
    return number % 4 == 0


def body_of(number):
    return b'{"number": %d}' % number


def wrong(outcome):
    """What is wrong with the answer, or an empty text if it is right and complete."""
    if outcome.problem:
        return outcome.problem
    if outcome.answer.status != 200:
        return f"status {outcome.answer.status}: {outcome.answer.body.decode(errors='replace').strip()}"
    sent = body_of(outcome.number)
    if is_stream(outcome.number):
        is_right = outcome.answer.body == b"".join(b"data: %d %s\n\n" % (event, sent) for event in range(EVENTS))
    else:
        is_right = json.loads(outcome.answer.body)["body"].encode() == sent
    return "" if is_right else f"answered with something else: {outcome.answer.body[:200]}"


def counted_as(status, why=""):
    """The outcome under which a gateway counts what a client saw."""
    return "failed" if status == 502 or why.startswith("cut") else "2xx" if status == 200 else "rejected"


class Storm(Gateway):
    def setUp(self):
        self.asked = []  # requests besides the load: time and status
        super().setUp()

    def ask_for(self, *words, **more):
        answer = super().ask_for(*words, **more)
        self.asked.append((time.monotonic(), answer[0]))
        return answer

    def begin(self, **more):
        """Starts four replicas on two nodes, and load on them."""
        self.acts = []  # what changed the fleet, and since when
        self.seen = self.folder / "seen"
        self.seen.mkdir()
        self.add_nodes("a", "b")
        self.deployment = {"replicas": 4, "spread": "spread", "serving": {"max_concurrent": 64}, **more}
        self.update("v1")
        self.until_answered("/app/echo", 4)
        for file in self.seen.iterdir():
            os.truncate(file, 0)
        self.load = Background(self.run_load)
        self.addCleanup(self.load.ends.set)
        time.sleep(2)

    def update(self, version):
        self.apply(self.loaded(version=version, journal=self.seen, **self.deployment))

    async def run_load(self, ends):
        client = Client(self.gateway)

        async def ask(number):
            path = f"/app/stream/{EVENTS}/{EVENT_MS}" if is_stream(number) else "/app/echo"
            return await client.ask(path, body_of(number), {"x-berth-explain": "1"})
        try:
            return await at_rate(RATE, ends, ask, HANGS_S)
        finally:
            client.close()

    def end(self):
        """Ends the load. Returns all outcomes, and those that are wrong."""
        outcomes = self.load.stop()
        self.assertGreater(len(outcomes), 0)
        return outcomes, [(outcome, why) for outcome in outcomes if (why := wrong(outcome))]

    def assertCounted(self, outcomes, failed):
        """Checks that the metrics of the gateway agree with its clients."""
        problems = {outcome.number: why for outcome, why in failed}
        seen = collections.Counter(counted_as(outcome.answer.status, problems.get(outcome.number, "")) for outcome in outcomes)
        seen += collections.Counter(counted_as(status) for _, status in self.asked)
        self.until(lambda: self.counts() == seen, lambda: f"the gateway counts {self.counts()}, its clients saw {seen}")

    def counts(self):
        return collections.Counter({outcome: int(self.metric("berth_requests_total", outcome=outcome) or 0)
                                    for outcome in ("2xx", "3xx", "4xx", "5xx", "rejected", "failed", "abandoned")}) + collections.Counter()

    def times_begun(self):
        """How often a replica took each request."""
        return collections.Counter(json.loads(line)["number"] for file in self.seen.iterdir() for line in file.read_text().splitlines())

    def until_all_answer(self):
        seen = set()

        def answering():
            status, text, _ = self.ask_for("/app/echo")
            if status == 200:
                seen.add(json.loads(text)["replica"])
            return len(seen) == 4
        self.until(answering, lambda: f"{seen} {self.situation()}")

    def print_counts(self, what, outcomes, failed):
        kinds = collections.Counter(("stream " if is_stream(outcome.number) else "request ") + re.sub(r" after \d+ bytes|:.*", "", why, flags=re.S)
                                    for outcome, why in failed)
        short = sorted((outcome for outcome in outcomes if not is_stream(outcome.number)), key=lambda outcome: outcome.took)
        print(f"{what}: {len(outcomes)} requests, {len(failed)} not answered in full {dict(kinds) if kinds else ''}, "
              f"median {1000 * short[len(short) // 2].took:.0f} ms, longest {1000 * short[-1].took:.0f} ms", flush=True)
        for outcome in short[:-4:-1]:
            headers = outcome.answer.headers if outcome.answer else {}
            act = next((name for since, name in reversed(self.acts) if since <= outcome.due), "no change yet")
            print(f"  {1000 * outcome.took:.0f} ms in {act}, replica {headers.get('x-berth-replica')}, waited {headers.get('x-berth-wait-ms')} ms", flush=True)


class Planned(Storm):
    def drain_a_node(self):
        self.assertEqual(self.command("drain", "node/b").returncode, 0)
        self.until_ready("app", 4, lambda replica: replica["node"] == "a")
        self.assertEqual(self.command("uncordon", "node/b").returncode, 0)

    def update_all(self):
        self.version += 1
        self.update(f"v{self.version}")
        self.until_ready("app", 4)

    def kill_the_server(self):
        self.server.kill()
        self.server.wait()
        time.sleep(3)
        self.serve()
        self.until_healthy("a", "b")

    def restart_an_agent(self):
        self.nodes["a"].kill()
        time.sleep(1)
        self.nodes["a"].start()
        self.until_healthy("a")

    def replace_the_gateway(self):
        self.replace_gateway()

    version = 1

    def test_nothing_is_lost_and_no_stream_is_cut(self):
        self.begin()
        began, done = time.monotonic(), collections.Counter()
        while time.monotonic() - began < SECONDS or not done:
            for act in (self.drain_a_node, self.update_all, self.kill_the_server, self.restart_an_agent, self.replace_the_gateway):
                self.acts.append((time.monotonic(), act.__name__))
                act()
                done[act.__name__] += 1
                time.sleep(1)
        outcomes, failed = self.end()
        self.print_counts(str(dict(done)), outcomes, failed)
        self.assertEqual([(outcome.number, why) for outcome, why in failed], [])
        begun = self.times_begun()
        self.assertEqual({number: times for number, times in begun.items() if times != 1}, {}, "a request reached two replicas")
        self.assertEqual(len(begun), len(outcomes))


class Killed(Storm):
    def strike(self, *pids):
        """Kills the processes; returns the time."""
        at = time.monotonic()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return at

    def assertOnlyThere(self, failed, at, until, is_from_there):
        """Checks that only requests at the killed processes failed, and that none hung."""
        for outcome, why in failed:
            self.assertNotIn("no complete answer", why, "a request hung")
            self.assertLess(outcome.due, until, f"a later request failed too: {why}")
            self.assertLess(outcome.due + outcome.took, until + HANGS_S, why)
            self.assertGreater(outcome.due + outcome.took, at - 0.5, f"failed before: {why}")
            self.assertTrue(is_from_there(outcome, why), (outcome, why))

    def from_replicas(self, names):
        """A stream of one of them that was cut, or a 502 that names it."""
        def is_from_there(outcome, why):
            replica = outcome.answer.headers.get("x-berth-replica", "") if outcome.answer else ""
            if why.startswith("cut"):
                return is_stream(outcome.number) and replica.split("#")[0] in names
            return why.startswith("status 502") and any(name + "#" in why for name in names)
        return is_from_there

    def kill_a_replica(self, idempotent):
        self.begin(idempotent=idempotent)
        name, pid = sorted(self.replica_processes().items())[0]
        at = self.strike(pid)
        self.until(lambda: self.replica_processes().get(name, pid) != pid, self.situation)
        time.sleep(3)
        outcomes, failed = self.end()
        self.print_counts(f"a replica was killed{', idempotent' if idempotent else ''}", outcomes, failed)
        self.assertOnlyThere(failed, at, at + NOTICED_S, self.from_replicas([name]))
        self.assertTrue([outcome for outcome, why in failed if why.startswith("cut")], "no stream was cut: the replica had none")
        self.assertCounted(outcomes, failed)
        sent_again = sum(times - 1 for times in self.times_begun().values())
        self.assertGreaterEqual(self.metric("berth_request_retries_total", deployment="app") or 0, sent_again)
        return outcomes, failed

    def test_a_replica(self):
        self.kill_a_replica(idempotent=False)
        self.assertEqual(max(self.times_begun().values()), 1, "a request that had begun was sent again")

    def test_a_replica_of_an_idempotent_deployment(self):
        _, failed = self.kill_a_replica(idempotent=True)
        self.assertEqual([why for outcome, why in failed if not why.startswith("cut")], [], "a request without an answer was not sent again")
        self.assertLessEqual(max(self.times_begun().values()), 2)

    def test_a_relay(self):
        self.begin()
        relay = self.process_of("berth relay ", "/a/")
        names = [f"app/{number}" for number, replica in self.replicas("app").items() if replica["node"] == "a"]
        at = self.strike(relay)
        self.until(lambda: any("relay" in line and "/a/" in line for line in self.processes().values()), self.situation)
        self.until_all_answer()
        outcomes, failed = self.end()
        self.print_counts("a relay was killed", outcomes, failed)
        self.assertOnlyThere(failed, at, at + NOTICED_S, self.from_replicas(names))
        self.assertTrue(failed, "nothing was under way at this relay")
        self.assertCounted(outcomes, failed)

    def test_the_gateway(self):
        self.begin()
        gateway = self.process_of("berth gateway ")
        at = self.strike(gateway)
        self.until(lambda: not is_alive(gateway), "it is killed")
        gone = time.monotonic()
        self.until(lambda: self.is_answered("/app/echo"), self.situation)
        back = time.monotonic()
        self.until_all_answer()
        time.sleep(3)
        outcomes, failed = self.end()
        self.print_counts(f"the gateway was killed and was back after {back - at:.1f} s", outcomes, failed)
        self.assertOnlyThere(failed, at, back, lambda outcome, why: not why.startswith("status") or "has no contact with its server yet" in why)
        # The next gateway counts from zero: requests that began since, and none that ended before.
        problems = {outcome.number: why for outcome, why in failed}
        probes = [status for when, status in self.asked if when > gone]
        least = sum(outcome.due > gone and outcome.number not in problems for outcome in outcomes) + probes.count(200)
        most = sum(outcome.due + outcome.took > at and outcome.number not in problems for outcome in outcomes) + probes.count(200)
        self.until(lambda: least <= self.counts()["2xx"] <= most, lambda: f"{self.counts()}, and clients saw {least} to {most} answers")
        self.assertEqual(self.counts()["rejected"], len(probes) - probes.count(200) + sum(why.startswith("status 503") for why in problems.values()))
        self.assertEqual(self.counts()["failed"], 0)


if __name__ == "__main__":
    unittest.main()
