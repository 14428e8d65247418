"""`berth logs NAME/N`: the output of a replica on its way from the node over the server to a reader, however slow."""
import os
import pathlib
import re
import subprocess
import unittest

from berth_case import BERTH, BERTH_WORD
from fleet_case import Fleet


class Logs(Fleet):
    def run_script(self, script, **more):
        self.apply({"name": "w", "gpus": 1, "command": ["sh", "-c", script], **more}, wait=False)
        self.until_ready("w", 1)

    def own(self, text):
        """The text without Berth's line about the replica's devices."""
        return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("berth: GPU-"))

    def as_user(self):
        return self.environment(BERTH_RUNTIME_DIR=str(self.folder / "server"))

    def follow(self):
        """A `logs -f` of the replica; what it prints goes to the file that is returned with it."""
        path = self.folder / "followed"
        with path.open("w") as file:
            process = subprocess.Popen([BERTH, "logs", "-f", "w/0"], stdout=file, stderr=subprocess.PIPE, text=True, env=self.as_user())
        self.started.append(process)
        return process, path

    def test_a_slow_reader_gets_all_of_it(self):
        self.add_nodes("a")
        self.run_script("seq 2000000; echo end; exec sleep 600")
        self.until(lambda: self.command("logs", "--tail", "1", "w/0").stdout == "end\n", "it has written all of it")
        for reader in ("cat", "(sleep 3; cat)"):
            answer = subprocess.run(["bash", "-c", f"set -o pipefail; {BERTH_WORD} logs w/0 | {reader} | grep -v '^berth: GPU-' | cmp - <(seq 2000000; echo end)"],
                                    capture_output=True, text=True, timeout=120, env=self.as_user())
            self.assertEqual((answer.returncode, answer.stdout, answer.stderr), (0, "", ""), reader)

    def test_a_reader_that_is_gone_ends_the_sending(self):
        self.add_nodes("a")
        self.run_script("yes | head -c 20000000; exec sleep 600")
        self.until(lambda: self.command("logs", "--tail", "1", "w/0").stdout == "y\n", "it writes")
        for _ in range(40):
            answer = subprocess.run(["bash", "-c", f"{BERTH_WORD} logs w/0 | head -n 2"], capture_output=True, text=True, timeout=60, env=self.as_user())
            self.assertEqual(self.own(answer.stdout), "y\n", answer.stderr)

    def test_following_goes_on_with_the_next_job_and_ends_with_the_replica(self):
        a, = self.add_nodes("a")
        count = self.folder / "count"
        self.run_script(f"echo x >> {count}; echo start $(wc -l < {count}); sleep 4; echo bye; exit 3")
        follower, output = self.follow()
        self.until(lambda: "start 2\n" in output.read_text(), lambda: output.read_text() + self.situation())
        self.assertEqual(self.command("delete", "w").returncode, 0)
        _, message = follower.communicate(timeout=60)
        self.assertRegex(message, r"^berth: the output has ended: w/0 is (gone|stopping on a)\n$")
        self.assertEqual(follower.returncode, 0)
        self.assertRegex(self.own(output.read_text()), r"^start 1\nbye\nstart 2\n")
        named = re.findall(r'"the agent is (starting|stopping) a replica" replica=(\S+)', a.log.read_text())
        self.assertEqual({word for word, _ in named}, {"starting", "stopping"}, a.log.read_text())
        self.assertEqual(len({name for _, name in named}), 1, named)

    def test_the_run_before_and_a_named_incarnation(self):
        self.add_nodes("a")
        count = self.folder / "count"
        self.run_script(f"echo x >> {count}; echo start $(wc -l < {count}); [ $(wc -l < {count}) -ge 3 ] && exec sleep 600; exit 3",
                        readiness={"command": ["sh", "-c", f"[ $(wc -l < {count}) -ge 3 ]"], "every": "100ms"})
        first = self.replicas("w")[0]["generation"]
        self.assertEqual(self.own(self.command("logs", "w/0").stdout), "start 3\n")
        self.assertEqual(self.own(self.command("logs", "--previous", "w/0").stdout), "start 2\n")
        self.assertEqual(self.own(self.command("logs", "--previous", "--tail", "1", f"w/0#{first}").stdout), "start 2\n")
        self.assertEqual(self.own(self.command("logs", f"w/0#{first}").stdout), "start 3\n")
        # Both names are understood wherever a replica is named.
        for words in (("replicas", f"w/0#{first}"), ("why", "replica", f"w/0#{first}")):
            self.assertRegex(self.command(*words).stdout, "^w/0 is ready on a\n")
        answer = self.command("logs", "w/0#777")
        self.assertEqual((answer.returncode, answer.stderr),
                         (2, "berth: there is no incarnation w/0#777; berth replicas w/0 lists those that exist; "
                             "the output of one that has ended is removed\n"))
        self.assertRefused(self.command("logs", "w/0#x"), 2, "'w/0#x' is not a replica")
        self.assertRefused(self.command("logs", "--previous", "j1"), 2, "--previous applies only to replicas")
        # A replica that has run only once has no previous output.
        self.assertEqual(self.command("rollout", "restart", "w").returncode, 0)
        self.until(lambda: self.generations("w")[0] != first, self.situation)
        self.until_ready("w", 1)
        answer = self.command("logs", "--previous", "w/0")
        self.assertEqual((answer.returncode, answer.stderr),
                         (2, "berth: w/0 has not been started before on node a; berth events --subject w/0 shows where it ran before; "
                             "the output of an incarnation that has ended is removed\n"))

    def test_a_refusal_says_where_the_output_of_an_earlier_incarnation_is(self):
        self.add_nodes("a", "b", gpus=1)
        self.run_script("echo here; exec sleep 600")
        first = self.replicas("w")[0]
        self.assertEqual(self.command("drain", f"node/{first['node']}").returncode, 0)
        second = self.until_ready("w", 1, lambda one: one["node"] != first["node"])[0]
        self.assertRefused(self.command("logs", "--previous", "w/0"), 2, f"has not been started before on node {second['node']}; berth events")
        self.assertRefused(self.command("logs", f"w/0#{first['generation']}"), 2, "the output of one that has ended is removed")
        # While a node is lost, its incarnation is known and its output is there.
        self.assertEqual(self.command("uncordon", f"node/{first['node']}").returncode, 0)
        self.nodes[second["node"]].kill()
        self.until(lambda: (one := self.replicas("w").get(0)) and (one["node"], one["state"]) == (first["node"], "ready"), self.situation, 120)
        before = f"w/0#{second['generation']}"
        self.assertRefused(self.command("logs", "--previous", "w/0"), 2,
                           f"the incarnation before it is on node {second['node']}: berth logs {before}\n")
        answer = self.command("logs", before)
        self.assertEqual(answer.returncode, 1)
        self.assertRegex(answer.stderr, f"^berth: its node {second['node']} is lost; on that machine, the output is in "
                                        fr"agent/{second['node']}/jobs/j\d+/output in the state folder of the agent's user\n$")

    def test_following_ends_where_the_replica_is_replaced(self):
        self.add_nodes("a")
        self.run_script("echo one; exec sleep 600")
        follower, output = self.follow()
        self.until(lambda: self.own(output.read_text()) == "one\n", self.situation)
        self.run_script("echo two; exec sleep 600")
        _, message = follower.communicate(timeout=60)
        self.assertRegex(message, r"^berth: the output has ended: w/0 is \w+ on a; to wait for more output, run berth logs -f w/0\n$")

    def test_following_ends_where_the_agent_ends(self):
        a, = self.add_nodes("a")
        self.run_script("echo one; exec sleep 600")
        follower, output = self.follow()
        self.until(lambda: self.own(output.read_text()) == "one\n", self.situation)
        a.agent.terminate()
        self.assertEqual(a.agent.wait(timeout=30), 0)
        _, message = follower.communicate(timeout=30)
        self.assertRegex(message, r"^berth: the output has ended: w/0 is ready on a; to wait for more output, run berth logs -f w/0\n$")

    def test_readers_have_a_bound_and_ended_ones_do_not_count(self):
        self.add_nodes("a")
        self.run_script("i=0; while :; do i=$((i+1)); echo line $i; sleep 0.2; done")
        first, output = self.follow()
        self.until(lambda: "line" in output.read_text(), self.situation)
        for _ in range(20):
            self.assertEqual(self.command("logs", "--tail", "1", "w/0").returncode, 0)
        count = len(output.read_text())
        self.until(lambda: len(output.read_text()) > count + 100, "the first goes on")
        more = [self.start("logs", "-f", "w/0", BERTH_RUNTIME_DIR=str(self.folder / "server")) for _ in range(15)]
        for reader in more:
            self.assertTrue(reader.stdout.readline())
        answer = self.command("logs", "w/0")
        self.assertEqual((answer.returncode, answer.stdout), (1, ""), answer.stderr)
        self.assertRegex(answer.stderr, "^berth: node a already sends output to 16 readers; .*\n$")
        for reader in more:
            reader.kill()
        self.until(lambda: self.command("logs", "w/0").returncode == 0, "those that are gone are noticed", seconds=10)
        self.assertIsNone(first.poll())

    def test_what_was_removed_is_said_and_not_sent(self):
        self.add_nodes("a")
        self.run_script("seq -f 'line %012.0f of many that this replica writes without any pause' 1 1400000; sleep 3; echo end; exec sleep 600")
        self.until(lambda: self.command("logs", "--tail", "1", "w/0").stdout == "end\n", "it has written all of it")
        answer = subprocess.run([BERTH, "logs", "w/0"], capture_output=True, timeout=120, env=self.as_user())
        self.assertEqual(answer.stdout.count(b"\0"), 0)
        first, *left = self.own(answer.stdout.decode()).splitlines()
        self.assertRegex(first, r"^berth: \d+ bytes were removed here$")
        self.assertEqual(left.pop(), "end")
        numbers = [int(line.split()[1]) for line in left]
        self.assertEqual(numbers, list(range(numbers[0], 1400001)), "whole lines, in order, to the end")

    def test_a_server_that_ends_is_not_called_absent(self):
        self.add_nodes("a")
        self.run_script("echo one; exec sleep 600")
        follower, output = self.follow()
        self.until(lambda: self.own(output.read_text()) == "one\n", self.situation)
        self.server.kill()
        self.server.wait()
        _, message = follower.communicate(timeout=60)
        self.assertIn("closed the connection before its answer was complete", message)
        self.assertNotIn("no berth server", message)
        self.assertEqual(follower.returncode, 1)

    def test_output_does_not_control_the_terminal_of_its_reader(self):
        self.add_nodes("a")
        self.run_script(r"printf '\033[31mred\033[0m \033]52;c;cm0gLXJm\007\033[2J\033'; sleep 2; printf '[32mgreen\r\377'; exec sleep 600")
        follower, output = self.follow()
        written = b"\033[31mred\033[0m \033]52;c;cm0gLXJm\a\033[2J\033[32mgreen\r\xff"
        self.until(lambda: output.read_bytes().endswith(written), lambda: str(output.read_bytes()))
        answer = subprocess.run([BERTH, "logs", "w/0"], capture_output=True, timeout=60, env=self.as_user())
        self.assertEqual(answer.stdout, output.read_bytes(), "a file or a pipe gets all of it")
        shown, _ = self.on_terminal(100, "logs", "w/0", BERTH_RUNTIME_DIR=str(self.folder / "server"))
        self.assertTrue(shown.endswith("\033[31mred\033[0m \\x1b]52;c;cm0gLXJm\\x07\\x1b[2J\033[32mgreen\r\\xff\033[0m\r\n"), repr(shown))

    def test_a_reader_on_another_machine_notices_that_the_server_is_gone(self):
        self.add_nodes("a")
        self.run_script("echo one; exec sleep 600")
        token = self.folder / "token"
        token.touch(0o600)
        token.write_text(self.token("operate"))
        reader = subprocess.Popen([BERTH, "logs", "-f", "w/0", "--server", f"http://127.0.0.1:{self.port}"], stdout=subprocess.PIPE, text=True,
                                  env=self.environment(BERTH_TOKEN_FILE=str(token)))
        self.started.append(reader)
        self.assertEqual(next(line for line in reader.stdout if not line.startswith("berth: ")), "one\n")
        # The kernel asks the silent server whether it is there.
        sockets = {os.readlink(file) for file in pathlib.Path(f"/proc/{reader.pid}/fd").iterdir()}
        timers = [words[5] for words in map(str.split, pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]) if f"socket:[{words[9]}]" in sockets]
        self.assertEqual([timer[:2] for timer in timers], ["02"], "the keep-alive timer runs")

    def test_what_has_no_output_is_named(self):
        self.add_nodes("a")
        answer = self.command("logs", "nope/0")
        self.assertEqual((answer.returncode, answer.stderr), (2, "berth: there is no replica nope/0; see berth replicas\n"))
        self.apply({"name": "much", "gpus": 9, "command": ["true"]}, wait=False, status=3)
        answer = self.command("logs", "much/0")
        self.assertEqual((answer.returncode, answer.stderr), (2, "berth: much/0 is not running; berth why replica much/0\n"))
        self.assertRegex(self.command("logs", "much").stderr, "for a replica write much/0")


if __name__ == "__main__":
    unittest.main()
