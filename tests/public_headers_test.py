#!/usr/bin/env python3
"""Public headers: each refuses an older C++ in one sentence, causes no warnings in a program, and stays light. (make nightly compiles each one alone.) Needs only a compiler:

    public_headers_test.py COMPILER SOURCE_FOLDER
"""
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

COMPILER = sys.argv.pop(1)
INCLUDE = pathlib.Path(sys.argv.pop(1)) / "include"
HEADERS = sorted(path.relative_to(INCLUDE) for path in INCLUDE.glob("berth/*.hpp"))

# Lines after preprocessing. The library of another GCC version has thousands more or fewer.
LINES_MAX = {"berth/result.hpp": 33_000, "berth/task.hpp": 86_000, "berth/scheduler.hpp": 94_000}


def compiled(header, *options, compiler=COMPILER, more=""):
    return subprocess.run([compiler, f"-I{INCLUDE}", "-x", "c++", *options, "-"], text=True, capture_output=True,
                          input=f'#include "{header}"\n{more}')


class PublicHeaders(unittest.TestCase):
    def of_each(self, check):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            found = dict(zip(HEADERS, pool.map(check, HEADERS)))
        self.assertEqual({str(header): text for header, text in found.items() if text}, {})

    def test_an_older_cpp_is_refused_in_one_sentence(self):
        compilers = {COMPILER, *filter(None, map(shutil.which, ("g++", "clang++", "clang++-19")))}

        def check(header):
            for compiler in compilers:
                # The header is used, as in a program.
                text = compiled(header, "-std=c++17", "-fsyntax-only", compiler=compiler, more="berth::Pool a;\n").stderr
                errors = re.findall(r"error: (.*)", text)
                if len(errors) != 1 or "Berth needs C++20: compile with -std=c++20" not in errors[0]:
                    return f"{compiler}: {text}"
            return ""

        self.of_each(check)

    def test_and_designated_initializers_compile_without_warnings(self):
        # Each names one member; a compiler warns about every other one that has no initializer.
        named = {"BackendOptions": "host_devices", "BatchOptions": "max_batch", "HealthRules": "suspect_after", "KernelSource": "entry",
                 "LedgerOptions": "clock", "LoadSample": "events", "Outcome": "busy", "PartitionRequest": "device", "PoolOptions": "poll",
                 "Requirements": "exclusive", "RouterOptions": "moves_per_round", "SchedulerOptions": "queue_capacity", "SplitOptions": "unit",
                 "TaskOptions": "may_run_twice", "WorkerOptions": "shared_bytes"}
        options = set(re.findall(r"(?m)^struct (\w+Options) {", "".join((INCLUDE / header).read_text() for header in HEADERS)))
        self.assertEqual(options - {"ServingOptions"} - set(named), set(), "options of a program; those of a deployment come from its file")
        uses = "".join(f"auto use() {{ return berth::{name}{{.{member} = {{}}}}; }}\n".replace("use", f"use_{name}") for name, member in named.items())
        for compiler in {COMPILER, *filter(None, map(shutil.which, ("g++", "clang++-19")))}:
            with self.subTest(compiler):
                done = compiled("berth/berth.hpp", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wshadow", "-Werror", compiler=compiler, more=uses)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_are_light(self):
        if not shutil.which("g++-12"):
            print("\n[  SKIPPED ] PublicHeaders.test_are_light: needs g++-12", file=sys.stderr, flush=True)
            self.skipTest("needs g++-12")
        for header, lines_max in LINES_MAX.items():
            with self.subTest(header):
                lines = compiled(header, "-std=c++20", "-E", compiler="g++-12").stdout.count("\n")
                self.assertGreater(lines, 1000)
                self.assertLess(lines, lines_max, "leave out an #include, or use a declaration in its place")


if __name__ == "__main__":
    unittest.main()
