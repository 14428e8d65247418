"""Every class of wrong input at every verb that can meet it: one sentence that names what is wrong, and the exit status for it.

The verbs and options are those that the command has (command_tree.py). A verb or a kind of value that the tables below do not have fails a test.
"""
import concurrent.futures
import os
import socket
import subprocess
import unittest

from berth_case import BERTH, ROOT, Machine
from command_tree import walk
from fleet_case import Fleet

TREE = list(walk())
LEAVES = [verb for verb in TREE if not verb.below]

# The least input that each verb needs, with files in the test's folder. Verbs that take names of jobs and the like are below.
PROJECT, FLEET = "{folder}/project.toml", str(ROOT / "examples/fleet.toml")
NEEDED = {
    "agent": ["--join", "https://127.0.0.1:9", "--token-file", "{folder}/token"], "apply": [PROJECT], "cordon": ["cuda:0"], "delete": ["chat"], "drain": ["cuda:0"], "fleet show": [FLEET],
    "gateway": ["--join", "https://127.0.0.1:9", "--token-file", "{folder}/token"], "init": ["{folder}/new.toml"], "login": ["https://127.0.0.1:9", "--token-file", "{folder}/token"], "logout": ["http://127.0.0.1:9"], "logs": ["chat/0"],
    "plan": [PROJECT], "relay": ["--folder", "{folder}", "--node", "n"], "release": ["1"], "replay": ["{folder}/text"], "rerun": ["j1"], "rm": ["j1"],
    "rollout pause": ["chat"], "rollout resume": ["chat"], "rollout status": ["chat"], "rollout restart": ["chat"], "scale": ["chat", "2"], "rollout undo": ["chat"], "run": [], "serve": ["--gateway", "none", "--listen", "127.0.0.1:0"],
    "simulate requests": ["--trace", "{folder}/trace", "--replicas", "2", "--load", "0.5"], "stop": ["j1"], "store backup": ["{folder}/backup"],
    "store copy": ["sqlite:{folder}/a", "sqlite:{folder}/b"], "store restore": ["{folder}/text"], "token add": ["read"], "token remove": ["t1"],
    "uncordon": ["cuda:0"], "validate": [PROJECT], "wait": ["j1"], "why": ["replica", "chat/0"],
}
# Values that are wrong for the kind of value that the help names. An empty list: any text is valid.
NUMBERS, TIMES = ["x", "-1", "1.5x", "99999999999999999999"], ["soon", "5 parsecs", "-1s"]
INPUT_FILES = ["{folder}/none", "{folder}"]
WRONG = {
    "N": NUMBERS, "K": NUMBERS, "L": ["x", "-1"], "MS": ["x", "-1"], "S,...": ["x", "1,,2", "-1"], "TIME": TIMES, "AMOUNT": ["20X", "-1G", "much", "101%"], "9.0": ["new"],
    "DEVICE": ["nonsense", "cuda:77"], "DEVICE=UNITS,...": ["cuda:0", "cuda:0=x", "nonsense:0=1"], "NAME=VALUE": ["x"],
    "URL": ["nonsense", "ftp://head", "http://127.0.0.1:none"], "ADDRESS": ["nonsense", "127.0.0.1:none", "127.0.0.1:99999"], "SHA256": ["nonsense"],
    "FORM": ["nonsense"], "FORMAT": ["nonsense"], "HOW": ["nonsense"], "WHICH": ["nonsense"], "WHAT": ["nonsense"], "MODEL": ["nonsense"],
    "STORE": ["nonsense", "sqlite:", "sqlite:{folder}/none/store"], "JOB": ["nonsense"], "INDICES": ["x", "8-1", "1-9999"], "REVISION": NUMBERS, "STATE,...": ["nonsense"], "FLEET": INPUT_FILES + ["{folder}/text"],
    "PLAN.json": INPUT_FILES + ["{folder}/text"], "FILE.y4m": INPUT_FILES + ["{folder}/text"], "FOLDER": ["{folder}/none", "{folder}/text"], "FILE": INPUT_FILES,
    "NAME": [], "TEXT": [], "PATH": [], "HOST": [], "COMMAND": [], "WHO": [],
}
# Exceptions: names from a fixed set, and files that are written.
ALSO = {("--backend", "NAME"): ["nonsense"], ("--policy", "NAME"): ["nonsense"], ("--priority", "NAME"): ["nonsense"], ("--array", "INDICES"): [],
        ("--output", "FILE"): ["{folder}/none/file"], ("--output", "PLAN.json"): ["{folder}/none/file"], ("--output", "FILE", "add"): [], ("--store", "STORE", "restore"): [], ("--model", "MODEL"): [],
        ("--name", "NAME", "agent"): ["a/b"], ("--name", "NAME", "gateway"): ["a/b"], ("--name", "NAME", "run"): ["j1", "a/b"], ("--node", "NAME", "relay"): ["a/b"]}
