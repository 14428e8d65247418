"""The verbs about a fleet against a real server: what they print, what they change, and their exit statuses."""
import json
import pathlib
import re
import signal
import subprocess
import time
import unittest

from berth_case import BERTH, needs_sqlite
from fleet_case import Fleet


class Verbs(Fleet):
    def text(self, *arguments, status=0):
        answer = self.command(*arguments)
        self.assertEqual(answer.returncode, status, answer.stdout + answer.stderr)
        return answer.stdout if status in (0, 3) else answer.stderr

    def test_what_is_planned_is_what_is_applied(self):
        self.add_nodes("a")
        project, plan = self.write_project(self.web(replicas=2)), str(self.folder / "plan.json")
        self.assertIn("2 to start, 0 to change, 0 to stop, 0 unchanged, 0 pending.\nplanned for version 0\n",
                      self.text("plan", project, "--server", "-o", plan))
        self.assertEqual(self.get("project")["version"], 0, "a plan changes nothing")
        self.assertIn("applied as version 1\n2 of 2 replicas are ready\n", self.text("apply", project, "--plan", plan, "--wait"))
        self.assertIn("nothing has changed; version 1 remains active\n", self.text("apply", project))
        # The plan was made for the previous version; then the file is a different one.
        self.assertRegex(self.text("apply", project, "--plan", plan, status=1), "version 0.*version 1.*plan again")
        self.assertIn("was made for another project file", self.text("apply", self.write_project(self.web(replicas=1)), "--plan", plan, status=1))
        self.assertEqual(len(self.until_ready("web", 2)), 2, "nothing has changed")
        # Without room for a surge, the wait continues while a replica is pending, until its predecessor has ended.
        self.assertIn("2 of 2 replicas are ready\n", self.text("apply", self.write_project(self.web(replicas=2, text="v2")), "--wait"))
        # More than fits: it is applied, and the message says so.
        more = self.text("apply", self.write_project(self.web(replicas=4, text="v2", on_shortage="best_effort")), "--wait", status=3)
        self.assertIn("! web/2-3  pending: ", more)
        self.assertIn("\n  would fit: add a node like a, with 2 GPUs\n", more)
        self.assertIn("\n  would fit: add a node like a, with 2 GPUs\n",
                      self.text("plan", str(self.folder / "project.toml"), "--server", status=3))
        self.assertIn("! web/2-3  pending: ", self.text("status"))
        self.assertIn("web/3: ", self.text("why", "replica", "web/3"))

    def test_a_rollout_that_fails_ends_the_wait(self):
        self.add_nodes("a")
        self.apply(self.web(replicas=1))
        wrong = self.web(replicas=1, command=["sh", "-c", "echo broken on {port}; exit 3"])
        error = self.text("apply", self.write_project(wrong), "--wait", status=1)
        self.assertRegex(error, "^berth: web is paused: .*; see berth logs web/0; to go back: berth rollout undo web; to try again: berth rollout resume web\n$")
        self.assertIn("rollout is paused", self.text("rollout", "status", "web"))
        self.text("rollout", "undo", "web")
        self.until_ready("web", 1)
        self.assertIn("is not paused", self.text("rollout", "resume", "web", status=1))

    def test_a_wait_ends_when_no_other_replica_can_become_ready(self):
        self.add_nodes("a")
        half = self.write_project(self.web(replicas=2, command=["sh", "-c", "[ {replica} = 1 ] && exit 3; exec sleep 1000"], readiness={"command": ["test", "{replica}", "=", "0"]}))
        error = self.text("apply", half, "--wait", status=1)
        self.assertRegex(error, "^berth: 1 of 2 ready, and no other replica can become ready; see berth logs NAME/N and berth why replica NAME/N\n"
                                "  web/1 on a (waiting to restart|starting|waiting): [^\n]*3[^\n]*\n$")

    def test_a_wait_on_a_terminal_is_one_line_that_says_what_is_waited_for(self):
        self.add_nodes("a")
        slow = self.write_project(self.web(replicas=1, command=["sh", "-c", "exec sleep 1000", "{port}"], readiness={"http": "/"}))
        shown, status = self.on_terminal(80, "apply", slow, "--wait", until=b"nothing listens", BERTH_RUNTIME_DIR=str(self.folder / "server"))
        self.assertEqual(status, -signal.SIGINT, shown)
        lines = [re.sub(r"\x1b\[0m|[\r\n]", "", line) for line in shown.split("\r\x1b[K")[1:]]
        self.assertRegex("\n".join(lines), r"(?m)^0 of 1 ready; web/0 on a (starting|not ready): nothing listens on port ")
        self.assertTrue(all(len(line) < 80 for line in lines[:-1]), lines)
        self.assertEqual(lines[-1], "berth: version 1 stays applied; berth status shows the progress")

    def test_advice_after_a_failure_is_what_can_be_done(self):
        self.add_nodes("a")
        wrong = self.write_project(self.web(replicas=1, command=["/none/there", "{port}"]))
        error = self.text("apply", wrong, "--wait", status=1)
        self.assertRegex(error, "^berth: web (fails|is paused): .*; see berth logs web/0\n$")

    def test_what_there_is(self):
        self.add_nodes("a", "b")
        self.apply(self.web(replicas=2, command=["sh", "-c", "echo one; echo two; exec sleep 1000"], readiness={"command": ["true"]}))
        self.assertRegex(self.text("status"), r"(?s)lab, version 1; .*\nnodes    2: 2 healthy\n.*\nweb +serving +2/2 +2 +1\n")
        self.assertRegex(self.text("nodes"), r"\na +healthy +in service +\d of 2 +1 ")
        self.assertRegex(self.text("nodes", "b"), r"\ncuda:0 +GPU-\w{8} ")
        self.assertRegex(self.text("nodes", "--devices"), r"(?s)^NODE +DEVICE .*\na +cuda:0 .*\na +cuda:1 .*\nb +cuda:0 ")
        self.assertEqual(self.get("replicas")["replicas"][0]["restarts"], 0)
        self.assertRegex(self.text("replicas", "web"), r"\nweb/1 +ready ")
        self.assertEqual(self.text("logs", "--tail", "2", "web/0"), "one\ntwo\n")
        self.assertRegex(self.text("events", "--subject", "web/0"), r"ready +web/0 ")
        of_web = self.text("events", "--subject", "web")
        for replica in ("web/0", "web/1"):
            self.assertRegex(of_web, rf"ready +{replica} ", "events of replicas belong to the deployment")
        self.assertNotIn("node/", of_web)
        self.assertRegex(self.text("events", "--subject", "a"), r"node +node/a ")
        self.assertEqual(self.text("events", "--subject", "wbe", status=2), 'berth: there is no event about "wbe"; did you mean web?\n')
        self.assertRegex(self.text("token", "list"), r"\nt\d+ +node +node a ")
        self.assertRegex(self.text("why", "replica", "web/0"), r"^web/0 is ready on [ab]\n")
        for verb in ("status", "nodes", "deployments", "replicas", "events"):
            self.assertEqual(json.loads(self.text(verb, "--json"))["schema"], 1)
        # Events as they happen.
        follow = subprocess.Popen([BERTH, "events", "-f", "--json", "--limit", "1"], stdout=subprocess.PIPE, text=True,
                                  env=self.environment(BERTH_RUNTIME_DIR=str(self.folder / "server")))
        self.started.append(follow)
        first = json.loads(follow.stdout.readline())
        self.assertRegex(self.text("cordon", "node/a"), r"^a is cordoned; these replicas are not interrupted: web/\d\n$")
        following = json.loads(follow.stdout.readline())
        self.assertEqual((following["id"], following["kind"], following["subject"]), (first["id"] + 1, "intent", "node/a"))
        # Events come over the stream: with polling, each would be up to a second late.
        delays = []
        for verb in 5 * ("uncordon", "cordon"):
            self.text(verb, "node/a")
            began = time.monotonic()
            self.assertEqual(json.loads(follow.stdout.readline())["subject"], "node/a")
            delays.append(time.monotonic() - began)
        self.assertLess(min(delays), 0.5)
        follow.kill()

    def test_a_replica_cannot_make_its_log_show_another_file(self):
        self.add_nodes("a")
        secret = self.folder / "secret"
        secret.write_text("of another user\n")
        script = f"ln -sf {secret} $(readlink /proc/$$/fd/1); exec sleep 1000"
        self.apply(self.web(replicas=1, command=["sh", "-c", script], readiness={"command": ["true"]}))
        # A ready replica may not have written its output yet.
        self.until(lambda: self.text("logs", "web/0") == "", lambda: self.text("logs", "web/0"))

    @needs_sqlite
    def test_devices_of_another_node(self):
        a, = self.add_nodes("a")
        self.apply(self.web(replicas=1))
        device, = self.until_ready("web", 1)[0]["devices"]
        here = {row["id"]: row for row in json.loads(a.berth("devices", "--backend", "cuda", "--json").stdout)}

        def shown():
            return {row["id"]: row for row in self.get("nodes/a")["node"]["devices"]}[device]
        self.assertEqual(self.text("cordon", f"node/a/{device}", "--reason", "its fan is loud"),
                         f"a/{device} is cordoned; these replicas are not interrupted: web/0\n")
        self.assertEqual((shown()["intent"], shown()["intent_reason"]), ("cordoned", "its fan is loud"))
        self.assertRegex(shown()["intent_by"], "^user:.")
        other, = set(here) - {device}
        plan = self.text("drain", f"node/a/{device[:10]}", "--plan")
        self.assertIn(f"these replicas would have to leave a/{device}: web/0\n", plan)
        self.assertRegex(plan, f"~ +web/0 .*{other[:12]}.* moves from {device[:12]}")
        self.assertEqual(self.text("drain", f"node/a/{other}", "--plan"), f"no replica would have to leave a/{other}\n")
        self.assertEqual(shown()["intent"], "cordoned", "a plan changes nothing")
        self.assertEqual(self.text("drain", f"node/a/{device[:10]}", "--wait", "30s"),
                         f"a/{device} is draining; these replicas will be moved: web/0\nno replica is left on a/{device}\n")
        self.until_ready("web", 1, lambda replica: replica["devices"] != [device])
        # The server keeps the reason; the ledger of the machine does not have it.
        self.server.kill()
        self.server.wait()
        self.serve()
        self.assertEqual(shown()["intent"], "draining")
        self.until_healthy("a")
        self.assertEqual((shown()["intent"], here[device].get("intent", "in_service")), ("draining", "in_service"))
        self.apply(self.web(replicas=2, on_shortage="best_effort"), wait=False, status=3)
        self.assertEqual(self.text("uncordon", f"node/a/cuda:{here[device]['ordinal']}"), f"a/{device} is in service\n")
        self.assertNotIn("intent_by", shown())
        self.until_ready("web", 2)
        texts = [(event["actor"].split(":")[0], event["text"]) for event in self.get("events?subject=node/a")["events"] if event["kind"] == "intent"]
        self.assertEqual(texts, [("user", f"a/{device} is cordoned: its fan is loud"), ("user", f"a/{device} is draining"),
                                 ("user", f"a/{device} is in service")])
        for words, sentence in [(["cordon", "node/a/none"], 'node a has no device "none"'), (["drain", "node/a/none", "--plan"], 'node a has no device "none"'), (["cordon", "node/none/x"], '"none"'),
                                (["cordon", "node/a/GPU-"], "several"), (["cordon", "cuda:0", "--reason", "x"], "node/NAME/DEVICE")]:
            self.assertRegex(self.text(*words, status=2), f"^berth: [^\n]*{sentence}[^\n]*\n$", words)

    def test_the_reason_of_a_cordon_is_shown_with_it(self):
        a, _ = self.add_nodes("a", "b")
        device = json.loads(a.berth("devices", "--backend", "cuda", "--json").stdout)[0]["id"]
        user = self.get("session")["actor"]
        self.text("cordon", "node/b", "--reason", "a new power supply")
        self.text("drain", f"node/a/{device}", "--reason", "its fan is loud")
        node, of_device = f"b +is cordoned by {user}: a new power supply", f"a +\\S+ is drained by {user}: its fan is loud"
        for words in (["status"], ["nodes"]):
            self.assertRegex(self.text(*words), f"(?m)^! {node}$")
            self.assertRegex(self.text(*words), f"(?m)^! {of_device}$")
        self.assertRegex(self.text("nodes", "b"), f"^b: healthy, cordoned by {user}: a new power supply; last report ")
        self.assertRegex(self.text("nodes", "a"), f"(?m)^! {of_device}$")
        self.assertRegex(self.text("events"), "b is cordoned: a new power supply")
        # The reason is removed with the cordon.
        self.text("uncordon", "node/b")
        self.assertNotIn("power supply", self.text("status") + self.text("nodes"))
        self.assertNotIn("intent_reason", self.get("nodes/b")["node"])
        self.nodes["b"].kill()
        self.until(lambda: re.search(r"(?m)^! b  is lost: no report for \d+ s; check that the machine is running ", self.text("status")), self.situation)

    def test_a_token_has_a_name(self):
        self.add_nodes("a")
        self.apply(self.web(replicas=1))
        file = self.folder / "ann.token"
        answer = self.command("token", "add", "deploy", "--name", "ann", "-o", str(file))
        self.assertRegex(answer.stderr, r"^berth: token t\d+ of role deploy for ann; it is in ")
        token, = re.findall(r"token (t\d+) ", answer.stderr)
        self.assertRegex(self.text("token", "list"), rf"(?m)^{token} +deploy +ann ")
        scaled = self.berth("scale", "web", "2", BERTH_SERVER=f"http://127.0.0.1:{self.port}", BERTH_TOKEN_FILE=str(file))
        self.assertEqual(scaled.returncode, 0, scaled.stderr)
        of_web = [one for one in self.get("events?subject=web")["events"] if one["subject"] == "web"]
        self.assertEqual(of_web[-1]["actor"], f"token:{token} (ann)")
        self.assertIn(f"(token:{token} (ann))", self.text("events", "--people"))
        self.text("token", "remove", token)
        self.assertRegex(self.text("events"), rf"token {token} was created with role deploy, for ann .*\n(.*\n)*.*token {token} of ann was revoked ")
        self.assertRefused(self.command("token", "add", "read", "--name", "ann smith"), 2, "is not a valid name")
        first, second = (re.findall(r"token (t\d+) ", self.command("token", "add", "read").stderr)[0] for _ in range(2))
        answer = self.command("token", "remove", first, "none", second)
        self.assertEqual(answer.stdout, f"token {first} is revoked\ntoken {second} is revoked\n")
        self.assertEqual(answer.returncode, 2, "one of them does not exist")
        self.assertRegex(answer.stderr, '^berth: there is no token')

    def test_what_is_pending_is_shown_with_its_deployment_alone(self):
        self.add_nodes("a")
        self.apply(self.web(replicas=1), self.web(name="big", gpus=8), wait=False, status=3)
        self.until_ready("web", 1)
        self.assertNotIn("big", self.text("replicas", "web"))
        self.assertRegex(self.text("replicas", "big"), r"^! big/0  pending: ")
        self.assertIn("! big/0  pending: ", self.text("replicas"))

    def test_scale_restart_and_undo(self):
        self.add_nodes("a", "b")
        self.apply(self.web(replicas=1))
        self.assertRegex(self.text("scale", "web", "3"), r"(?s)^~ web  replicas\n.*2 to start, .*\napplied as version 2\n$")
        before = {replica["generation"] for replica in self.until_ready("web", 3).values()}
        self.assertEqual(self.text("scale", "web", "3").splitlines()[-1], "nothing has changed; version 2 remains active")
        self.assertIn("! web/3-8  pending: ", self.text("scale", "web", "9", "--wait", status=3))
        self.assertRegex(self.text("scale", "web", "3", "--wait"), r"\n3 of 3 replicas are ready\n$")
        self.assertRegex(self.text("scale", "web", "many", status=2), '"many" is not a number of replicas; give a number from 0 to 10000')
        self.assertRegex(self.text("scale", "wbe", "3", status=2), '^berth: there is no deployment "wbe"; did you mean web[?]\n$')
        # Each replica gets a successor with the same settings.
        self.assertRegex(self.text("rollout", "restart", "web", "--wait"), r"(?s)^web: \w+.*\n3 of 3 replicas are ready\n$")
        self.assertFalse(before & set(self.generations().values()), "the command waited for the successors")
        self.until_ready("web", 3)
        self.apply(self.web(replicas=3, text="v2"))
        self.apply(self.web(replicas=3, text="v3"))
        status = self.text("rollout", "status", "web")
        self.assertRegex(status, r"\n  revision 3 differed in command\n(.*\n)*  revision 1 differed in command\n")
        self.assertRegex(self.text("rollout", "undo", "web", "--to", "77", status=2), "web has no revision 77; berth rollout status web lists")
        self.text("rollout", "undo", "web", "--to", "1")
        self.until(lambda: self.get("deployments/web")["deployment"]["spec"]["command"][-1] == "v1", self.situation)
        self.assertRegex(self.text("rollout", "undo", "web", "--to", "1"), "^nothing to do: web is already as requested\n")
        self.until_ready("web", 3)
        texts = [(event["actor"].split(":")[0], event["text"]) for event in self.get("events?subject=web")["events"]
                 if event["actor"].startswith("user")]
        self.assertEqual(texts, [("user", "it is scaled from 1 to 3 replicas"), ("user", "it is scaled from 3 to 9 replicas"), ("user", "it is scaled from 9 to 3 replicas"),
                                 ("user", "restarting its replicas as revision 2"), ("user", "reverting to the settings of revision 1 as revision 5")])
        # A token of role operate may restart, but not change the number of replicas or the settings.
        operator = self.token("operate")
        for path, body, expected in (("scale", {"replicas": 1}, 403), ("rollout", {"action": "undo"}, 403), ("rollout", {"action": "restart", "dry_run": True}, 200)):
            status, _, text = self.ask("POST", f"/api/v1/deployments/web/{path}", body, operator)
            self.assertEqual(status, expected, text)
        self.assertEqual((json.loads(text)["restarts"], json.loads(text)["dry_run"]), (["web/0", "web/1", "web/2"], True))
        self.assertEqual(self.get("deployments/web")["deployment"]["revision"], 5, "a plan changes nothing")
        version = self.get("project")["version"]
        status, _, text = self.ask("POST", "/api/v1/deployments/web/scale", {"replicas": 2, "if_version": version - 1})
        self.assertEqual(status, 409, text)

    def test_a_project_from_standard_input(self):
        self.add_nodes("a")
        project = pathlib.Path(self.write_project(self.web(replicas=1))).read_text()

        def apply(text):
            return subprocess.run([BERTH, "apply", "-", "--wait"], input=text, capture_output=True, text=True, timeout=60,
                                  env=self.environment(BERTH_RUNTIME_DIR=str(self.folder / "server")))
        answer = apply(project)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(len(self.until_ready("web", 1)), 1)
        self.assertRefused(apply("[cluster\n"), 2, "standard input:1:9: the text is not valid TOML")

    def test_another_project_may_come_where_nothing_is_deployed(self):
        self.add_nodes("a")
        self.apply(self.web(replicas=1))
        other = pathlib.Path(self.write_project(self.web(replicas=1)))
        other.write_text(other.read_text().replace('name = "lab"', 'name = "other"', 1))
        self.assertIn('of cluster "lab"', self.text("apply", str(other), status=2))
        self.text("delete", "web")
        self.text("apply", str(other), "--wait")
        self.assertEqual(self.get("status")["project"]["name"], "other")

    def test_what_is_wrong_is_said(self):
        for words, status, sentence in [
                (["nodes", "none"], 2, "none"), (["deployments", "none"], 2, "none"), (["replicas", "none"], 2, "none"), (["delete", "none"], 2, "none"),
                (["delete", "node/none"], 2, "none"), (["drain", "node/none"], 2, "none"), (["token", "remove", "none"], 2, "none"),
                (["token", "add", "king"], 2, "king"), (["rollout", "undo", "none"], 2, "none"), (["logs", "none/0"], 2, "none/0"),
                (["why", "replica", "none/0"], 2, "none"), (["cordon", "cuda:0", "--reason", "x"], 2, "node/NAME")]:
            error = self.text(*words, status=status)
            self.assertRegex(error, f"^berth: [^\n]*{sentence}[^\n]*\n$", words)
        self.server.kill()
        self.server.wait()
        self.assertEqual(self.text("status", status=1), "berth: no berth server is running here; start one with berth serve, or set BERTH_SERVER\n")


if __name__ == "__main__":
    unittest.main()
