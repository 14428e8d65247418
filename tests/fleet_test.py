"""The fleet with real processes and real faults: a server, agents and replicas on scripted GPUs."""
import hashlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import threading
import time
import unittest

from berth_case import GIB, ROOT
from fleet_case import Fleet, is_alive
from openapi_check import Document


class Story(Fleet):
    def test_from_a_file_to_replicas_and_back_to_nothing(self):
        a, b, c = self.add_nodes("a", "b", "c")
        self.apply(self.web(replicas=3))
        first = self.until_ready("web", 3)
        self.assertEqual({one["node"] for one in first.values()}, {"a", "b", "c"}, "they are spread")
        for replica, one in first.items():
            self.assertEqual(self.answer_of(one["port"]), f"web/{replica} v1 {one['devices'][0]}", "its GPU is the one it sees")
        # More and fewer: the others are not touched.
        pids = self.pids()
        self.apply(self.web(replicas=5))
        more = self.until_ready("web", 5)
        self.apply(self.web(replicas=2))
        fewer = self.until_ready("web", 2)
        for replica in range(2):
            self.assertEqual({one[replica]["generation"] for one in (first, more, fewer)}, {first[replica]["generation"]})
            self.assertEqual(self.pids()[replica], pids[replica])
        self.apply(self.web(replicas=3))
        before = self.until_ready("web", 3)
        # What runs changes: one after the other, and never fewer than three answer.
        least, most = 3, 0
        self.apply(self.web(replicas=3, text="v2", rollout={"surge": 1, "unavailable": 0}), wait=False)

        def is_updated():
            nonlocal least, most
            least = min(least, len(self.answering()), self.get("deployments/web")["deployment"]["ready"])
            most = max(most, sum(map(len, self.pids().values())))
            return all(one["revision"] == 2 and one["state"] == "ready" for one in self.replicas().values())
        self.until(is_updated, self.situation)
        self.assertEqual((least, most), (3, 4), "surge and unavailable")
        updated = self.until_ready("web", 3)
        self.assertTrue(all(updated[replica]["generation"] > before[replica]["generation"] for replica in range(3)))
        self.assertEqual({text.split()[1] for text in self.answering().values()}, {"v2"})
        # The GPU of one falls off the bus. Only that one moves.
        hit = updated[1]
        self.nodes[hit["node"]].lose_gpu(hit["devices"][0])
        moved = self.until_ready("web", 3, lambda one: one["devices"] != hit["devices"])
        self.assertEqual([replica for replica in range(3) if moved[replica]["generation"] != updated[replica]["generation"]], [hit["replica"]])
        self.assertTrue(any("lost" in one["text"] for one in self.get("events?subject=node/" + hit["node"])["events"]))
        # A node is emptied and comes back.
        left = moved[0]["node"]
        answer = self.command("drain", f"node/{left}", "--wait", "30s")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        drained = self.until_ready("web", 3, lambda one: one["node"] != left)
        for replica in range(3):
            self.assertEqual(drained[replica]["generation"] == moved[replica]["generation"], moved[replica]["node"] != left)
        self.assertEqual(self.nodes[left].leases(), [])
        self.assertEqual(self.command("uncordon", f"node/{left}").returncode, 0)
        self.assertEqual(self.generations(), {replica: one["generation"] for replica, one in drained.items()}, "nothing moves back by itself")
        # Back to what it was.
        self.assertEqual(self.command("rollout", "undo", "web").returncode, 0)
        self.until_ready("web", 3, lambda one: one["revision"] == 3)
        self.assertEqual({text.split()[1] for text in self.answering().values()}, {"v1"})
        # And away.
        self.assertEqual(self.command("delete", "web").returncode, 0)
        self.until(lambda: not self.get("replicas")["replicas"], self.situation)
        self.until_nothing_runs()
        for node in (a, b, c):
            self.assertEqual(node.jobs(), {}, "the folders of its jobs are gone")
            self.assertIsNone(node.agent.poll(), "its agent runs on")


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
        # It also ends what it did not start.
        self.apply(self.web(replicas=1))
        self.until(lambda: self.pids().keys() == {0}, self.situation)

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
        self.assertEqual(self.get("project")["version"], 1, "what was acknowledged is there")
        # It decides again.
        self.apply(self.web(replicas=3))
        self.assertEqual(self.until_ready("web", 3)[0]["generation"], before[0]["generation"])

    def test_supervisor(self):
        a, before = self.start_web("a")
        pid = self.pids()[0][0]

        def kill_supervisor(name):
            supervisor = next(state["supervisor"]["pid"] for job, state in a.jobs().items() if job.startswith(name + "."))
            os.kill(supervisor, signal.SIGKILL)
            self.until(lambda: not is_alive(supervisor), "killed")
        kill_supervisor("web")
        time.sleep(1)  # nothing may happen
        self.assertEqual(self.pids(), {0: [pid]}, "the command runs on")
        self.assertEqual(self.until_ready("web", 1)[0]["failures"], 0)
        self.assertEqual(len(a.leases()), 1, "with its lease")
        # When it ends it is started again.
        os.kill(pid, signal.SIGKILL)
        self.until(lambda: self.pids().get(0, [pid]) != [pid], self.situation)
        self.assertEqual(self.until_ready("web", 1)[0]["failures"], 1)
        # A single one may end with its supervisor, which is the one that ends it in time. There are never two.
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

    def test_replica(self):
        a, b, before = self.start_web("a", "b")
        killed = []
        for failures in (1, 2):
            pid = self.pids()[0][0]
            killed.append(time.monotonic())
            os.kill(pid, signal.SIGKILL)
            found = self.until(lambda: (one := self.replicas()[0])["failures"] == failures and one, self.situation)
            self.until(lambda: self.pids().get(0, [pid]) != [pid], self.situation)
        after = self.until_ready("web", 2)
        self.assertEqual(after[0]["failures"], 2)
        self.assertEqual(after[0]["generation"], before[0]["generation"], "it is the same incarnation, started again")
        self.assertEqual(after[1], {**before[1], "report_age_s": after[1]["report_age_s"]}, "the other was not touched")
        began = [one[2] for one in self.lives() if one[0] == 0]
        self.assertGreaterEqual(began[1] - killed[0], 0.9, "a back-off of a second")
        self.assertGreaterEqual(began[2] - killed[1], 1.9, "which doubles")
        self.assertTrue(any("for the 2. time in a row" in one["text"] for one in self.get("events?subject=web/0")["events"]))

    def test_everything(self):
        a, b, before = self.start_web("a", "b")
        # As after a power failure: no process is left.
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
        self.assertEqual({len(one) for one in self.pids().values()}, {1})
        for node in (a, b):
            self.assertEqual(len(node.leases()), 1)


