"""`make run`: the curl command that it prints works while it runs, and is the one of the README.

usage: make_run_test.py BERTH TILES"""
import pathlib
import re
import subprocess
import sys
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
BERTH, TILES = sys.argv[1:3]


class MakeRun(unittest.TestCase):
    def test_answers_the_request_that_it_prints(self):
        run = subprocess.Popen([sys.executable, ROOT / "scripts" / "run-fleet", BERTH, TILES], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.addCleanup(run.stdout.close)
        self.addCleanup(run.wait, 60)
        self.addCleanup(run.terminate)
        lines = []
        for line in run.stdout:
            lines.append(line)
            if line.startswith("command:"):
                break
        shown = re.search(r"(?m)^request: curl (http://127\.0\.0\.1:\d+(\S+)) >a\.bmp$", "".join(lines))
        self.assertTrue(shown, lines)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(shown[1], timeout=30) as answer:
            self.assertEqual((answer.status, answer.read(2)), (200, b"BM"))
            self.assertTrue(answer.headers["x-request-id"], "a gateway has answered")
        rest = run.stdout.read()
        self.assertEqual(run.wait(60), 0, rest)
        self.assertRegex(rest, r"replicas ready, \d+ tiles/s: \d+ on ")
        first_block = re.search(r"(?s)```sh\n(.*?)```", (ROOT / "README.md").read_text())[1]
        self.assertIn(f"\ncurl http://127.0.0.1:8081{shown[2]} >a.bmp", first_block, "the usual address, in the README's first block")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
