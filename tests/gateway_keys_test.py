#!/usr/bin/env python3
"""Requests with keys, through a gateway to real replicas: the same key reaches the same replica, whatever is restarted, and only keys of
replicas that come or go are moved. BERTH_TEST_KEYS and BERTH_TEST_REPLICAS: how many keys and replicas (500 and 4)."""
import concurrent.futures
import http.client
import json
import os
import signal
import threading
import time
import unittest

from berth_case import needs_sqlite
from gateway_case import Gateway

BOUND = 4
KEYS = int(os.environ.get("BERTH_TEST_KEYS", "500"))
REPLICAS = int(os.environ.get("BERTH_TEST_REPLICAS", "4"))


class Keys(Gateway):
    def keyed(self, replicas, version="v1", **serving):
        return self.loaded(version=version, replicas=replicas, serving={"key": "header:x-session", **serving})

    def owners(self):
        """The replica that answers each key, such as app/0."""
        def ask(keys):
            connection = http.client.HTTPConnection("127.0.0.1", self.gateway, timeout=20)
            found = {}
            for key in keys:
                connection.request("GET", "/app/echo", headers={"x-session": key, "x-berth-explain": "1"})
                answer = connection.getresponse()
                text = answer.read()
                self.assertEqual(answer.status, 200, text)
                found[key] = answer.headers["x-berth-replica"].split("#")[0]
            connection.close()
            return found
        keys = [f"user-{i}" for i in range(KEYS)]
        all_owners = {}
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            for part in threads.map(ask, [keys[i::4] for i in range(4)]):
                all_owners.update(part)
        return all_owners

    def until_serving(self, count):
        def all_ready():
            shards = json.loads(self.command("shards", "--json").stdout)["deployments"]
            return shards and [owner.get("state") for owner in shards[0]["owners"]] == ["ready"] * count
        self.until(all_ready, lambda: self.command("shards").stdout + self.situation())
        # The gateway gets the change a moment later.
        self.until(lambda: len(set(self.owners().values())) == count, "all replicas answer")

    def assertMoved(self, before, after, expected):
        moved = {key for key in before if before[key] != after[key]}
        self.assertLessEqual(len(moved), len(expected))
        self.assertLessEqual(moved, expected, "only keys of added or removed replicas move")

    @needs_sqlite
    def test_stay_with_their_replica_through_everything_but_a_change_of_their_number(self):
        self.add_nodes("a", "b")
        self.apply(self.keyed(REPLICAS))
        self.until_serving(REPLICAS)
        first = self.owners()
        self.assertEqual(self.owners(), first)
        for key in list(first)[:5]:
            place = json.loads(self.command("why", "key", key, "--json").stdout)
            self.assertEqual(place["order"][0], {"replica": first[key], "state": "ready"})
        listed = self.command("shards")
        self.assertRegex(listed.stdout, r"app: key header:x-session, bounded.load, epoch 1, ")
        self.assertRegex(listed.stdout, r"app/0 +ready +\d+ +[\d.]+ %")

        # A replica is killed: meanwhile its keys go elsewhere, and the others stay. Once it is back, all are as before.
        of_killed = {key for key, owner in first.items() if owner == "app/1"}
        os.kill(self.replica_processes()["app/1"], signal.SIGKILL)
        self.assertMoved(first, self.owners_while_some_fail(), of_killed)
        self.until(lambda: self.owners_while_some_fail() == first, "all keys are where they were")

        # The server is killed and returns: the table is kept.
        self.server.kill()
        self.server.wait()
        self.serve()
        self.until_serving(REPLICAS)
        self.assertEqual(self.owners(), first)

        # An update replaces every process and moves no key.
        self.apply(self.keyed(REPLICAS, "v2"))
        self.until(lambda: set(self.versions()) == {"v2"}, "the update is done")
        self.until_serving(REPLICAS)
        self.assertEqual(self.owners(), first)

        # One replica more: only its share moves, to it. One less: only its keys move.
        self.apply(self.keyed(REPLICAS + 1, "v2"))
        self.until_serving(REPLICAS + 1)
        more = self.owners()
        newest = f"app/{REPLICAS}"
        self.assertMoved(first, more, {key for key, owner in more.items() if owner == newest})
        shards = json.loads(self.command("shards", "--json").stdout)["deployments"][0]
        self.assertIn(shards["shards_moved"], (4096 // (REPLICAS + 1), 4096 // (REPLICAS + 1) + 1))
        self.assertEqual(shards["epoch"], 2)
        self.apply(self.keyed(REPLICAS, "v2"))
        self.until(lambda: newest not in self.owners().values(), "the last one is gone")
        self.assertMoved(more, self.owners(), {key for key, owner in more.items() if owner == newest})

    def test_a_hot_key_never_exceeds_the_bound_while_a_replica_is_killed_and_all_are_updated(self):
        """The replicas themselves count their requests."""
        self.add_nodes("a")
        self.apply(self.keyed(3, max_concurrent=BOUND))
        self.until_serving(3)
        ends, statuses = threading.Event(), set()
        # The most requests that each replica has had at once, by version.
        most = {version: dict.fromkeys(("app/0", "app/1", "app/2"), 0) for version in ("v1", "v2")}

        def ask():
            while not ends.is_set():
                status, text, _ = self.ask_for("/app/after/20", headers={"x-session": "hot"})
                statuses.add(status)
                if status == 200:
                    answer = json.loads(text)
                    of_version = most[answer["version"]]
                    of_version[answer["replica"]] = max(of_version[answer["replica"]], answer["most_at_once"])
                time.sleep(0.01)
        with concurrent.futures.ThreadPoolExecutor(5 * BOUND) as threads:
            asking = [threads.submit(ask) for _ in range(5 * BOUND)]
            try:
                self.until(lambda: min(most["v1"].values()) >= BOUND, lambda: f"{most} {self.situation()}")
                before = self.replica_processes()["app/1"]
                os.kill(before, signal.SIGKILL)
                self.until(lambda: self.replica_processes().get("app/1", before) != before, self.situation)
                self.until_ready("app", 3)
                self.apply(self.keyed(3, "v2", max_concurrent=BOUND))
                self.until(lambda: min(most["v2"].values()) >= BOUND, lambda: f"{most} {self.situation()}")
            finally:
                ends.set()
        for each in asking:
            each.result()
        self.assertEqual([max(of_version.values()) for of_version in most.values()], [BOUND, BOUND])
        self.assertEqual(statuses - {502}, {200}, "only requests at the killed replica failed")

    def owners_while_some_fail(self):
        """Like owners(), but requests that were cut off by the death of a replica are sent again."""
        for _ in range(50):
            try:
                return self.owners()
            except AssertionError:
                continue
        self.fail("requests fail again and again")

    def refused(self, deployment):
        return self.command("apply", self.write_project(deployment))

    def versions(self):
        return [json.loads(self.ask_for("/app/echo", headers={"x-session": f"user-{i}"})[1]).get("version") for i in range(20)]

    def test_that_are_wrong_get_one_clear_sentence(self):
        self.add_nodes("a")
        self.assertRefused(self.refused(self.keyed(1, key="x-session")), 2, "does not begin with header:, cookie: or json:")
        self.assertRefused(self.refused(self.loaded(serving={"affinity": "strict"})), 2, "has an affinity but no key")
        self.apply(self.keyed(1, affinity="strict", key="json:user"))
        self.until(lambda: self.ask_for("/app/echo", '{"user":"a"}')[0] == 200, self.situation)
        status, text, _ = self.ask_for("/app/echo", "{}")
        self.assertEqual(status, 400)
        self.assertIn("need a key, and this one has none: the member", text)
        status, text, _ = self.ask_for("/app/echo", json.dumps({"user": "x" * 2000}))
        self.assertEqual(status, 400, text)
        status, text, _ = self.ask_for("/app/echo", json.dumps({"user": "x" * 1000000}))
        self.assertEqual(status, 413, text)
        self.assertRefused(self.command("why", "key", "k", "--deployment", "none"), 2, "has no keys")
        self.assertRefused(self.command("why", "key"), 2, "no key was given")


if __name__ == "__main__":
    unittest.main()