class CutOff(Fleet):
    """Times: 6 s without a report are the least until a replica is replaced; a single one adds its own end and a margin."""

    single = {"single": True, "stop_after": "5s", "stop_grace": "1s", "replace_after": "10s"}

    def never_two(self, deployment):
        lives = self.lives(deployment)
        for earlier, later in zip(lives, lives[1:]):
            self.assertLess(earlier[3], later[2], f"{deployment} lived twice at once: {lives}")
        return lives

    def test_cut_off_and_returned(self):
        a, = self.add_nodes("a", forwarded=True)
        self.apply(self.web(replace_after="6s"), self.web("one", **self.single))
        old = {name: self.until_ready(name, 1)[0] for name in ("web", "one")}
        old_pid = self.pids()[0][0]
        self.add_nodes("b")
        a.forwarder.is_cut, cut_ms, cut = True, time.time() * 1000, time.monotonic()
        new = self.until(lambda: (one := self.replicas()[0])["node"] == "b" and one["state"] == "ready" and one, self.situation)
        self.assertLess(new["assigned_at_ms"] - cut_ms, 8000, "replace_after and 2 s")
        self.assertTrue(is_alive(old_pid), "it serves on where it is")
        self.assertEqual({one["node"] for one in self.get("replicas?deployment=web")["replicas"]}, {"a", "b"})
        self.until(lambda: (one := self.replicas("one")[0])["node"] == "b" and one["state"] == "ready", self.situation)
        self.assertLess(self.never_two("one")[-2][3] - cut, 6, "its own agent ended it")
        self.assertEqual(self.get("nodes/a")["node"]["health"], "suspect")
        # It returns: the newer stays.
        pids = {name: self.pids(name)[0][-1] for name in ("web", "one")}
        a.forwarder.is_cut = False
        for name in ("web", "one"):
            kept = self.until_ready(name, 1)[0]
            self.assertEqual((kept["node"], kept["generation"] > old[name]["generation"]), ("b", True))
            self.assertEqual(self.pids(name), {0: [pids[name]]})
        self.assertEqual(a.leases(), [])
        self.never_two("one")

    def test_a_frozen_agent_does_not_let_a_single_one_run_twice(self):
        a, = self.add_nodes("a")
        self.apply(self.web(**self.single))
        b, = self.add_nodes("b")
        a.agent.send_signal(signal.SIGSTOP)
        frozen = time.monotonic()
        self.until(lambda: (one := self.replicas()[0])["node"] == "b" and one["state"] == "ready", self.situation)
        self.assertLess(self.never_two("web")[-2][3] - frozen, 6, "its supervisor ended it")
        kept = self.pids()
        a.agent.send_signal(signal.SIGCONT)
        self.until_healthy("a")
        self.until_ready("web", 1, lambda one: one["node"] == "b")
        time.sleep(1)  # nothing may happen
        self.assertEqual(self.pids(), kept)
        self.never_two("web")


