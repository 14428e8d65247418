"""The fleet with real processes and real faults: a server, agents and replicas on scripted GPUs. Its whole story is in story_test.py."""
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import time
import types
import unittest

from berth_case import GIB, ROOT, needs_sqlite
from fleet_case import Fleet, Forwarder, is_alive
from openapi_check import Document


class Killed(Fleet):
    def start_web(self, *nodes, **more):
        found = self.add_nodes(*nodes)
        self.apply(self.web(replicas=len(nodes), **more))
        return [*found, self.until_ready("web", len(nodes))]

    def test_agent(self):
        a, b, before = self.start_web("a", "b")
        pids = self.pids()
        a.kill()
        self.assertEqual(self.pids(), pids)
        a.start()
        self.until_healthy("a", "b")
        after = self.until_ready("web", 2)
        self.assertEqual((self.pids(), {k: v["generation"] for k, v in after.items()}), (pids, {k: v["generation"] for k, v in before.items()}))
        self.assertEqual({k: (v["job"], v["port"]) for k, v in after.items()}, {k: (v["job"], v["port"]) for k, v in before.items()})
        # The agent also ends replicas that it did not start.
        self.apply(self.web(replicas=1))
        self.until(lambda: self.pids().keys() == {0}, self.situation)

    @needs_sqlite
    def test_server(self):
        a, b, before = self.start_web("a", "b")
        pids, epoch = self.pids(), self.get("status")["epoch"]
        self.server.kill()
        self.server.wait()
        self.assertEqual(self.pids(), pids)
        self.serve()
        self.until_healthy("a", "b")
        after = self.until_ready("web", 2)
        self.assertEqual((self.pids(), {k: v["generation"] for k, v in after.items()}), (pids, {k: v["generation"] for k, v in before.items()}))
        self.assertGreater(self.get("status")["epoch"], epoch)
        self.assertEqual(self.get("project")["version"], 1, "the acknowledged project is there")
        # The server makes decisions again.
        self.apply(self.web(replicas=3))
        self.assertEqual(self.until_ready("web", 3)[0]["generation"], before[0]["generation"])

    @needs_sqlite
    def test_an_older_server_is_not_obeyed_by_an_agent_that_was_started_anew(self):
        older = self.folder / "older.db"
        a, = self.add_nodes("a")

        def end_server():
            self.server.terminate()
            self.assertEqual(self.server.wait(timeout=30), 0)
        end_server()
        shutil.copy(self.store, older)  # before any deployment was applied
        for _ in range(2):
            self.serve()
            self.until_healthy("a")
            if not self.pids():
                self.apply(self.web())
            end_server()
        pids = self.pids()
        a.kill()
        self.serve("--store", f"sqlite:{older}")
        self.assertEqual(self.get("project")["version"], 0)
        a.start()
        self.until(lambda: "is lower than that of a server that this node has followed" in a.log.read_text(), self.situation)
        self.until_reports("a")
        self.assertEqual(self.pids(), pids)
        # The agent obeys the latest server.
        end_server()
        self.serve()
        self.until_healthy("a")
        self.assertEqual(self.until_ready("web", 1)[0]["node"], "a")
        self.assertEqual(self.pids(), pids)

    def test_supervisor(self):
        a, before = self.start_web("a")
        pid = self.pids()[0][0]

        def kill_supervisor(name):
            supervisor = next(state["supervisor"]["pid"] for job, state in a.jobs().items() if job.startswith(name + "."))
            os.kill(supervisor, signal.SIGKILL)
            self.until(lambda: not is_alive(supervisor), "killed")
        kill_supervisor("web")
        self.until_reports("a")
        self.assertEqual(self.pids(), {0: [pid]}, "the command runs on")
        self.assertEqual(self.until_ready("web", 1)[0]["failures"], 0)
        self.assertEqual(len(a.leases()), 1, "the command keeps its lease")
        # When the command ends, it is restarted.
        os.kill(pid, signal.SIGKILL)
        self.until(lambda: self.pids().get(0, [pid]) != [pid], self.situation)
        self.assertEqual(self.until_ready("web", 1)[0]["failures"], 1)
        # A single replica may end with its supervisor, which ends it in time. Two never run at once.
        self.apply(self.web(), self.web("one", single=True))
        pid = self.pids("one")[0][0]
        kill_supervisor("one")
        self.until(lambda: self.pids("one").get(0, [pid]) != [pid], self.situation)
        self.until_ready("one", 1)
        first, second = self.lives("one")
        self.assertLess(first[3], second[2])
        self.assertEqual(self.command("delete", "one").returncode, 0)
        self.assertEqual(self.command("delete", "web").returncode, 0)
        self.until_nothing_runs()

    def test_what_is_left_without_a_supervisor_is_ended(self):
        a, = self.add_nodes("a")
        stubborn = {"name": "stub", "gpus": 1, "memory": "1GiB", "stop_grace": "2s",
                    "command": ["bash", "-c", "trap '' TERM; while :; do sleep 0.1; done"]}
        parent = {**stubborn, "name": "parent", "command": ["bash", "-c", "setsid sleep 786 & exec sleep 787"]}
        self.apply(stubborn, parent)
        for state in a.jobs().values():
            os.kill(state["supervisor"]["pid"], signal.SIGKILL)
        self.until_reports("a")
        self.until_ready("parent", 1)
        # The command ends and leaves another process: both must be gone before it is restarted.
        command = next(state["command"]["pid"] for name, state in a.jobs().items() if name.startswith("parent."))
        left, = (pid for pid, text in self.processes().items() if text == "sleep 786 ")
        os.kill(command, signal.SIGKILL)
        self.until(lambda: not is_alive(left), self.situation)
        self.until(lambda: self.replicas("parent")[0]["failures"] == 1, self.situation)
        self.until_ready("parent", 1)
        self.assertEqual(self.command("delete", "stub").returncode, 0)
        self.assertEqual(self.command("delete", "parent").returncode, 0)
        self.until_nothing_runs()

    def test_replica(self):
        a, b, before = self.start_web("a", "b")
        killed = []
        for failures in (1, 2):
            pid = self.pids()[0][0]
            killed.append(time.monotonic())
            os.kill(pid, signal.SIGKILL)
            found = self.until(lambda: (replica := self.replicas()[0])["failures"] == failures and replica, self.situation)
            self.until(lambda: self.pids().get(0, [pid]) != [pid], self.situation)
        after = self.until_ready("web", 2)
        self.assertEqual(after[0]["failures"], 2)
        self.assertEqual(after[0]["generation"], before[0]["generation"], "it is the same incarnation, restarted")
        self.assertEqual(after[1], {**before[1], "report_age_s": after[1]["report_age_s"]}, "the other replica was not touched")
        began = [life[2] for life in self.lives() if life[0] == 0]
        self.assertGreaterEqual(began[1] - killed[0], 0.9, "the first back-off is a second")
        self.assertGreaterEqual(began[2] - killed[1], 1.9, "the back-off doubles")
        self.assertTrue(any("2 times in a row: " in event["text"] for event in self.get("events?subject=web/0")["events"]))

    @needs_sqlite
    def test_everything(self):
        a, b, before = self.start_web("a", "b")
        # Like a power failure: no process is left.
        for process in (self.server, a.agent, b.agent):
            process.kill()
            process.wait()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        self.until(lambda: not self.processes(), "all is off")
        self.serve()
        a.start()
        b.start()
        after = self.until_ready("web", 2)
        self.assertEqual({k: v["node"] for k, v in after.items()}, {k: v["node"] for k, v in before.items()})
        self.assertEqual({len(pids) for pids in self.pids().values()}, {1})
        for node in (a, b):
            self.assertEqual(len(node.leases()), 1)


