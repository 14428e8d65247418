"""A fleet under faults: every machine in a network namespace of its own, TLS between them, links that go down, disks that
are full, clocks that are wrong.

  fleet_faults_test.py BERTH ROOT DOUBLE [all]   all: also the long tests, which run in `make nightly`
"""
import os
import pathlib
import random
import subprocess
import sys
import threading
import time
import types
import unittest

from fleet_case import Fleet, Node, in_own_mounts, is_alive
from berth_case import GIB

ALL = "all" in sys.argv[1:]
if ALL:
    sys.argv.remove("all")
LONG = unittest.skipUnless(ALL, "takes long; runs in make nightly")
HEAD, PORT = "10.77.0.1", 8443
# The wall clock of a process and its children, moved by as many seconds as a file says.
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long offset(void) {
  long seconds = 0;
  FILE* file = fopen(getenv("TEST_CLOCK_FILE"), "r");
  if (file) { if (fscanf(file, "%ld", &seconds) != 1) seconds = 0; fclose(file); }
  return seconds;
}
int clock_gettime(clockid_t id, struct timespec* now) {
  static int (*real)(clockid_t, struct timespec*);
  if (!real) real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(id, now);
  if (id == CLOCK_REALTIME) now->tv_sec += offset();
  return result;
}
int gettimeofday(struct timeval* now, void* zone) {
  struct timespec at;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &at);
  now->tv_sec = at.tv_sec;
  now->tv_usec = at.tv_nsec / 1000;
  return 0;
}
time_t time(time_t* out) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  if (out) *out = at.tv_sec;
  return at.tv_sec;
}
"""


def run(*command, **more):
    answer = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=60, **more)
    if answer.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: {answer.stderr}")


class Networked(Fleet):
    """The server is at HEAD; each node has one link to it, which is named after the node."""

    def setUp(self):
        # Once per class would be enough, but a test may leave its network broken.
        self.keepers = []
        self.addCleanup(self.end_keepers)
        self.head = self.network()
        # Without a fixed address, a bridge changes its address as links are added, and nodes lose their connections.
        self.inside(self.head, "ip", "link", "add", "fleet", "address", "02:00:00:00:00:01", "type", "bridge")
        self.inside(self.head, "ip", "address", "add", f"{HEAD}/24", "dev", "fleet")
        self.inside(self.head, "ip", "link", "set", "fleet", "up")
        self.server_prefix = self.into(self.head)
        super().setUp()

    def network(self):
        """A network namespace; it lasts as long as the process that this starts, which ends with the test."""
        keeper = subprocess.Popen(["unshare", "--net", "sh", "-c", "ip link set lo up; echo ready; read line"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        self.keepers.append(keeper)
        self.assertEqual(keeper.stdout.readline(), "ready\n")
        return keeper.pid

    def end_keepers(self):
        for keeper in self.keepers:
            keeper.communicate("")

    def into(self, network):
        return ("nsenter", f"--net=/proc/{network}/ns/net", "--")

    def inside(self, network, *command):
        run(*self.into(network), *command)

    def serve(self, *options):
        super().serve("--listen", f"{HEAD}:{PORT}", *options)

    def link(self, name):
        """A network namespace with a link to the server."""
        network = self.network()
        self.links = getattr(self, "links", 1) + 1
        self.inside(self.head, "ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", str(network))
        self.inside(self.head, "ip", "link", "set", f"to-{name}", "master", "fleet", "up")
        self.inside(network, "ip", "address", "add", f"10.77.0.{self.links}/24", "dev", "eth0")
        self.inside(network, "ip", "link", "set", "eth0", "up")
        return network

    def place(self, node):
        node.network = self.link(node.name)
        node.prefix, node.url = self.into(node.network), f"https://{HEAD}:{PORT}"

    def received_packets(self, node):
        """The packets received on the node's link to the server."""
        lines = pathlib.Path(f"/proc/{node.network}/net/dev").read_text().splitlines()
        return next(int(line.split()[2]) for line in lines if line.split()[0] == "eth0:")

    def set_link(self, name, state):
        self.inside(self.head, "ip", "link", "set", f"to-{name}", state)

    def small_disk(self, path, size="1m"):
        path.mkdir(exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "none", str(path))
        self.addCleanup(run, "umount", "--lazy", str(path))

    def fill(self, folder):
        """Creates a file that fills the disk."""
        with (folder / "filler").open("wb", buffering=0) as file:
            for size in (65536, 1):
                try:
                    while file.write(b"x" * size):
                        pass
                except OSError:
                    pass
        return folder / "filler"


