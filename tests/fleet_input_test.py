"""Bad input to a fleet: each is reported in one clear sentence where the user looks, and changes nothing."""
import http.client
import json
import re
import shutil
import socket
import sqlite3
import subprocess
import time
import unittest

from fleet_case import Fleet
from berth_case import needs_sqlite


class BadInput(Fleet):
    def test_of_a_project(self):
        self.add_nodes("a")
        broken = self.folder / "broken.toml"
        broken.write_text('[cluster]\nname = "lab"\n[[deployment]]\nname = \n')
        self.assertRefused(self.command("apply", str(broken)), 2, "broken.toml:4:8: the text is not valid TOML")
        self.assertRefused(self.command("apply", str(self.folder / "none.toml")), 2, "none.toml")
        self.assertEqual(self.get("project")["version"], 0, "nothing was changed in part")
        # A command that does not exist is reported where the user looks.
        bad = {"name": "bad", "gpus": 1, "command": ["/no/such/program"]}
        self.apply(self.web(), bad, wait=False)
        why = self.until(lambda: (text := self.command("why", "replica", "bad/0").stdout) and "/no/such/program" in text and text, self.situation)
        self.until_ready("web", 1)
        self.assertIn("/no/such/program", self.get("deployments/bad")["deployment"]["reason"])
        # A plan that was made for another version.
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
        # The new replica ends at once: the rollout pauses, and the old replica continues to serve.
        self.apply(self.web(command=["sh", "-c", "echo no model; exit 3", "{port}"]), wait=False)
        paused = self.until(lambda: (deployment := self.get("deployments/web")["deployment"])["state"] == "paused" and deployment, self.situation)
        self.assertIn("failed 3 times in a row", paused["reason"])
        self.assertEqual((paused["ready"], self.pids()), (1, pids))
        self.assertIn("paused", self.command("rollout", "status", "web").stdout)
        self.assertIn("no model", self.command("logs", "web/0").stdout)
        self.assertEqual(self.command("rollout", "undo", "web").returncode, 0)
        self.assertEqual(self.until_ready("web", 1)[0]["generation"], before[0]["generation"], "the running replica matches the project again")
        # A probe that never gets an answer.
        never = {"readiness": {"tcp": True, "port": 1, "every": "100ms"}, "ready_within": "1s"}
        problem = "it was not ready within 1 s: port 1: Connection refused"
        answer = self.command("apply", self.write_project(self.web(**never)), "--wait")
        self.assertEqual(answer.returncode, 1, answer.stdout + answer.stderr + self.situation())
        self.assertIn("failed 3 times in a row: " + problem, answer.stdout + answer.stderr)
        self.assertIn(problem, " ".join(self.command("why", "replica", "web/0").stdout.split()))
        self.assertEqual(self.pids()[0][0], pids[0][0], "the old replica continues to serve")
        self.assertEqual(self.command("rollout", "undo", "web").returncode, 0)
        self.until_ready("web", 1)
        self.assertEqual(self.pids(), pids)

    @needs_sqlite
    def test_of_a_server(self):
        # The server's port or folder is in use.
        taken = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(taken.close)
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        serve = ("serve", "--no-agent", "--gateway", "none", "--listen")
        self.assertRefused(self.berth(*serve, address, BERTH_RUNTIME_DIR=str(self.folder / "other")), 1, f"port {taken.getsockname()[1]}", "in use")
        self.assertRefused(self.command(*serve, "127.0.0.1:0"), 1, "server")
        self.assertEqual(self.get("status")["project"]["version"], 0, "the first server still works")
        # A store of a newer version.
        self.server.terminate()
        self.assertEqual(self.server.wait(timeout=30), 0)
        newer = self.folder / "newer.db"
        shutil.copy(self.store, newer)
        database = sqlite3.connect(newer)
        with database:
            database.execute("""update entries set value = '{"store":99,"berth":"9.9.9"}' where key = 'meta/schema'""")
        database.close()
        content = newer.read_bytes()
        self.assertRefused(self.command(*serve, "127.0.0.1:0", "--store", f"sqlite:{newer}"), 2, "newer", "9.9.9")
        self.assertEqual(newer.read_bytes(), content, "the store is not changed")
        self.serve()
        self.assertEqual(self.get("status")["project"]["version"], 0)

    def test_of_agents_and_tokens(self):
        a, = self.add_nodes("a")
        # The same node name twice: in another folder, and in the same folder.
        token = self.token("join")
        other = self.add_node("b")
        self.until_healthy("b")
        other.kill()
        other.name = "a"
        other.start(token)
        self.assertEqual(other.agent.wait(timeout=30), 2)
        self.assertIn('a node "a" already exists', other.log.read_text())
        other.name = "b"
        twin = subprocess.run(a.agent.args[:-2], env=a.environment(), capture_output=True, text=True, timeout=30)
        self.assertRefused(twin, 2, "is already running")
        other.start()
        self.until_healthy("b")
        self.assertEqual(self.get("status")["nodes"]["healthy"], 2)
        # Tokens: used up, wrong, expired, revoked.
        for bad in (a.folder / "token").read_text().strip(), "berth_" + "0" * 64, "nonsense":
            other.kill()
            other.start(bad)
            self.assertEqual(other.agent.wait(timeout=30), 1)
            self.assertIn(f"http://127.0.0.1:{self.port} does not prove that it knows this token; the token is wrong, used or revoked",
                          " ".join(other.log.read_text().split()))
            other.log.unlink()
        long, short = (json.loads(self.ask("POST", "/api/v1/tokens", {"role": "read", "ttl_s": seconds})[2]) for seconds in (600, 1))
        self.until(lambda: self.ask("GET", "/api/v1/status", token=short["token"])[0] == 401, "it expires")
        self.assertEqual(self.ask("GET", "/api/v1/status", token=long["token"])[0], 200)
        listed = {token.get("node"): token["id"] for token in self.get("tokens")["tokens"]}
        self.assertEqual(self.command("token", "remove", listed["a"]).returncode, 0)
        self.until(lambda: self.get("nodes/a")["node"]["health"] != "healthy", self.situation)
        self.assertIn("it does not know the credential of this node; join again", a.log.read_text())
        self.assertIsNone(a.agent.poll())

    def test_each_role_does_what_it_may(self):
        self.add_nodes("a")
        project = {"project": {"cluster": {"name": "lab"}, "deployments": []}}
        requests = {  # with the least role that each needs
            "read": [("GET", "status", None), ("GET", "nodes/a", None), ("GET", "events", None)],
            "operate": [("PUT", "nodes/a/intent", {"intent": "in_service"}), ("PUT", "nodes/a/devices/x/intent", {"intent": "in_service"}),
                        *(("POST", "deployments/x/rollout", {"action": action}) for action in ("restart", "pause", "resume")),
                        ("GET", "requests/x", None), ("POST", "route", {"deployment": "x"})],
            "deploy": [("PUT", "project", project), ("POST", "deployments/x/scale", {"replicas": 1}),
                       ("POST", "deployments/x/rollout", {"action": "undo"}), ("DELETE", "deployments/x", None), ("GET", "tokens", None), ("POST", "tokens", {"role": "read"}), ("DELETE", "tokens/t1", None)],
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
        # The page needs the role read; a session may read everything.
        for role, token in tokens.items():
            status, _, text = self.ask("POST", "/api/v1/login", {"token": token}, token="berth_no")
            self.assertEqual(status, 200 if role in ranks else 401, (role, text))
        # A join token is valid for a short time.
        made = {role: json.loads(self.ask("POST", "/api/v1/tokens", {"role": role})[2]) for role in ("join", "read")}
        self.assertNotIn("expires_at_ms", made["read"])
        self.assertTrue(0 < made["join"]["expires_at_ms"] - time.time() * 1000 <= 3_600_000, made["join"])
        # A node may act only for itself, and a token of no node gets no replicas.
        self.add_nodes("b")
        report = {"schema": 1, "agent": "x", "version": "0", "boot": "x", "now_at_ms": 0, "epoch": 1, "revision": 1, "replicas": [],
                  "inventory": {"format": 1, "node": {"name": "b"}, "devices": [], "links": []}}
        status, _, text = self.ask("POST", "/api/v1/agent/report", report, tokens["node"])
        self.assertEqual(status, 403, text)


class HostileNode(Fleet):
    """One node sends reports that no agent would send: they harm only its own replicas."""

    def setUp(self):
        super().setUp()
        self.add_nodes("good")
        status, _, text = self.ask("POST", "/api/v1/agent/join", {"node": "evil"}, self.token("join"))
        self.assertEqual(status, 200, text)
        self.credential, self.number = json.loads(text)["token"], 0

    def report(self, inventory=(), replicas=(), node={}, status=200, **more):
        self.number += 1
        body = {"agent": "evil", "version": "0", "boot": "b", "now_at_ms": 1, "number": self.number, "epoch": 1, "revision": 1,
                "inventory": {"node": {"name": "evil", **node}, "devices": list(inventory), "links": []}, "replicas": list(replicas), **more}
        answer = self.ask("POST", "/api/v1/agent/report", body, self.credential)
        self.assertEqual(answer[0], status, answer[2])
        return json.loads(answer[2])

    def test_numbers_that_were_never_given_out_stop_nobody(self):
        for generation in 2 ** 64 - 1, 2 ** 64 - 3, 2 ** 63:
            self.report(replicas=[{"deployment": "zz", "replica": 0, "generation": generation, "state": "ready"}])
            self.apply(self.web(text=f"v{generation}"), wait=False)
            revision = self.get("deployments/web")["deployment"]["revision"]
            self.until_ready("web", 1, lambda replica: replica["revision"] == revision)
            self.assertLess(max(self.generations().values()), 1000)

    def test_long_texts_stop_nobody(self):
        own = {"name": "own", "cpu": True, "node_selector": {"who": "evil"}, "command": ["/bin/sleep", "1000"]}
        evil = {"labels": {"who": "evil"}, "cpus": 8, "memory": 1 << 40}
        self.report(node=evil)
        self.apply(own, wait=False)
        replica = self.until(lambda: self.replicas("own").get(0), self.situation)
        revision = self.report(node=evil)["revision"]
        self.report(node=evil, revision=revision, replicas=[{"deployment": "own", "replica": 0, "generation": replica["generation"], "state": "backing_off",
                                                             "failures": 1, "reason": "R" * 1_100_000, "job": "J" * 1_100_000}])
        # A device with an id that appears in events and placements.
        self.report([{"id": "D" * 1_100_000, "backend": "cuda", "health": "lost"}], node=evil, status=400)
        self.apply(own, self.web(), wait=False)
        self.until_ready("web", 1)
        failed, = (event for event in self.get("events")["events"] if event["kind"] == "failed")
        self.assertLess(len(failed["text"]), 700)
        self.assertIn("R" * 400, failed["text"])
        self.assertLess(len((self.folder / "server.log").read_text()), 100_000)

    def test_its_devices_take_no_history_from_others(self):
        device = self.get("nodes/good")["node"]["devices"][0]["id"]
        known = {"id": "GPU-e", "backend": "cuda", "memory_bytes_total": 1 << 36, "memory_bytes_free": 1 << 36}
        self.report([known], devices=[{"id": f"x{number}"} for number in range(10_000)] + [known])
        self.assertEqual(self.get("nodes/evil/history?device=x1")["t_ms"], [], "the device is not in the inventory")
        self.assertEqual(len(self.get("nodes/evil/history?device=GPU-e")["t_ms"]), 1)
        samples = len(self.get(f"nodes/good/history?device={device}")["t_ms"])
        self.until(lambda: len(self.get(f"nodes/good/history?device={device}")["t_ms"]) > samples, "a sample every ten seconds", 30)

    def test_it_takes_no_devices_from_others(self):
        gpus = [gpu for gpu in self.get("nodes/good")["node"]["devices"] if gpu["backend"] == "cuda"]
        self.report([{"id": gpu["id"], "backend": "cuda", "memory_bytes_total": gpu["memory_bytes_total"], "health": "lost"} for gpu in gpus])
        self.apply(self.web(replicas=len(gpus)), wait=False)
        self.until_ready("web", len(gpus), lambda replica: replica["node"] == "good")
        # A repeated id counts once, and the rest of the report counts.
        twice = [{"id": "GPU-e", "backend": "cuda", "name": name, "memory_bytes_total": 1 << 36} for name in ("first", "second")]
        self.report([*twice, {**twice[0], "id": "GPU-f"}], devices=[*twice, {**twice[0], "id": "GPU-f"}])
        self.assertEqual([(gpu["id"], gpu["name"]) for gpu in self.get("nodes/evil")["node"]["devices"]], [("GPU-e", "first"), ("GPU-f", "first")])

    def test_a_long_id_of_a_device_hides_no_column(self):
        device = {"id": "a-device-whose-driver-gives-names-that-are-very-long-indeed0", "backend": "cuda", "name": "Some GPU", "ordinal": 0, "health": "healthy",
                  "memory_bytes_total": 16 << 30, "memory_bytes_free": 12 << 30}
        self.assertEqual(len(device["id"]), 60)
        self.report([device], devices=[device])
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.on_terminal(80, "nodes", "evil", BERTH_RUNTIME_DIR=str(self.folder / "server"))[0]).replace("\r", "")
        self.assertRegex(text, r"(?m)^DEVICE +ID +.*STATE +FREE MEMORY")
        self.assertRegex(text, r"(?m)^cuda:0 +a-dev\S*-indeed0 .* 12\.0 GiB of 16\.0 GiB")
        self.assertLessEqual(max(map(len, text.splitlines())), 80, text)

    def test_amounts_that_cannot_be(self):
        total = self.get("status")["devices"]["memory_bytes_total"]
        gpu = {"id": "GPU-e", "backend": "cuda", "memory_bytes_total": 1 << 36}
        self.assertIn("more memory than any device", str(self.report([{**gpu, "memory_bytes_total": 2 ** 64 - 1}], status=400)))
        self.report([gpu], devices=[{**gpu, "memory_bytes_free": 2 ** 63}, {**gpu, "id": "GPU-f", "memory_bytes_free": 2 ** 40}])
        devices = self.get("status")["devices"]
        self.assertEqual(devices["memory_bytes_total"], total + (1 << 36), "the first row does not count")
        self.assertIn("1 of its devices is not valid", self.get("nodes/evil")["node"]["problem"])
        self.assertLessEqual(devices["memory_bytes_free"], devices["memory_bytes_total"])