class OwnAgent(Fleet):
    server_options = ("--name", "here")

    @needs_sqlite
    def test_a_server_with_the_agent_of_its_machine_is_killed_and_finds_its_replicas(self):
        self.until_healthy("here")
        self.apply(self.web(replicas=2))
        before, pids = self.until_ready("web", 2), self.pids()
        self.server.kill()
        self.server.wait()
        self.assertEqual(self.pids(), pids)
        self.serve()
        self.until_healthy("here")
        after = self.until_ready("web", 2)
        self.assertEqual(self.pids(), pids, "the same processes")
        self.assertEqual({k: (v["generation"], v["job"], v["port"]) for k, v in after.items()},
                         {k: (v["generation"], v["job"], v["port"]) for k, v in before.items()})
        # The agent watches them like its own.
        os.kill(pids[0][0], signal.SIGKILL)
        self.until(lambda: self.pids().get(0, pids[0]) != pids[0], self.situation)
        self.until_ready("web", 2)
        self.assertEqual(self.command("delete", "web").returncode, 0)
        self.until_nothing_runs()


class Watcher(Fleet):
    def test_one_that_fails_or_hardly_looks_has_not_seen_that_all_is_well(self):
        self.nodes = {"blind": types.SimpleNamespace(name="blind", leases=lambda: {}["absent"])}
        wrong, stop = self.watch_ledgers(80 * GIB)
        self.until(lambda: wrong, "a reader that fails is noted")
        stop()
        self.assertIn("the ledger of blind could not be read: KeyError 'absent'", wrong)
        self.assertIn("the ledger of blind was read 0 times", wrong)


