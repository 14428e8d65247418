"""The scripts that judge other tests can fail: each is run on a small tree with a planted defect.

usage: tests/scripts_test.py ROOT"""
import ast
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()


class ScriptCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name)

    def copy(self, *names):
        for name in names:
            target = self.tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, target)

    def write(self, name, text):
        (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
        (self.tree / name).write_text(text)

    def change(self, name, old, new):
        text = (self.tree / name).read_text()
        self.assertIn(old, text)
        self.write(name, text.replace(old, new, 1))

    def run_script(self, *words, **environment):
        return subprocess.run([sys.executable, str(self.tree / words[0]), *words[1:]], capture_output=True, text=True,
                              env={**os.environ, **environment}, timeout=60)

    def assertRed(self, done, *words):
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        for word in words:
            self.assertIn(word, done.stdout)

    def assertGreen(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Skips(ScriptCase):
    LOG = "1/1 Testing: {entry}\n1/1 Test: {entry}\nCommand: x\nOutput:\n----------------------------------------------------------\n{output}<end of output>\n"

    def skips(self, expected, entry, output):
        self.copy("scripts/skips")
        self.write("tests/expected_skips.txt", expected)
        self.write("build/parts.txt", "BERTH_RAPIDCHECK\nBERTH_SANITIZE=\n")
        self.write("build/Testing/Temporary/LastTest.log", self.LOG.format(entry=entry, output=output))
        return self.run_script("scripts/skips", str(self.tree / "build"), OCL_ICD_VENDORS=str(self.tree))

    def test_of_gtest_and_of_unittest_are_expected_by_name(self):
        for output in ("[  SKIPPED ] A.B (0 ms)\n", "[  SKIPPED ] A.B: no time\n", "ok\n[  SKIPPED ] A.B\n"):
            self.assertGreen(self.skips("x_test:A.* | | always\n", "x_test", output))
            self.assertRed(self.skips("x_test:C.D | | always\n", "x_test", output), "not expected here: x_test:A.B", "but was not: x_test:C.D")
            self.assertRed(self.skips("", "x_test", output), "not expected here: x_test:A.B")

    def test_that_are_expected_must_happen_where_the_entry_ran(self):
        self.assertRed(self.skips("x_test:A.B | | always\n", "x_test", "ok\n"), "but was not: x_test:A.B")
        self.assertGreen(self.skips("x_test:A.B | | always\n", "y_test", "ok\n"))
        self.assertGreen(self.skips("?x_test:A.B | | perhaps\n", "x_test", "ok\n"))

    def test_depend_on_what_is_there(self):
        skip = "[  SKIPPED ] A.B (0 ms)\n"
        for word, is_there in (("sh", True), ("no-such-program", False), ("rapidcheck", True), ("tsan", False), ("!tsan", True), ("opencl", False),
                               ("rapidcheck no-such-program", False)):
            done = self.skips(f"x_test:A.B | {word} | reason\n", "x_test", skip)
            (self.assertRed if is_there else self.assertGreen)(done)

    def test_of_python_are_printed_in_the_form_that_is_read(self):
        self.write("case.py", "import sys, unittest\nsys.path.insert(0, sys.argv.pop(1))\nimport berth_case\n"
                   "class A(unittest.TestCase):\n    @unittest.skip('two\\nlines')\n    def test_one(self): pass\n"
                   "class B(unittest.TestCase):\n    @classmethod\n    def setUpClass(cls): raise unittest.SkipTest('all')\n    def test_two(self): pass\nunittest.main()\n")
        done = self.run_script("case.py", str(ROOT / "tests"), sys.executable, "y", "z")
        self.assertGreen(self.skips("x_test:A.test_one | | r\nx_test:B | | r\n", "x_test", done.stderr))


class Documentation(ScriptCase):
    def setUp(self):
        super().setUp()
        self.copy("scripts/readme-check")
        self.write("examples/first.cpp", "int main() {}\n")
        self.write("docs/results.json", json.dumps({"ways": [{"n": 17, "s": 31.9}], "benches": [{"bench": "b", "cases": [{"case": "c/d", "ours": 1.256}]}]}))
        for page in ("SECURITY.md", "CONTRIBUTING.md"):
            self.write(page, "")
        self.write("README.md", "# A\n```cpp\nint main() {}\n```\n[r](docs/results.json): 17 of them in 32 s, 1.26 times\n"
                   '<!-- figures: docs/results.json "17 of" ways.0.n "32 s" ways.0.s "1.26 times" benches.b.c/d.ours -->\n')

    def test_figures_are_those_of_the_file_that_is_cited(self):
        self.assertGreen(self.run_script("scripts/readme-check"))
        self.change("docs/results.json", "31.9", "29.2")
        self.assertRed(self.run_script("scripts/readme-check"), '"32 s", but docs/results.json has 29')
        self.assertGreen(self.run_script("scripts/readme-check", "--write"))
        self.assertGreen(self.run_script("scripts/readme-check"))
        self.assertIn("17 of them in 29 s", (self.tree / "README.md").read_text())

    def test_a_figure_beside_the_link_that_is_not_declared_is_an_error(self):
        self.change("README.md", "1.26 times\n", "1.26 times; 421 ms later\n")
        self.assertRed(self.run_script("scripts/readme-check"), '"421 ms" stands beside a link')

    def test_a_place_that_does_not_exist_and_a_figure_that_is_not_written_are_errors(self):
        self.change("README.md", "ways.0.n", "ways.1.n")
        self.change("README.md", "1.26 times\n", "\n")
        self.assertRed(self.run_script("scripts/readme-check"), "has no ways.1.n", '"1.26 times" is only in the comment')


    def test_the_blocks_of_the_page_about_pools_are_parts_of_its_program(self):
        self.write("examples/pool.cpp", "void use();\nint main() { use(); }\n")
        self.write("docs/guide/pool.md", "# Pool\n```cpp\nint main() { use(); }\n```\n")
        self.assertGreen(self.run_script("scripts/readme-check"))
        self.change("docs/guide/pool.md", "use()", "use_all()")
        self.assertRed(self.run_script("scripts/readme-check"), "is not a part of examples/pool.cpp")


class Make(ScriptCase):
    """The Makefile, with programs that only record how they were called: by root, in a clone that belongs to user 1234."""
    PROGRAMS = {"id": "echo 0", "stat": "echo 1234:5678", "chown": 'echo "chown $*" >>calls', "cmake": 'echo "$OWNER cmake $*" >>calls',
                "setpriv": 'while case $1 in -*) ;; *) false ;; esac; do echo "$1" >>options; shift; done; OWNER=owner: exec "$@"'}

    def calls(self, *words):
        self.copy("Makefile")
        programs = {**{f"bin/{name}": text for name, text in self.PROGRAMS.items()},
                    "setup": 'echo "$OWNER setup" >>calls', "scripts/deb": 'echo "$OWNER deb" >>calls'}
        for name, text in programs.items():
            self.write(name, f"#!/bin/sh\n{text}\n")
            (self.tree / name).chmod(0o755)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        done = subprocess.run(["make", "-C", self.tree, "JOBS=2", *words], capture_output=True, text=True, timeout=60,
                              env={**environment, "PATH": f"{self.tree}/bin:{os.environ['PATH']}"})
        self.assertGreen(done)
        return [line.strip() for line in (self.tree / "calls").read_text().splitlines()]

    BUILD = ["owner: setup", "owner: cmake --preset release -Wno-dev", "owner: cmake --build --preset release -j 2 --target installed"]

    def test_install_by_root_builds_only_what_is_installed_as_the_owner_of_the_clone(self):
        self.assertEqual(self.calls("install", "PREFIX=/opt/berth"),
                         [*self.BUILD, "cmake --install build/release --prefix /opt/berth", "chown --reference=build/release build/release/install_manifest.txt"])
        self.assertEqual((self.tree / "options").read_text().split(), ["--reuid=1234", "--regid=5678", "--clear-groups"])

    def test_packages_by_root_belong_to_the_owner_of_the_clone(self):
        self.assertEqual(self.calls("deb"), [*self.BUILD, "owner: deb"])


class Nightly(unittest.TestCase):
    text = (ROOT / "scripts/nightly").read_text()

    def test_applies_every_strict_limit(self):
        """A test that uses assertQuick or QUIET runs there with BERTH_QUIET_MACHINE."""
        named = re.findall(r'["(]?\bscript (\w+) \w+((?: \w+)*)', self.text) + re.findall(r'"(\w+)((?: [A-Z][\w.]*)*)"', self.text)
        listed = {}
        for entry, words in named:
            listed.setdefault(entry, []).extend(words.split() or [""])
        strict = 0
        for path in sorted((ROOT / "tests").glob("*.py")):
            entry = path.stem.removesuffix("_test")
            if path.stem in ("berth_case", "scripts_test") or not re.search(r"\b(assertQuick|QUIET)\b", text := path.read_text()):
                continue
            self.assertIn(entry, listed, f"scripts/nightly does not run {path.name}, which has a strict limit")
            for case in (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)):
                for test in (node for node in case.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test") and "assertQuick" in ast.unparse(node)):
                    strict += 1
                    self.assertTrue({"", "all", case.name, f"{case.name}.{test.name}"} & set(listed[entry]),
                                    f"scripts/nightly does not run {case.name}.{test.name} of {path.name}, which has a strict limit")
        self.assertGreater(strict, 10)

    def test_judges_the_shares_of_exemptions(self):
        """fleet_seeds judges them from twenty fleets on."""
        runs = [int(count) for count in re.findall(r"-n (\d+) \S*fleet_seeds", self.text)]
        self.assertEqual(len(runs), 2)
        self.assertGreaterEqual(min(runs), 20)


class GpuResults(ScriptCase):
    def setUp(self):
        super().setUp()
        self.copy("scripts/gpu-check", "scripts/gpu-bundle", "scripts/gpu-test", "scripts/gpu-bench", "docs/internals/gpu.md", "docs/gpu/results.json", "include/berth",
                  *(f"src/{name}" for name in ("world", "inventory", "device", "placement", "ledger", "pool", "scheduler", "machine", "worker")),
                  *(f"bench/{name}" for name in ("gpu.hpp", "report.hpp", "launch.cpp", "copies.cpp", "frames.cpp", "isolation.cpp", "partitions.cpp", "submit.cpp")),
                  *(f"tests/{name}" for name in ("hold_memory.cpp", "gpu_storm.py", "gpu_fleet.py", "storm_program.py")),
                  *(f"tests/{path.name}" for path in (ROOT / "tests").glob("cuda_*")))
        hash_now = subprocess.run([self.tree / "scripts/gpu-bundle", "--hash"], capture_output=True, text=True, check=True).stdout.strip()
        self.results = json.loads((ROOT / "docs/gpu/results.json").read_text())
        self.results["stamp"]["hash"] = hash_now
        self.save()

    def save(self):
        self.write("docs/gpu/results.json", json.dumps(self.results))

    def test_of_other_sources_are_declared_and_not_old(self):
        self.assertGreen(self.run_script("scripts/gpu-check", "--write"))
        self.assertGreen(self.run_script("scripts/gpu-check"))
        for name in ("src/pool/pool.cpp", "bench/frames.cpp", "tests/gpu_storm.py"):
            self.write(name, (self.tree / name).read_text() + "\n")
            self.assertRed(self.run_script("scripts/gpu-check"), "docs/internals/gpu.md does not say", "have changed since")
            self.change(name, (self.tree / name).read_text(), (ROOT / name).read_text())
            self.assertGreen(self.run_script("scripts/gpu-check"))
        self.results["stamp"].update(hash="0", date="2020-01-01")
        self.save()
        self.assertRed(self.run_script("scripts/gpu-check", "--write"), "days old")

    def test_with_a_failed_test_or_without_a_stamp_are_refused(self):
        self.results["tests"]["failed_programs"] = ["worker_test"]
        self.save()
        self.assertRed(self.run_script("scripts/gpu-check", "--write"), "tests failed in these results: worker_test")
        self.write("docs/gpu/results.json", "{}")
        self.assertRed(self.run_script("scripts/gpu-check"), "is missing or not what make gpu-test writes")

    def test_in_the_page_are_those_of_the_file(self):
        self.assertGreen(self.run_script("scripts/gpu-check", "--write"))
        self.change("docs/internals/gpu.md", "**missed**", "met")
        self.assertRed(self.run_script("scripts/gpu-check"))


class Bench(ScriptCase):
    def test_of_what_was_not_measured_the_page_says_why(self):
        self.copy("scripts/bench")
        self.write("docs/benchmarks.md", "")
        case = {"case": "one", "ours": 2, "peer": 1, "unit": "us", "ratio": 2, "better": "lower", "goal": 1, "met": False}
        for name, cases in (("gateway", []), ("pick", [case])):
            self.write(f"build/{name}", f"#!/bin/sh\necho 'note: about {name}'\necho '{json.dumps({'bench': name, 'cases': cases})}'\n")
            (self.tree / "build" / name).chmod(0o755)
        self.assertGreen(self.run_script("scripts/bench", str(self.tree / "build")))
        page = (self.tree / "docs/benchmarks.md").read_text()
        self.assertIn("\n## gateway\n\n- about gateway\n", page)
        self.assertRegex(page, r"(?s)\n## pick\n\n\| case .*\n\| `one` \| 2 \| 1 \| us \| 2 \| at most 1 \| missed \|  \|\n\n- about pick\n")


class GatewayBench(unittest.TestCase):
    def status(self, check, *met):
        """The exit status of the benchmark, with cases that met or missed their goals."""
        program = f"""
import argparse, os, sys
sys.path.insert(0, "{ROOT}/bench/gateway")
sys.argv[1:] = [os.devnull, "{ROOT}", "double"]
import gateway_bench as bench
class Bench:
    def __init__(self, name): self.cases = [{{"met": met}} for met in {met!r}]
    def run(self, result): pass
bench.Bench, bench.program, bench.OPTIONS = Bench, lambda name: name, argparse.Namespace(json=True, check={check})
sys.exit(bench.main())
"""
        return subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60).returncode

    def test_ends_with_1_after_a_missed_goal_only_where_it_checks(self):
        self.assertEqual([self.status(True, True, True), self.status(True, True, False), self.status(True)], [0, 1, 1])
        self.assertEqual([self.status(False, True, False), self.status(False)], [0, 0])
        self.assertIn("bench/gateway memory_growth --memory-seconds 600 --check", (ROOT / "scripts" / "nightly").read_text())


if __name__ == "__main__":
    unittest.main()