class SharedLedger(Fleet):
    def watch_ledgers(self, total):
        """Reads all ledgers over and over, and notes what must never be."""
        wrong, ends = [], threading.Event()

        def watch():
            while not ends.wait(0.1):
                for node in self.nodes.values():
                    holders = {}
                    for lease in (one for one in node.leases() if one["state"] != "waiting"):
                        for device in lease.get("devices", []):
                            holders.setdefault(device["id"], []).append((lease["exclusive"], device.get("memory_bytes_promised", total), lease["command"]))
                    for device, held in holders.items():
                        if sum(one[1] for one in held) > total or (len(held) > 1 and any(one[0] for one in held)):
                            wrong.append((node.name, device, held))
        thread = threading.Thread(target=watch)
        thread.start()

        def stop():
            ends.set()
            thread.join()
        self.addCleanup(stop)
        return wrong, stop

    def hold_on(self, node, *arguments):
        return self.hold(*arguments, **{key: node.environment()[key] for key in ("BERTH_DOUBLE", "BERTH_RUNTIME_DIR")})

    def test_people_and_the_fleet_share_the_devices_of_a_node(self):
        a, b = self.add_nodes("a", "b", gpus=1)
        wrong, stop = self.watch_ledgers(80 * GIB)
        # Taken a moment before the server decides, which does not know it yet: the ledger decides.
        person = self.hold_on(a, "--mem", "60G", "--exclusive")
        self.apply(self.web(memory="40GiB"))
        self.assertEqual(self.until_ready("web", 1)[0]["node"], "b")
        # No room for another, until the person ends.
        answer = self.command("apply", self.write_project(self.web(memory="40GiB", replicas=2, on_shortage="best_effort")))
        pending = self.until(lambda: self.get("status")["pending"], self.situation)
        self.assertEqual((pending[0]["deployment"], pending[0]["replicas"]), ("web", [1]))
        self.until(lambda: any(job["node"] == "a" and job["kind"] == "lease" for job in self.get("jobs")["jobs"]), self.situation)
        person.communicate("")
        self.until_ready("web", 2)
        # And the other way round.
        refused = a.berth("run", "--mem", "60G", "--", "true")
        self.assertEqual(refused.returncode, 3, refused.stderr)
        self.assertIn("exclusive", refused.stderr)
        # Several replicas on a GPU, next to a person, within its bytes.
        self.assertEqual(self.command("delete", "web").returncode, 0)
        self.until(lambda: not self.get("replicas")["replicas"], self.situation)
        person = self.hold_on(a, "--mem", "30G")
        self.apply(self.web("small", sharing="memory", memory="20GiB", replicas=8, on_shortage="best_effort"), wait=False, status=None)
        self.until(lambda: (one := self.get("deployments/small")["deployment"])["ready"] == 6 and one["state"] == "degraded", self.situation)
        person.communicate("")
        self.until(lambda: self.get("deployments/small")["deployment"]["ready"] == 8, self.situation)
        stop()
        self.assertEqual(wrong, [])

    def test_what_a_replica_had_is_free_as_soon_as_it_is_gone(self):
        self.add_nodes("a", gpus=1)
        for text in ("v1", "v2", "v3"):
            self.apply(self.web(text=text), wait=False)  # status 0: nothing is pending
            self.until_ready("web", 1)
            self.assertEqual(self.command("delete", "web").returncode, 0)
            self.until(lambda: not self.get("replicas")["replicas"], self.situation)


