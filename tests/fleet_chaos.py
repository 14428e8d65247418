"""Chaos on real processes: machines in network namespaces of their own under kills, stops, cuts, slow links, full disks, a node
that lies and a hostile user, several at once. At any time:

  - a `single` replica never runs twice, and no GPU or byte is promised twice;
  - what the server accepted is never lost;
  - a decision about an honest node takes at most 5 s while the server and its disk work.

  fleet_chaos.py BERTH ROOT DOUBLE [SECONDS [SEED]]   by default 600 seconds and a new seed, which is printed
"""
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
import unittest

from fleet_case import in_own_mounts, is_alive
from fleet_faults_test import HEAD, PORT, Networked
from berth_case import GIB, ROOT

SECONDS = int(sys.argv.pop(1)) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 600
SEED = int(sys.argv.pop(1)) if len(sys.argv) > 1 and sys.argv[1].isdigit() else random.SystemRandom().randrange(1 << 32)
DECISION_SECONDS_MAX = 5
STRANGER = 5001

# A node with a valid credential that reports devices of other nodes, flips its own devices, and forges names and holders.
LIAR = """
import http.client, json, random, ssl, sys, time
host, port, token, seed, devices = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5].split(",")
dice, context, number = random.Random(seed), ssl._create_unverified_context(), 0
def post(path, body, token):
    connection = http.client.HTTPSConnection(host, port, timeout=5, context=context)
    connection.request("POST", "/api/v1/agent/" + path, json.dumps(body), {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
    answer = connection.getresponse().read()
    connection.close()
    return answer
credential = json.loads(post("join", {"node": "liar"}, token))["token"]
while True:
    number += 1
    gpus = [{"id": one, "backend": "cuda", "health": dice.choice(["lost", "healthy"]), "memory_bytes_total": 1 << 36} for one in devices]
    gpus += [{"id": f"GPU-{one}", "backend": "cuda", "health": dice.choice(["lost", "healthy"]), "memory_bytes_total": 1 << 36} for one in range(dice.choice([1, 200]))]
    lease = {"id": 1, "node": "a", "user": "root", "command": "x" * 500, "devices": [None]}
    shown = [{"id": devices[0], "holders": [None]}, {"holders": [None]}, None, dice.random()]
    body = {"agent": "liar", "version": "0", "boot": "b", "now_at_ms": dice.choice([1, 1 << 60]), "number": number, "epoch": 1, "revision": 1,
            "inventory": {"node": {"name": dice.choice(["liar", "a"]), "cpus": 8, "memory": 1 << 36}, "devices": gpus, "links": []},
            "devices": shown, "leases": [lease], "jobs": [None],
            "replicas": [{"deployment": "one", "replica": 0, "generation": dice.randrange(1 << 40), "state": "ready"}]}
    if dice.random() < 0.3:
        body = dice.choice([{}, {**body, "replicas": None}, {**body, "epoch": 1 << 63}])
    try:
        post("report", body, credential)
    except (OSError, http.client.HTTPException):
        pass
    time.sleep(dice.uniform(0.05, 0.5))
"""

# A user of a node: holds the ledger's lock in bursts, takes a lease on its own ledger file, and leaves rubbish there.
HOSTILE_USER = """
import fcntl, os, random, sys, time
folder, seed = sys.argv[1], int(sys.argv[2])
dice = random.Random(seed)
fcntl_setlease, write_lease, unlock = 1024, 1, 2
while True:
    trick = dice.choice(["lock", "lease", "rubbish"])
    if trick == "lock":
        held = os.open(folder, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
        time.sleep(dice.uniform(0.2, 1.4))
        os.close(held)
    elif trick == "lease":
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            try:
                if os.stat(path).st_uid == os.geteuid():
                    held = os.open(path, os.O_RDWR)
                    fcntl.fcntl(held, fcntl_setlease, write_lease)
                    time.sleep(dice.uniform(0.2, 1.4))
                    os.close(held)
                    break
            except OSError:
                pass
    else:
        for number in range(200):
            # The usual name of its file, or that of a further one.
            ending = dice.choice(["", f"-{dice.randrange(1 << 20):016x}"])
            with open(os.path.join(folder, f"berth-ledger-{os.geteuid()}{ending}"), "wb") as file:
                file.write(dice.randbytes(100))
    time.sleep(dice.uniform(0.5, 2))
"""


