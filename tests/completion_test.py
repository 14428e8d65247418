"""What shells offer for a word that is being typed, and the manual: every verb and option, and the names that exist now."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

from berth_case import BERTH, ROOT, Machine
from command_case import berth
from command_tree import walk
from fleet_case import Fleet

SCRIPTS = ROOT / "contrib/completions"
TREE = list(walk())


def offered(*words, **environment):
    """The words, or None where a file may be meant."""
    answer = berth("complete", *words, **environment)
    return None if answer.returncode else [line.split("\t")[0] for line in answer.stdout.splitlines()]


class Tree(unittest.TestCase):
    def test_is_whole(self):
        self.assertGreater(len(TREE), 50)
        self.assertGreater(sum(len(verb.options) for verb in TREE), 200)

    def test_every_verb_and_option_is_offered(self):
        for verb in TREE:
            names = sorted(name for option in verb.options for name in option.names)
            self.assertEqual(sorted(offered(*verb.words, "-")), names, verb.name)
            if verb.below:
                self.assertEqual(offered(*verb.words, ""), verb.below, verb.name)

    def test_a_word_that_has_begun_is_finished(self):
        self.assertEqual(offered("unc"), ["uncordon"])
        self.assertEqual(offered("help", "unc"), ["uncordon"])
        self.assertEqual(offered("token", "ad"), ["add"])
        self.assertEqual(offered("nonsense", ""), [])
        self.assertEqual(offered("devices", "--j"), ["--json"])
        self.assertEqual(offered("devices", "--json", "--j"), [], "--json is already given")
        self.assertEqual(offered("run", "--device", "x", "--devi"), ["--devices", "--device"], "--device may be repeated")

    def test_what_is_no_name_of_berth_may_be_a_file(self):
        for words in (["validate", ""], ["agent", "--token-file", ""], ["run", "--", "pyth"], ["serve", "--config=be"]):
            self.assertIsNone(offered(*words), words)

    def test_fixed_words(self):
        self.assertEqual(offered("run", "--priority", ""), ["low", "normal", "high"])
        self.assertEqual(offered("run", "--limit=w"), ["--limit=watch"])
        self.assertEqual(offered("run", "--on-fault", ""), ["stop", "restart"])
        self.assertEqual(offered("ps", "--state", "fa"), ["failed"])
        for verb in ("run", "pick", "devices", "demo"):
            self.assertEqual(offered(verb, "--backend", ""), ["cuda", "opencl", "host", "simulated"])
        self.assertEqual(offered("token", "add", ""), ["read", "operate", "deploy", "join", "call"])
        self.assertIn("least_loaded", offered("pick", "--policy", ""))
        self.assertEqual(offered("pick", "--policy", "reference"), [])

    def test_each_has_a_description(self):
        for line in berth("complete", "run", "-").stdout.splitlines():
            self.assertRegex(line, r"^--?[a-z-]+\t\S")

    def test_devices(self):
        simulated = str(ROOT / "examples/devices.toml")
        self.assertIn("sim-large-0", offered("cordon", "sim-la", BERTH_SIMULATED=simulated))
        self.assertIn("sim-large-0", offered("run", "--simulated", simulated, "--device", "sim-la"))
        self.assertIn("--device=sim-large-0", offered("run", "--simulated", simulated, "--device=sim-la"))


class ManualPages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        assert berth("man", folder.name).returncode == 0

    def page(self, words):
        """The text between two headings of the page: of this verb alone."""
        text = (self.folder / ("-".join(["berth", *words[:1]]) + ".1")).read_text()
        if len(words) > 1:
            text, = (part for part in text.split("\n.SS ")[1:] if part.startswith(" ".join(["berth", *words]) + " "))
        text = re.sub(r"(?m)^\.\w+ ?|\\f[A-Z]", "", text)
        for escaped, plain in (("\\-", "-"), ("\\(aq", "'"), ("\\(dq", '"'), ("\\(ga", "`"), ("\\(ti", "~"), ("\\(ha", "^"), ("\\&", ""), ("\\e", "\\")):
            text = text.replace(escaped, plain)
        return " ".join(text.split())

    def test_every_verb_and_option_is_in_them_with_the_text_of_its_help(self):
        self.assertEqual(len(list(self.folder.iterdir())), 1 + sum(len(verb.words) == 1 for verb in TREE))
        for verb in TREE:
            page = self.page(verb.words)
            for word in verb.options + verb.arguments:
                self.assertIn(",".join(word.names), page, verb.name)
                self.assertIn(word.about, page, verb.name)
            for name in verb.below:
                self.assertIn(name, page, verb.name)

    def test_they_have_no_marks_of_the_parser(self):
        page = self.page(["logs"])
        for mark in ("REQUIRED", "Excludes:", "does not fit"):
            self.assertNotIn(mark, page)
        self.assertIn("; not with --previous", page)

    @unittest.skipUnless(shutil.which("groff"), "needs groff")
    def test_groff_formats_them_without_a_warning(self):
        for page in sorted(self.folder.iterdir()):
            self.assertRegex(page.read_text(), r"\n\.SH NAME\nberth(-\w+)? \\- \S")
            answer = subprocess.run(["groff", "-man", "-ww", "-z", "-Tascii", page], capture_output=True, text=True, timeout=60)
            self.assertEqual((answer.returncode, answer.stderr), (0, ""), page.name)


class Shells(Fleet):
    """The shells themselves, on a terminal."""

    def serve(self):
        """Starts the server only if a test needs it."""

    def shell(self, *command, set_up):
        folder = self.folder / "bin"
        folder.mkdir()
        (folder / "berth").symlink_to(BERTH)
        (self.folder / "a file").touch()
        pid, self.terminal_end, self.read_until = self.terminal(*command)
        self.addCleanup(os.waitpid, pid, 0)
        self.addCleanup(os.kill, pid, 9)
        self.type(f" export PATH={folder}:$PATH; export BERTH_SIMULATED={ROOT}/examples/devices.toml; {set_up}; cd {self.folder}; printf 'is %s\\n' ready\n")
        self.shown("is ready")

    def type(self, text):
        os.write(self.terminal_end, text.encode())

    def shown(self, text):
        self.assertIn(text.encode(), self.read_until(b"", text.encode()))

    def expect(self, typed, completed):
        """The line after the tab key, which is not executed."""
        self.type(typed + "\t")
        self.shown(completed)
        self.type("\x15")  # removes the line

    def expect_all(self):
        self.expect("berth unc", "uncordon")
        self.expect("berth token ad", "token add")
        self.expect("berth devices --js", "--json")
        self.expect("berth cordon sim-small", "sim-small-0")
        self.expect("berth run --device=simulated:0 --device=sim-q", "--device=sim-quiet-0")
        self.expect("berth validate a\\ f", "a\\ file")
        self.expect("berth serve --config=a\\ f", "a\\ file")

    def test_bash(self):
        self.shell("bash", "--norc", "--noprofile", "-i", set_up=f"bind 'set enable-bracketed-paste off'; . {SCRIPTS}/berth.bash")
        self.expect_all()

    @unittest.skipUnless(shutil.which("zsh"), "needs zsh")
    def test_zsh(self):
        self.shell("zsh", "-f", "-i", set_up=f"fpath=({SCRIPTS} $fpath); autoload -Uz compinit; compinit -u -D")
        self.expect_all()

    @unittest.skipUnless(shutil.which("fish"), "needs fish")
    def test_fish(self):
        self.shell("fish", "--no-config", set_up=f"source {SCRIPTS}/berth.fish; function fish_prompt; printf 'prompt> '; end")
        self.expect_all()


class Live(Fleet):
    def offered(self, *words):
        answer = self.command("complete", *words)
        self.assertEqual((answer.returncode, answer.stderr), (0, ""))
        return [line.split("\t")[0] for line in answer.stdout.splitlines()]

    def test_names_that_exist_now(self):
        self.add_nodes("left", "right")
        self.apply(self.web("chat", replicas=2))
        self.assertEqual(self.offered("nodes", ""), ["left", "right"])
        self.assertEqual(self.offered("nodes", "--server", f"unix:{self.folder}/none", ""), [], "completion asks the named server")
        self.assertEqual(self.offered("rollout", "pause", ""), ["chat"])
        self.assertEqual(self.offered("replicas", ""), ["chat", "chat/0", "chat/1"])
        self.assertEqual(self.offered("delete", ""), ["chat", "node/left", "node/right"])
        self.assertEqual(self.offered("cordon", "node/l"), ["node/left"])
        self.assertEqual(self.command("run", "-d", "--mem", "1G", "--name", "first", "--", "true").returncode, 0)
        self.command("wait", "first")
        self.assertEqual(self.command("run", "-d", "--mem", "1G", "--name", "second", "--", "sleep", "1000").returncode, 0)
        self.addCleanup(self.command, "stop", "--all")
        self.assertEqual(self.offered("token", "remove", ""), [token["id"] for token in self.get("tokens")["tokens"]])
        leases = lambda: [str(job["lease"]) for job in json.loads(self.command("ps", "--json").stdout)["jobs"] if "lease" in job]
        self.until(leases, "it has its device")
        self.assertTrue(set(leases()) <= set(self.offered("release", "")))
        self.assertEqual(self.offered("stop", ""), ["second", "j2"])
        self.assertEqual(self.offered("rm", ""), ["first", "j1"])
        self.assertEqual(self.offered("run", "--after", "f"), ["first"])
        self.assertEqual(self.offered("logs", ""), ["second", "j2", "first", "j1", "chat/0", "chat/1"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