class BadInput(Fleet):
    def test_of_a_project(self):
        self.add_nodes("a")
        broken = self.folder / "broken.toml"
        broken.write_text('[cluster]\nname = "lab"\n[[deployment]]\nname = \n')
        self.assertRefused(self.command("apply", str(broken)), 2, "broken.toml:4")
        self.assertRefused(self.command("apply", str(self.folder / "none.toml")), 2, "none.toml")
        self.assertEqual(self.get("project")["version"], 0, "nothing half done")
        # A command that does not exist is said where the user looks.
        bad = {"name": "bad", "gpus": 1, "command": ["/no/such/program"]}
        self.apply(self.web(), bad, wait=False)
        why = self.until(lambda: (text := self.command("why", "replica", "bad/0").stdout) and "/no/such/program" in text and text, self.situation)
        self.until_ready("web", 1)
        self.assertIn("/no/such/program", self.get("deployments/bad")["deployment"]["reason"])
        # A plan for another version.
        plan = self.folder / "plan.json"
        file = self.write_project(self.web(replicas=2))
        self.assertEqual(self.command("plan", file, "--server", "-o", str(plan)).returncode, 0)
        self.assertEqual(self.command("delete", "bad").returncode, 0)
        version = self.get("project")["version"]
        self.assertRefused(self.command("apply", file, "--plan", str(plan)), 1, "version", "plan again")
        self.assertEqual((self.get("project")["version"], len(self.replicas())), (version, 1))
        self.assertEqual(self.command("plan", file, "--server", "-o", str(plan)).returncode, 0)
        self.assertEqual(self.command("apply", file, "--plan", str(plan)).returncode, 0)
        self.until_ready("web", 2)

    def test_an_update_that_does_not_get_ready(self):
        self.add_nodes("a")
        self.apply(self.web())
        before, pids = self.until_ready("web", 1), self.pids()
        # It ends at once: the rollout pauses, and the old one serves on.
        self.apply(self.web(command=["sh", "-c", "echo no model; exit 3", "{port}"]), wait=False)
        paused = self.until(lambda: (one := self.get("deployments/web")["deployment"])["state"] == "paused" and one, self.situation)
        self.assertIn("failed 3 times in a row", paused["reason"])
        self.assertEqual((paused["ready"], self.pids()), (1, pids))
        self.assertIn("paused", self.command("rollout", "status", "web").stdout)
        self.assertIn("no model", self.command("logs", "web/0").stdout)
        self.assertEqual(self.command("rollout", "undo", "web").returncode, 0)
        self.assertEqual(self.until_ready("web", 1)[0]["generation"], before[0]["generation"], "what runs is what is wanted again")
        # A probe that never gets an answer.
        self.apply(self.web(readiness={"tcp": True, "port": 1, "every": "100ms"}), wait=False)
        why = self.until(lambda: (text := self.command("why", "replica", "web/0").stdout) and "refused" in text and text, self.situation)
        self.assertEqual(self.pids()[0][0], pids[0][0])
        self.assertEqual(self.command("rollout", "undo", "web").returncode, 0)
        self.until_ready("web", 1)
        self.assertEqual(self.pids(), pids)

    def test_of_a_server(self):
        # Its port is in use, its folder is in use.
        taken = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(taken.close)
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        serve = ("serve", "--no-agent", "--listen")
        self.assertRefused(self.berth(*serve, address, BERTH_RUNTIME_DIR=str(self.folder / "other")), 1, f"port {taken.getsockname()[1]}", "in use")
        self.assertRefused(self.command(*serve, "127.0.0.1:0"), 1, "server")
        self.assertRefused(self.berth(*serve, "0.0.0.0:0", BERTH_RUNTIME_DIR=str(self.folder / "other")), 2, "TLS")
        self.assertEqual(self.get("status")["project"]["version"], 0, "the first one serves on")
        # A store of a newer version.
        self.server.terminate()
        self.assertEqual(self.server.wait(timeout=30), 0)
        store = self.folder / "server" / f"server-{os.geteuid()}" / "store.db"
        newer = self.folder / "newer.db"
        shutil.copy(store, newer)
        database = sqlite3.connect(newer)
        with database:
            database.execute("""update entries set value = '{"store":99,"berth":"9.9.9"}' where key = 'meta/schema'""")
        database.close()
        content = newer.read_bytes()
        self.assertRefused(self.command(*serve, "127.0.0.1:0", "--store", f"sqlite:{newer}"), 2, "newer", "9.9.9")
        self.assertEqual(newer.read_bytes(), content, "it is left as it is")
        self.serve()
        self.assertEqual(self.get("status")["project"]["version"], 0)

    def test_of_agents_and_tokens(self):
        a, = self.add_nodes("a")
        # One name, twice: elsewhere, and here with the same folder.
        token = self.token("join")
        other = self.add_node("b")
        self.until_healthy("b")
        other.kill()
        other.name = "a"
        other.start(token)
        self.assertEqual(other.agent.wait(timeout=30), 2)
        self.assertIn('a node "a" is there already', other.log.read_text())
        other.name = "b"
        twin = subprocess.run(a.agent.args[:-2], env=a.environment(), capture_output=True, text=True, timeout=30)
        self.assertRefused(twin, 2, "runs already")
        other.start()
        self.until_healthy("b")
        self.assertEqual(self.get("status")["nodes"]["healthy"], 2)
        # Tokens: used up, wrong, expired, revoked.
        for bad in (a.folder / "token").read_text().strip(), "berth_" + "0" * 64, "nonsense":
            other.kill()
            other.start(bad)
            self.assertEqual(other.agent.wait(timeout=30), 1)
        short = json.loads(self.ask("POST", "/api/v1/tokens", {"role": "read", "ttl_s": 1})[2])
        self.assertEqual(self.ask("GET", "/api/v1/status", token=short["token"])[0], 200)
        self.until(lambda: self.ask("GET", "/api/v1/status", token=short["token"])[0] == 401, "it expires", 10)
        listed = {one.get("node"): one["id"] for one in self.get("tokens")["tokens"]}
        self.assertEqual(self.command("token", "remove", listed["a"]).returncode, 0)
        self.until(lambda: self.get("nodes/a")["node"]["health"] != "healthy", self.situation)
        self.assertIn("needs a token that the server knows", a.log.read_text())
        self.assertIsNone(a.agent.poll())

    def test_each_role_does_what_it_may(self):
        self.add_nodes("a")
        project = {"project": {"cluster": {"name": "lab"}, "deployments": []}}
        requests = {  # the least role
            "read": [("GET", "status", None), ("GET", "nodes/a", None), ("GET", "events", None)],
            "operate": [("PUT", "nodes/a/intent", {"intent": "in_service"})],
            "deploy": [("PUT", "project", project), ("GET", "tokens", None), ("POST", "tokens", {"role": "read"}), ("DELETE", "tokens/t1", None)],
            "node": [("GET", "agent/assignments", None), ("POST", "agent/report", {})],
            "join": [("POST", "agent/join", {"node": "x", "version": "1"})],
        }
        ranks = ["read", "operate", "deploy"]
        credential, = (self.folder / "a" / "runtime").glob("agent-*/a/credential")
        tokens = {role: self.token(role) for role in (*ranks, "join")} | {"node": credential.read_text().strip()}
        for role, token in tokens.items():
            for needed, list_of in requests.items():
                may = role == needed or (role in ranks and needed in ranks and ranks.index(role) >= ranks.index(needed))
                for method, path, body in list_of:
                    status, _, text = self.ask(method, f"/api/v1/{path}", body, token)
                    self.assertEqual(status == 403, not may, (role, method, path, status, text))
        for method, path, body in sum(requests.values(), []):
            self.assertEqual(self.ask(method, f"/api/v1/{path}", body, "berth_no")[0], 401, path)
        # A node speaks for itself alone, and a token that is no node's runs nothing.
        self.add_nodes("b")
        report = {"schema": 1, "agent": "x", "version": "0", "boot": "x", "now_at_ms": 0, "epoch": 1, "revision": 1, "replicas": [],
                  "inventory": {"format": 1, "node": {"name": "b"}, "devices": [], "links": []}}
        status, _, text = self.ask("POST", "/api/v1/agent/report", report, tokens["node"])
        self.assertEqual(status, 403, text)