class Faults(Networked):
    single = {"single": True, "stop_after": "5s", "stop_grace": "1s", "replace_after": "10s"}

    def lives_one_after_another(self, deployment):
        lives = self.lives(deployment)
        for earlier, later in zip(lives, lives[1:]):
            self.assertLess(earlier[3], later[2], f"{deployment} ran twice at once: {lives}")
        return lives

    def test_a_cable_is_pulled_and_put_back(self):
        a, b, c = self.add_nodes("a", "b", "c")
        wrong, stop_watching = self.watch_ledgers(80 * GIB)
        self.apply(self.web(replicas=3, replace_after="6s"), self.web("one", **self.single))
        web, single = self.until_ready("web", 3), self.until_ready("one", 1)[0]
        cut = single["node"]
        moving = [replica for replica, entry in web.items() if entry["node"] == cut]
        self.assertTrue(moving, "one of three is on each of three nodes")
        self.set_link(cut, "down")
        cut_at = time.monotonic()

        def moved():
            now = self.replicas()
            return now if all(now[replica]["node"] != cut and now[replica]["state"] == "ready" for replica in moving) else None
        now = self.until(moved, self.situation)
        for replica in range(3):
            if replica in moving:
                # The replica runs elsewhere after replace_after, which may begin 2 s before the cut.
                took = self.seconds_until_running("web", replica, cut_at)
                self.assertGreater(took, 3, "not before replace_after")
                self.assertQuick(took, 8, "replace_after and 2 s")
            else:
                self.assertEqual(now[replica]["generation"], web[replica]["generation"], "other replicas were not touched")
        new = self.until(lambda: (entry := self.replicas("one")[0])["node"] != cut and entry["state"] == "ready" and entry, self.situation)
        self.assertGreater(new["generation"], single["generation"])
        self.lives_one_after_another("one")
        self.set_link(cut, "up")
        after = self.until_ready("web", 3)
        self.assertEqual({k: v["generation"] for k, v in after.items()}, {k: v["generation"] for k, v in now.items()}, "the newer replicas stay")
        self.assertEqual(self.until_ready("one", 1)[0]["generation"], new["generation"])
        self.until_healthy(cut)
        self.lives_one_after_another("one")
        stop_watching()
        self.assertEqual(wrong, [])

    def test_tokens_to_join(self):
        self.add_nodes("a")
        used = (self.nodes["a"].folder / "token").read_text().strip()
        expired = self.token("join", ttl_s=1)
        time.sleep(1.2)
        late = self.add_node("late", token=expired)
        self.assertEqual(late.agent.wait(timeout=30), 1)
        self.assertIn(f"the server refused to let late join: the token in {late.folder}/token is wrong, already used or expired", late.log.read_text())
        late.start(used)
        self.assertEqual(late.agent.wait(timeout=30), 1, "the token can be used once")
        # A server with another certificate gets no requests, and the token is not sent.
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=head",
            "-addext", f"subjectAltName=IP:{HEAD}", "-keyout", str(late.folder / "key"), "-out", str(late.folder / "other.pem"))
        late.options = ["--ca", str(late.folder / "other.pem")]
        good = self.token("join")
        late.start(good)
        self.assertEqual(late.agent.wait(timeout=30), 2)
        self.assertIn("certificate", late.log.read_text())
        late.options = []
        late.start(good)
        self.until_healthy("late")

    def test_a_copy_of_a_node_does_not_speak_for_it(self):
        """The disk of a machine is copied: the same name and credential exist on another machine."""
        a, = self.add_nodes("a")
        twin = Node(self, "twin", 2, "80GiB", 9)
        self.nodes["twin"] = twin
        self.place(twin)
        twin.name = "a"
        folder = twin.runtime / "agent-0" / "a"
        folder.mkdir(parents=True, mode=0o700)
        for name in ("identity.pem", "authority.pem"):
            (folder / name).write_text((a.runtime / "agent-0" / "a" / name).read_text())
        for path in (twin.runtime, twin.runtime / "agent-0"):
            path.chmod(0o700)
        (twin.folder / "boot").write_text("5d2a3a52-0000-4000-8000-000000000000\n")
        twin.prefix = ("unshare", "--mount", "--propagation", "private", "sh", "-ec",
                       f'mount --bind {twin.folder}/boot /proc/sys/kernel/random/boot_id; exec "$@"', "sh", *twin.prefix)
        twin.start()
        self.until(lambda: 'another agent is already registered as node' in twin.log.read_text(), lambda: twin.log.read_text())
        self.apply(self.web(replicas=2))
        received = self.received_packets(twin)
        self.until_reports("a")
        self.until(lambda: self.received_packets(twin) > received + 20, lambda: f"the copy asks no more: {twin.log.read_text()}")
        self.assertEqual((len(self.pids()), twin.jobs()), (2, {}), "the copy starts nothing")
        self.assertEqual(len(a.jobs()), 2)

    def test_a_server_is_killed_amid_applies(self):
        """One apply after another: after every kill the acknowledged changes are there, and some kills interrupt an apply."""
        self.add_nodes("a", "b")
        self.apply(self.web(text="n0"))
        applies = types.SimpleNamespace(attempted=0, acknowledged=0, count=0, is_open=False, cut=set(), wrong=[])
        ends, killed_at = threading.Event(), set()

        def operate():
            while not ends.is_set():
                number = applies.attempted = applies.attempted + 1
                applies.is_open = True
                answer = self.command("apply", self.write_project(self.web(text=f"n{number}")))
                applies.is_open = False
                if answer.returncode in (0, 3):  # 3: accepted, but not all of it fits now
                    applies.acknowledged, applies.count = number, applies.count + 1
                elif answer.returncode != 1:
                    applies.wrong.append((answer.returncode, answer.stderr))
                elif number in killed_at:
                    applies.cut.add(number)
        operator = threading.Thread(target=operate)
        operator.start()
        self.addCleanup(operator.join)
        self.addCleanup(ends.set)
        for _ in range(30):
            before = applies.count
            self.until(lambda: applies.count > before + 1 and applies.is_open, self.situation)
            time.sleep(random.random() * 0.1)
            if applies.is_open:
                killed_at.add(applies.attempted)
            self.server.kill()
            self.server.wait()
            acknowledged = applies.acknowledged
            self.serve()
            kept = int(self.get("deployments/web")["deployment"]["spec"]["command"][-1][1:])
            self.assertTrue(acknowledged <= kept <= applies.attempted, f"apply {acknowledged} was acknowledged, but the server has {kept}")
            if len(applies.cut) >= 3:
                break
        ends.set()
        operator.join()
        self.assertEqual(applies.wrong, [])
        self.assertGreaterEqual(len(applies.cut), 3, "too few kills interrupted an apply")
        self.assertGreaterEqual(applies.count, 6, "too few applies were acknowledged")
        self.apply(self.web(replicas=3, text="end"))
        self.until_ready("web", 3)
        self.assertEqual({len(pids) for pids in self.pids().values()}, {1})

    def test_a_gpu_that_faults_is_left(self):
        self.add_nodes("a", "b")
        wrong, stop_watching = self.watch_ledgers(80 * GIB)
        self.apply(self.web(replicas=3))
        before = self.until_ready("web", 3)
        hit = before[0]
        self.nodes[hit["node"]].lose_gpu(hit["devices"][0])
        after = self.until_ready("web", 3, lambda replica: replica["devices"] != hit["devices"])
        self.assertEqual([k for k in range(3) if after[k]["generation"] != before[k]["generation"]], [0])
        stop_watching()
        self.assertEqual(wrong, [])


