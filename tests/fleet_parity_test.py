"""Deployment placement (S1 in docs/parity.md) with replicas that run: through the server, the agents and each machine's ledger."""
import unittest

from fleet_case import Fleet
from berth_case import needs_sqlite


class Placement(Fleet):
    def pending(self, deployment):
        """Why a replica of the deployment has no place."""
        found = self.until(lambda: [entry for entry in self.get("status")["pending"] if entry["deployment"] == deployment], self.situation)
        return found[0]["reason"]

    def agent_file(self, name, text):
        path = self.folder / f"{name}.toml"
        path.write_text(text)
        return ["--agent-file", str(path)]

    def remote(self, name="ask", **more):
        """A process that would call a provider; it has no GPU."""
        return {**self.web(name), "model": "gpt-4o", "key": "env:KEY", **more}

    def gpus_of_one(self, replica):
        """The GPUs of a replica, which the server, the replica itself and the ledger of its machine must agree on."""
        seen = self.until(lambda: self.answer_of(replica["port"]), "it answers").split()
        self.assertEqual(set(seen[2].split(",") if len(seen) > 2 else []), set(replica["devices"]))
        leased = {device["id"] for lease in self.nodes[replica["node"]].leases() for device in lease["devices"]}
        self.assertLessEqual(set(replica["devices"]), leased)
        return set(replica["devices"])

    def test_S1_8_five_replicas_take_two_nodes_in_turn_with_a_gpu_each(self):
        self.add_nodes("a", "b", gpus=3)
        self.apply(self.web(replicas=5))
        ready = self.until_ready("web", 5)
        self.assertEqual([ready[i]["node"] for i in range(5)], ["a", "b", "a", "b", "a"])
        used = [gpu for replica in ready.values() for gpu in self.gpus_of_one(replica)]
        self.assertEqual((len(used), len(set(used))), (5, 5))

    def test_S1_9_remote_replicas_run_on_egress_nodes_without_gpus(self):
        self.add_node("a", options=self.agent_file("a", "egress = false\n"), KEY="x")
        self.add_node("b", gpus=1, options=self.agent_file("b", "egress = true\n"), KEY="x")
        self.add_node("c", gpus=1, options=self.agent_file("c", "egress = true\n"), KEY="x")
        self.until_healthy("a", "b", "c")
        self.apply(self.remote(replicas=4, gpus=2))
        ready = self.until_ready("ask", 4)
        self.assertEqual([ready[i]["node"] for i in range(4)], ["b", "c", "b", "c"])
        for replica in ready.values():
            self.assertEqual(self.gpus_of_one(replica), set())
        # All GPUs are free for others.
        self.apply(self.remote(replicas=4, gpus=2), self.web(replicas=4))
        self.until_ready("web", 4)

    def test_S1_F2_the_egress_preference_decides_where_remote_replicas_run(self):
        for name in "abc":
            self.add_node(name, gpus=1, options=self.agent_file(name, "egress = true\n"), KEY="x")
        self.until_healthy("a", "b", "c")
        file = self.write_project(self.remote(replicas=1), self.remote("more", replicas=3))
        with open(file, "a") as project:
            project.write('\n[[egress_preference]]\nprovider = "open_ai"\nkey = "env:KEY"\nnodes = ["c"]\n')
        answer = self.command("apply", file, "--wait")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(self.until_ready("ask", 1)[0]["node"], "c")
        self.assertEqual({replica["node"] for replica in self.until_ready("more", 3).values()}, {"a", "b", "c"}, "the spread is kept")

    def test_S1_4_the_four_refusals_reach_the_user_and_what_fits_runs(self):
        self.add_node("a", options=self.agent_file("a", 'egress = false\ndevices = ["host"]\n'))
        self.until_healthy("a")
        self.apply(self.web(), self.remote(), self.web("new", model="m", runtime="warp"), {**self.web("plain", cpu=True), "gpus": 0}, wait=False, status=3)
        self.until_ready("plain", 1)
        self.assertEqual(self.pending("web")["kind"], "no_gpu_nodes")
        reason = self.pending("ask")
        self.assertEqual((reason["kind"], reason["provider"]), ("no_egress_nodes", "open_ai"))
        self.assertEqual(self.pending("new")["kind"], "unknown_transport")
        # A node that has too few GPUs.
        self.add_nodes("b", gpus=2)
        self.apply(self.web(gpus=4), {**self.web("plain", cpu=True), "gpus": 0}, wait=False, status=3)
        reason = self.until(lambda: (pending := self.pending("web"))["kind"] == "not_enough_gpus" and pending, self.situation)
        self.assertEqual((reason["gpus_requested"], reason["best_node"], reason["gpus_best"]), (4, "b", 2))
        self.assertIn("no node has 4 GPUs", self.command("why", "replica", "web/0").stdout)

    def test_S1_11_zero_replicas_are_a_success_and_end_what_runs(self):
        self.add_nodes("a")
        self.apply(self.web(replicas=2))
        self.until_ready("web", 2)
        self.apply(self.web(replicas=0))
        self.until(lambda: not self.get("replicas")["replicas"], self.situation)
        self.assertEqual(self.get("deployments/web")["deployment"]["state"], "serving")
        self.until_nothing_runs()

    @needs_sqlite
    def test_S1_F4_deployments_never_meet_on_a_gpu_also_after_the_server_was_killed(self):
        self.add_nodes("a")
        self.apply(self.web("one"))
        first = self.gpus_of_one(self.until_ready("one", 1)[0])
        self.server.kill()
        self.server.wait()
        self.serve()
        self.until_healthy("a")
        self.apply(self.web("one"), self.web("two"))
        second = self.gpus_of_one(self.until_ready("two", 1)[0])
        self.assertEqual(self.gpus_of_one(self.until_ready("one", 1)[0]), first, "the replica was not touched")
        self.assertFalse(first & second)
        self.apply(self.web("one"), self.web("two"), self.web("three"), wait=False, status=3)
        self.assertEqual(self.pending("three")["kind"], "not_enough_gpus")
        # A replica that ends leaves its GPU to the pending one.
        self.assertEqual(self.command("delete", "two").returncode, 0)
        self.gpus_of_one(self.until_ready("three", 1)[0])

    def test_S1_F7_the_gpus_of_a_replica_are_the_group_that_berth_run_chooses(self):
        node = self.make_node("a", gpus=4)
        node.script.write_text(node.script.read_text() + "nvlink 0,3 links=4\nnvlink 1,2 links=4\n")
        chosen = set(node.berth("run", "-n", "2", "--", "printenv", "CUDA_VISIBLE_DEVICES").stdout.strip().split(","))
        self.assertEqual(len(chosen), 2)
        node.start(self.token("join"))
        self.until_healthy("a")
        self.apply(self.web(gpus=2, replicas=2))
        groups = [self.gpus_of_one(replica) for replica in self.until_ready("web", 2).values()]
        ids = [device["id"] for device in self.get("nodes/a")["node"]["devices"] if device["backend"] == "cuda"]
        self.assertEqual(sorted(sorted(ids.index(gpu) for gpu in group) for group in groups), [[0, 3], [1, 2]], "pairs that are joined by NVLink")
        self.assertIn(chosen, groups)

    def test_S1_6_an_explicit_runtime_wins_over_the_name_of_the_model(self):
        self.add_nodes("a", gpus=1)
        # The model's name implies a provider, the runtime a GPU of this machine.
        self.apply(self.web("own", model="gpt-4o", runtime="vllm"))
        self.assertEqual(len(self.gpus_of_one(self.until_ready("own", 1)[0])), 1)

    def test_S1_F5_deployments_of_one_replica_do_not_all_begin_on_the_first_node(self):
        self.add_nodes("a", "b", "c")
        names = ("x", "y", "z")
        for count in range(1, 4):  # one after the other, as users do
            self.apply(*(self.web(name) for name in names[:count]))
        self.assertEqual({self.until_ready(name, 1)[0]["node"] for name in names}, {"a", "b", "c"})

    def test_S1_F8_a_gpu_deployment_without_gpus_is_refused(self):
        self.assertRefused(self.command("apply", self.write_project(self.web(gpus=0))), 2, "gpus", "cpu = true")
        self.assertEqual(self.get("project")["version"], 0)

    def test_S1_F11_a_key_in_plain_text_is_refused_and_repeated_nowhere(self):
        secret = "sk-4f9a1c77d2b84e0d9b1c"
        answer = self.command("apply", self.write_project(self.remote(key=secret)))
        self.assertRefused(answer, 2, "key")
        for text in (answer.stdout, answer.stderr, (self.folder / "server.log").read_text()):
            self.assertNotIn(secret[3:], text)

    def test_S1_F12_all_start_together_or_as_many_as_fit(self):
        self.add_nodes("a")
        self.apply(self.web(replicas=3), wait=False, status=3)
        self.assertIn("2 of 3 would fit", self.pending("web")["text"])
        self.assertEqual(self.get("replicas")["replicas"], [])
        self.apply(self.web(replicas=3, on_shortage="best_effort"), wait=False, status=3)
        self.until_ready("web", 2)
        # With another node, the pending replica starts by itself.
        self.add_nodes("b")
        self.until_ready("web", 3)

    def test_S1_F9_labels_taints_memory_and_capability_decide_where_it_runs(self):
        self.add_node("a", gpus=1, options=self.agent_file("a", 'labels = { zone = "x" }\n'))
        self.add_node("b", gpus=1, memory="40GiB", options=self.agent_file("b", 'labels = { zone = "y" }\n'))
        self.add_node("c", gpus=1, options=self.agent_file("c", 'taints = ["lab"]\n'))
        self.until_healthy("a", "b", "c")
        wanted = {"labelled": ("b", {"node_selector": {"zone": "y"}}), "large": ("a", {"memory": "60GiB"}), "tolerant": ("c", {"tolerates": ["lab"], "memory": "60GiB"})}
        self.apply(*(self.web(name, **how) for name, (_, how) in wanted.items()))
        for name, (node, _) in wanted.items():
            self.assertEqual(self.until_ready(name, 1)[0]["node"], node)
        self.apply(*(self.web(name, **how) for name, (_, how) in wanted.items()), self.web("newer", capability="10.0"), wait=False, status=3)
        self.assertEqual(self.pending("newer")["kind"], "unfit_gpus")

    def test_S1_F10_a_node_more_moves_nothing(self):
        self.add_nodes("b")
        self.apply(self.web(replicas=2))
        before, pids = self.until_ready("web", 2), self.pids()
        self.add_nodes("a")
        self.apply(self.web(replicas=3))
        after = self.until_ready("web", 3)
        self.assertEqual({i: after[i]["generation"] for i in before}, {i: replica["generation"] for i, replica in before.items()})
        self.assertEqual({i: self.pids()[i] for i in before}, pids)
        self.assertEqual(after[2]["node"], "a")


if __name__ == "__main__":
    unittest.main()