class Chaos(Networked):
    single = {"single": True, "stop_after": "5s", "stop_grace": "1s", "replace_after": "8s"}

    def serve(self, *options):
        self.disk = self.folder / "disk"
        if not self.disk.exists():
            self.small_disk(self.disk, "8m")
        super().serve("--store", f"sqlite:{self.disk}/store.db", "--create", *options)

    def helper(self, name, text, *arguments, prefix=()):
        """Runs a program until the test ends."""
        path = self.folder / f"{name}.py"
        path.write_text(text)
        path.chmod(0o644)
        with (self.folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen([*prefix, sys.executable, "-SE", str(path), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.started.append(process)
        return process

    def place(self, node):
        super().place(node)
        file = node.folder / "agent.toml"
        file.write_text('labels = { place = "honest" }\n')
        node.options += ["--agent-file", str(file)]
        if node.name == "slow":
            forwarder = (ROOT / "tests" / "forwarder.py").read_text()
            self.helper("slow_link", forwarder, 9443, HEAD, PORT, 0.4, self.dice.randrange(1 << 32), prefix=node.prefix)
            self.until((self.folder / "slow_link.log").read_text, "the slow link listens")
            node.url = "https://127.0.0.1:9443"

    @contextlib.contextmanager
    def disturbed_server(self):
        """Decisions that overlap with this are not timed."""
        self.server_disturbances += 1
        try:
            yield
        finally:
            self.server_disturbances += 1

    # Faults: each takes its victim down for a while and then mends it.

    def kill_agent(self, dice, node):
        node.kill()
        time.sleep(dice.uniform(0, 8))
        node.start()

    def stop_agent(self, dice, node):
        node.agent.send_signal(signal.SIGSTOP)
        time.sleep(dice.uniform(0.5, 12))
        node.agent.send_signal(signal.SIGCONT)

    def cut_link(self, dice, node):
        self.set_link(node.name, "down")
        time.sleep(dice.uniform(1, 15))
        self.set_link(node.name, "up")

    def blackhole(self, dice, node):
        self.inside(node.network, "ip", "route", "add", "blackhole", f"{HEAD}/32")
        time.sleep(dice.uniform(1, 15))
        self.inside(node.network, "ip", "route", "delete", "blackhole", f"{HEAD}/32")

    def fill_disk_of_agent(self, dice, node):
        filler = self.fill(node.runtime)
        time.sleep(dice.uniform(1, 8))
        filler.unlink()

    def kill_server(self, dice, _):
        with self.disturbed_server():
            self.server.kill()
            self.server.wait()
            time.sleep(dice.uniform(0, 6))
            self.serve()

    def stop_server(self, dice, _):
        with self.disturbed_server():
            self.server.send_signal(signal.SIGSTOP)
            time.sleep(dice.uniform(0.5, 8))
            self.server.send_signal(signal.SIGCONT)

    def fill_disk_of_server(self, dice, _):
        with self.disturbed_server():
            filler = self.fill(self.disk)
            time.sleep(dice.uniform(1, 6))
            filler.unlink()

    def kill_replica(self, dice, _):
        alive = [pid for deployment in ("web", "one", "probe") for pids in self.pids(deployment).values() for pid in pids]
        if alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(dice.choice(alive), signal.SIGKILL)
        time.sleep(dice.uniform(0, 3))

    # Users.

    def operate(self, dice, ends):
        """Applies one change after the other, and measures how long the server takes to act on those that it accepted: until a
        replica of the new revision has a place. Honest nodes have room for the probe at any time; a rollout may wait for the end
        of what was told to stop, but not for a node that is silent or does not do what it is told."""
        while not ends.is_set():
            self.attempted += 1
            disturbances = self.server_disturbances
            began = time.monotonic()
            answer = self.command("apply", self.write_project(
                self.web(replicas=dice.randint(1, 5), text=f"v{dice.randint(1, 3)}", replace_after="6s"), self.web("one", **self.single),
                {**self.web("probe", text=f"n{self.attempted}", node_selector={"place": "honest"}), "gpus": 0, "cpu": True}))
            if answer.returncode in (0, 3):  # 3: accepted, but not all of it fits now
                self.accepted = self.attempted
                revision = self.quietly(lambda: self.get("deployments/probe")["deployment"]["revision"])
                seen = ""
                while revision and not ends.is_set():
                    replicas = self.quietly(lambda: self.get("replicas?deployment=probe")["replicas"])
                    took = time.monotonic() - began
                    if self.server_disturbances != disturbances:
                        break
                    if replicas and any(replica["revision"] == revision for replica in replicas):
                        self.decisions.append(took)
                        if took > DECISION_SECONDS_MAX:
                            self.wrong.append(f"the decision on apply {self.attempted} took {took:.1f} s; before it, there was {seen or 'no other answer'}")
                        break
                    if took > 30:
                        self.wrong.append(f"no decision on apply {self.attempted} within 30 s:{self.situation()}")
                        break
                    if replicas:
                        seen = [(row["name"], row["generation"], row["revision"], row["node"], row["state"]) for row in replicas]
                    time.sleep(0.05)
            ends.wait(dice.uniform(0.5, 4))

    def check_accepted(self, ends):
        while not ends.wait(0.5):
            accepted = self.accepted  # before the server is asked
            command = self.quietly(lambda: self.get("deployments/probe")["deployment"]["spec"]["command"])
            if command:
                self.looks += 1
                if not accepted <= int(command[-1][1:]) <= self.attempted:
                    self.wrong.append(f"apply {accepted} was accepted, but the server has {command[-1]} of {self.attempted}")

    def quietly(self, question):
        """The answer, or None if the server does not answer now."""
        try:
            return question()
        except (OSError, AssertionError, ValueError, KeyError):
            return None

    def guarded(self, what, *arguments):
        """A thread whose failure makes the test fail."""
        def body():
            try:
                what(*arguments)
            except Exception as error:  # noqa: any failure counts
                self.wrong.append(f"{what.__name__}: {type(error).__name__} {error}")
        thread = threading.Thread(target=body)
        thread.start()
        return thread

    def test_everything_at_once(self):
        print(f"fleet_chaos: {SECONDS} s, seed {SEED}", flush=True)
        dice = self.dice = random.Random(SEED)
        self.wrong, self.decisions, self.attempted, self.accepted, self.looks, self.server_disturbances = [], [], 0, 0, 0, 0
        small = self.folder / "small-disk"
        self.small_disk(small, "4m")
        nodes = {"a": self.add_node("a"), "b": self.add_node("b"), "slow": self.add_node("slow"), "small": self.add_node("small", runtime=small)}
        self.until_healthy(*nodes)
        shared = nodes["b"].runtime  # for all users of that machine
        shared.chmod(0o1777)
        os.chmod(self.folder, 0o755)
        devices = [device["id"] for node in self.get("nodes")["nodes"] for device in node["devices"]]
        liar = self.helper("liar", LIAR, HEAD, PORT, self.token("join"), dice.randrange(1 << 32), ",".join(devices), prefix=self.into(self.link("liar")))
        hostile = self.helper("hostile_user", HOSTILE_USER, shared, dice.randrange(1 << 32), prefix=("setpriv", f"--reuid={STRANGER}", "--clear-groups"))
        # Another user may hold the ledger of b for a while; the disk of small may be full.
        wrong_in_ledgers, stop_watching = self.watch_ledgers(80 * GIB, may_fail=("b", "small"))
        ends = threading.Event()
        people = [self.guarded(self.operate, random.Random(dice.random()), ends), self.guarded(self.check_accepted, ends)]
        of_nodes = [self.kill_agent, self.stop_agent, self.cut_link, self.blackhole]
        of_server = [self.kill_server, self.stop_server, self.fill_disk_of_server, self.kill_replica, self.kill_replica, self.kill_replica]
        counts, busy, deadline = {}, {}, time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            busy = {victim: thread for victim, thread in busy.items() if thread.is_alive()}
            # Node a stays well, and of the others at most two are down at a time.
            victims = [name for name in ("b", "slow", "small", "server") if name not in busy]
            if len(busy) < 3 and victims:
                victim = dice.choice(victims)
                choices = of_server if victim == "server" else of_nodes + ([self.fill_disk_of_agent] if victim == "small" else [])
                fault = dice.choice(choices)
                counts[fault.__name__] = counts.get(fault.__name__, 0) + 1
                busy[victim] = self.guarded(fault, random.Random(dice.random()), nodes.get(victim))
            time.sleep(dice.uniform(0.2, 2.5))
        for thread in busy.values():
            thread.join()
        ends.set()
        for thread in people:
            thread.join()
        for helper, name in (liar, "liar"), (hostile, "hostile_user"):
            self.assertIsNone(helper.poll(), f"{name} ended early: " + (self.folder / f"{name}.log").read_text()[-1000:])
        # The operators remove the lying node, which never runs or ends its replicas. Then the fleet recovers.
        liar.kill()
        self.until_healthy(*nodes)
        self.until(lambda: self.command("delete", "node/liar").returncode == 0, self.situation, 120)
        self.apply(self.web(replicas=3, text="end"), self.web("one", **self.single), wait=False)
        self.until_ready("web", 3)
        self.until_ready("one", 1)
        stop_watching()
        lives = self.lives("one")
        for earlier, later in zip(lives, lives[1:]):
            if earlier[3] >= later[2]:
                self.wrong.append(f"a single replica lived twice at once: {earlier} {later}")
        print(f"fleet_chaos: faults {counts}; {self.attempted} applies, {self.accepted} the last accepted; {len(self.decisions)} decisions timed, "
              f"the longest {max(self.decisions, default=0):.2f} s; {self.looks} looks at what was accepted; {len(lives)} lives of the single replica; seed {SEED}",
              flush=True)
        self.assertEqual((self.wrong, wrong_in_ledgers), ([], []), f"seed {SEED}")
        self.assertGreater(len(self.decisions), SECONDS // 30, f"seed {SEED}: too few decisions were timed")
        self.assertGreater(self.looks, SECONDS // 10, f"seed {SEED}: the server hardly ever answered")


if __name__ == "__main__":
    in_own_mounts("fleet_chaos")
    unittest.main(verbosity=1)
