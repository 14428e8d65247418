"""The server as a service: its file, read again while it runs, and the logs of server and agents."""
import http.client
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import time
import unittest
import warnings

from berth_case import BERTH, ROOT, needs_sqlite
from fleet_case import Fleet, free_port, toml


class Service(Fleet):
    """A server that is started with a file. `write` changes the file, `reload` has it read."""

    def setUp(self):
        self.settings = {}
        super().setUp()

    def write(self, **settings):
        self.settings = {**self.settings, **settings}
        self.file.write_text("".join(f"{key} = {toml(value)}\n" for key, value in self.settings.items()))

    def serve(self, *options):
        self.file, self.port = self.folder / "server.toml", self.port or free_port()
        self.write(listen=[f"127.0.0.1:{self.port}"], gateway="none")
        self.log = self.folder / "server.log"
        with self.log.open("a") as log:
            self.server = subprocess.Popen([BERTH, "serve", "--no-agent", "--config", str(self.file), *options], stdout=log, stderr=log,
                                           stdin=subprocess.DEVNULL, env=self.environment(BERTH_RUNTIME_DIR=str(self.folder / "server")))
        self.started.append(self.server)
        self.until(lambda: "yours is in" in self.log.read_text() or self.server.poll() is not None, "the server starts")
        self.assertIsNone(self.server.poll(), self.log.read_text())

    def reload(self, sentence):
        """Sends SIGHUP; `sentence` must be in the log next."""
        begin = len(self.log.read_text())
        self.server.send_signal(signal.SIGHUP)
        self.until(lambda: "configuration" in self.log.read_text()[begin:], "it says what it did", 10)
        log = self.log.read_text()[begin:]
        self.assertIn(sentence, log)
        return log.replace('\\"', '"')

    def answers(self, port, host="127.0.0.1"):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("GET", "/healthz", headers={"Host": host})
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def make_certificate(self, name):
        """Writes a new certificate to the file of that name, like a service that renews certificates."""
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=head", "-keyout", self.folder / f"{name}.key", "-out", self.folder / f"{name}.pem"],
                       check=True, capture_output=True)
        return (self.folder / f"{name}.pem").read_text().strip()