class CutOff(Fleet):
    """Nodes that are cut off. A replica is replaced after 6 s without a report at the earliest; a single one also needs time to end and a margin."""

    single = {"single": True, "stop_after": "5s", "stop_grace": "1s", "replace_after": "10s"}

    def never_two(self, deployment):
        lives = self.lives(deployment)
        for earlier, later in zip(lives, lives[1:]):
            self.assertLess(earlier[3], later[2], f"{deployment} ran twice at once: {lives}")
        return lives

    def test_cut_off_and_returned(self):
        a, = self.add_nodes("a", forwarded=True)
        self.apply(self.web(replace_after="6s"), self.web("one", **self.single))
        old = {name: self.until_ready(name, 1)[0] for name in ("web", "one")}
        old_pid = self.pids()[0][0]
        self.add_nodes("b")
        a.forwarder.is_cut, cut = True, time.monotonic()
        new = self.until(lambda: (replica := self.replicas()[0])["node"] == "b" and replica["state"] == "ready" and replica, self.situation)
        # The replica runs elsewhere after replace_after, which may begin 2 s before the cut.
        took = self.seconds_until_running("web", 0, cut)
        self.assertGreater(took, 3, "not before replace_after")
        self.assertQuick(took, 8, "replace_after and 2 s")
        self.assertTrue(is_alive(old_pid), "it continues to serve where it is")
        self.assertEqual({replica["node"] for replica in self.get("replicas?deployment=web")["replicas"]}, {"a", "b"})
        self.until(lambda: (replica := self.replicas("one")[0])["node"] == "b" and replica["state"] == "ready", self.situation)
        self.assertQuick(self.never_two("one")[-2][3] - cut, 6, "its own agent ended it")
        self.assertEqual(self.get("nodes/a")["node"]["health"], "suspect")
        # The node returns: the newer replica stays.
        pids = {name: self.pids(name)[0][-1] for name in ("web", "one")}
        a.forwarder.is_cut = False
        for name in ("web", "one"):
            kept = self.until_ready(name, 1)[0]
            self.assertEqual((kept["node"], kept["generation"] > old[name]["generation"]), ("b", True))
            self.assertEqual(self.pids(name), {0: [pids[name]]})
        self.assertEqual(a.leases(), [])
        self.never_two("one")

    def test_a_report_that_comes_late_changes_nothing(self):
        a, sent, path = self.make_node("a"), [], self.folder / "relay"
        relay, a.url = Forwarder(self.port, path), f"unix:{path}"
        self.addCleanup(relay.listener.close)

        class Recorder:  # records what the agent sends
            def __init__(self, source):
                self.source, self.shutdown = source, source.shutdown

            def recv(self, size):
                sent.append(self.source.recv(size))
                return sent[-1]
        copy = relay.copy
        relay.copy = lambda near, far: copy(Recorder(near) if far.family == socket.AF_INET else near, far)
        a.start(self.token("join"))
        self.until_healthy("a")
        self.apply(self.web())
        self.until_ready("web", 1)
        reports = self.until(lambda: (found := re.findall(rb'{"schema":1,"agent":.*?(?=POST |GET |$)', b"".join(sent), re.S))[3:] and found, self.situation)
        numbers = [json.loads(report)["number"] for report in reports[:3]]
        self.assertEqual(numbers, [1, 2, 3])
        self.assertFalse(json.loads(reports[0])["replicas"])
        credential, = a.runtime.glob("agent-*/a/credential")
        status, _, text = self.ask("POST", "/api/v1/agent/report", json.loads(reports[0]), credential.read_text().strip())
        self.assertEqual(status, 200, text)
        self.assertEqual(self.replicas()[0]["state"], "ready")

    def test_a_frozen_agent_does_not_let_a_single_one_run_twice(self):
        a, = self.add_nodes("a")
        self.apply(self.web(**self.single))
        b, = self.add_nodes("b")
        a.agent.send_signal(signal.SIGSTOP)
        frozen = time.monotonic()
        self.until(lambda: (replica := self.replicas()[0])["node"] == "b" and replica["state"] == "ready", self.situation)
        self.assertQuick(self.never_two("web")[-2][3] - frozen, 6, "its supervisor ended it")
        kept = self.pids()
        a.agent.send_signal(signal.SIGCONT)
        self.until_healthy("a")
        self.until_ready("web", 1, lambda replica: replica["node"] == "b")
        self.until_reports("a", "b")
        self.assertEqual(self.pids(), kept)
        self.never_two("web")


