"""Every class of wrong input at every verb that can meet it: one sentence that names what is wrong, and the exit status for it.

The verbs and options are those that the command has (command_tree.py). A verb or a kind of value that the tables below do not have fails a test.
"""
import os
import socket
import subprocess
import unittest

from berth_case import BERTH, ROOT, Machine
from command_tree import walk
from fleet_case import Fleet

TREE = list(walk())
LEAVES = [verb for verb in TREE if not verb.below]

# The least that each verb needs, with files of the test's folder. What takes names of jobs and the like is below.
PROJECT, FLEET = str(ROOT / "examples/project.toml"), str(ROOT / "examples/fleet.toml")
NEEDED = {
    "agent": ["--join", "http://127.0.0.1:9"], "apply": [PROJECT], "cordon": ["cuda:0"], "delete": ["chat"], "drain": ["cuda:0"], "fleet show": [FLEET],
    "gateway": ["--join", "http://127.0.0.1:9"], "init": ["{folder}/new.toml"], "login": ["http://127.0.0.1:9"], "logout": ["http://127.0.0.1:9"], "logs": ["j1"],
    "plan": [PROJECT], "relay": ["--folder", "{folder}", "--node", "n"], "release": ["1"], "replay": ["{folder}/text"], "rerun": ["j1"], "rm": ["j1"],
    "rollout pause": ["chat"], "rollout resume": ["chat"], "rollout status": ["chat"], "rollout undo": ["chat"], "run": [], "serve": ["--no-agent", "--gateway", "none"],
    "simulate requests": ["--trace", "{folder}/trace", "--replicas", "2", "--load", "0.5"], "stop": ["j1"], "store backup": ["{folder}/backup"],
    "store copy": ["sqlite:{folder}/a", "sqlite:{folder}/b"], "store restore": ["{folder}/text"], "token add": ["read"], "token remove": ["t1"],
    "uncordon": ["cuda:0"], "validate": [PROJECT], "wait": ["j1"],
}
# Values that are wrong for the kind of value that the help names. Where there is none, any text is right.
NUMBERS, TIMES = ["x", "-1", "1.5x", "99999999999999999999"], ["soon", "5 parsecs", "-1s"]
INPUT_FILES = ["{folder}/none", "{folder}"]
WRONG = {
    "N": NUMBERS, "K": NUMBERS, "L": ["x", "-1"], "MS": ["x", "-1"], "S,...": ["x", "1,,2", "-1"], "TIME": TIMES, "AMOUNT": ["20X", "-1G", "much", "101%"], "9.0": ["new"],
    "DEVICE": ["nonsense", "cuda:77"], "DEVICE=UNITS,...": ["cuda:0", "cuda:0=x", "nonsense:0=1"], "NAME=VALUE": ["x"],
    "URL": ["nonsense", "ftp://head", "http://127.0.0.1:none"], "ADDRESS": ["nonsense", "127.0.0.1:none", "127.0.0.1:99999"], "SHA256": ["nonsense"],
    "FORM": ["nonsense"], "FORMAT": ["nonsense"], "HOW": ["nonsense"], "WHICH": ["nonsense"], "WHAT": ["nonsense"], "MODEL": ["nonsense"],
    "STORE": ["nonsense", "sqlite:", "sqlite:{folder}/none/store"], "JOB": ["nonsense"], "INDICES": ["x", "8-1", "1-9999"], "FLEET": INPUT_FILES + ["{folder}/text"],
    "PLAN.json": INPUT_FILES + ["{folder}/text"], "FILE.y4m": INPUT_FILES + ["{folder}/text"], "FOLDER": ["{folder}/none", "{folder}/text"], "FILE": INPUT_FILES,
    "NAME": [], "TEXT": [], "PATH": [], "HOST": [], "COMMAND": [],
}
# Names of a fixed set, and files that are written.
ALSO = {("--backend", "NAME"): ["nonsense"], ("--policy", "NAME"): ["nonsense"], ("--priority", "NAME"): ["nonsense"], ("--array", "INDICES"): [],
        ("--output", "FILE"): ["{folder}/none/file"], ("--output", "PLAN.json"): ["{folder}/none/file"], ("--model", "MODEL"): [],
        ("--name", "NAME", "agent"): ["a/b"], ("--name", "NAME", "gateway"): ["a/b"], ("--name", "NAME", "run"): ["j1", "a/b"], ("--node", "NAME", "relay"): ["a/b"]}
# Of a job alone.
DETACHED = {"--array", "--after", "--after-any", "--begin", "--output", "--notify", "--name", "--retries"}