class EqualMachines(Fleet):
    """Two nodes whose devices have the same ids, like two machines of one kind without UUIDs."""

    def test_both_are_used(self):
        for name in ("a", "b"):
            node = self.make_node(name)
            node.script.write_text(node.script.read_text().replace(f"series {len(self.nodes)}\n", "series 7\n"))
            node.start(self.token("join"))
        self.until_healthy("a", "b")
        ids = {name: {device["id"] for device in self.get(f"nodes/{name}")["node"]["devices"]} for name in ("a", "b")}
        self.assertEqual(ids["a"], ids["b"])
        self.apply(self.web(replicas=4))
        replicas = self.until_ready("web", 4).values()
        places = {(replica["node"], *replica["devices"]) for replica in replicas}
        self.assertEqual((len(places), {replica["node"] for replica in replicas}), (4, {"a", "b"}))
        # A device id applies to its own node only.
        device = next(replica["devices"][0] for replica in replicas if replica["node"] == "a")
        self.assertEqual(self.command("cordon", f"node/a/{device}").returncode, 0)
        intents = {name: [row["intent"] for row in self.get(f"nodes/{name}")["node"]["devices"] if row["id"] == device] for name in ("a", "b")}
        self.assertEqual(intents, {"a": ["cordoned"], "b": ["in_service"]})

    def test_devices_without_a_uuid(self):
        """Their owners offer them by the ids that earlier versions gave to them."""
        self.needs_pocl()
        devices = json.loads(self.berth("devices", "--backend", "opencl", "--json").stdout)
        former, now = devices[1]["former_id"], devices[1]["id"]
        for name in ("a", "b"):
            rules = self.folder / f"{name}.toml"
            rules.write_text(f'devices = ["{former}"]\n')
            self.add_node(name, options=["--agent-file", str(rules)])
        self.until_healthy("a", "b")
        self.apply(self.web(replicas=2))
        self.assertEqual({(replica["node"], *replica["devices"]) for replica in self.until_ready("web", 2).values()}, {("a", now), ("b", now)})
        self.assertEqual(self.command("drain", f"node/a/{former}").returncode, 0)
        intents = {device["id"]: device["intent"] for device in self.get("nodes/a")["node"]["devices"]}
        self.assertEqual((intents[now], now), ("draining", "cpu-opencl-1"))