class SharedLedger(Fleet):
    def hold_on(self, node, *arguments):
        return self.hold(*arguments, **{key: node.environment()[key] for key in ("BERTH_DOUBLE", "BERTH_RUNTIME_DIR")})

    def test_X_F2_people_and_the_fleet_share_the_devices_of_a_node(self):
        a, b = self.add_nodes("a", "b", gpus=1)
        wrong, stop = self.watch_ledgers(80 * GIB)
        # The lease is taken just before the server decides, which does not know it yet: the ledger decides.
        person = self.hold_on(a, "--mem", "60G", "--exclusive")
        self.apply(self.web(memory="40GiB", exclusive=True))
        self.assertEqual(self.until_ready("web", 1)[0]["node"], "b")
        # There is no room for a replica until the user's command ends.
        answer = self.command("apply", self.write_project(self.web(memory="40GiB", exclusive=True, replicas=2, on_shortage="best_effort")))
        pending = self.until(lambda: self.get("status")["pending"], self.situation)
        self.assertEqual((pending[0]["deployment"], pending[0]["replicas"]), ("web", [1]))
        self.until(lambda: any(job["node"] == "a" and job["kind"] == "lease" for job in self.get("jobs")["jobs"]), self.situation)
        person.communicate("")
        self.until_ready("web", 2)
        # The reverse case.
        refused = a.berth("run", "--mem", "60G", "--", "true")
        self.assertEqual(refused.returncode, 3, refused.stderr)
        self.assertIn("exclusive", refused.stderr)
        # Several replicas share a GPU with a user's command, within its memory.
        self.assertEqual(self.command("delete", "web").returncode, 0)
        self.until(lambda: not self.get("replicas")["replicas"], self.situation)
        person = self.hold_on(a, "--mem", "30G")
        self.apply(self.web("small", memory="20GiB", replicas=8, on_shortage="best_effort"), wait=False, status=None)
        self.until(lambda: (small := self.get("deployments/small")["deployment"])["ready"] == 6 and small["state"] == "degraded", self.situation)
        person.communicate("")
        self.until(lambda: self.get("deployments/small")["deployment"]["ready"] == 8, self.situation)
        stop()
        self.assertEqual(wrong, [])

    def test_the_line_of_a_node_and_the_names_of_its_jobs_are_shown(self):
        a, = self.add_nodes("a", gpus=1)
        for name in ("train", "later"):
            self.assertEqual(a.berth("run", "-d", "--name", name, "--mem", "60G", "--", "sleep", "600").returncode, 0)
        self.addCleanup(a.berth, "stop", "later", "train")

        def jobs():
            return {job["name"]: job for job in self.get("jobs")["jobs"]}
        shown = self.until(lambda: (now := jobs()).keys() == {"train", "later"} and now, self.situation)
        state, device = lambda name: [shown[name].get(key) for key in ("kind", "id", "state", "place", "memory_bytes")], shown["train"]["devices"]
        self.assertEqual(state("train"), ["job", "j1", "running", None, 60 * GIB])
        self.assertEqual(state("later"), ["job", "j2", "waiting", 1, 60 * GIB])
        self.assertEqual((shown["later"]["devices"], shown["later"]["devices_wanted"], len(device)), ([], 1, 1))
        self.assertEqual([(holder["kind"], holder["name"]) for holder in self.get("nodes/a")["node"]["devices"][0]["holders"]], [("job", "train")])
        # Promised memory is not free, even before it is allocated; nor is the memory of a lost device.
        free = lambda: self.get("status")["devices"]["memory_bytes_free"]
        self.assertEqual(free(), 20 * GIB)
        self.assertRegex(self.command("nodes", "a").stdout, r" 20\.0 GiB of 80\.0 GiB ")
        a.lose_gpu(device[0])
        self.until(lambda: free() == 0, self.situation)
        for words in (("status",), ("nodes",), ("nodes", "a")):
            self.assertIn(f"! a {device[0][:12]} is lost; stop what uses it and run nvidia-smi --gpu-reset", " ".join(self.command(*words).stdout.split()))

    def test_while_the_ledger_is_locked_nothing_on_the_node_counts_as_free(self):
        a, = self.add_nodes("a")
        person = self.hold_on(a, "--mem", "60G", "--exclusive")
        free, = {device["id"] for device in self.get("nodes/a")["node"]["devices"] if device["backend"] == "cuda"} - set(person.devices)
        self.assertEqual(a.berth("cordon", free).returncode, 0)

        def shown():
            devices = self.get("nodes/a")["node"]["devices"]
            return {device["id"]: (device.get("intent", "in_service"), len(device["holders"])) for device in devices if device["backend"] == "cuda"}
        expected = {person.devices[0]: ("in_service", 1), free: ("cordoned", 0)}
        self.until(lambda: shown() == expected, self.situation)
        folder = os.open(a.runtime, os.O_RDONLY)
        self.addCleanup(os.close, folder)
        fcntl.flock(folder, fcntl.LOCK_EX)  # as any user of the machine can
        # Twice as long as a read of the ledger waits.
        end = time.monotonic() + 6
        while time.monotonic() < end:
            self.assertEqual(shown(), expected)
            time.sleep(0.1)
        self.apply(self.web(), wait=False, status=3)
        # An agent that starts now cannot read the ledger and offers no devices.
        a.kill()
        a.start()
        self.until_healthy("a")
        self.assertEqual({intent for intent, _ in shown().values()}, {"cordoned"})
        self.assertIn(f"! a  {free[:12]} is cordoned by its agent, while the ledger is locked\n", self.command("status").stdout)
        self.assertEqual(self.replicas(), {})
        fcntl.flock(folder, fcntl.LOCK_UN)
        self.assertEqual(a.berth("uncordon", free).returncode, 0)
        self.assertEqual(self.until_ready("web", 1)[0]["devices"], [free])

    def test_what_a_replica_had_is_free_as_soon_as_it_is_gone(self):
        self.add_nodes("a", gpus=1)
        for text in ("v1", "v2", "v3"):
            self.apply(self.web(text=text), wait=False)  # status 0: nothing is pending
            self.until_ready("web", 1)
            self.assertEqual(self.command("delete", "web").returncode, 0)
            self.until(lambda: not self.get("replicas")["replicas"], self.situation)


