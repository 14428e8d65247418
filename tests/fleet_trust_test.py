"""How servers, nodes and people of a fleet on several machines recognise each other: by the authority that the server creates.

usage: tests/fleet_trust_test.py BERTH ROOT DOUBLE"""
import contextlib
import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import time
import unittest

from berth_case import needs_sqlite
from fleet_case import Fleet, in_own_network

ADDRESS, PORT = "10.77.0.1", 8443
URL = f"https://{ADDRESS}:{PORT}"
# The process ends when its file identity.pem is complete.
KILLED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
int rename(const char* from, const char* to) {
  int (*real)(const char*, const char*) = (int (*)(const char*, const char*))dlsym(RTLD_NEXT, "rename");
  int result = real(from, to);
  if (strstr(to, "/identity.pem")) raise(SIGKILL);
  return result;
}
"""


class Trusting(Fleet):
    """A server with an address that other machines can reach, and no certificate of its own."""

    def serve(self, *options):
        super().serve("--listen", f"{ADDRESS}:{PORT}", *options)

    def place(self, node):
        node.url = URL

    def state(self, node):
        folder, = node.runtime.glob(f"agent-*/{node.name}")
        return folder

    def authority(self):
        return self.store.parent / "authority"

    def ask_with(self, identity, method, path, body=None, token=None):
        """A request over TLS, with a certificate or a token: status and text."""
        context = ssl.create_default_context(cafile=str(self.authority() / "authority.pem"))
        if identity:
            context.load_cert_chain(str(identity))
        connection = http.client.HTTPSConnection(ADDRESS, PORT, timeout=30, context=context)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def token_file(self, role, text=None, **more):
        path = self.folder / f"{role}.token"
        path.write_text((text or self.token(role, **more)) + "\n")
        path.chmod(0o600)
        return str(path)

    def refused(self, node, *words, status=1):
        self.assertEqual(node.agent.wait(timeout=60), status, node.log.read_text())
        log = " ".join(node.log.read_text().split())
        for word in words:
            self.assertIn(word, log)
        node.log.unlink()

    @staticmethod
    def report(name):
        return {"schema": 1, "agent": "x", "version": "0", "boot": "x", "now_at_ms": 0, "epoch": 1, "revision": 1, "replicas": [],
                "inventory": {"format": 1, "node": {"name": name}, "devices": [], "links": []}}


class Nodes(Trusting):
    @needs_sqlite
    def test_a_token_is_all_that_a_node_needs(self):
        a, = self.add_nodes("a")
        state = self.state(a)
        self.assertEqual((state / "identity.pem").stat().st_mode & 0o777, 0o600)
        self.assertFalse((state / "credential").exists(), "it has no other secret than its key")
        for file, mode in (("authority.key", 0o600), ("server.key", 0o600), ("", 0o700)):
            self.assertEqual((self.authority() / file).stat().st_mode & 0o777, mode, file)
        self.apply(self.web())
        self.until_ready("web", 1)
        # Both are started again: the authority stays, and the used token has no effect.
        authority = (self.authority() / "authority.pem").read_text()
        self.server.terminate()
        self.server.wait()
        self.serve()
        self.assertEqual((self.authority() / "authority.pem").read_text(), authority)
        a.kill()
        a.start((a.folder / "token").read_text().strip())
        self.until_healthy("a")
        a.kill()
        a.start()
        self.until_healthy("a")
        self.until_ready("web", 1)

    def test_a_token_for_another_server_is_not_sent(self):
        token = self.token("join")
        secret, _, fingerprint = token.partition(".")
        self.assertEqual(len(fingerprint), 64)
        wrong = self.add_node("a", token=f"{secret}.{'0' * 64}")
        self.refused(wrong, "no authority that it names has the expected " + "0" * 64, status=2)
        wrong.start(secret)
        self.refused(wrong, "is not signed by an authority that is trusted here", "a token that carries its fingerprint", status=2)
        wrong.start(token)  # the token was not used
        self.until_healthy("a")

    def test_a_token_is_not_used_up_where_the_node_cannot_keep_what_it_gets(self):
        a, token = self.make_node("a"), self.token("join")
        # As on a full disk: no file can have more than 512 bytes.
        a.prefix = ("sh", "-c", 'trap "" XFSZ; exec prlimit --fsize=512 "$@"', "sh")
        a.start(token)
        self.refused(a, "cannot write", "File too large")
        self.assertEqual(self.get("nodes")["nodes"], [])
        a.prefix = ()
        a.start(token)
        self.until_healthy("a")
        self.assertFalse((self.state(a) / "joining").exists())

    def test_an_agent_that_is_killed_while_it_joins_does_not_use_the_token_again(self):
        """It is killed as soon as it has its certificate. A service is started with the same token."""
        source, library = self.folder / "killed.c", self.folder / "killed.so"
        source.write_text(KILLED)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True, timeout=60)
        a, token = self.make_node("a", LD_PRELOAD=str(library)), self.token("join")
        a.start(token)
        self.assertEqual(a.agent.wait(timeout=60), -signal.SIGKILL, a.log.read_text())
        self.assertTrue((self.state(a) / "identity.pem").exists())
        a.more = {}
        a.start(token)
        self.until_healthy("a")

    def test_a_second_server_of_the_same_folder_leaves_the_authority_alone(self):
        """Two servers that start at once would each write half of the authority."""
        kept = self.authority().rename(self.folder / "kept")
        second = self.command("serve", "--no-agent", "--gateway", "none", "--store", "memory", "--listen", "127.0.0.1:0", "--listen", f"{ADDRESS}:0")
        self.assertRefused(second, 1, "another process listens on the socket")
        self.assertFalse(self.authority().exists())
        kept.rename(self.authority())

    @needs_sqlite
    def test_a_server_with_another_authority_is_not_obeyed(self):
        a, = self.add_nodes("a")
        self.apply(self.web())
        before = self.until_ready("web", 1)[0]
        epoch = (self.state(a) / "epoch").read_text()
        self.server.terminate()
        self.server.wait()
        # Like a machine that has taken the address: it may have the same store, but not the key.
        self.authority().rename(self.folder / "kept")
        self.serve()
        self.until(lambda: "is not signed by an authority that is trusted here" in a.log.read_text(), lambda: a.log.read_text())
        self.assertEqual((self.state(a) / "epoch").read_text(), epoch)
        self.server.terminate()
        self.server.wait()
        for file in self.authority().iterdir():
            file.unlink()
        for file in (self.folder / "kept").iterdir():
            file.rename(self.authority() / file.name)
        self.serve()
        self.until_healthy("a")
        self.assertEqual(self.until_ready("web", 1)[0]["generation"], before["generation"], "the replica was not touched")

    def test_a_certificate_speaks_for_its_node_alone_and_ends_with_it(self):
        a, b = self.add_nodes("a", "b")
        stolen = self.folder / "stolen.pem"
        stolen.write_text((self.state(a) / "identity.pem").read_text())
        self.assertEqual(self.ask_with(stolen, "GET", "/api/v1/agent/assignments")[0], 200)
        self.assertEqual(self.ask_with(stolen, "POST", "/api/v1/agent/report", self.report("b"))[0], 403)
        self.assertEqual(self.ask_with(stolen, "GET", "/api/v1/status")[0], 403)
        self.assertEqual(self.ask_with(stolen, "POST", "/api/v1/agent/join", {"node": "c"})[0], 403)
        self.assertEqual(self.ask_with(None, "GET", "/api/v1/agent/assignments")[0], 401)
        # A revoked credential is invalid at once, also on an open connection.
        listed = {token.get("node"): token["id"] for token in self.get("tokens")["tokens"]}
        self.assertEqual(self.command("token", "remove", listed["a"]).returncode, 0)
        self.assertEqual(self.ask_with(stolen, "GET", "/api/v1/agent/assignments")[0], 401)
        self.until(lambda: "it does not know the credential of this node; join again" in a.log.read_text(), lambda: a.log.read_text())
        self.until(lambda: self.get("nodes/a")["node"]["health"] != "healthy", self.situation)
        # So is the credential of a removed node.
        stolen.write_text((self.state(b) / "identity.pem").read_text())
        b.kill()
        self.assertEqual(self.command("drain", "node/b").returncode, 0)
        self.until(lambda: self.command("delete", "node/b").returncode == 0, self.situation, 90)
        self.assertEqual(self.ask_with(stolen, "GET", "/api/v1/agent/assignments")[0], 401)

    def test_a_token_may_be_for_one_node(self):
        answer = self.command("token", "add", "join", "--node", "a")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn("of role join for node a", answer.stderr)
        token = answer.stdout.strip()
        other = self.add_node("b", token=token)
        self.refused(other, "the server refused to let b join: this token is for node a, not for b")
        a = self.add_node("a", token=token)
        self.until_healthy("a")
        self.assertRefused(self.command("token", "add", "read", "--node", "a"), 2, "only a token of role join can be for a node")
        # A machine that was lost and installed again: only a token for its name can take that name.
        old = self.folder / "old.pem"
        old.write_text((self.state(a) / "identity.pem").read_text())
        a.kill()
        self.until(lambda: self.get("nodes/a")["node"]["health"] == "lost", self.situation, 90)
        a.start(self.token("join"))
        self.refused(a, 'a node "a" already exists, and this token is for a new node', "berth token add join --node a", status=2)
        a.start(self.token("join", node="a"))
        self.until_healthy("a")
        self.assertEqual(self.ask_with(old, "GET", "/api/v1/agent/assignments")[0], 401, "the earlier machine cannot act for the node")

    def test_a_node_that_joined_with_a_token_of_its_own_goes_on(self):
        """Nodes of earlier versions used a token over TLS, and --ca."""
        status, text = self.ask_with(None, "POST", "/api/v1/agent/join", {"node": "a", "version": "0.1.0"}, self.token("join"))
        self.assertEqual(status, 200, text)
        a = self.make_node("a")
        folder = a.runtime / f"agent-{os.geteuid()}" / "a"
        folder.mkdir(parents=True)
        for part in (a.runtime, folder.parent, folder):
            part.chmod(0o700)
        (folder / "credential").write_text(json.loads(text)["token"] + "\n")
        a.options = ["--ca", str(self.authority() / "authority.pem")]
        a.start()
        self.until_healthy("a")
        a.kill()
        a.options = []
        a.start()
        self.until(lambda: "is not signed by an authority that is trusted here" in a.log.read_text(), lambda: a.log.read_text())


@needs_sqlite
class OldStore(Trusting):
    def test_is_shown_with_what_to_do(self):
        a, = self.add_nodes("a")
        self.apply(self.web())
        before = self.until_ready("web", 1)[0]
        copy = self.folder / "copy.db"

        def restart():
            self.serve()
            self.until_healthy("a")

        def stop():
            self.server.terminate()
            self.server.wait()
        stop()
        shutil.copy(self.store, copy)
        for _ in range(2):
            restart()
            stop()
        # Like a file that was restored from a copy.
        for file in self.store.parent.glob("store.db*"):
            file.unlink()
        shutil.copy(copy, self.store)
        self.store.chmod(0o600)
        self.serve()
        status = self.until(lambda: (text := " ".join(self.command("status").stdout.split())) and "1 ignoring this server" in text and text, self.situation)
        self.assertIn("run berth store advance", status)
        self.assertNotIn("1 healthy", status)
        self.assertIn("it ignores this server", " ".join(self.command("nodes").stdout.split()))
        self.assertEqual([warning["subject"] for warning in self.get("status")["warnings"]], ["store"])
        self.assertIn("a ignores this server of epoch", self.command("events").stdout)
        self.until(lambda: "is lower than that of a server that this node has followed" in " ".join(a.berth("doctor").stdout.split()), lambda: a.berth("doctor").stdout)
        self.assertRefused(self.command("store", "advance"), 1, "server")
        stop()
        answer = self.command("store", "advance")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        restart()
        self.assertIn("1 healthy", self.command("status").stdout)
        self.assertNotIn("has no server that it may follow", a.berth("doctor").stdout)
        self.assertEqual(self.until_ready("web", 1)[0]["generation"], before["generation"])
        self.apply(self.web(replicas=2))
        self.until_ready("web", 2)


class ShortCertificates(Trusting):
    lifetime = 15

    def serve(self, *options):
        """Starts the server with a file, which alone has the setting."""
        file = self.folder / "server.toml"
        file.write_text(f'listen = ["127.0.0.1:{self.port}", "{ADDRESS}:{PORT}"]\ngateway = "none"\ncertificate_lifetime = "{self.lifetime}s"\n')
        self.gateway_options = ()  # the file has it
        self.start_server("--config", str(file))

    def test_are_renewed_and_an_expired_one_is_told(self):
        a, = self.add_nodes("a")
        identity = self.state(a) / "identity.pem"
        first, server = identity.read_text(), (self.authority() / "server.pem").read_text()
        login = self.berth("login", URL, "--token-file", self.token_file("read"))
        self.assertEqual(login.returncode, 0, login.stderr)
        mine, = self.runtime.glob("login-*/*/identity.pem")
        my_first = mine.read_text()
        self.until(lambda: identity.read_text() != first and (self.authority() / "server.pem").read_text() != server, self.situation)
        self.assertEqual(identity.stat().st_mode & 0o777, 0o600)
        end = time.monotonic() + self.lifetime + 2
        while time.monotonic() < end:
            answer = self.berth("nodes", "--server", URL)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assertEqual(self.get("nodes/a")["node"]["health"], "healthy", self.situation())
            time.sleep(0.5)
        self.assertNotEqual(mine.read_text(), my_first)
        self.assertNotIn("cannot renew", a.log.read_text())
        self.assertNotIn("expired", a.log.read_text())
        # Renewal continues after the agent was started again.
        a.kill()
        a.start()
        self.until_healthy("a")
        second = identity.read_text()
        self.until(lambda: identity.read_text() != second, self.situation)
        # An agent that was off for too long.
        a.kill()
        time.sleep(self.lifetime + 1)
        a.start()
        self.until(lambda: "this certificate has expired; get a new one: join again with this node" in a.log.read_text(), lambda: a.log.read_text())
        a.kill()
        self.assertRefused(self.berth("nodes", "--server", URL), 1, "this certificate has expired", "berth login")
        self.until(lambda: self.get("nodes/a")["node"]["health"] == "lost", self.situation, 90)
        a.start(self.token("join", node="a"))
        self.until_healthy("a")


class People(Trusting):
    def test_log_in_with_a_token(self):
        made = json.loads(self.ask("POST", "/api/v1/tokens", {"role": "operate"})[2])
        file = self.token_file("operate", made["token"])
        self.assertRefused(self.berth("nodes", "--server", URL), 2, "is not signed by an authority that is trusted here")
        answer = self.berth("login", URL, "--token-file", file)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn(f"as token {made['id']} of role operate", answer.stdout)
        mine, = self.runtime.glob("login-*/*/identity.pem")
        self.assertEqual(mine.stat().st_mode & 0o777, 0o600)
        self.assertNotIn(made["token"].partition(".")[0], mine.read_text())
        self.assertEqual(self.berth("nodes", "--server", URL).returncode, 0)
        self.assertEqual(self.berth("nodes", BERTH_SERVER=URL).returncode, 0)
        self.assertRefused(self.berth("apply", self.write_project(self.web()), "--server", URL), 1, "this needs the role deploy")
        # Without a file, the token is read from standard input, never from the command line.
        process = self.start("login", URL)
        out, err = process.communicate(made["token"] + "\n")
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(self.command("token", "remove", made["id"]).returncode, 0)
        self.assertRefused(self.berth("nodes", "--server", URL), 1, "a valid token is required", f"berth login {URL}")
        answer = self.berth("logout", URL)
        self.assertEqual((answer.returncode, answer.stdout),
                         (0, f"logged out of {URL}: its certificate was removed from this machine; "
                             "the token stays valid until an operator revokes it with berth token remove ID\n"))
        self.assertFalse(list(self.runtime.glob("login-*/*")))
        self.assertRefused(self.berth("logout", URL), 2, f"there is no login for {URL}")

    def test_what_is_wrong_is_said(self):
        token = self.token("read")
        wrong = self.token_file("read", token.partition(".")[0] + "." + "0" * 64)
        self.assertRefused(self.berth("login", URL, "--token-file", wrong), 2, "no authority that it names has the expected")
        revoked = self.token_file("read", "berth_" + "0" * 64 + "." + token.partition(".")[2])
        self.assertRefused(self.berth("login", URL, "--token-file", revoked), 1, "a valid token is required", "berth token add")
        self.assertRefused(self.berth("login", f"https://{ADDRESS}:9", "--token-file", revoked), 1, "cannot connect", "check the address")
        join = self.token_file("join")
        self.assertRefused(self.berth("login", URL, "--token-file", join), 1, "this needs the role read")
        own = str(self.store.parent / "token")
        authority = str(self.authority() / "authority.pem")
        self.assertRefused(self.berth("login", URL, "--token-file", own, "--ca", authority), 2, "only a token from berth token add can be exchanged for a certificate")
        self.assertRefused(self.berth("login", f"http://127.0.0.1:{self.port}", "--token-file", join), 2, "berth login is for https:// addresses")
        # Without a login, the token itself is enough.
        answer = self.berth("nodes", "--server", URL, BERTH_TOKEN_FILE=self.token_file("read", token))
        self.assertEqual(answer.returncode, 0, answer.stderr)

    def test_a_cookie_of_the_page_gets_no_certificate(self):
        """A cookie may only read, but a certificate has the role of its token while the token is valid."""
        request = subprocess.run(["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                                  str(self.folder / "own.key"), "-subj", "/CN=x"], capture_output=True, text=True, timeout=60)
        self.assertEqual(request.returncode, 0, request.stderr)
        body = json.dumps({"certificate_request": request.stdout})
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as browser:
            browser.request("POST", "/api/v1/login", json.dumps({"token": self.token("deploy")}), {"Content-Type": "application/json"})
            login = browser.getresponse()
            login.read()
            cookie = login.headers["Set-Cookie"].partition(";")[0]
            browser.request("POST", "/api/v1/certificate", body, {"Content-Type": "application/json", "Cookie": cookie})
            answer = browser.getresponse()
            self.assertEqual(answer.status, 403, answer.read())


if __name__ == "__main__":
    in_own_network("fleet_trust", ADDRESS)
    unittest.main()