class Reload(Service):
    def test_listeners_come_and_go_and_connections_stay(self):
        first, second, taken = self.port, free_port(), socket.create_server(("127.0.0.1", 0))
        self.addCleanup(taken.close)
        token = self.token("operate")
        kept = http.client.HTTPConnection("127.0.0.1", first, timeout=10)

        def still_answers():
            kept.request("GET", "/api/v1/status", headers={"Authorization": f"Bearer {token}"})
            answer = kept.getresponse()
            answer.read()
            return answer.status == 200
        self.assertTrue(still_answers())
        stream = http.client.HTTPConnection("127.0.0.1", first, timeout=30)
        stream.request("GET", "/api/v1/stream", headers={"Authorization": f"Bearer {token}"})
        events = stream.getresponse()
        self.assertIn(b"change", events.readline())
        self.assertFalse(self.answers(first, "head"), "not a name of this server")
        # One more address, and a name; then the first address is removed.
        self.write(listen=[f"127.0.0.1:{first}", f"127.0.0.1:{second}"], host_names=["head"])
        log = self.reload("has reloaded its configuration")
        self.until(lambda: f"serves http://127.0.0.1:{second}" in self.log.read_text(), log)
        self.assertTrue(self.answers(first) and self.answers(second) and self.answers(second, "head"))
        self.write(listen=[f"127.0.0.1:{second}"])
        self.reload("has reloaded its configuration")
        self.assertFalse(self.answers(first))
        self.assertTrue(self.answers(second))
        # An invalid file changes nothing, not even by its valid parts.
        good = self.file.read_text()
        for wrong, sentence in [
                (good.replace("listen", "listn"), 'unknown key "listn" in the server\'s file; did you mean "listen"?'), ("listen = [", "the text is not valid TOML"),
                (f'listen = ["127.0.0.1:{first}", "127.0.0.1:{taken.getsockname()[1]}"]', "is in use by another process"),
                (good + 'certificate_lifetime = "1s"\n', "certificate_lifetime is out of range"),
                (good + 'store = "memory"\n', "the store cannot change while the server runs"),
                (good + 'tls_certificate = "/none.pem"\ntls_key = "/none.key"\n', "/none.pem")]:
            self.file.write_text(wrong)
            log = self.reload('cannot use its new configuration and keeps the old one')
            self.assertIn(sentence, log)
            self.assertEqual(log.count("\n"), 1, "the log has one message")
            self.assertTrue(self.answers(second, "head") and not self.answers(first), wrong)
        self.file.unlink()
        self.assertIn("server.toml", self.reload('cannot use its new configuration and keeps the old one'))
        self.assertTrue(still_answers() and self.answers(second), "the connection that was opened first continues")
        # So does the stream: it reports new events.
        self.token("read")
        while b"credential" not in (line := events.readline()):
            self.assertTrue(line, "the stream has ended")
        kept.close()
        stream.close()

    def test_certificates_are_renewed(self):
        old = self.make_certificate("head")
        self.write(tls_certificate=str(self.folder / "head.pem"), tls_key=str(self.folder / "head.key"))
        self.reload("has reloaded its configuration")
        seen = lambda: ssl.get_server_certificate(("127.0.0.1", self.port), timeout=10).strip()
        self.assertEqual(seen(), old, "TLS on the same address")
        kept = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=10, context=ssl._create_unverified_context())

        def still_answers():
            kept.request("GET", "/healthz")
            answer = kept.getresponse()
            answer.read()
            return answer.status == 200
        self.assertTrue(still_answers())
        new = self.make_certificate("head")
        self.assertNotEqual(new, old)
        self.assertEqual(seen(), old, "the certificate changes only after SIGHUP")
        self.reload("has reloaded its configuration")
        self.assertEqual(seen(), new)
        self.assertTrue(still_answers())
        (self.folder / "head.key").write_text("no key\n")
        self.reload('cannot use its new configuration and keeps the old one')
        self.assertEqual(seen(), new)
        kept.close()


class Connections(Service):
    """The soft limit on open files is that of this test."""

    def limit_of(self, files, **settings):
        self.server.terminate()
        self.server.wait(timeout=30)
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, before[1]))
        try:
            self.write(**settings)
            self.log.write_text("")
            self.serve()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("GET", "/metrics")
        found = re.search(r"^berth_server_connections_limit (\d+)$", connection.getresponse().read().decode(), re.MULTILINE)
        connection.close()
        return int(found[1]) - 64  # without those over Unix sockets

    def test_are_limited_by_open_files_and_the_file_of_the_server(self):
        self.assertEqual(self.limit_of(1024), 704)
        self.assertEqual(self.limit_of(512), 192)
        self.assertEqual(self.limit_of(512, connections=16), 16)
        self.assertEqual(self.limit_of(512, connections=300), 300, "the soft limit is raised")


class OldTls(Service):
    """OpenSSL's own configuration of this machine would allow everything."""

    def environment(self, **more):
        file = self.folder / "openssl.cnf"
        file.write_text("openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\nsystem_default = lax\n[lax]\nMinProtocol = TLSv1\nCipherString = ALL:@SECLEVEL=0\n")
        return super().environment(OPENSSL_CONF=str(file), **more)

    def test_versions_before_1_2_are_refused(self):
        self.make_certificate("head")
        self.write(tls_certificate=str(self.folder / "head.pem"), tls_key=str(self.folder / "head.key"))
        self.reload("has reloaded its configuration")

        def version(minimum, maximum):
            context = ssl._create_unverified_context()
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version, context.maximum_version = minimum, maximum
            with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection, context.wrap_socket(connection) as wrapped:
                return wrapped.version()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of the versions that must not work
            self.assertEqual(version(ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2), "TLSv1.2")
            self.assertEqual(version(ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3), "TLSv1.3")
            with self.assertRaises(ssl.SSLError):
                version(ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1)


def read_logfmt(line):
    """The fields of a line, all of which must be well-formed."""
    fields, rest = {}, line
    while rest:
        match = re.match(r'([a-z_]+)=([^ "=\\]+|"(?:[^"\\]|\\.)*")(?: |$)', rest)
        assert match, f"not logfmt: {line!r} at {rest!r}"
        value = match[2]
        fields[match[1]] = re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
        rest = rest[match.end():]
    return fields