class Api(Fleet):
    def test_answers_are_as_documented(self):
        document = Document.read(ROOT / "docs/reference/openapi.json")
        a, = self.add_nodes("a")
        # One deployment with every setting and no replicas, and one that no node may run.
        rich = self.web("rich", replicas=0, model="llama", runtime="vllm", memory="1GiB", capability="8.0", node_selector={"a": "b"}, device_labels={"c": "d"},
                        tolerates=["e"], exclusive=False, spread="pack", policy="best_fit", priority="high", on_shortage="best_effort", idempotent=True,
                        serving={"max_concurrent": 2, "host": "rich.example.org", "path": "/rich", "open": True, "queue_timeout": "1s", "queue_max": 2, "first_byte_timeout": "5s", "idle_timeout": "1m", "policy": "spread", "key": "json:user", "affinity": "strict", "on_capacity_exhausted": "fallback", "fallback": "web"}, environment={"A": "b"}, secrets={"B": "env:B"}, user="nobody", folder="/", host_memory="1GiB",
                        cpus=0.5, rollout={"surge": 2}, single=True, stop_after="20s", replace_after="60s", ready_within="1m", unready_within="2m",
                        liveness={"tcp": True, "port": 9, "timeout": "1s", "failures": 9})
        plain = {"name": "plain", "cpu": True, "replicas": 0, "command": ["true"], "readiness": {"command": ["true"]}}
        outside = {"name": "outside", "model": "gpt-4o", "key": "env:KEY", "node_selector": {"a": "b"}}
        self.apply(self.web(), self.web("much", gpus=3), rich, plain, outside, wait=False, status=3)
        self.until_ready("web", 1)
        device = self.get("nodes/a")["node"]["devices"][0]["id"]
        token = json.loads(self.ask("POST", "/api/v1/tokens", {"role": "read", "ttl_s": 600})[2])["id"]
        problems = []

        def check(method, path, body=None, status=200, **how):
            got, kind, text = self.ask(method, path, body, **how)
            if got != status:
                problems.append(f"{method} {path}: {got}, not {status}: {text}")
            if body is not None:
                problems.extend(document.check_request(method, path, "application/json", json.dumps(body)))
            problems.extend(document.check_answer(method, path, got, kind, text))
        for path in ("/healthz", "/readyz", "/metrics"):
            check("GET", path)
        check("POST", "/api/v1/tokens", {"role": "call", "deployment": "web", "name": "app", "weight": 2, "per_second": 5, "concurrent_max": 3})
        check("POST", "/api/v1/tokens", {"role": "join", "gateway": True})
        for path in ("openapi.json", "status", "nodes", "nodes/a", f"nodes/a/history?device={device}", "project", "deployments", "deployments/web",
                     "deployments/much", "replicas", "replicas?deployment=web", "replicas/web/0", "replicas/much/0", "replicas/web/0/logs?tail=5", "jobs", "endpoints", "shards",
                     "events", "events?after=2&limit=3", "tokens"):
            check("GET", f"/api/v1/{path}")
        for path in ("nodes/none", "deployments/none", "replicas/web/7", "replicas/web/x", "replicas/web/7/logs", "nothing"):
            check("GET", f"/api/v1/{path}", status=404)
        check("GET", "/api/v1/nodes/a/history", status=400)
        check("GET", "/api/v1/status", status=401, token="berth_no")
        check("GET", "/api/v1/agent/assignments", status=403)
        check("PUT", "/api/v1/nodes/a/intent", {"intent": "cordoned", "reason": "a new power supply"})
        check("GET", "/api/v1/nodes/a")
        check("PUT", "/api/v1/nodes/a/intent", {"intent": "draining", "dry_run": True})
        more = self.get("project")["project"]
        web = next(deployment for deployment in more["deployments"] if deployment["name"] == "web")
        web["replicas"] = 2
        check("PUT", "/api/v1/project", {"project": more})
        web["stop_grace_s"] = 3
        check("PUT", "/api/v1/project", {"project": more, "dry_run": True})
        self.until(lambda: any(entry["deployment"] == "web" for entry in self.get("status")["pending"]), self.situation)
        check("GET", "/api/v1/status")
        check("PUT", "/api/v1/nodes/a/intent", {"intent": "in_service"})
        check("PUT", f"/api/v1/nodes/a/devices/{device}/intent", {"intent": "draining", "reason": "its fan is loud"})
        check("GET", "/api/v1/nodes/a")
        check("PUT", f"/api/v1/nodes/a/devices/{device}/intent", {"intent": "in_service"})
        check("PUT", "/api/v1/nodes/a/devices/none/intent", {"intent": "draining"}, status=404)
        check("PUT", "/api/v1/nodes/a/devices/none/intent", {"intent": "draining", "dry_run": True}, status=404)
        check("DELETE", "/api/v1/nodes/a", status=409)
        check("POST", "/api/v1/deployments/web/rollout", {"action": "pause"})
        check("POST", "/api/v1/deployments/web/rollout", {"action": "resume"})
        check("POST", "/api/v1/deployments/web/rollout", {"action": "undo"}, status=409)
        project = self.get("project")
        check("PUT", "/api/v1/project", {"project": project["project"], "dry_run": True})
        check("PUT", "/api/v1/project", {"project": project["project"], "if_version": 77}, status=409)
        check("PUT", "/api/v1/project", {"project": project["project"]})
        check("DELETE", f"/api/v1/tokens/{token}")
        check("DELETE", f"/api/v1/tokens/{token}", status=404)
        check("POST", "/api/v1/login", {"token": self.token("read")})
        check("POST", "/api/v1/logout")
        check("GET", "/api/v1/session")
        check("POST", "/api/v1/tokens", {"role": "join", "node": "x"})
        check("POST", "/api/v1/certificate", {"certificate_request": "x"}, status=400, token=self.token("read"))
        join = self.token("join")
        check("POST", "/api/v1/agent/join", {"node": "x", "version": "0.1.0"}, token=join)
        check("DELETE", "/api/v1/deployments/much")
        check("DELETE", "/api/v1/deployments/much", status=404)
        self.assertEqual(problems, [])
        # All documented members are sent, except those that scripted GPUs lack or that exist only at some times.
        only_opencl_devices_have = {"Device.former_id", "Device.active_streams"}
        self.assertEqual(document.never_sent() - only_opencl_devices_have - {"Replica.reason", "Replica.memory_bytes_peak", "Device.memory_bytes_promised", "Device.held_exclusively"}, {
            "Device.advice", "Device.error", "Device.events", "Device.intent_age_ms", "Device.parent", "Device.queue_depth", "Link.lanes",
            "Endpoints.warnings", "Replica.next_start_at_ms", "Plan.pending.provider", "Status.problem", "Status.warnings", "Node.problem", "Node.health_reason", "Status.unavailable_nodes.health_reason", "Joined.certificate", "Joined.authority", "NewToken.explain", "Tokens.tokens.explain", "Reason.provider", "Project.egress_preference",
            "Spec.stop_after_s", "Event.schema", "ServedDeployment.traffic", "ServedDeployment.endpoints.traffic", "ServedDeployment.shards", "ServedDeployment.endpoints.address", "ServedDeployment.serving.reach", "Spec.serving.reach"})


if __name__ == "__main__":
    unittest.main()
