#!/usr/bin/env python3
"""Sharded routing (S2 in docs/parity.md) for requests with keys, through a gateway to replicas that run. A replica stands for the device of the reference
module, the key of a request for the entity id, and the store's table of shards for the region."""
import collections
import concurrent.futures
import http.client
import json
import os
import signal
import time
import unittest

from berth_case import needs_sqlite
from fleet_case import is_alive
from gateway_case import Gateway, rss_bytes

SHARDS = 4096
WORD = (1 << 64) - 1
# 8 bytes each; about 30 of them share a shard with another one.
USERS = [f"user-{i:03}" for i in range(500)]


def xxh3(key):
    """The hash that docs/guide/sharding.md names xxh3_v1, for keys of 4 to 8 bytes, written from the description of the algorithm."""
    data = key.encode()
    secret = int.from_bytes(bytes.fromhex("7c01812cf721ad1c"), "little") ^ int.from_bytes(bytes.fromhex("ded46de9839097db"), "little")
    word = (int.from_bytes(data[-4:], "little") | int.from_bytes(data[:4], "little") << 32) ^ secret
    word ^= ((word << 49 | word >> 15) ^ (word << 24 | word >> 40)) & WORD
    word = word * 0x9FB21C651E98DF25 & WORD
    word = (word ^ (word >> 35) + len(data)) * 0x9FB21C651E98DF25 & WORD
    return word ^ word >> 28


def shard_of(key):
    return xxh3(key) % SHARDS


def keys_by_shard():
    found = collections.defaultdict(list)
    for key in USERS:
        found[shard_of(key)].append(key)
    return found


class Keyed(Gateway):
    """A fleet whose deployment "app" takes requests with keys."""

    def keyed(self, replicas=3, version="v1", name="app", **serving):
        return self.loaded(name, version, self.journal, replicas=replicas, serving={"key": "header:x-session", "max_concurrent": 2, **serving})

    def shards(self, name="app"):
        return next(listed for listed in json.loads(self.command("shards", "--json").stdout)["deployments"] if listed["name"] == name)

    def table(self, name="app"):
        """The owner of each shard, from the text of the table and not from the command that explains it."""
        lines = self.shards(name)["table"].splitlines()
        names = [line.split(" ", 2)[2] for line in lines if line.startswith("owner ")]
        owners = []
        for run in next(line for line in lines if line.startswith("map ")).split()[1:]:
            position, _, length = run.partition("*")
            owners += [names[int(position)]] * int(length or 1)
        self.assertEqual(len(owners), SHARDS)
        return owners

    def order_of(self, key, name="app"):
        return [place["replica"] for place in json.loads(self.command("why", "key", key, "--deployment", name, "--json").stdout)["order"]]

    def replica_of(self, key, path="/app/echo", body=None, port=None):
        """The replica that answers, according to itself and to the gateway."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.gateway, timeout=60)
        connection.request("POST" if body else "GET", path, body, {"x-session": key, "x-berth-explain": "1"})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        self.assertEqual(answer.status, 200, text)
        replica = answer.headers["x-berth-replica"].split("#")[0]
        self.assertEqual(json.loads(text)["replica"], replica)
        return replica

    def replicas_of(self, keys, **how):
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            return dict(zip(keys, threads.map(lambda key: self.replica_of(key, **how), keys)))

    def until_serving(self, count):
        """Waits until the server reports `count` replicas and the gateway has them."""
        self.until(lambda: [owner.get("state") for owner in self.shards()["owners"]] == ["ready"] * count, self.situation)
        owners = self.table()
        probes = {owner: next(key for key in USERS if owners[shard_of(key)] == owner) for owner in set(owners)}
        self.until(lambda: all(self.ask_for("/app/echo", headers={"x-session": key})[0] == 200 and self.replica_of(key) == owner
                               for owner, key in probes.items()), self.situation)

    def assertAtTheirOwners(self, keys=USERS[:60], **how):
        owners = self.table()
        self.assertEqual(self.replicas_of(keys, **how), {key: owners[shard_of(key)] for key in keys})

    def open_stream(self, key):
        """Begins a stream that lasts until it is closed. Returns its replica and its connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway, timeout=60)
        connection.request("GET", "/app/stream/100000/100", headers={"x-session": key, "x-berth-explain": "1"})
        answer = connection.getresponse()
        self.addCleanup(connection.close)
        self.assertEqual(answer.status, 200)
        self.assertTrue(answer.readline(), "the stream has begun")
        return answer.headers["x-berth-replica"].split("#")[0], connection


