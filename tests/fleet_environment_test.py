"""What a replica of a fleet gets from its machine and its project: variables and secrets, and which other users can see them."""
import hashlib
import http.client
import os
import unittest

from fleet_case import Fleet
from berth_case import needs_sqlite


class Environment(Fleet):
    """The environment with which a replica and its probes are started."""

    def variables(self, name):
        """The variables of the replica and of its probe, as each has recorded them."""
        found = [self.journal / f"{name}.{source}" for source in ("replica", "probe")]
        self.until(lambda: all(file.exists() and file.read_text().endswith("end\n") for file in found), self.situation)
        return [dict(line.split("=", 1) for line in file.read_text().split("\n") if "=" in line) for file in found]

    def telling(self, name, **more):
        words = "WORDS='{gpus} {memory_bytes} {memory_fraction} {name} {replica} {port}'"
        tell = f"{{{{ env; echo {words}; pwd; echo end; }} > {self.journal}/{name}"
        return {"name": name, "gpus": 1, "command": ["sh", "-c", f"{tell}.replica; exec sleep 600"],
                "readiness": {"command": ["sh", "-c", f"{tell}.probe"], "every": "1m"}, **more}

    def test_variables_of_the_agent_do_not_reach_replicas_and_probes(self):
        rules = self.folder / "agent.toml"
        rules.write_text('pass_environment = ["NAMED"]\n')
        self.add_node("a", options=["--agent-file", str(rules)], PLANTED="leak", NVIDIA_API_KEY="leak", BERTH_TOKEN_FILE="leak", NAMED="yes", LC_ALL="C",
                      CUDA_MODULE_LOADING="LAZY")
        self.until_healthy("a")
        self.apply(self.telling("with", secrets={"TWO": "env:PLANTED"}), self.telling("without"), wait=False)
        for name, secret in (("with", "leak"), ("without", None)):
            self.until_ready(name, 1)
            for found in self.variables(name):
                self.assertEqual([found.get(key) for key in ("TWO", "PLANTED", "NVIDIA_API_KEY", "BERTH_TOKEN_FILE")], [secret, None, None, None])
                self.assertEqual([found.get(key) for key in ("NAMED", "LC_ALL", "CUDA_MODULE_LOADING", "PATH")],
                                 ["yes", "C", "LAZY", os.environ["PATH"]])

    def test_a_probe_gets_what_its_replica_got(self):
        self.add_nodes("a")
        self.apply(self.telling("p", memory="20GiB", environment={"PORT": "{port}", "PLAIN": "{{x}"}, folder=str(self.journal)), wait=False)
        self.until_ready("p", 1)
        replica, probe = self.variables("p")
        for name in ("BERTH_JOB", "BERTH_JOB_FOLDER", "BERTH_LEASE"):
            self.assertIn(name, replica)
            self.assertNotIn(name, probe)
            del replica[name]
        self.assertEqual(replica, probe)
        self.assertEqual(replica["WORDS"], f"1 {20 << 30} 0.2500 p 0 {replica['PORT']}")
        self.assertEqual((replica["BERTH_REPLICA"], replica["PLAIN"], replica["BERTH_PORT"], replica["PWD"]), ("p/0", "{x}", replica["PORT"], str(self.journal)))
        self.assertTrue(replica["CUDA_VISIBLE_DEVICES"].startswith("GPU-"))


class Secrets(Fleet):
    @needs_sqlite
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
        newest = max(event["id"] for event in self.get("events")["events"])
        stream = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        stream.request("GET", "/api/v1/stream", headers={"Authorization": f"Bearer {self.token('read')}", "Last-Event-ID": "0"})
        answer, texts["stream"] = stream.getresponse(), ""
        while f"id: {newest}\n" not in texts["stream"]:
            texts["stream"] += answer.readline().decode()
        stream.close()
        self.assertIn("lost/0", texts["stream"])
        for command in (("status",), ("replicas",), ("events",), ("why", "replica", "chat/0"), ("logs", "chat/0")):
            texts[command] = self.command(*command).stdout
        texts["ps"] = a.berth("ps", "-a", "--json").stdout
        searched = 0
        for file in self.folder.rglob("*"):
            if file.is_file() and file not in (folder / "key", self.folder / "outside"):
                texts[file] = file.read_bytes().decode(errors="replace")
                searched += file.suffix == ".json"
        self.assertGreaterEqual(searched, 2, "the files of the job were searched")
        self.assertTrue(any("store.db" in str(file) and texts[file] for file in texts), "the store was searched")
        for where, text in texts.items():
            self.assertNotIn("planted-in", text, where)


if __name__ == "__main__":
    unittest.main()