class HostileUser(Fleet):
    """Another user of the server's machine."""

    server_prefix = ("prlimit", "--nofile=1024")  # the number of connections follows from it

    def request(self, method, path, headers, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, answer.headers, text

    def test_a_stolen_cookie_only_reads(self):
        # A browser sends the cookie of 127.0.0.1 to every port of it.
        token = (self.store.parent / "token").read_text().strip()
        status, headers, text = self.request("POST", "/api/v1/login", {}, {"token": token})
        self.assertEqual((status, json.loads(text)["role"]), (200, "deploy"))
        cookie = {"Cookie": "other=1; " + headers["Set-Cookie"].partition(";")[0]}
        self.assertEqual(self.request("GET", "/api/v1/status", cookie)[0], 200)
        for method, path, body in (("POST", "tokens", {"role": "deploy"}), ("GET", "tokens", None), ("DELETE", "deployments/web", None)):
            for more in ({}, {"Berth-Session-Secret": ""}, {"Berth-Session-Secret": cookie["Cookie"].rpartition("=")[2]}):
                status, _, answer = self.request(method, f"/api/v1/{path}", cookie | more, body)
                self.assertEqual(status, 403, path)
                self.assertIn("this session has read", answer)
        # The page itself has a second secret, which no browser sends on its own.
        secret = {"Berth-Session-Secret": json.loads(text)["session_secret"]}
        self.assertEqual(self.request("GET", "/api/v1/tokens", cookie | secret)[0], 200)
        self.assertEqual(self.request("GET", "/api/v1/tokens", secret)[0], 401)
        for sent, role in ((cookie, "read"), (cookie | secret, "deploy")):
            session = json.loads(self.request("GET", "/api/v1/session", sent)[2])
            self.assertEqual((session["role"], session["token_role"]), (role, "deploy"))
        self.assertNotIn(secret["Berth-Session-Secret"], self.request("GET", "/api/v1/session", cookie | secret)[2])
        attack = {"Origin": "http://127.0.0.1:9", "Sec-Fetch-Site": "same-site"}
        self.assertEqual(self.request("GET", "/api/v1/tokens", cookie | secret | attack)[0], 403)
        # The name is of this server alone, so that another port does not end the session.
        name = headers["Set-Cookie"].partition("=")[0]
        self.assertRegex(name, "^berth-[0-9a-f]{8}$")
        self.assertEqual(self.request("GET", "/api/v1/status", {"Cookie": cookie["Cookie"].replace(name, "berth")})[0], 401)
        self.assertIn(name + "=;", self.request("POST", "/api/v1/logout", cookie)[1]["Set-Cookie"])
        self.assertEqual(self.request("GET", "/api/v1/status", cookie)[0], 401)

    def test_a_crowd_on_the_port_locks_out_nobody_on_the_socket(self):
        crowd = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(800)]
        for connection in crowd:
            self.addCleanup(connection.close)
        for _ in range(5):
            answer = self.command("status")
            self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertLess(int(re.search(r"^berth_server_connections (\d+)", self.ask("GET", "/metrics")[2], re.M)[1]), 704)

    def test_strangers_are_not_listened_to_for_long(self):
        for path, token, size, expected in (("login", "", 5_000, 413), ("agent/join", "", 5_000, 413), ("agent/report", "", 100_000, 413),
                                            ("agent/report", "", 10_000, 401), ("project", self.token("read"), 100_000, None)):
            with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
                connection.sendall(f"{'PUT' if path == 'project' else 'POST'} /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\n"
                                   f"Authorization: Bearer {token}\r\n"
                                   f"Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n".encode())
                if expected == 413:  # before a byte of the body
                    self.assertIn(b" 413 ", connection.recv(4096), path)
                else:
                    connection.sendall(b" " * size)
                    self.assertIn(b" 401 " if expected else b" 403 ", connection.recv(4096), path)