class WrongInput(Machine):
    def setUp(self):
        super().setUp()
        (self.folder / "text").write_text("nonsense\n")
        (self.folder / "trace").write_text("0 1 1\n1 1 1\n")
        (self.folder / "state").mkdir(mode=0o700)

    def environment(self, **more):
        return super().environment(**{"XDG_STATE_HOME": str(self.folder / "state"), "HOME": str(self.folder), **more})

    def words(self, verb, *more):
        """The verb with what it needs, and the command that berth run starts at the end."""
        needed = NEEDED.get(" ".join(verb.words), [])
        names = {word for word in more if word.startswith("--")}
        while needed and needed[0] in names:  # it is given with a wrong value
            needed = needed[2:]
        words = [*verb.words, *more, *needed]
        if verb.words == ["run"]:
            words += ["-d", "--", "true"] if names & DETACHED else ["--", "true"]
        return [word.replace("{folder}", str(self.folder)) for word in words]

    def assert_one_sentence(self, words, statuses, *mentioned, **environment):
        with self.subTest(words=" ".join(words)):
            try:
                answer = subprocess.run([BERTH, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                                        env=self.environment(**environment))
            except subprocess.TimeoutExpired:
                self.fail("it is still running after a minute")
            shown = f"status {answer.returncode}: {answer.stdout}{answer.stderr}"
            self.assertIn(answer.returncode, statuses, shown)
            self.assertEqual(answer.stdout, "", shown)
            self.assertRegex(answer.stderr, r"\Aberth: [^\n]+\n\Z", shown)
            self.assertNotRegex(answer.stderr, r"what\(\)|terminate|std::|\(\)$|0x[0-9a-f]{6}|\.cpp|: *\n", shown)
            self.assertLess(len(answer.stderr), 600, shown)
            for word in mentioned:
                self.assertIn(word, answer.stderr)


class Words(WrongInput):
    """What the command line itself refuses."""

    def test_an_unknown_verb(self):
        for verb in TREE:
            if verb.below:
                self.assert_one_sentence([*verb.words, "nonsense"], [2], "there is no command 'nonsense'")
                self.assert_one_sentence(["help", *verb.words, "nonsense"], [2], "there is no command 'nonsense'")

    def test_an_unknown_option(self):
        for verb in LEAVES:
            self.assert_one_sentence(self.words(verb, "--nonsense"), [2], f"{verb.name} has no option --nonsense")

    def test_an_option_without_its_value(self):
        for verb in LEAVES:
            for option in verb.options:
                name = option.names[-1]
                if option.value and name.startswith("--"):
                    self.assert_one_sentence([*self.words(verb)[:len(verb.words)], f"{name}=", *(["--", "true"] if verb.words == ["run"] else [])], [2], name)
                    if verb.words != ["run"]:  # the next word would be the value
                        self.assert_one_sentence([*self.words(verb), name], [2], name)
                    self.assert_one_sentence([*verb.words, name, "", *(["--", "true"] if verb.words == ["run"] else [])], [2], "empty")

    def test_too_many_arguments_and_too_few(self):
        for verb in LEAVES:
            if not any("..." in argument.value for argument in verb.arguments):
                more = [PROJECT] * len(verb.arguments)
                self.assert_one_sentence([*verb.words, *more, *(NEEDED.get(" ".join(verb.words), []) if not more else []), "extra"], [2], "extra")
            if any("REQUIRED" in word.value or "REQUIRED" in word.about for word in verb.arguments):
                self.assert_one_sentence(verb.words, [2])


class Values(WrongInput):
    def wrong_values(self, verb, option):
        name = option.names[-1]
        for key in ((name, option.value, verb.words[-1]), (name, option.value)):
            if key in ALSO:
                return ALSO[key]
        self.assertIn(option.value, WRONG, f"{verb.name} {name}: add its kind of value to the table")
        return WRONG[option.value]

    def test_each_value_of_each_option(self):
        for verb in LEAVES:
            for option in verb.options:
                for value in self.wrong_values(verb, option) if option.value else []:
                    # Another machine may have what is not here: an address, a folder.
                    self.assert_one_sentence(self.words(verb, option.names[-1], value), [1, 2] if option.value in ("STORE", "FOLDER") else [2])

    def test_files_that_are_not_what_is_needed(self):
        for words in (["validate"], ["plan"], ["apply"], ["fleet", "show"], ["replay"], ["store", "restore"]):
            for file in ("none", "", "text"):
                self.assert_one_sentence([*words, str(self.folder / file)], [2, 1] if words[0] == "store" else [2], str(self.folder))
        (self.folder / "berth.toml").write_text("mine\n")
        self.assert_one_sentence(["init", str(self.folder / "berth.toml")], [1, 2], "berth.toml")
        self.assert_one_sentence(["init", str(self.folder / "none" / "berth.toml")], [1, 2], "berth.toml")

    @unittest.skipIf(os.geteuid() == 0, "root reads every file")
    def test_files_that_may_not_be_read(self):
        file = self.folder / "closed"
        file.write_text("")
        file.chmod(0)
        for words in (["validate"], ["plan"], ["apply"], ["fleet", "show"], ["replay"], ["store", "restore"], ["devices", "--simulated"], ["serve", "--config"]):
            self.assert_one_sentence([*words, str(file)], [1, 2], str(file), "ermission")


class NamesOfThisMachine(WrongInput):
    def test_names_that_there_are_not(self):
        for verb in LEAVES:
            for argument in verb.arguments:
                name, = argument.names
                if name == "JOB":
                    for job in ("nonsense", "j77", "none-*"):
                        self.assert_one_sentence([*verb.words, job], [2], job)
                if name == "DEVICE":
                    for device in ("nonsense", "cuda:77"):
                        self.assert_one_sentence([*verb.words, device], [2], device)
        for words in (["logs", "nonsense"], ["why", "nonsense"], ["release", "77"], ["release", "x"], ["logs", "a/b"], ["why", "replica", "chat"],
                      ["why", "key"], ["init", ""], ["wait"], ["stop"], ["rm"]):
            self.assert_one_sentence(words, [2])

    def test_states_that_do_not_allow_it(self):
        self.assertEqual(self.berth("run", "-d", "--name", "long", "--", "sleep", "1000").returncode, 0)
        self.addCleanup(self.berth, "stop", "--all")
        self.assert_one_sentence(["rm", "long"], [1, 2], "long")
        self.assert_one_sentence(["rerun", "long"], [2], "long")
        self.assert_one_sentence(["wait", "long", "--timeout", "1s"], [124], "long")
        self.assert_one_sentence(["run", "-n", "3", "--", "true"], [3])


class Addresses(WrongInput):
    """At every verb that asks a server: an address where there is none, and a token that is none."""

    def verbs(self):
        for verb in LEAVES:
            if any("--server" in option.names and option.value == "URL" for option in verb.options) and verb.words[0] not in ("cordon", "uncordon", "drain"):
                yield verb
            if verb.words[0] in ("cordon", "uncordon", "drain"):
                yield verb

    def words(self, verb, *more):
        if verb.words[0] in ("cordon", "uncordon", "drain"):
            return [*verb.words, *more, "node/a"]
        if verb.words == ["why"]:
            return [*verb.words, *more, "replica", "chat/0"]
        return [word.replace("j1", "chat/0") if verb.words == ["logs"] else word for word in super().words(verb, *more)]

    def test_no_server(self):
        with socket.create_server(("127.0.0.1", 0)) as closed:
            address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        for verb in self.verbs():
            self.assert_one_sentence(self.words(verb), [1], "no berth server is running here")
            self.assert_one_sentence(self.words(verb, "--server", address), [1], address)
            self.assert_one_sentence(self.words(verb, "--server", "nonsense"), [2], "nonsense")
            self.assert_one_sentence(self.words(verb), [2], "nonsense", BERTH_SERVER="nonsense")

    def test_tokens(self):
        files = {"none": None, "empty": "", "open": "berth_x\n"}
        for name, text in files.items():
            path = self.folder / name
            if text is not None:
                path.write_text(text)
                path.chmod(0o644 if name == "open" else 0o600)
            for verb in self.verbs():
                self.assert_one_sentence(self.words(verb), [2], str(path), BERTH_SERVER="http://127.0.0.1:9", BERTH_TOKEN_FILE=str(path))
            for verb in ("agent", "gateway"):
                self.assert_one_sentence([verb, "--join", "http://127.0.0.1:9", "--token-file", str(path)], [2], str(path))
            self.assert_one_sentence(["login", "https://127.0.0.1:9", "--token-file", str(path)], [2], str(path))


class OfAFleet(Fleet, WrongInput):
    def environment(self, **more):
        return super().environment(**{"BERTH_RUNTIME_DIR": str(self.folder / "server"), **more})

    def test_names_states_and_tokens(self):
        self.add_nodes("a")
        self.apply(self.web("chat", replicas=1))
        for words in (["nodes", "none"], ["deployments", "none"], ["replicas", "none/0"], ["replicas", "chat/7"], ["logs", "chat/7"], ["delete", "none"],
                      ["delete", "node/none"], ["cordon", "node/none"], ["cordon", "node/a/none"], ["uncordon", "node/none"], ["drain", "node/none"],
                      ["why", "replica", "chat/7"], ["why", "request", "none"], ["token", "remove", "none"], ["token", "add", "none"],
                      ["token", "add", "call", "--deployment", "none"], *(["rollout", verb, "none"] for verb in ("status", "pause", "resume", "undo"))):
            self.assert_one_sentence(words, [1, 2])
        for words in (["rollout", "resume", "chat"], ["rollout", "undo", "chat"], ["delete", "node/a"]):
            self.assert_one_sentence(words, [1])
        # A token that is wrong, and those that may not do it.
        wrong, reader, joiner = self.folder / "wrong", self.folder / "reader", self.folder / "joiner"
        for file, token in ((wrong, "berth_" + "0" * 64), (reader, self.token("read")), (joiner, self.token("join"))):
            file.write_text(token + "\n")
            file.chmod(0o600)
        address = f"http://127.0.0.1:{self.port}"
        for words in (["status"], ["nodes"], ["delete", "chat"], ["apply", PROJECT], ["cordon", "node/a"], ["token", "list"]):
            for file in (wrong, joiner) if words[0] in ("status", "nodes") else (wrong, joiner, reader):
                self.assert_one_sentence(words, [1], BERTH_SERVER=address, BERTH_TOKEN_FILE=str(file))


if __name__ == "__main__":
    unittest.main(verbosity=2)
