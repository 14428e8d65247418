"""What tests of a fleet share: a server, several nodes on one machine, replicas that report what they do, and a way to cut a node off.

Every node is an agent with a ledger, GPUs and a folder of its own. Everything that a test starts has the test's own folder
in its environment, which is how it is found and ended.
"""
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

from berth_case import BERTH, Machine, may_mount
from forwarder import Forwarder

# A replica: answers requests with a line about itself, and writes down when it lived. Time is that of the machine, so it can be
# compared between processes.
# A watcher that has looked less often has shown nothing.
LOOKS_MIN = 3

REPLICA = """
import os, socket, sys, time
port, journal, text = int(sys.argv[1]), sys.argv[2], sys.argv[3]
name = os.environ["BERTH_REPLICA"]
file = os.open(f"{journal}/{name.replace('/', '.')}.{os.getpid()}", os.O_RDWR | os.O_CREAT, 0o600)
began = time.monotonic()
listener = socket.create_server(("127.0.0.1", port))
listener.settimeout(0.02)
while True:
    os.pwrite(file, b"%.6f %.6f %d" % (began, time.monotonic(), port), 0)
    try:
        connection = listener.accept()[0]
    except TimeoutError:
        continue
    connection.settimeout(1)
    try:
        connection.recv(65536)
        body = f"{name} {text} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}".encode()
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
    except OSError:
        pass
    connection.close()
"""


def free_port():
    """A port that stays free until this process uses it: no connection and no replica gets one of this range, and no other test takes this one, since its name
    among the abstract sockets of this network is held until this process ends."""
    for port in random.SystemRandom().sample(range(5_000, 8_000), 1_000):
        reserved = socket.socket(socket.AF_UNIX)
        try:
            reserved.bind(f"\0berth-test-port-{port}")
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            reserved.close()
            continue
        reserved.detach()
        return port
    raise AssertionError("no port between 5000 and 8000 is free")


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + " }"
    return "[" + ", ".join(map(toml, value)) + "]" if isinstance(value, list) else json.dumps(value)


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def in_own_mounts(name):
    """Runs the rest of the test in its own mount namespace, which ends with the test. Needs root and ip."""
    if not may_mount() or not shutil.which("ip"):
        print(f"[  SKIPPED ] {name}: needs root and ip, for users, mounts and networks of its own")
        sys.exit(77)
    if not os.environ.get("BERTH_TEST_MOUNTS"):
        os.environ["BERTH_TEST_MOUNTS"] = "own"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.orig_argv[1:]])


def in_own_network(name, address):
    """Runs the rest of the test in its own network, where the machine has this address besides loopback."""
    if os.environ.get("BERTH_TEST_NETWORK"):
        return
    own_network = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    if not all(map(shutil.which, ("unshare", "ip"))) or subprocess.run([*own_network, "true"], capture_output=True).returncode != 0:
        print(f"[  SKIPPED ] {name}: needs ip and a network namespace")
        sys.exit(77)
    os.environ["BERTH_TEST_NETWORK"] = address
    network = f'ip link set lo up && ip address add {address}/32 dev lo && exec "$@"'
    os.execvp("unshare", [*own_network, "sh", "-ec", network, "sh", sys.executable, *sys.orig_argv[1:]])


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Node:
    """A machine of the fleet."""

    def __init__(self, case, name, gpus, memory, number):
        self.case, self.name = case, name
        self.folder = case.folder / name
        self.folder.mkdir()
        self.runtime, self.log = self.folder / "runtime", self.folder / "agent.log"
        self.script = self.folder / "machine.txt"
        faults = "".join(f"lost nvml* gpu={gpu} file={self.folder}/lost-{gpu} times=always\n" for gpu in range(gpus))
        self.script.write_text(f"series {number}\ngpus {gpus} memory={memory} capability=9.0\n{faults}")
        self.agent, self.forwarder, self.options, self.more = None, None, [], {}
        self.prefix, self.url = (), None  # another program that starts the agent, and where the server is

    def environment(self):
        return self.case.environment(BERTH_DOUBLE=str(self.script), BERTH_RUNTIME_DIR=str(self.runtime), **self.more)

    def berth(self, *arguments):
        return subprocess.run([BERTH, *arguments], capture_output=True, text=True, timeout=60, env=self.environment())

    def start(self, token=None):
        """Starts its agent; with a token it joins first."""
        port = self.forwarder.port if self.forwarder else self.case.port
        url = self.url or f"http://127.0.0.1:{port}"
        command = [*self.prefix, BERTH, "agent", "--join", url, "--name", self.name, *self.options]
        if token:
            file = self.folder / "token"
            file.write_text(token + "\n")
            file.chmod(0o600)
            command += ["--token-file", str(file)]
        with self.log.open("a") as log:
            self.agent = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment())
        self.began = time.monotonic()
        self.case.started.append(self.agent)
        return self

    def lose_gpu(self, device):
        """A GPU falls off the bus, for every process on this machine."""
        ids = [device["id"] for device in json.loads(self.berth("devices", "--backend", "cuda", "--json").stdout)]
        (self.folder / f"lost-{ids.index(device)}").touch()

    def kill(self):
        self.agent.kill()
        self.agent.wait()

    def jobs(self):
        """The state in each job folder of its replicas, by the name of the job."""
        found = {}
        for folder in self.runtime.glob(f"agent-*/{self.name}/jobs/j*"):
            try:
                found[json.loads((folder / "job.json").read_text())["name"]] = json.loads((folder / "state.json").read_text())
            except (OSError, ValueError):
                pass  # just made, or just removed
        return found

    def leases(self):
        answer = self.berth("ps", "--json")
        self.case.assertEqual(answer.returncode, 0, answer.stderr)
        return json.loads(answer.stdout)["leases"]