@needs_sqlite
class StoreThatFails(Fleet):
    def test_a_controller_that_cannot_decide_says_so(self):
        self.add_nodes("a")
        self.apply(self.web())
        self.assertEqual(self.ask("GET", "/readyz")[0], 200)
        self.assertIn("berth_controller_stuck 0", self.ask("GET", "/metrics")[2])
        database = sqlite3.connect(self.store)
        self.addCleanup(database.close)
        with database:
            database.execute("create trigger broken before insert on entries begin select raise(abort, 'no more of it'); end")
        self.nodes["a"].kill()  # its silence is an event, which cannot be stored
        problem = self.until(lambda: self.get("status").get("problem"), self.situation)
        self.assertIn("no more of it", problem)
        text = self.command("status").stdout
        self.assertIn("! the server cannot decide anything now", text)
        self.assertIn("no more of it", text)
        self.assertEqual(self.ask("GET", "/readyz")[0], 503)
        self.assertIn("berth_controller_stuck 1", self.ask("GET", "/metrics")[2])
        with database:
            database.execute("drop trigger broken")
        self.until(lambda: "problem" not in self.get("status"), self.situation)
        self.assertEqual(self.ask("GET", "/readyz")[0], 200)


if __name__ == "__main__":
    unittest.main(verbosity=1)