class Logs(Fleet):
    def lines(self, path, read):
        found = [read(line) for line in pathlib.Path(path).read_text().splitlines()]
        for record in found:
            self.assertRegex(record["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertIn(record["level"], ("info", "warning", "error"))
            self.assertTrue(record["msg"])
            self.assertIn(record["component"], ("server", "agent"))
        return found

    def tell(self, read, *options):
        """Runs a fleet whose logs have that form, and returns the logs."""
        secret = self.folder / "secret"
        secret.write_text("s3cret-of-a-replica\n")
        secret.chmod(0o600)
        rules = self.folder / "agent.toml"
        rules.write_text(f'secret_folders = ["{self.folder}"]\n')
        node = self.add_node("a", options=["--agent-file", str(rules), *options])
        self.until_healthy("a")
        self.apply(self.web(replicas=1, secrets={"KEY": f"file:{secret}"}))
        self.assertEqual(self.command("cordon", "node/a").returncode, 0)
        made = self.token("read")
        self.assertEqual(self.command("delete", "web").returncode, 0)
        self.until(lambda: not self.get("replicas")["replicas"], self.situation)
        self.until_nothing_runs()
        # No secrets: neither tokens, nor contents of files, nor variables of replicas.
        secrets = [made, (node.folder / "token").read_text().strip(), secret.read_text().strip()]
        secrets += [file.read_text().strip() for file in self.folder.rglob("*") if file.name in ("credential", "token")]
        self.assertGreaterEqual(len(set(secrets)), 5)
        for log in (node.log, self.folder / "server.log"):
            for value in secrets:
                self.assertNotIn(value, log.read_text())
        return self.lines(self.folder / "server.log", read), self.lines(node.log, read), node

    def check(self, server, agent, node):
        user = {record["actor"] for record in server if record["msg"] == "a is cordoned"}
        self.assertEqual(len(user), 1)
        self.assertRegex(user.pop(), "^user:.")
        # The log has the complete events, with their actors.
        logged = {(record["kind"], record["subject"], record["actor"], record["msg"]) for record in server if "kind" in record}
        kept = {(event["kind"], event["subject"], event["actor"], event["text"]) for event in self.get("events")["events"]}
        self.assertEqual(logged, kept)
        self.assertTrue(any(kind == "applied" and actor.startswith("user:") for kind, _, actor, _ in logged))
        # The agent first logs who it is, then what it does.
        first = agent[0]
        devices = [device["id"] for device in json.loads(node.berth("devices", "--backend", "cuda", "--json").stdout)]
        self.assertEqual((first["msg"], first["node"], first["server"]), ("the agent is starting", "a", f"http://127.0.0.1:{self.port}"))
        self.assertEqual(first["devices"].split(","), devices)
        self.assertEqual([record["msg"] for record in agent[1:] if "replica" in record],
                         ["the agent is starting a replica", "the agent is stopping a replica"])
        self.assertEqual({record["actor"] for record in agent}, {"node:a"})

    def test_every_line_is_logfmt_and_names_who_did_it(self):
        self.check(*self.tell(read_logfmt))

    def test_on_a_terminal_it_is_for_people(self):
        self.server.terminate()
        self.server.wait()
        place = {"BERTH_RUNTIME_DIR": str(self.folder / "server")}
        serve = ("serve", "--no-agent", "--gateway", "none", "--store", "memory", "--listen", "127.0.0.1:0")
        shown, status = self.on_terminal(200, *serve, until=b"the page asks", NO_COLOR="1", **place)
        self.assertEqual(status, 0, shown)
        for line in shown.replace("^C", "").splitlines():
            self.assertRegex(line, r"^\d\d:\d\d:\d\d \w.* component=server$")
        self.assertRegex(shown, r"(?m)^\d\d:\d\d:\d\d the server became leader {25}kind=server subject=server actor=server:\S+ event=1 component=server\r$")
        shown, status = self.on_terminal(200, *serve, "--log", "logfmt", until=b"the page asks", **place)
        self.assertEqual(read_logfmt(shown.splitlines()[0])["level"], "info", "the form follows --log")

    def test_or_json(self):
        self.server.terminate()
        self.server.wait()
        (self.folder / "server.log").unlink()
        self.port = 0
        self.serve("--log", "json", "--store", "memory")
        self.check(*self.tell(json.loads, "--log", "json"))
        self.assertRefused(self.berth("agent", "--join", "http://127.0.0.1:1", "--log", "xml"), 2, "use logfmt or json")


class Units(Fleet):
    """The units of systemd, as far as they can be checked without starting them."""

    def test_systemd_accepts_them(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("this machine has no systemd-analyze")
        folder = self.folder / "units"
        folder.mkdir()
        for unit in (ROOT / "src/cli/service").glob("*.service"):
            # Installed under /usr/local or /usr, systemd finds `berth` by itself; a build is elsewhere.
            (folder / unit.name).write_text(unit.read_text().replace("ExecStart=berth ", f'ExecStart="{BERTH}" ').replace("User=berth", "User=root"))
        units = sorted(map(str, folder.glob("*.service")))
        self.assertEqual(len(units), 2)
        answer = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, timeout=60)
        complaints = [line for line in answer.stderr.splitlines() if str(folder) in line or "berth-" in line]
        self.assertEqual(complaints, [], answer.stderr)

    def notified(self, *arguments, **environment):
        """Starts the command as systemd does, and returns it with its notifications."""
        path = self.folder / "notify"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(str(path))
            listener.settimeout(60)
            process = subprocess.Popen([BERTH, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       env=self.environment(NOTIFY_SOCKET=str(path), **environment))
            self.started.append(process)
            notice = listener.recv(1000)
        path.unlink()
        return process, notice

    def test_server_and_agent_say_that_they_are_ready(self):
        server, notice = self.notified("serve", "--no-agent", "--gateway", "none", "--listen", "127.0.0.1:0",
                                       BERTH_RUNTIME_DIR=str(self.folder / "other"))
        self.assertEqual(notice, b"READY=1")
        server.terminate()
        self.assertEqual(server.wait(30), 0)
        # An agent with a token from its unit joins once, and starts again with or without the same file.
        token = self.folder / "join.token"
        answer = self.command("token", "add", "join", "-o", str(token))
        self.assertEqual((answer.returncode, answer.stdout, token.stat().st_mode & 0o777), (0, "", 0o600), answer.stderr)
        words = ["agent", "--join", f"http://127.0.0.1:{self.port}", "--name", "a", "--token-file", str(token)]
        runtime = str(self.folder / "a-runtime")
        for with_file in (True, True, False):
            if not with_file:
                token.unlink()
            agent, notice = self.notified(*words, BERTH_RUNTIME_DIR=runtime)
            self.assertEqual(notice, b"READY=1")
            self.until(lambda: self.get("nodes/a")["node"]["devices"], self.situation)
            agent.terminate()
            self.assertEqual(agent.wait(30), 0)
        self.assertEqual(len([event for event in self.get("events")["events"] if event["text"] == "a joined"]), 1)


class Restart(Fleet):
    @needs_sqlite
    def test_nodes_are_known_before_they_report(self):
        node, = self.add_nodes("a", options=["--agent-file", str(self.rules())])
        before = self.get("nodes/a")["node"]
        ids = [device["id"] for device in before["devices"]]
        self.assertEqual(before["labels"], {"zone": "b"})
        # The inventory is written once, not with every report.
        store = self.folder / "server" / f"server-{os.geteuid()}" / "store.db"
        kept = self.inventory(store)
        self.assertIn(ids[0], kept)
        self.until_reports("a")
        self.assertEqual(self.inventory(store), kept)
        node.kill()
        self.server.kill()
        self.server.wait()
        self.serve()
        after = self.get("nodes/a")["node"]
        self.assertEqual([device["id"] for device in after["devices"]], ids)
        self.assertEqual((after["labels"], after["cpus"]), (before["labels"], before["cpus"]))
        self.assertNotIn("last_report_age_s", after, "it has not reported to this server")
        self.assertEqual({(device["intent"], tuple(device["holders"])) for device in after["devices"]}, {("in_service", ())})
        self.assertIn("a ", self.command("nodes").stdout)
        # No replica is placed there before the node has reported.
        self.apply(self.web(replicas=1), wait=False, status=3)
        self.assertEqual(self.get("replicas")["replicas"], [])
        # The agent can reconnect at once.
        node.start()
        self.until_ready("web", 1)

    def rules(self):
        file = self.folder / "agent.toml"
        file.write_text('labels = { zone = "b" }\n')
        return file

    def inventory(self, store):
        """The node's record in the store, with its version."""
        database = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
        try:
            tables = [name for name, in database.execute("select name from sqlite_master where type = 'table'")]
            rows = [row for table in tables for row in database.execute(f"select * from {table}")]
        finally:
            database.close()
        found = [str(row) for row in rows if "inventory" in str(row)]
        self.assertEqual(len(found), 1, rows)
        return found[0]


class Neighbours(Fleet):
    """An agent and a command of the previous or next version."""

    def report(self, **more):
        return {"schema": 1, "agent": "x", "version": "0.9.0", "boot": "x", "now_at_ms": 0, "number": 1, "epoch": 0, "revision": 0, "replicas": [],
                "inventory": {"format": 1, "node": {"name": "a"}, "devices": [{"id": "GPU-1", "backend": "cuda", "name": "A GPU"}], "links": []}, **more}

    def test_what_another_agent_of_the_same_name_measures_is_not_shown(self):
        status, _, text = self.ask("POST", "/api/v1/agent/join", {"node": "a", "version": "x"}, self.token("join"))
        token = json.loads(text)["token"]

        def send(agent, device):
            devices = [{"id": device, "backend": "cuda", "health": "healthy", "utilization": 0.25}]
            return self.ask("POST", "/api/v1/agent/report", self.report(agent=agent, boot=agent, devices=devices), token)[0]
        self.assertEqual((send("x", "GPU-1"), send("y", "GPU-2")), (200, 503))
        self.assertEqual([len(self.get(f"nodes/a/history?device={device}")["t_ms"]) for device in ("GPU-1", "GPU-2")], [1, 0])

    def test_unknown_fields_of_an_agent_are_ignored_and_those_of_a_request_named(self):
        status, _, text = self.ask("POST", "/api/v1/agent/join", {"node": "a", "version": "9.9.9", "later": {"x": 1}}, self.token("join"))
        self.assertEqual(status, 200, text)
        token = json.loads(text)["token"]

        def send(report):
            return self.ask("POST", "/api/v1/agent/report", report, token)
        # A newer agent sends additional members everywhere.
        replica = {"deployment": "web", "replica": 0, "generation": 7, "state": "ready", "later": [1], "failures": 0}
        newer = self.report(later=True, replicas=[replica], devices=[{"id": "GPU-1", "backend": "cuda", "health": "healthy", "later": 1}])
        newer["inventory"] |= {"later": 1}
        newer["inventory"]["node"] |= {"later": {"deep": [1, 2]}}
        newer["inventory"]["devices"][0] |= {"later": "x", "features": ["one-that-is-new"]}
        status, _, text = send(newer)
        self.assertEqual(status, 200, text)
        self.assertEqual([device["id"] for device in self.get("nodes/a")["node"]["devices"]], ["GPU-1"])
        # An older agent omits optional members.
        older = self.report()
        for key in ("schema", "version", "boot", "number"):
            del older[key]
        del older["inventory"]["links"], older["inventory"]["format"]
        status, _, text = send(older)
        self.assertEqual(status, 200, text)
        self.assertEqual(self.get("nodes/a")["node"]["health"], "healthy")
        # Orders for it may have members that this version added.
        self.assertEqual(self.ask("GET", "/api/v1/agent/assignments", token=token)[0], 200)
        # Another schema is refused, in one sentence.
        for wrong in (self.report(schema=2), self.report(inventory={**older["inventory"], "format": 2})):
            status, _, text = send(wrong)
            error = json.loads(text)["error"]
            self.assertEqual((status, error["code"]), (400, "newer_schema"), text)
            self.assertIn("was written by a newer version of berth", error["message"])
        # A request is executed completely or not at all: unknown members could matter.
        for body, sentence in [({"intent": "cordoned", "until": "tomorrow"}, 'has an unknown member "until"'),
                               ({"intent": "cordoned", "schema": 2}, "was written by a newer version of berth")]:
            status, _, text = self.ask("PUT", "/api/v1/nodes/a/intent", body)
            self.assertEqual(status, 400, text)
            self.assertIn(sentence, json.loads(text)["error"]["message"])
        self.assertEqual(self.get("nodes/a")["node"]["intent"], "in_service")
        # An older command omits optional members.
        self.assertEqual(self.ask("PUT", "/api/v1/nodes/a/intent", {"intent": "cordoned"})[0], 200)


class Alone(Fleet):
    """A server with the agent of its machine."""
    server_options = ("--name", "here")

    @needs_sqlite
    def test_a_second_one_names_the_first(self):
        self.until_healthy("here")
        first = f"(process {self.server.pid}) uses the store {self.store}"
        for words in (("serve", "--gateway", "none", "--name", "here"), ("serve", "--gateway", "none", "--name", "other"), ("serve", "--no-agent", "--gateway", "none", "--listen", f"127.0.0.1:{self.port}")):
            self.assertRefused(self.command(*words), 1, first, "stop it first")
        backup = str(self.folder / "backup")
        self.assertEqual(self.command("store", "backup", backup).returncode, 0)
        self.assertRefused(self.command("store", "restore", backup, "--replace"), 1, first, "stop it first")
        self.until_healthy("here")

    @needs_sqlite
    def test_a_restore_that_fails_creates_no_store(self):
        damaged, new = self.folder / "damaged", self.folder / "new.db"
        damaged.write_text("not a backup\n")
        self.assertRefused(self.command("store", "restore", str(damaged), "--store", f"sqlite:{new}"), 2, "is not a backup of a store")
        self.assertRefused(self.command("store", "restore", str(self.folder / "none"), "--store", f"sqlite:{new}"), 2, "none")
        self.assertFalse(new.exists())

    def test_it_stops_at_once_and_its_agent_without_a_warning(self):
        self.until_healthy("here")
        other = self.add_node("b")
        self.until_healthy("b")
        log = self.folder / "server.log"
        begin = len(log.read_text())
        began = time.monotonic()
        self.server.terminate()
        self.assertEqual(self.server.wait(timeout=30), 0)
        self.assertQuick(time.monotonic() - began, 2, "an agent's request may stay open for longer")
        self.assertNotIn("level=warning", log.read_text()[begin:])
        self.assertIsNone(other.agent.poll())


class Start(Fleet):
    def test_what_is_wrong_in_the_file_is_said(self):
        file = self.folder / "server.toml"
        for text, sentence in [
                ('tls_certifcate = "/a.pem"', 'unknown key "tls_certifcate" in the server\'s file; did you mean "tls_certificate"?'),
                ('certificate_lifetime = "1s"', "certificate_lifetime is out of range; use 3s to 3650d"), ('listen = "127.0.0.1:0"', "it takes a list of text"),
                ('tls_key = "/a.key"', "a certificate and its key must be given together"), ('listen = ["8080"]', "8080"),
                ('gateway_client_timeout = "0s"', "gateway_client_timeout is out of range; use 1s to 24h"), ("gateway_connections = 3", "gateway_connections is 3"),
                ("connections = 3", "connections is 3"), ("connections_per_address = 0", "connections_per_address is 0"),
                ('tls_certificate = "a.pem"\ntls_key = "/a.key"', '"a.pem" is not an absolute path')]:
            file.write_text(text)
            self.assertRefused(self.berth("serve", "--no-agent", "--config", str(file)), 2, sentence)
        self.assertRefused(self.berth("serve", "--no-agent", "--config", str(file), "--listen", "127.0.0.1:0"), 2, "--config", "--listen")
        self.assertRefused(self.berth("serve", "--no-agent", "--config", str(self.folder / "none")), 2, "none")


if __name__ == "__main__":
    unittest.main()