class FullDisks(Networked):
    def serve(self, *options):
        self.disk = self.folder / "disk"
        if not self.disk.exists():
            self.small_disk(self.disk, "3m")
        super().serve("--store", f"sqlite:{self.disk}/store.db", "--create", *options)

    def test_of_the_store(self):
        self.add_nodes("a", "b")
        self.apply(self.web())
        before, pids = self.until_ready("web", 1), self.pids()
        filler = self.fill(self.disk)
        # The write-ahead log has room for some small commits; a large one exceeds it.
        large = {f"VARIABLE_{number}": "x" * 2000 for number in range(100)}
        answer = self.until(lambda: (run := self.command(
            "apply", self.write_project(self.web(replicas=2, environment={**large, "N": str(time.time())})))).returncode != 0 and run,
                            "the disk is full", 30)
        self.assertRefused(answer, 1, "there is no room for the store")
        self.assertIsNone(self.server.poll(), "the server keeps running")
        self.assertEqual(self.get("nodes/a")["node"]["health"], "healthy")
        self.assertTrue(is_alive(pids[0][0]) or self.pids())
        filler.unlink()
        self.apply(self.web(replicas=2))
        self.until_ready("web", 2)

    def test_of_an_agent(self):
        disk = self.folder / "a-disk"
        self.small_disk(disk, "2m")
        a = self.add_node("a", runtime=disk)
        self.until_healthy("a")
        self.apply(self.web())
        pids = self.pids()
        filler = self.fill(disk)
        # Running replicas continue, are reported and can be stopped. New ones do not start, and the reason is reported.
        self.apply(self.web(), self.web("more"), wait=False)
        why = self.until(lambda: (text := " ".join(self.command("why", "replica", "more/0").stdout.split())) and "No space left" in text and text,
                         self.situation)
        self.assertIsNone(a.agent.poll())
        self.assertEqual(self.pids(), pids)
        self.assertEqual(self.get("nodes/a")["node"]["health"], "healthy")
        filler.unlink()
        self.until_ready("more", 1)
        self.until_ready("web", 1)
        self.assertEqual(self.pids(), pids, "the other deployment was not touched")