# Certificates are only read for an encrypted connection. `ps` reads no devices if none is held, and the doctor reports the error.
WITH = {"--ca": ["--server=https://127.0.0.1:9"]}
IGNORED = {("ps", "--simulated"), ("doctor", "--simulated"), ("ps", "--partition"), ("doctor", "--partition")}
# Verbs that run until they are stopped, and write a log.
SERVICES = ("agent", "gateway", "relay", "serve")
OF_DEVICES_AND_NODES = ("cordon", "uncordon", "drain")
# Commands that a token of role read may run.
READERS = (["status"], ["nodes"], ["deployments"], ["replicas"], ["endpoints"], ["shards"], ["events"], ["rollout", "status"], ["why"])
# Options of jobs only.
DETACHED = {"--array", "--after", "--after-any", "--begin", "--output", "--notify", "--name", "--retries"}


# The advice is a second clause or sentence.
ADVICE = r"berth: .*[^.](; |\. [A-Z])\w"


def verbs_of_servers():
    """The verbs that send requests to a server, at least for some of their arguments."""
    return [verb for verb in LEAVES if verb.words[0] in OF_DEVICES_AND_NODES or any("--server" in option.names and option.value == "URL" for option in verb.options)]


class WrongInput(Machine):
    prefix = ()  # another program that starts the command
    of_server = False  # whether cordon, uncordon and drain name a node, which needs a server

    def setUp(self):
        super().setUp()
        self.expected = []
        (self.folder / "text").write_text("nonsense\n")
        (self.folder / "trace").write_text("0 1 1\n1 1 1\n")
        (self.folder / "project.toml").write_text('[cluster]\nname = "lab"\n')
        (self.folder / "token").write_text("berth_" + "0" * 64)
        (self.folder / "token").chmod(0o600)
        (self.folder / "state").mkdir(mode=0o700)

    def environment(self, **more):
        return super().environment(**{"XDG_STATE_HOME": str(self.folder / "state"), "HOME": str(self.folder), **more})

    def words(self, verb, *more):
        """The verb with its required arguments, and the command that berth run starts at the end."""
        if self.of_server and verb.words[0] in OF_DEVICES_AND_NODES:
            return [*verb.words, *more, "node/a"]
        needed = NEEDED.get(" ".join(verb.words), [])
        names = {word for word in more if word.startswith("--")}
        for name in names & set(needed):  # it is given with a wrong value
            needed = needed[:needed.index(name)] + needed[needed.index(name) + 2:]
        words = [*verb.words, *more, *needed]
        if verb.words == ["run"]:
            words += ["-d", "--", "true"] if names & DETACHED else ["--", "true"]
        return words

    def expect(self, words, statuses, *mentioned, **environment):
        """Checked at the end of the test, many at once. `mentioned`: words of the message; of a tuple, one is enough."""
        words = [word.replace("{folder}", str(self.folder)) for word in words]
        if words[0] in SERVICES:  # in a separate runtime folder
            environment["BERTH_RUNTIME_DIR"] = str(self.folder / f"runtime-{len(self.expected)}")
        self.expected.append((words, statuses, mentioned, environment))

    def tearDown(self):
        def answer(case):
            words, _, _, environment = case
            try:
                return subprocess.run([*self.prefix, BERTH, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, env=self.environment(**environment))
            except subprocess.TimeoutExpired:
                return None
        with concurrent.futures.ThreadPoolExecutor(8) as several:
            answers = list(several.map(answer, self.expected))
        for (words, statuses, mentioned, _), answer in zip(self.expected, answers):
            with self.subTest(words=" ".join(words).replace(str(self.folder), "")):
                self.assertIsNotNone(answer, "the command is still running")
                shown = f"status {answer.returncode}: {answer.stdout}{answer.stderr}"
                self.assertIn(answer.returncode, statuses, shown)
                self.assertEqual(answer.stdout, "", shown)
                # A refused request is followed by the devices that each condition leaves; a running program writes its log there.
                more = r"(  \d+ devices -> .*\n)?" if answer.returncode == 3 else ""
                log = r"(time=.*\n)*" if words[0] in SERVICES else ""
                self.assertRegex(answer.stderr, rf"\A{log}berth: [^\n]+\n{more}\Z", shown)
                self.assertNotRegex(answer.stderr, r"what\(\)|terminate|std::|0x[0-9a-f]{6}|\.cpp|: *\n", shown)
                self.assertLess(len(answer.stderr.splitlines()[-1]), 600, shown)
                self.assertRegex(answer.stderr, ADVICE, f"the message has no advice: {shown}")
                for word in mentioned:
                    self.assertTrue(any(part in answer.stderr for part in ([word] if isinstance(word, str) else word)),
                                    f"the message does not name {word}: {shown}")
        super().tearDown()


class Words(WrongInput):
    """Errors that the command line parser finds."""

    def test_an_unknown_verb(self):
        for verb in TREE:
            if verb.below:
                self.expect([*verb.words, "nonsense"], [2], "there is no command 'nonsense'")
                self.expect(["help", *verb.words, "nonsense"], [2], "there is no command 'nonsense'")

    def test_an_unknown_option(self):
        for verb in LEAVES:
            self.expect(self.words(verb, "--nonsense"), [2], f"{verb.name} has no option --nonsense")

    def test_an_option_without_its_value(self):
        for verb in LEAVES:
            for option in verb.options:
                name = option.names[-1]
                if option.value and name.startswith("--"):
                    self.expect([*self.words(verb)[:len(verb.words)], f"{name}=", *(["--", "true"] if verb.words == ["run"] else [])], [2], name)
                    if verb.words != ["run"]:  # the next word would be the value
                        self.expect([*self.words(verb), name], [2], name)
                    self.expect([*verb.words, name, "", *(["--", "true"] if verb.words == ["run"] else [])], [2], "empty")

    def test_too_many_arguments_and_too_few(self):
        for verb in LEAVES:
            if not any("..." in argument.value for argument in verb.arguments):
                more = [PROJECT] * len(verb.arguments)
                self.expect([*verb.words, *more, *(NEEDED.get(" ".join(verb.words), []) if not more else []), "extra"], [2], ("extra", "project.toml"))
            if any("REQUIRED" in word.value or "REQUIRED" in word.about for word in verb.arguments):
                self.expect(verb.words, [2])


class Values(WrongInput):
    def wrong_values(self, verb, option):
        name = option.names[-1]
        if (verb.words[0], name) in IGNORED:
            return []
        for key in ((name, option.value, verb.words[-1]), (name, option.value)):
            if key in ALSO:
                return ALSO[key]
        self.assertIn(option.value, WRONG, f"{verb.name} {name}: add its kind of value to the table")
        return WRONG[option.value]

    def test_each_value_of_each_option(self):
        for verb in LEAVES:
            for option in verb.options:
                for value in self.wrong_values(verb, option) if option.value else []:
                    # A folder in place of a file is an environment error.
                    statuses = [1, 2] if option.value in ("STORE", "FOLDER") or value == "{folder}" else [2]
                    at_server = any("--server" in other.names for other in verb.options)
                    self.expect(self.words(verb, option.names[-1], value, *(WITH.get(option.names[-1], []) if at_server else [])), statuses,
                                (value.replace("{folder}", str(self.folder)).removeprefix("sqlite:"), option.names[-1]))

    def test_files_that_are_not_what_is_needed(self):
        for words in (["validate"], ["plan"], ["apply"], ["fleet", "show"], ["replay"], ["store", "restore"]):
            for file, statuses in (("none", [2]), ("", [1, 2]), ("text", [2])):
                self.expect([*words, str(self.folder / file)], [1, 2] if words[0] == "store" else statuses, str(self.folder))
        (self.folder / "berth.toml").write_text("mine\n")
        self.expect(["init", str(self.folder / "berth.toml")], [1, 2], "berth.toml")
        self.expect(["init", str(self.folder / "none" / "berth.toml")], [1, 2], "berth.toml")

    def test_files_that_may_not_be_read(self):
        if os.geteuid() == 0:  # without the capabilities by which root reads every file
            self.prefix = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
        file = self.folder / "closed"
        file.write_text("")
        file.chmod(0)
        for words in (["validate"], ["plan"], ["apply"], ["fleet", "show"], ["replay"], ["store", "restore"], ["devices", "--simulated"], ["serve", "--config"]):
            self.expect([*words, str(file)], [1, 2], str(file), "ermission")


class NamesOfThisMachine(WrongInput):
    def test_names_that_there_are_not(self):
        for verb in LEAVES:
            for argument in verb.arguments:
                name, = argument.names
                if name == "JOB":
                    for job in ("nonsense", "j77", "none-*"):
                        self.expect([*verb.words, job], [2], job)
                if name == "DEVICE":
                    for device in ("nonsense", "cuda:77"):
                        self.expect([*verb.words, device], [2], device)
        for words in (["logs", "nonsense"], ["why", "nonsense"], ["release", "77"], ["release", "x"], ["logs", "a/b"], ["why", "replica", "chat"],
                      ["why", "key"], ["init", ""], ["wait"], ["stop"], ["rm"]):
            self.expect(words, [2])

    def test_states_that_do_not_allow_it(self):
        self.assertEqual(self.berth("run", "-d", "--name", "long", "--", "sleep", "1000").returncode, 0)
        self.addCleanup(self.berth, "stop", "--all")
        self.expect(["rm", "long"], [1, 2], "j1")
        self.expect(["rerun", "long"], [2], "long")
        self.expect(["wait", "long", "--timeout", "1s"], [124], "long")
        self.expect(["run", "-n", "3", "--", "true"], [3])


class Addresses(WrongInput):
    """At every verb that uses a server: an address without a server, and an invalid token."""

    of_server = True

    def test_no_server(self):
        with socket.create_server(("127.0.0.1", 0)) as closed:
            address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        for verb in verbs_of_servers():
            self.expect(self.words(verb), [1], "no berth server is running here")
            self.expect(self.words(verb, "--server", address), [1], address)
            self.expect(self.words(verb, "--server", "nonsense"), [2], "nonsense")
            self.expect(self.words(verb), [2], "nonsense", BERTH_SERVER="nonsense")

    def test_tokens(self):
        files = {"none": None, "empty": "", "open": "berth_x\n"}
        for name, text in files.items():
            path = self.folder / name
            if text is not None:
                path.write_text(text)
                path.chmod(0o644 if name == "open" else 0o600)
            for verb in verbs_of_servers():
                self.expect(self.words(verb), [2], str(path), BERTH_SERVER="http://127.0.0.1:9", BERTH_TOKEN_FILE=str(path))
            for verb in ("agent", "gateway"):
                self.expect([verb, "--join", "http://127.0.0.1:9", "--token-file", str(path)], [2], str(path))
            self.expect(["login", "https://127.0.0.1:9", "--token-file", str(path)], [2], str(path))


class OfAFleet(Fleet, WrongInput):
    of_server = True

    def environment(self, **more):
        return super().environment(**{"BERTH_RUNTIME_DIR": str(self.folder / "server"), **more})

    def test_names_states_and_tokens(self):
        self.add_nodes("a")
        self.apply(self.web("chat", replicas=1))
        for words in (["nodes", "none"], ["deployments", "none"], ["replicas", "none/0"], ["replicas", "chat/7"], ["logs", "chat/7"], ["delete", "none"],
                      ["delete", "node/none"], ["cordon", "node/none"], ["cordon", "node/a/none"], ["uncordon", "node/none"], ["drain", "node/none"],
                      ["why", "replica", "chat/7"], ["why", "request", "none"], ["token", "remove", "none"], ["token", "add", "none"], ["token", "add", "read", "-o", "{folder}/none/file"],
                      ["token", "add", "call", "--deployment", "none"], *(["rollout", verb, "none"] for verb in ("status", "pause", "resume", "restart", "undo")), ["scale", "none", "2"]):
            self.expect(words, [1, 2])
        for words in (["rollout", "resume", "chat"], ["rollout", "undo", "chat"], ["delete", "node/a"]):
            self.expect(words, [1])
        # A wrong token, and tokens without the required role.
        wrong, reader, joiner = self.folder / "wrong", self.folder / "reader", self.folder / "joiner"
        for file, token in ((wrong, "berth_" + "0" * 64), (reader, self.token("read")), (joiner, self.token("join"))):
            file.write_text(token + "\n")
            file.chmod(0o600)
        address = f"http://127.0.0.1:{self.port}"
        for verb in verbs_of_servers():
            for file in (wrong, joiner) if verb.words in READERS else (wrong, joiner, reader):
                self.expect(self.words(verb), [1], BERTH_SERVER=address, BERTH_TOKEN_FILE=str(file))
        for verb, files in (("agent", (wrong, reader)), ("gateway", (wrong, reader, joiner))):
            for file in files:
                self.expect([verb, "--join", address, "--name", "new", "--token-file", str(file)], [1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