class Steady(unittest.TestCase):
    """Tests that share one fleet and do not change it."""

    @classmethod
    def setUpClass(cls):
        fleet = cls.fleet = Keyed()
        cls.addClassCleanup(fleet.doCleanups)
        fleet.setUp()
        fleet.add_nodes("a", "b")
        strict = fleet.app("strict", serving={"key": "json:user", "affinity": "strict"})
        no_place = {**fleet.keyed(2, name="none", on_capacity_exhausted="reject"), "cpu": False, "gpus": 64}
        fleet.apply(fleet.keyed(), fleet.keyed(1, name="single"), fleet.keyed(0, name="empty", on_capacity_exhausted="reject"), strict, no_place, wait=False, status=3)
        fleet.until_serving(3)
        fleet.until(lambda: [owner.get("state") for owner in fleet.shards("strict")["owners"]] == ["ready"] * 2, fleet.situation)
        fleet.until_answered("/strict/x", body='{"user":"user-42"}')

    def test_S2_1_a_request_is_a_key_and_what_reaches_the_replica_unchanged(self):
        body = json.dumps({"user": "user-42", "text": "x" * 50_000 + "\u00e4"}, ensure_ascii=False).encode()
        status, text, _ = self.fleet.ask_for("/strict/x", body, {"x-own": "y"})
        self.assertEqual(status, 200, text)
        got = json.loads(text)
        self.assertEqual((got["body"].encode(), {name.lower(): value for name, value in got["headers"].items()}["x-own"]), (body, "y"))

    def test_S2_2_every_deployment_has_the_same_number_of_shards(self):
        for name, replicas in (("single", 1), ("strict", 2), ("app", 3), ("none", 2)):
            listed = self.fleet.shards(name)
            self.assertEqual((listed["shards"], len(listed["owners"]), sum(owner["shards"] for owner in listed["owners"])), (SHARDS, replicas, SHARDS))

    def test_S2_3_the_shard_of_a_key_is_its_hash_modulo_their_number(self):
        for key in ("user-43", "a-key", "four", USERS[0]):
            self.assertEqual(json.loads(self.fleet.command("why", "key", key, "--deployment", "app", "--json").stdout)["shard"], shard_of(key))

    def test_S2_4_keys_need_no_replica_that_runs(self):
        # Shards are assigned to replicas that have no place yet, so that nothing moves when they get one.
        self.assertEqual([owner.get("state") for owner in self.fleet.shards("none")["owners"]], [None, None])
        self.assertEqual(sorted(self.fleet.order_of("user-42", "none")), ["none/0", "none/1"])

    def test_S2_5_the_table_can_be_inspected_and_names_the_replica_that_answers(self):
        for key in USERS[:3]:
            self.assertEqual(self.fleet.order_of(key)[0], self.fleet.replica_of(key))
            self.assertIn(f"{self.fleet.replica_of(key)} has this key", self.fleet.command("why", "key", key, "--deployment", "app").stdout)

    def test_S2_6_a_request_reaches_the_owner_of_the_shard_of_its_key(self):
        self.fleet.assertAtTheirOwners()

    def test_S2_7_keys_of_one_shard_have_one_replica(self):
        shared = [keys for keys in keys_by_shard().values() if len(keys) > 1]
        self.assertGreater(len(shared), 10)
        found = self.fleet.replicas_of([key for keys in shared for key in keys])
        self.assertTrue(all(len({found[key] for key in keys}) == 1 for keys in shared))
        self.assertEqual(len(set(found.values())), 3)

    def test_S2_8_without_a_replica_the_caller_gets_an_error_that_says_so(self):
        for name in ("none", "empty"):
            status, text, headers = self.fleet.ask_for(f"/{name}/x", headers={"x-session": "user-42"})
            self.assertEqual((status, json.loads(text)["error"]["code"]), (503, "unavailable"), text)
            self.assertIn(f"the deployment {name} has no ready replica", text)

    def test_S2_10_the_answer_comes_from_the_replica_whole_also_as_a_stream(self):
        status, text, headers = self.fleet.ask_for("/app/stream/5/1", "body", {"x-session": "user-42", "x-berth-explain": "1"})
        self.assertEqual((status, text), (200, "".join(f"data: {i} body\n\n" for i in range(5))))
        self.assertEqual(headers["x-berth-replica"].split("#")[0], self.fleet.order_of("user-42")[0])

    def test_S2_11_many_keys_spread_evenly(self):
        counts = collections.Counter(self.fleet.replicas_of(USERS).values())
        self.assertEqual(len(counts), 3)
        self.assertLess(max(counts.values()), 1.25 * len(USERS) / 3, counts)
        shards = collections.Counter(self.fleet.table()).values()
        self.assertLessEqual(max(shards) - min(shards), 1)

    def test_S2_T1_a_request_of_user_42_is_answered_by_its_owner(self):
        began = time.monotonic()
        self.assertEqual(self.fleet.replica_of("user-42"), self.fleet.table()[shard_of("user-42")])
        self.fleet.assertQuick(time.monotonic() - began, 2)

    def test_S2_F2_keys_of_one_shard_have_the_same_alternatives_in_the_same_order(self):
        orders = set()
        for keys in [keys for keys in keys_by_shard().values() if len(keys) > 1][:4]:
            first, second = (tuple(self.fleet.order_of(key)) for key in keys[:2])
            self.assertEqual(first, second)
            self.assertEqual(len(set(first)), 3)
            orders.add(first)
        self.assertGreater(len(orders), 1)

    def test_S2_F3_the_table_names_a_hash_whose_values_are_published(self):
        self.assertEqual(self.fleet.shards()["table"].splitlines()[:3], ["berth-shards 1", "hash xxh3_v1", f"shards {SHARDS}"])
        self.assertEqual((xxh3("user-42"), xxh3("user-43")), (0x50fe4b21cf7b09cd, 0xd6b45322b863a898))
        self.assertEqual(json.loads(self.fleet.command("why", "key", "user-42", "--deployment", "app", "--json").stdout)["shard"], 0x50fe4b21cf7b09cd % SHARDS)

    def test_S2_F4_a_request_with_two_keys_is_refused_and_only_its_key_decides(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.fleet.gateway, timeout=20)
        self.addCleanup(connection.close)
        for second in ("user-43", "user-42"):
            connection.putrequest("GET", "/app/echo")
            connection.putheader("x-session", "user-42")
            connection.putheader("X-Session", second)
            connection.endheaders()
            answer = connection.getresponse()
            text = answer.read().decode()
            self.assertEqual(answer.status, 400, text)
            self.assertIn('several headers \\"x-session\\"', text)
        owner = self.fleet.order_of("user-42")[0]
        other = next(name for name in self.fleet.order_of("user-42") if name != owner)
        status, text, _ = self.fleet.ask_for("/app/echo", headers={"x-session": "user-42", "x-berth-to": other, "x-berth-replica": other, "cookie": "x-session=user-43"})
        self.assertEqual((status, json.loads(text)["replica"]), (200, owner))

    def test_S2_F5_odd_and_missing_keys_are_answered_and_counted(self):
        before = self.rejected("strict", "invalid_argument")
        bodies = ("{}", '{"user":"user-42","user":"user-43"}', '{"user":""}', '{"user":null}', '{"user":["a"]}', '{"other":"a"}', "not JSON", '{"user":"%s"}' % ("x" * 1025))
        for body in bodies:
            status, text, _ = self.fleet.ask_for("/strict/x", body)
            self.assertEqual((status, json.loads(text)["error"]["code"]), (400, "invalid_argument"), body[:50])
        for body, expected in (('{"user":"a\\u0000b"}', 200), ('{"user":"%s"}' % ("x" * 1024), 200), ('{"user":42}', 200), ('{"user":"a\0b"}', 400), ('{"user":"%s"}' % ("x" * 1_000_000), 413)):
            self.assertEqual(self.fleet.ask_for("/strict/x", body)[0], expected, body[:50])
        self.fleet.until(lambda: self.rejected("strict", "invalid_argument") == before + len(bodies) + 1, lambda: self.fleet.ask("GET", "/metrics")[2])
        for key, expected in (("", 200), ("x" * 1024, 200), ("x" * 1025, 400), ("\u00e4", 200)):
            self.assertEqual(self.fleet.ask_for("/app/echo", headers={"x-session": key.encode()})[0], expected, key[:50])

    def rejected(self, deployment, reason):
        labels = (f'deployment="{deployment}"', f'reason="{reason}"')
        lines = [line for line in self.fleet.ask("GET", "/metrics")[2].splitlines() if line.startswith("berth_requests_rejected_total{")]
        return sum(float(line.split()[-1]) for line in lines if all(label in line for label in labels))

    def test_S2_F10_a_gateway_remembers_no_keys(self):
        gateway = self.fleet.process_of("berth gateway ")

        def send(prefix, count):
            connection = http.client.HTTPConnection("127.0.0.1", self.fleet.gateway, timeout=60)
            for i in range(count):
                connection.request("GET", "/app/echo", headers={"x-session": f"{prefix}-{i}-" + "x" * 1000})
                answer = connection.getresponse()
                answer.read()
                self.assertEqual(answer.status, 200)
            connection.close()
        send("first", 1000)
        before = rss_bytes(gateway)
        send("other", 6000)
        self.assertLess(rss_bytes(gateway) - before, 3_000_000, "less than half of the size of all keys")

    def test_S2_F11_each_request_runs_once_at_the_replica_that_its_answer_names(self):
        found = {key: self.fleet.replica_of(key, body=f"{key} once") for key in USERS[:10]}
        processes = self.fleet.replica_processes()
        for key, replica in found.items():
            seen = {int(file.name): lines.count(f"{key} once") for file in self.fleet.journal.iterdir() if f"{key} once" in (lines := file.read_text().splitlines())}
            self.assertEqual(seen, {processes[replica]: 1}, key)


