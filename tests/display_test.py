"""Output for people: devices, ps, drain and messages, on terminals of 80 and 60 columns and on scripted GPUs."""
import json
import os
import re
import shutil
import signal
import termios
import unittest

import run_test  # takes the paths off the command line
from berth_case import BERTH_WORD, may_mount, user_name
from run_test import BERTH, GIB, ROOT, Machine


class Display(Machine):
    script = (ROOT / "tests/double/machines/eight.txt").read_text()

    def lines(self, text):
        """The lines without colours and other terminal sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "").splitlines()

    def assertFits(self, columns, *arguments):
        text, _ = self.on_terminal(columns, *arguments)
        # Only the closing table of a demo: its progress is overwritten.
        for line in self.lines(text[text.rfind("\r\x1b[K") + 1:]):
            # Lines to be copied and messages about errors are not wrapped.
            if not line.lstrip().startswith((">", "berth: ")):
                self.assertLessEqual(len(line), columns, f"berth {' '.join(arguments)}: {line}")
        return text

    def test_no_table_is_wider_than_the_terminal(self):
        self.hold("--device", "cuda:4")
        self.hold("--mem", "10G", "-n", "3")
        self.start("run", "-q", "--wait", "5m", "-n", "8", "--mem", "20G", "--", "true")
        self.until(lambda: any(lease["state"] == "waiting" for lease in self.ps()), "it stands in line")
        self.berth("cordon", "cuda:5")
        self.assertEqual(self.berth("pick", "-n", "8", "--mem", "120G").returncode, 3)
        plans = []
        for gpus in (5, 8):  # one that fits, with a long list of devices, and one that does not
            plans.append(self.folder / f"{gpus}.toml")
            plans[-1].write_text(f'[cluster]\nname = "lab"\n[[deployment]]\nname = "chat"\nmodel = "llama-70b"\n'
                                 f'gpus = {gpus}\nmemory = "3GiB"\n')
        clip = self.folder / "clip.y4m"
        clip.write_bytes(b"YUV4MPEG2 W32 H18 F25:1 Cmono\n" + 8 * (b"FRAME\n" + bytes(32 * 18)))
        for columns in (80, 60):
            for verb in (["devices"], ["ps"], ["inventory"], ["doctor"], ["demo", "--input", str(clip)], ["drain", "cuda:1", "--plan"],
                         ["why"], ["why", "--list"], ["fleet", "show", str(ROOT / "examples/fleet.toml")], *(["plan", str(plan)] for plan in plans)):
                with self.subTest(columns=columns, verb=verb):
                    self.assertFits(columns, *verb)
        self.assertIn("LOAD", self.assertFits(80, "devices"), "80 columns have room for the load")

    def test_a_long_id_hides_no_column_that_identifies_a_row(self):
        """An id of 60 characters, on 80 columns."""
        ids = [f"a-device-whose-driver-gives-names-that-are-very-long-indeed-{number}"[:59] + str(number) for number in range(2)]
        self.assertEqual({len(long_id) for long_id in ids}, {60})
        file = self.folder / "long.toml"
        file.write_text("".join(f'[[device]]\nid = "{long_id}"\nmemory_bytes = "16GiB"\n' for long_id in ids))
        simulated = {"BERTH_SIMULATED": str(file)}
        self.hold("--backend", "simulated", "--mem", "1G", "-n", "2", **simulated)
        job = self.berth("run", "-d", "-q", "--backend", "simulated", "--mem", "1G", "--", "true", **simulated).stdout.strip()
        self.assertEqual(self.berth("wait", job).returncode, 0)
        self.assertEqual(self.berth("pick", "--backend", "simulated", "--mem", "1G", **simulated).returncode, 0)
        for verb, headings, cells in ((["devices"], ["DEVICE", "ID", "FREE/TOTAL", "HEALTH"], ["simulated:0", "-indeed0", "-indeed1"]),
                                      (["ps", "-a"], ["ID", "GPUS", "USED/PROMISED", "STATE", "COMMAND"], [" simul", job]),
                                      (["why"], ["device", "verdict", "detail"], ["-indeed0", "-indeed1"])):
            with self.subTest(verb=verb):
                text = "\n".join(self.lines(self.on_terminal(80, *verb, **simulated)[0]))
                self.assertLessEqual(max(map(len, text.splitlines())), 80, text)
                for word in headings + cells:
                    self.assertIn(word, text)

    def test_held_devices_are_shown_as_held(self):
        held = self.hold("-n", "6")  # the other two are in use
        table = self.berth("devices", "--backend", "cuda").stdout
        self.assertEqual(table.count("healthy, exclusive"), 6, table)
        self.assertEqual(len(re.findall(rf" {held.command_pid} .* all .* sh$", table, re.MULTILINE)), 6, table)
        first = json.loads(self.berth("devices", "--backend", "cuda", "--json").stdout)[0]["held_by"][0]
        self.assertEqual((first["pid"], first["exclusive"], first["command"]), (held.command_pid, True, "sh"))

    def test_opencl_is_not_started_to_show_the_processor_beside_gpus(self):
        self.needs_pocl()
        rows = lambda: {row["backend"] for row in json.loads(self.berth("devices", "--json").stdout)}
        self.assertEqual(rows(), {"cuda", "opencl", "host"}, "POCL_DEVICES names devices")
        environment = self.environment()
        del environment["POCL_DEVICES"]
        self.environment = lambda: environment
        self.assertEqual(rows(), {"cuda", "host"})
        (self.vendors / "another.icd").write_text("/nowhere/libother.so\n")
        self.assertEqual(rows(), {"cuda", "opencl", "host"}, "another driver may have another GPU")

    def test_foreign_processes_are_listed_with_user_and_command(self):
        self.machine.write_text(f"gpus 2\nprocess gpu=1 pid={os.getpid()} bytes=30GiB\n")
        table = self.berth("devices", "--backend", "cuda").stdout
        user = user_name()
        self.assertRegex(table, rf"(?m)^cuda:1 +{user} +{os.getpid()} +30.0 GiB +python")

    def test_draining_sees_foreign_processes(self):
        answer = self.berth("drain", "cuda:6", "--wait", "200ms")
        self.assertRefused(answer, 3, "4194712", "still on cuda:6 GPU-acc45ded", "berth devices")
        self.assertIn("120.0 GiB", answer.stdout)
        self.assertNotIn("empty", answer.stdout)
        waiting = self.start("drain", "cuda:6", "--wait", "5m")
        self.assertIn("is draining", waiting.stdout.readline())
        self.machine.write_text("gpus 8\n")
        # The double reads its script once per process: another one sees the device empty.
        self.assertEqual(self.berth("drain", "cuda:6", "--wait", "200ms").stdout, "cuda:6 GPU-acc45ded is draining: nothing runs on it\n")
        waiting.kill()

    def test_people_read_short_ids_and_programs_whole_ones(self):
        held = self.hold("--mem", "10G", "--device", "cuda:0")
        brief, whole = held.devices[0][:12], held.devices[0]
        for answer in (self.berth("ps"), self.berth("devices"), self.berth("cordon", "cuda:0"), self.berth("drain", "cuda:0"),
                       self.berth("uncordon", "cuda:0")):
            self.assertIn(brief, answer.stdout)
            self.assertNotIn(whole, answer.stdout)
        self.assertEqual(self.ps()[0]["devices"][0]["id"], whole)

    def test_run_announces_short_ids(self):
        whole = self.gpus()[0]
        granted = self.berth("run", "--mem", "1G", "--device", whole, "--", "true").stderr
        self.assertRegex(granted, rf"^berth: {whole[:12]} \(")
        self.hold("--mem", "60%", "--device", whole)
        refused = self.berth("run", "--mem", "60%", "--device", whole, "--", "true").stderr
        self.assertIn(whole[:12], refused)
        waiting = self.start("run", "--mem", "60%", "--device", whole, "--wait", "5m", "--", "true")
        line = waiting.stderr.readline()
        self.assertIn("place 1 in line", line)
        self.assertNotIn(whole, granted + refused + line)

    def test_names_of_devices_cannot_steer_the_terminal(self):
        self.machine.write_text('gpu name="x\x1b[2J\x07y" memory=80GiB\n')
        answer = self.berth("run", "--mem", "1G", "--", "true")
        self.assertIn(r"(x\x1b[2J\x07y)", answer.stderr)
        self.assertNotRegex(answer.stderr, "[\x00-\x09\x0b-\x1f\x7f]")

    def test_a_desktop_is_not_in_the_way_of_draining_as_it_is_not_of_whole_devices(self):
        self.machine.write_text("gpu memory=80GiB\nprocess gpu=0 pid=4194711 bytes=300MiB graphics\n")
        self.assertEqual(self.berth("run", "-q", "--", "true").returncode, 0)
        answer = self.berth("drain", "cuda:0", "--wait", "200ms")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn("only a desktop runs on it", " ".join(answer.stdout.split()))
        self.machine.write_text("gpu memory=80GiB\nprocess gpu=0 pid=4194711 bytes=1GiB graphics\n")
        self.assertRefused(self.berth("drain", "cuda:0", "--wait", "200ms"), 3, "4194711")

    def test_names_of_programs_cannot_steer_the_terminal(self):
        evil = self.folder / "x\x1b[2J\x1b]0;owned\x07"
        shutil.copy("/bin/cat", evil)
        self.start("run", "-q", "--mem", "1G", "--", str(evil))
        self.until(self.ps, "it runs")
        for answer in (self.berth("ps"), self.berth("devices"), self.berth("devices", "--json"), self.berth("ps", "--json"),
                       self.berth("cordon", "\x1b[31mGPU")):
            self.assertNotRegex(answer.stdout + answer.stderr, "[\x00-\x09\x0b-\x1f\x7f]")
        self.assertIn(r"x\x1b[2J", self.berth("ps").stdout)

    def test_ps_is_watched_like_devices(self):
        self.hold("--mem", "10G", "--device", "cuda:0")
        text, status = self.on_terminal(80, "ps", "--watch", until=b"COMMAND")
        self.assertEqual(status, 0)
        self.assertIn("\x1b[?1049h", text)
        self.assertIn("10.0 GiB", text[text.rindex("\x1b[?1049l"):], "the last screen stays")

    def test_a_watch_ends_at_q_and_leaves_the_terminal_as_it_was(self):
        self.hold("--mem", "10G", "--device", "cuda:0")
        for how in (b"q", b"\x03"):  # Ctrl-C
            pid, master, read_until = self.terminal("sh", "-i")
            text = read_until(b"", b"prompt> ")
            before = termios.tcgetattr(master)
            os.write(master, f"{BERTH_WORD} ps --watch\n".encode())
            text = read_until(text, b"COMMAND")
            self.assertFalse(termios.tcgetattr(master)[3] & (termios.ICANON | termios.ECHO), "keys are read as they are typed")
            self.assertEqual(termios.tcgetattr(master)[6][termios.VMIN], 0, "a key that Ctrl-C discards is not waited for")
            os.write(master, b"x")
            os.write(master, how)
            text = read_until(text, b"\x1b[?1049l")
            text = read_until(text[text.rindex(b"\x1b[?1049l"):], b"prompt> ")
            self.assertEqual(termios.tcgetattr(master), before, how)
            os.write(master, b"echo status=$?\n")
            text = read_until(b"", b"status=0\r")
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def test_a_watched_page_that_is_too_long_says_so(self):
        self.hold("--mem", "1G", "-n", "8")
        text, status = self.on_terminal(80, "devices", "--watch", until=b"more lines)", rows=10)
        self.assertEqual(status, 0)
        self.assertRegex(text, r"\(\d+ more lines\)")

    def test_ps_says_the_place_in_line_and_what_is_waited_for(self):
        self.hold("--mem", "100G", "--device", "cuda:0")
        for place in (1, 2):
            self.start("run", "-q", "--wait", "5m", "--mem", "100G", "--device", "cuda:0", "--", "true")
            self.until(lambda: sum(lease["state"] == "waiting" for lease in self.ps()) == place, "it stands in line")
        waiting = [lease for lease in self.ps() if lease["state"] == "waiting"]
        self.assertEqual([lease["place"] for lease in waiting], [1, 2])
        text = self.berth("ps").stdout
        self.assertRegex(text, r"(?m) waiting #1 .*\n.* waiting #2 +any 1 +100.0 GiB ")
        self.assertRegex(text, r"(?m)^! \d+, \d+: needs 1 device with 100.0 GiB$")


class Messages(Machine):
    """Messages about problems."""

    def shell(self, script):
        return ("sh", "-ec", script + '; exec "$@"', "sh")

    def test_doctor_tries_whether_the_ledger_can_be_written(self):
        self.runtime.mkdir(mode=0o700)
        self.check_barred_ledger(self.shell("ulimit -f 0"), "File too large")

    @unittest.skipUnless(may_mount(), "mounts a small disk")
    def test_doctor_names_a_full_and_a_read_only_disk(self):
        self.runtime.mkdir(mode=0o700)
        for script, words in ((f"mount -t tmpfs -o mode=700,ro none {self.runtime}", "no folder for the ledger is writable"),
                              (f"mount -t tmpfs -o mode=700,size=16k none {self.runtime}; head -c 16k /dev/zero > {self.runtime}/full", f"df {self.runtime}\n")):
            self.check_barred_ledger(("unshare", "-m", "--propagation", "private", *self.shell(script)), words)

    def check_barred_ledger(self, prefix, words):
        self.assertRefused(self.berth("run", "--mem", "1G", "--", "true", prefix=prefix), 1, words)
        answer = self.berth("doctor", "--json", prefix=prefix)
        self.assertEqual(answer.returncode, 1, answer.stdout)
        errors = [finding for finding in json.loads(answer.stdout) if finding["severity"] == "error"]
        self.assertEqual([finding["check"] for finding in errors], ["ledger"])
        self.assertIn(words, errors[0]["message"] + errors[0]["fix"] + "\n")
        self.assertEqual(self.berth("doctor").returncode, 0)
        ledgers = [finding["message"] for finding in json.loads(self.berth("doctor", "--json").stdout) if finding["check"] == "ledger"]
        self.assertIn("no entry", ledgers[0], "the first look left nothing behind")

    def test_why_reads_every_record_that_was_written(self):
        evil = self.folder / "ev\x1b[31mil\nx"
        shutil.copy("/bin/true", evil)
        self.assertEqual(self.berth("run", "-q", "--mem", "1G", "--", str(evil)).returncode, 0)
        self.assertIn(r"ev\x1b[31mil\x0ax", self.berth("why").stdout)
        for option in ("--feature", "--label"):
            self.assertEqual(self.berth("pick", option, "a\x1b[31m=\nb").returncode, 3)
            answer = self.berth("why", "--json")
            self.assertEqual((answer.returncode, answer.stderr), (0, ""))
            self.assertIn(r"a\\x1b[31m", answer.stdout)

    def test_why_passes_over_a_record_that_cannot_be_read(self):
        self.assertEqual(self.berth("pick", "--mem", "3G").returncode, 0)
        self.assertEqual(self.berth("pick", "--mem", "4G").returncode, 0)
        decisions = sorted((self.runtime / f"decisions-{os.geteuid()}").iterdir())
        decisions[1].write_text("{")
        answer = self.berth("why", "--json")
        self.assertEqual(json.loads(answer.stdout)["hints"]["memory_bytes_min"], 3 * GIB)
        self.assertRegex(answer.stderr, f"^berth: note: .*{re.escape(str(decisions[1]))}.*\n$")
        decisions[0].write_text("{")
        self.assertRefused(self.berth("why"), 2, str(decisions[1]))

    def test_devices_say_that_leases_are_not_shown(self):
        self.runtime.write_text("")
        for options in ([], ["--json"]):
            answer = self.berth("devices", *options)
            self.assertEqual(answer.returncode, 0)
            self.assertRegex(answer.stderr, f"^berth: note: leases are not shown: {self.runtime} is not a folder; .*\n$")

    def test_no_message_carries_control_characters_to_the_terminal(self):
        self.assertEqual(self.berth("pick").returncode, 0)
        evil = "a\x1b[31m\nb"
        for arguments in ([evil], ["run", "--" + evil], ["run", f"--{evil}="], ["run", "--mem", evil, "--", "true"], ["pick", "-n", evil],
                          ["run", "--policy", evil, "--", "true"], ["run", "--", evil], ["run", "--", "/" + evil], ["validate", evil], ["plan", evil],
                          ["replay", evil], ["why", evil], ["cordon", evil], ["release", evil], ["devices", "--backend", evil],
                          ["pick", "--simulated", evil], ["demo", "--input", evil], ["fleet", "show", evil], ["init", "/" + evil + "/x"],
                          ["simulate", "requests", "--trace", evil, "--replicas", "1", "--load", "1"], ["pick", f"[{evil}]"]):
            with self.subTest(arguments=arguments):
                answer = self.berth(*arguments)
                self.assertGreater(answer.returncode, 0)
                self.assertRegex(answer.stderr, r"^berth: [^\x00-\x1f\x7f]+\n$")
                self.assertIn(r"a\x1b[31m\x0ab", answer.stderr)
                self.assertNotIn(r"\x01", answer.stderr)

    def test_why_makes_no_folder(self):
        self.runtime.mkdir(mode=0o500)
        self.assertRefused(self.berth("why"), 1, "no decision has been recorded")
        self.assertEqual(list(self.runtime.iterdir()), [])

    def test_an_empty_runtime_folder_is_an_error(self):
        for arguments in (["run", "--mem", "1G", "--", "true"], ["ps"], ["why"], ["pick"]):
            answer = self.berth(*arguments, BERTH_RUNTIME_DIR="")
            self.assertRefused(answer, 2, "BERTH_RUNTIME_DIR is empty; unset it, or set it to a folder")

    def test_a_device_that_a_variable_hides_is_not_said_to_be_missing(self):
        self.assertRefused(self.berth("pick", "--device", "cuda:7"), 2, "there is no device 'cuda:7' on this machine")
        answer = self.berth("pick", "--device", "cuda:1", CUDA_VISIBLE_DEVICES="0")
        self.assertRefused(answer, 2, "there is no device 'cuda:1' among those that CUDA_VISIBLE_DEVICES shows")
        answer = self.berth("run", "-q", "--device", "cuda:0", "--", BERTH, "pick", "--device", "cuda:1")
        self.assertRefused(answer, 2, "among those that BERTH_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES show")

    def test_lengths_of_time_and_amounts_say_what_they_may_be(self):
        self.assertEqual(self.berth("run", "-q", "--wait", "1d", "--mem", "1G", "--", "true").returncode, 0)
        for wrong in ("1w", "367d", "", "-1s"):
            answer = self.berth("run", f"--wait={wrong}", "--mem", "1G", "--", "true")
            self.assertRefused(answer, 2, "its value is empty" if not wrong else "write it like 90s, 5m, 1h30m or 1d, at most 366d")
        answer = self.berth("pick", "--mem", "20Q")
        self.assertRefused(answer, 2, "write it with its unit, as in 20G or 500M")
        self.assertNotIn("whole number of bytes", answer.stderr)

    def test_a_device_named_twice_is_an_error_that_says_so(self):
        first = self.gpus()[0]
        for names in (["--device", "cuda:0,cuda:0"], ["--device", "cuda:0", "--device", first]):
            self.assertRefused(self.berth("pick", *names, "-n", "2"), 2, f"--device names {first} twice")

    def test_intents_as_json_are_the_device_as_devices_shows_it(self):
        def answer(*words):
            result = self.berth(*words, "--json")
            self.assertEqual((result.returncode, result.stderr), (0, ""), words)
            document = json.loads(result.stdout)
            self.assertEqual(document["schema"], 1)
            return document["device"]
        keys = set(json.loads(self.berth("devices", "--json").stdout)[0]) - {"intent", "intent_by", "intent_age_ms"}
        for words, intent in ((["drain", "cuda:0", "--plan"], None), (["cordon", "cuda:0"], "cordoned"), (["drain", "cuda:0", "--wait", "1s"], "draining"),
                              (["uncordon", "cuda:0"], None)):
            device = answer(*words)
            self.assertLessEqual(keys, set(device), words)
            self.assertEqual((device["ordinal"], device.get("intent")), (0, intent), words)
        # Only the id of a device that is gone is known.
        self.assertEqual(self.berth("cordon", "cuda:1").returncode, 0)
        gone = self.gpus()[1]
        self.machine.write_text("gpus 1 memory=80GiB\n")
        self.assertEqual(answer("uncordon", gone), {"id": gone})
        self.assertRefused(self.berth("cordon", "cuda:0", "--reason", "x"), 2, "--server, --ca and --reason apply only to the fleet")

    def test_uncordon_does_not_call_a_sick_device_in_service(self):
        self.machine.write_text(self.script + "set 1 recovery_action=1\n")
        for name in ("cuda:1", self.gpus()[1]):
            self.assertEqual(self.berth("cordon", name).returncode, 0)
            self.assertRegex(self.berth("uncordon", name).stdout, r"^cuda:1 GPU-\S+ is no longer cordoned; it is quarantined\n$")
        self.assertRegex(self.berth("uncordon", "cuda:0").stdout, r"^cuda:0 GPU-\S+ is in service\n$")

    def test_a_folder_is_no_command(self):
        answer = self.berth("run", "--mem", "1G", "--", str(self.folder))
        self.assertRefused(answer, 126, f"{self.folder} is a folder")

    def test_a_replica_with_one_device_has_no_memory_each(self):
        project = self.folder / "berth.toml"
        for gpus, words in ((1, "3.0 GiB\n"), (2, "3.0 GiB each\n")):
            project.write_text('[cluster]\nname = "lab"\n[[deployment]]\nname = "embed"\nmodel = "bge-m3.onnx"\n'
                               f'gpus = {gpus}\nmemory = "3GiB"\n')
            self.assertIn(words, self.berth("plan", str(project)).stdout)


if __name__ == "__main__":
    unittest.main(verbosity=1)
