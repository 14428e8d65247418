"""Files of a project: `berth init`, `berth validate` and `berth plan` without a server."""
import json
import unittest

from berth_case import ROOT
from command_case import HAS_CUDA, CommandCase, berth, on_double


class Project(CommandCase):
    def test_init_writes_an_example_that_can_be_placed_here_and_never_overwrites(self):
        self.assertEqual(berth("init", cwd=self.folder).returncode, 0)
        self.assertEqual(berth("validate", "berth.toml", cwd=self.folder).returncode, 0)
        self.assertEqual(berth("plan", "berth.toml", cwd=self.folder).returncode, 0)
        before = (self.folder / "berth.toml").read_text()
        self.assertNotRegex(before, r"bind =|deployment\.serving", "unused settings are not offered")
        self.assert_refused(berth("init", cwd=self.folder), 2, "berth.toml")
        self.assertEqual((self.folder / "berth.toml").read_text(), before)

    def test_plan_places_the_example_on_the_example_fleet_and_an_unchanged_plan_is_empty(self):
        project, fleet, out = str(ROOT / "examples/project.toml"), str(ROOT / "examples/fleet.toml"), str(self.folder / "plan.json")
        result = berth("plan", project, "--fleet", fleet, "-o", out)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("+", result.stdout)
        again = berth("plan", project, "--fleet", fleet, "--current", out, "--json")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(json.loads(again.stdout)["actions"], [])
        self.assertEqual(berth("fleet", "show", fleet).returncode, 0)
        json.loads(berth("fleet", "show", fleet, "--json").stdout)

    def test_a_plan_that_does_not_fit_is_status_three_with_reasons(self):
        project = self.write("big.toml", '[cluster]\nname = "c"\n[[deployment]]\nname = "big"\nmodel = "llama-70b"\nreplicas = 1\ngpus = 64\n')
        result = berth("plan", project, "--fleet", str(ROOT / "examples/fleet.toml"))
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("64", result.stdout + result.stderr)
        project = self.write("wide.toml", '[cluster]\nname = "c"\n[[deployment]]\nname = "wide"\nmodel = "llama-70b"\ngpus = 1\nmemory = "100GiB"\n')
        result = berth("plan", project, "--fleet", str(ROOT / "examples/fleet.toml"))
        self.assertRegex(result.stdout, r"\n  would fit: ask for \S+ GiB instead of 100\.0 GiB\n|\n  would fit: tolerate ")

    @unittest.skipIf(HAS_CUDA, "OpenCL shows this machine's own GPU beside the double's")
    def test_a_plan_on_this_machine_sees_what_others_use_and_what_berth_has_promised(self):
        def here(*arguments):
            return on_double("eight", *arguments, BERTH_RUNTIME_DIR=str(self.folder / "runtime"))

        def devices_of(result):
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            return {device[4:12] for a in json.loads(result.stdout)["assignments"] for device in a["devices"]}

        def project(gpus):
            text = f'[cluster]\nname = "c"\n[[deployment]]\nname = "llm"\nmodel = "llama-70b"\ngpus = {gpus}\n'
            return self.write(f"llm{gpus}.toml", text)

        # Others use 30 and 120 GiB on two of the eight.
        self.assertEqual(devices_of(here("plan", project(2), "--json")) & {"d0d96032", "acc45ded"}, set())
        self.assertEqual(len(devices_of(here("plan", project(6), "--json")) & {"d0d96032", "acc45ded"}), 0)
        refused = here("plan", project(7))
        self.assertEqual(refused.returncode, 3)
        self.assertIn("unused by others; the nearest", refused.stdout)
        self.assertIn("in use by 1 other process", " ".join(refused.stdout.split()))
        # Cordons, and an inventory that is read as a fleet.
        self.assertEqual(here("cordon", "cuda:0").returncode, 0)
        listed = here("inventory", "--json").stdout
        self.assertEqual([d.get("intent") for d in json.loads(listed)["devices"]][:2], ["cordoned", None])
        for fleet in ([], ["--fleet", self.write("fleet.json", listed)]):
            self.assertNotIn("afcd1d7b", devices_of(here("plan", project(5), "--json", *fleet)))
            self.assertEqual(here("plan", project(6), *fleet).returncode, 3)

    def test_a_project_with_slips_is_refused_with_what_was_meant(self):
        head = '[cluster]\nname = "c"\n[[deployment]]\nname = "a"\n'
        for line, words in (
            ('model = "llama"\nruntime = "vlm"\n', ("vlm", 'did you mean "vllm"?')),
            ('model = "llama"\nmemory = 38\n', ("without a unit", "38G")),
            ('model = "llama"\nmemory = ""\n', ("empty",)),
            ('model = "mymodel"\n', ("the runtime of deployment", "cannot be inferred from the model")),
            ('model = "llama"\n' + "a" + ".a" * 200_000 + " = 1\n", ("too many parts",)),
        ):
            self.assert_refused(berth("validate", self.write("slip.toml", head + line)), 2, "slip.toml:", *words)
        deep = self.write("deep.toml", "a" + ".a" * 200_000 + " = 1\n")
        self.assert_refused(berth("devices", "--simulated", deep), 2, "deep.toml", "too many parts")

    def test_mistakes_in_files_are_shown_with_line_and_column(self):
        project = self.write("p.toml", '[cluster]\nname = "c"\n[[deployment]]\nname = "a"\nmodel = "m"\nreplcas = 2\n')
        for result in (berth("validate", project), berth("plan", project)):
            self.assert_refused(result, 2, "p.toml:6:", "replicas")
        self.assert_refused(berth("plan", str(self.folder / "none.toml")), 2, "none.toml")
        self.assert_refused(berth("plan", self.write("q.toml", "[cluster\n")), 2, "q.toml:1:")


if __name__ == "__main__":
    unittest.main()