@LONG
class Clocks(Networked):
    def setUp(self):
        super().setUp()
        source, self.library = self.folder / "clock.c", self.folder / "clock.so"
        source.write_text(CLOCK)
        run("cc", "-O1", "-shared", "-fPIC", "-o", str(self.library), str(source), "-ldl")

    def test_of_a_node_is_stepped(self):
        clock = self.folder / "clock"
        clock.write_text("0")
        self.add_node("a", LD_PRELOAD=str(self.library), TEST_CLOCK_FILE=str(clock))
        self.until_healthy("a")
        plain = {"name": "plain", "gpus": 1, "command": ["sleep", "600"]}
        self.apply(self.web(), plain)
        before = {name: self.until_ready(name, 1)[0] for name in ("web", "plain")}
        for step in (3600, -3600):
            clock.write_text(str(step))
            self.until(lambda: abs(self.get("nodes/a")["node"]["clock_offset_s"] - step) < 5, self.situation)
            shown = " ".join(self.command("nodes", "a").stdout.split())
            self.assertRegex(shown, f"its clock is .* {'ahead of' if step > 0 else 'behind'} the server's")
            self.until_reports("a")
            for name, entry in before.items():
                now = self.replicas(name)[0]
                self.assertEqual((now["state"], now["generation"], now["failures"]), ("ready", entry["generation"], 0), self.situation())
            # New replicas become ready, and failed ones are restarted.
            self.apply(self.web(), plain, {**plain, "name": f"new{step}", "gpus": 0, "cpu": True})
            self.until_ready(f"new{step}", 1)
            clock.write_text("0")
            self.until(lambda: abs(self.get("nodes/a")["node"]["clock_offset_s"]) < 5, self.situation)
        for name, entry in before.items():
            self.assertEqual(self.until_ready(name, 1)[0]["generation"], entry["generation"])


@LONG
class Storm(Networked):
    def test_many_faults_one_after_another(self):
        """Whatever happens, devices are not promised twice, a single replica does not run twice, and in the end everything serves."""
        seed = random.randrange(1 << 32)
        dice = random.Random(seed)
        nodes = self.add_nodes("a", "b", "c")
        wrong, stop_watching = self.watch_ledgers(80 * GIB)
        single = {"single": True, "stop_after": "5s", "stop_grace": "1s", "replace_after": "8s"}
        self.apply(self.web(replicas=3, replace_after="6s"), self.web("one", **single))
        for _ in range(12):
            node = dice.choice(nodes)
            fault = dice.choice(["cut", "agent", "server", "replica", "apply"])
            if fault == "cut":
                self.set_link(node.name, "down")
                time.sleep(dice.uniform(1, 15))
                self.set_link(node.name, "up")
            elif fault == "agent":
                node.kill()
                time.sleep(dice.uniform(0, 8))
                node.start()
            elif fault == "server":
                self.server.kill()
                self.server.wait()
                time.sleep(dice.uniform(0, 8))
                self.serve()
            elif fault == "replica":
                for pid in dice.choice(list(self.pids().values()) or [[]]):
                    os.kill(pid, 9)
            else:
                self.apply(self.web(replicas=dice.randint(2, 4), text=str(dice.random()), replace_after="6s"), self.web("one", **single), wait=False,
                           status=None)
        self.until_healthy("a", "b", "c")
        count = self.get("deployments/web")["deployment"]["replicas"]
        self.until(lambda: len(self.replicas()) == count and all(replica["state"] == "ready" for replica in self.replicas().values()),
                   lambda: f"seed {seed}{self.situation()}", 120)
        self.until_ready("one", 1)
        lives = self.lives("one")
        for earlier, later in zip(lives, lives[1:]):
            self.assertLess(earlier[3], later[2], f"seed {seed}: one replica ran twice at once: {lives}")
        stop_watching()
        self.assertEqual(wrong, [], f"seed {seed}")


if __name__ == "__main__":
    in_own_mounts("fleet_faults")
    unittest.main(verbosity=1)