class ForgedNode:
    """A node whose reports the test writes itself: no agent, any content."""

    def __init__(self, case, name, **about):
        self.case, self.name, self.about, self.number = case, name, about, 0
        status, _, text = case.ask("POST", "/api/v1/agent/join", {"node": name}, case.token("join"))
        case.assertEqual(status, 200, text)
        self.credential = json.loads(text)["token"]

    def report(self, inventory=(), replicas=(), status=200, **more):
        self.number += 1
        body = {"agent": self.name, "version": "0", "boot": "b", "now_at_ms": 1, "number": self.number, "epoch": 1, "revision": 1,
                "inventory": {"node": {"name": self.name, **self.about}, "devices": list(inventory), "links": []}, "replicas": list(replicas), **more}
        answer = self.case.ask("POST", "/api/v1/agent/report", body, self.credential)
        self.case.assertEqual(answer[0], status, answer[2])
        return json.loads(answer[2])


class Fleet(Machine):
    """A server without nodes; `add_nodes` makes them."""

    server_prefix, server_options, gateway_options = (), ("--no-agent",), ("--gateway", "none")

    def setUp(self):
        super().setUp()
        self.nodes, self.port, self.server = {}, free_port(), None
        self.store = self.folder / "server" / f"server-{os.geteuid()}" / "store.db"
        self.journal = self.folder / "journal"
        self.journal.mkdir()
        self.program = self.folder / "replica.py"
        self.program.write_text(REPLICA)
        self.serve()

    # The server.

    def serve(self, *options):
        self.start_server("--listen", f"127.0.0.1:{self.port}", *options)

    def start_server(self, *options):
        log_path = self.folder / "server.log"
        with log_path.open("a") as log:
            begin = log.tell()
            self.server = subprocess.Popen([*self.server_prefix, BERTH, "serve", *self.server_options, *self.gateway_options, *options],
                                           stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.environment(BERTH_RUNTIME_DIR=str(self.folder / "server")))
        self.began = time.monotonic()
        self.started.append(self.server)
        self.until(lambda: "your" in log_path.read_text()[begin:] or self.server.poll() is not None, "the server starts")
        self.assertIsNone(self.server.poll(), log_path.read_text())
        self.port = int(re.findall(r"serves https?://127\.0\.0\.1:(\d+)", log_path.read_text())[-1])

    def command(self, *arguments, **environment):
        """A command of the user who runs the server."""
        return self.berth(*arguments, BERTH_RUNTIME_DIR=str(self.folder / "server"), **environment)

    def ask(self, method, path, body=None, token=None):
        """A request, over the server's socket or with a token over TCP: status, type and text of the answer."""
        if token is None:
            connection = UnixConnection(str(self.folder / "server" / f"server-{os.geteuid()}" / "socket"))
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.headers.get("Content-Type", ""), answer.read().decode()

    def get(self, path):
        status, _, text = self.ask("GET", f"/api/v1/{path}")
        self.assertEqual(status, 200, text)
        return json.loads(text)

    def token(self, role, **more):
        status, _, text = self.ask("POST", "/api/v1/tokens", {"role": role, **more})
        self.assertEqual(status, 200, text)
        return json.loads(text)["token"]

    # The nodes.

    def make_node(self, name, gpus=2, memory="80GiB", forwarded=False, options=(), runtime=None, **environment):
        node = self.nodes[name] = Node(self, name, gpus, memory, len(self.nodes) + 1)
        node.options, node.more = list(options), environment
        node.runtime = runtime or node.runtime
        self.place(node)
        if forwarded:
            node.forwarder = Forwarder(self.port)
            self.addCleanup(node.forwarder.listener.close)
        return node

    def add_node(self, name, token=None, **how):
        return self.make_node(name, **how).start(token or self.token("join"))

    def place(self, node):
        """Called before the node's agent starts: sets where it runs and how it reaches the server."""

    def add_nodes(self, *names, **how):
        nodes = [self.add_node(name, **how) for name in names]
        self.until_healthy(*names)
        return nodes

    def until_healthy(self, *names):
        """Waits until each node has reported since its agent and the server started."""
        def is_healthy(node):
            since = max(self.nodes[node["name"]].began, self.began) if node["name"] in self.nodes else 0
            return node["devices"] and node.get("last_report_age_s", 99) < min(3, time.monotonic() - since)
        self.until(lambda: {node["name"] for node in self.get("nodes")["nodes"] if is_healthy(node)} >= set(names), self.situation)

    def until_reports(self, *names, count=3, holds=lambda: True):
        """Waits until each node has sent `count` more reports, enough to reveal a mistake. `holds` is checked at every look."""
        ages, left = {}, dict.fromkeys(names, count)

        def reported():
            if not holds():
                self.fail(self.situation())
            for node in self.get("nodes")["nodes"]:
                name, age = node["name"], node.get("last_report_age_s", 0)
                left[name] = left.get(name, 0) - (age < ages.get(name, 0))
                ages[name] = age
            return max(left[name] for name in names) <= 0
        self.until(reported, self.situation)

    # The desired deployments.

    def write_project(self, *deployments):
        text = '[cluster]\nname = "lab"\n'
        for deployment in deployments:
            text += "\n[[deployment]]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in deployment.items())
        path = self.folder / "project.toml"
        path.write_text(text)
        return str(path)

    def web(self, name="web", text="v1", **more):
        """A deployment of replicas as above, each with its own GPU."""
        return {"name": name, "gpus": 1, "command": [sys.executable, "-SE", str(self.program), "{port}", str(self.journal), text],
                "readiness": {"http": "/", "every": "100ms"}, "stop_grace": "2s", **more}

    def apply(self, *deployments, wait=True, status=0):
        """`status`: None if it depends on the server's current knowledge whether everything fits."""
        answer = self.command("apply", self.write_project(*deployments), *(["--wait"] if wait else []))
        self.assertIn(answer.returncode, (0, 3) if status is None else (status,), answer.stdout + answer.stderr + self.situation())

    # The actual state.

    def replicas(self, deployment="web"):
        """The current incarnations, by replica."""
        return {replica["replica"]: replica for replica in self.get(f"replicas?deployment={deployment}")["replicas"] if replica["current"]}

    def generations(self, deployment="web"):
        return {replica: row["generation"] for replica, row in self.replicas(deployment).items()}

    def until_ready(self, deployment, count, where=lambda row: True):
        """Waits until `count` replicas are ready and no others of the deployment are left."""
        def found():
            all_of_it = self.get(f"replicas?deployment={deployment}")["replicas"]
            if len(all_of_it) == count and all(row["state"] == "ready" and where(row) for row in all_of_it):
                return {row["replica"]: row for row in all_of_it}
            return None
        return self.until(found, self.situation)

    def lives(self, deployment="web"):
        """From the journals of all replicas that ever ran: (replica, process, began, last sign of life, port)."""
        found = []
        for file in self.journal.glob(f"{deployment}.*"):
            words = file.read_text().split()
            if len(words) == 3:
                replica, pid = file.name[len(deployment) + 1:].split(".")
                found.append((int(replica), int(pid), float(words[0]), float(words[1]), int(words[2])))
        return sorted(found, key=lambda life: life[2])

    def seconds_until_running(self, deployment, replica, since):
        """The seconds from `since`, a time of the monotonic clock, until a new process of this replica ran."""
        return min(began for number, _, began, _, _ in self.lives(deployment) if number == replica and began > since) - since

    def pids(self, deployment="web"):
        """The processes of running replicas, by replica."""
        alive = {}
        for replica, pid, *_ in self.lives(deployment):
            if is_alive(pid):
                alive.setdefault(replica, []).append(pid)
        return alive

    def answer_of(self, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/")
            return connection.getresponse().read().decode()
        except (OSError, http.client.HTTPException):
            return ""
        finally:
            connection.close()

    def answering(self, deployment="web"):
        """The answers of running replicas, by replica."""
        alive = {(replica, port) for replica, pid, _, _, port in self.lives(deployment) if is_alive(pid)}
        return {replica: text for replica, port in alive if (text := self.answer_of(port))}

    def processes(self):
        """Processes with this test's folder in their environment, except servers and agents."""
        known, found = {process.pid for process in self.started}, {}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if int(folder.name) not in known and os.fsencode(self.folder) in (folder / "environ").read_bytes() and is_alive(int(folder.name)):
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                pass
        return found

    def situation(self):
        """A description of the state, for the message of a failure."""
        try:
            lines = [json.dumps(row) for row in self.get("replicas")["replicas"] + self.get("status")["deployments"] + self.get("status")["pending"]]
            lines += [f"{event['kind']} {event['subject']}: {event['text']}" for event in self.get("events?limit=40")["events"]]
            text = "\n".join(["", *lines])
        except OSError as error:
            text = f"the server: {error}"
        # os.walk, unlike rglob, ignores folders that vanish meanwhile.
        for log in sorted(pathlib.Path(folder, name) for folder, _, names in os.walk(self.folder) for name in names if name.endswith(".log")):
            with contextlib.suppress(FileNotFoundError):
                text += f"\n{log.name} of {log.parent.name}:\n" + log.read_text()[-3000:]
        return text

    def until(self, condition, what="", seconds=60):
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            if time.monotonic() > deadline:
                self.fail(what() if callable(what) else what)
            time.sleep(0.05)
        return found

    def watch_ledgers(self, total, may_fail=()):
        """Reads all ledgers over and over, and records states that must never occur, a reader that fails, and too few looks.

        `may_fail`: nodes whose ledger cannot always be read, as on a full disk or where another user holds its lock."""
        wrong, ends, looks = [], threading.Event(), {}

        def look(node):
            holders = {}
            for lease in (entry for entry in node.leases() if entry["state"] != "waiting"):
                for device in lease.get("devices", []):
                    holders.setdefault(device["id"], []).append((lease["exclusive"], device.get("memory_bytes_promised", total), lease["command"]))
            for device, held in holders.items():
                if sum(claim[1] for claim in held) > total or (len(held) > 1 and any(claim[0] for claim in held)):
                    wrong.append((node.name, device, held))
            looks[node.name] = looks.get(node.name, 0) + 1

        def watch():
            while not ends.wait(0.2):
                for node in list(self.nodes.values()):
                    try:
                        look(node)
                    except Exception as error:  # noqa: a watcher that has died must not count as a success
                        if node.name not in may_fail:
                            wrong.append(f"the ledger of {node.name} could not be read: {type(error).__name__} {error}")
        thread = threading.Thread(target=watch)
        thread.start()

        def stop():
            if ends.is_set():
                return
            rarely = lambda: [name for name in self.nodes if looks.get(name, 0) < LOOKS_MIN]
            late = time.monotonic() + 20  # a short test on a busy machine
            while rarely() and not wrong and time.monotonic() < late:
                time.sleep(0.05)
            ends.set()
            thread.join()
            wrong.extend(f"the ledger of {name} was read {looks.get(name, 0)} times" for name in rarely())
        self.addCleanup(stop)
        return wrong, stop

    def until_nothing_runs(self):
        self.until(lambda: not self.processes(), lambda: str(self.processes()) + self.situation())
        for node in self.nodes.values():
            self.assertEqual(node.leases(), [], node.name)

    def end_all(self):
        super().end_all()
        for _ in range(20):  # a supervisor may start its command again
            if not (left := self.processes()):
                break
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.05)