class Secrets(Fleet):
    def test_secrets_reach_the_replica_and_nothing_else(self):
        in_file, in_variable = "planted-in-a-file-8c1f", "planted-in-a-variable-77aa"
        folder = self.folder / "secrets"
        folder.mkdir()
        (folder / "key").write_text(in_file + "\n")
        (self.folder / "outside").write_text(in_file + "\n")
        rules = self.folder / "agent.toml"
        rules.write_text(f'secret_folders = ["{folder}"]\n')
        a = self.add_node("a", options=["--agent-file", str(rules)], PLANTED=in_variable)
        self.until_healthy("a")
        script = f'printf "%s %s" "$ONE" "$TWO" | sha256sum > {self.journal}/sum; echo it runs; exec sleep 600'
        chat = {"name": "chat", "gpus": 1, "command": ["sh", "-c", script], "secrets": {"ONE": f"file:{folder}/key", "TWO": "env:PLANTED"}}
        lost = {**chat, "name": "lost", "secrets": {"ONE": f"file:{self.folder}/outside"}}
        self.apply(chat, lost, wait=False)
        self.until_ready("chat", 1)
        wanted = hashlib.sha256(f"{in_file} {in_variable}".encode()).hexdigest()
        self.until(lambda: (self.journal / "sum").exists() and (self.journal / "sum").read_text().split()[:1] == [wanted], "they reach it")
        self.until(lambda: "secret" in self.get("deployments/lost")["deployment"].get("reason", ""), self.situation)
        texts = {}
        for path in ("status", "nodes", "nodes/a", "project", "deployments", "deployments/chat", "replicas", "replicas/chat/0", "replicas/lost/0",
                     "replicas/chat/0/logs", "jobs", "events?limit=1000", "tokens"):
            status, _, texts[path] = self.ask("GET", f"/api/v1/{path}")
            self.assertEqual(status, 200, path)
        texts["metrics"] = self.ask("GET", "/metrics")[2]
        for command in (("status",), ("replicas",), ("events",), ("why", "replica", "chat/0"), ("logs", "chat/0")):
            texts[command] = self.command(*command).stdout
        texts["ps"] = a.berth("ps", "-a", "--json").stdout
        searched = 0
        for file in self.folder.rglob("*"):
            if file.is_file() and file not in (folder / "key", self.folder / "outside"):
                texts[file] = file.read_bytes().decode(errors="replace")
                searched += file.suffix == ".json"
        self.assertGreaterEqual(searched, 2, "the files of the job are among them")
        self.assertTrue(any("store.db" in str(file) and texts[file] for file in texts), "and the store")
        for where, text in texts.items():
            self.assertNotIn("planted-in", text, where)