class Changing(Keyed):
    @needs_sqlite
    def test_S2_9_a_key_has_the_same_replica_after_everything_was_restarted(self):
        nodes = self.add_nodes("a", "b")
        self.apply(self.keyed())
        self.until_serving(3)
        before = self.shards()["table"]
        self.server.kill()
        self.server.wait()
        os.kill(self.process_of("berth gateway "), signal.SIGKILL)
        for pid in self.replica_processes().values():
            os.kill(pid, signal.SIGKILL)
        for node in nodes:
            node.kill()
        self.serve()
        for node in nodes:
            node.start()
        self.until_healthy("a", "b")
        self.until_serving(3)
        self.assertEqual(self.shards()["table"], before)
        self.assertAtTheirOwners()

    def test_S2_F1_a_replica_more_moves_its_share_and_one_less_moves_only_what_it_had(self):
        self.add_nodes("a", "b")
        self.apply(self.keyed(3))
        self.until_serving(3)
        three = self.table()
        self.apply(self.keyed(4))
        self.until_serving(4)
        four = self.table()
        moved = {owner for owner, before in zip(four, three) if owner != before}
        self.assertEqual((moved, sum(a != b for a, b in zip(three, four))), ({"app/3"}, SHARDS // 4))
        self.assertAtTheirOwners()
        self.apply(self.keyed(3))
        self.until_serving(3)
        self.assertTrue(all(after == before for after, before in zip(self.table(), four) if before != "app/3"))
        self.assertAtTheirOwners()

    def test_S2_F6_all_gateways_agree_on_the_owners_of_an_epoch(self):
        trust = self.make_certificate()
        self.add_nodes("a", "b")
        self.apply(self.keyed(2))
        self.until_serving(2)
        _, port = self.start_edge()

        def at_the_edge(key):
            connection = http.client.HTTPSConnection("localhost", port, timeout=60, context=trust)
            try:
                connection.request("GET", "/app/echo", headers={"x-session": key})
                answer = connection.getresponse()
                return json.loads(answer.read())["replica"] if answer.status == 200 else answer.status
            except OSError as error:
                return str(error)
            finally:
                connection.close()

        def agree():
            owners = self.table()
            return all(at_the_edge(key) == self.replica_of(key) == owners[shard_of(key)] for key in USERS[:40])
        self.until(agree, lambda: f"{at_the_edge('user-42')} {self.situation()}")
        self.assertEqual(self.shards()["epoch"], 1)
        self.apply(self.keyed(3))
        self.until_serving(3)
        self.until(agree, self.situation)
        self.assertEqual(self.shards()["epoch"], 2)

    def test_S2_F7_a_hot_key_spills_to_the_next_replicas_in_a_fixed_order_and_never_above_the_bound(self):
        self.add_nodes("a", "b")
        self.apply(self.keyed(3, on_capacity_exhausted="reject"))
        self.until_serving(3)
        order = self.order_of("user-42")
        for _ in range(2):
            streams = [self.open_stream("user-42") for _ in range(6)]
            self.assertEqual([replica for replica, _ in streams], [replica for replica in order for _ in range(2)])
            status, text, headers = self.ask_for("/app/echo", headers={"x-session": "user-42"})
            self.assertEqual((status, "retry-after" in headers), (429, True), text)
            # A stream that ends makes room at the owner.
            streams[0][1].close()
            self.until(lambda: self.ask_for("/app/echo", headers={"x-session": "user-42"})[0] == 200, self.situation)
            self.assertEqual(self.replica_of("user-42"), order[0])
            for _, connection in streams[1:]:
                connection.close()
            self.until(lambda: [self.ask_for("/app/echo", headers={"x-session": key})[0] for key in USERS[:9]] == [200] * 9, self.situation)
            self.until(lambda: sum(replica["in_flight"] for replica in self.replicas_shown()) == 0, self.situation)

    def replicas_shown(self):
        return [replica for deployment in self.get("endpoints")["deployments"] for replica in deployment["endpoints"] if "in_flight" in replica]

    def test_S2_F8_the_order_of_nodes_and_deployments_decides_nothing(self):
        nodes = self.add_nodes("a", "b")
        self.apply(self.keyed(), self.keyed(1, name="other"))
        self.until_serving(3)
        before = self.shards()["table"]
        for node in nodes:
            node.kill()
        self.apply(self.keyed(1, name="other"), self.keyed(), wait=False)
        for node in reversed(nodes):
            node.start()
        self.add_nodes("c")
        # Replicas move to other nodes and keep their keys.
        self.assertEqual(self.command("drain", "node/a").returncode, 0)
        self.until_ready("app", 3, lambda replica: replica["node"] in ("b", "c"))
        self.until_serving(3)
        self.assertEqual(self.shards()["table"], before)
        self.assertAtTheirOwners()

    def test_S2_F9_a_replica_that_cannot_serve_receives_nothing_and_its_keys_come_back_to_it(self):
        self.add_nodes("a", "b")
        self.apply(self.keyed(3))
        self.until_serving(3)
        owners = self.table()
        mine = [key for key in USERS[:100] if owners[shard_of(key)] == "app/1"][:5]
        orders = {key: self.order_of(key) for key in mine}
        # The agent is stopped, so that it does not restart the replica.
        node = self.replicas("app")[1]["node"]
        os.kill(self.nodes[node].agent.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, self.nodes[node].agent.pid, signal.SIGCONT)
        killed = self.replica_processes()["app/1"]
        os.kill(killed, signal.SIGKILL)
        self.until(lambda: not is_alive(killed), "it is dead")
        # A request that was cut off by the death of the replica gets 502.
        self.until(lambda: self.ask_for("/app/echo", headers={"x-session": mine[0]})[0] == 200, self.situation)
        for key in mine:
            self.assertEqual(self.replica_of(key), orders[key][1])
        os.kill(self.nodes[node].agent.pid, signal.SIGCONT)
        self.until_serving(3)
        self.assertEqual(self.table(), owners)
        self.assertAtTheirOwners(mine)


if __name__ == "__main__":
    unittest.main()