class Api(Fleet):
    def test_answers_are_as_documented(self):
        document = Document.read(ROOT / "docs" / "openapi.json")
        a, = self.add_nodes("a")
        self.apply(self.web(), self.web("much", gpus=3), wait=False, status=3)
        self.until_ready("web", 1)
        device = self.get("nodes/a")["node"]["devices"][0]["id"]
        token = json.loads(self.ask("POST", "/api/v1/tokens", {"role": "read"})[2])["id"]
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
        for path in ("openapi.json", "status", "nodes", "nodes/a", f"nodes/a/history?device={device}", "project", "deployments", "deployments/web",
                     "deployments/much", "replicas", "replicas?deployment=web", "replicas/web/0", "replicas/much/0", "replicas/web/0/logs?tail=5", "jobs",
                     "events", "events?after=2&limit=3", "tokens"):
            check("GET", f"/api/v1/{path}")
        for path in ("nodes/none", "deployments/none", "replicas/web/7", "replicas/web/x", "replicas/web/7/logs", "nothing"):
            check("GET", f"/api/v1/{path}", status=404)
        check("GET", "/api/v1/nodes/a/history", status=400)
        check("GET", "/api/v1/status", status=401, token="berth_no")
        check("GET", "/api/v1/agent/assignments", status=403)
        check("PUT", "/api/v1/nodes/a/intent", {"intent": "cordoned"})
        check("PUT", "/api/v1/nodes/a/intent", {"intent": "in_service"})
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
        join = self.token("join")
        check("POST", "/api/v1/agent/join", {"node": "x", "version": "0.1.0"}, token=join)
        check("DELETE", "/api/v1/deployments/much")
        check("DELETE", "/api/v1/deployments/much", status=404)
        self.assertEqual(problems, [])


if __name__ == "__main__":
    unittest.main(verbosity=1)
