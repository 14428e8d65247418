"""The command as its users call it: right answers, one clear sentence for every mistake, the right exit status."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from berth_case import BERTH, DOUBLE, ROOT
from command_case import HAS_CUDA, HAS_OPENCL, RUNTIME, CommandCase, Terminal, berth, on_double, without_cuda


class Command(CommandCase):
    def test_version_names_version_and_commit(self):
        self.assertRegex(berth("--version").stdout, r"^berth \d+\.\d+\.\d+ \(.+\)\n$")

    def test_help_lists_every_verb_and_each_verb_has_help(self):
        verbs = sorted(path.stem for path in (ROOT / "src/cli/verbs").glob("*.cpp") if not path.stem.endswith("_test"))
        self.assertGreater(len(verbs), 15)
        listed = re.findall(r"(?m)^  (\w+) +\S", berth("--help").stdout.split("Subcommands:")[1])
        self.assertEqual(sorted(listed), verbs)
        for verb in ([], ["fleet", "show"], ["simulate", "requests"], *([verb] for verb in verbs)):
            result = berth(*verb, "--help")
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn("--help", result.stdout)
            self.assertIn("\nExit status: ", result.stdout, verb)
            self.assertLessEqual(max(map(len, result.stdout.splitlines())), 80, verb)
            self.assertNotIn("reference_", result.stdout, "docs/parity.md explains them")
        self.assertEqual(berth("pick", "--policy", "reference_queue_depth").returncode, 0, "not listed, but selectable")

    def test_no_verb_and_unknown_verbs_are_usage_errors(self):
        for group in ([], ["token"]):
            result = berth(*group)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn("Subcommands:", result.stderr)
        self.assertEqual(berth("help").stdout, berth("--help").stdout)
        self.assertEqual(berth("help", "token", "add").stdout, berth("token", "add", "--help").stdout)
        self.assert_refused(berth("devcies"), 2, "devices")
        self.assert_refused(berth("help", "devcies"), 2, "devices")
        self.assert_refused(berth("jobs"), 2, "did you mean berth ps -a?")
        for words, meant in [(["devices", "--jsno"], "berth devices has no option --jsno; did you mean --json?"),
                             (["run", "-d", "--memory", "5G", "--", "true"], "has no option --memory; did you mean --mem?"),
                             (["ps", "--al"], "did you mean --all?"), (["ps", "--zzzz"], "berth ps has no option --zzzz; see berth ps --help"),
                             (["ps", "[extra]"], "berth ps does not accept '[extra]'; see berth ps --help")]:
            self.assert_refused(berth(*words), 2, meant)

    def test_a_group_of_verbs_shows_its_whole_name(self):
        for words in ((), ("token",), ("store",)):
            self.assertIn(f"Usage: {' '.join(('berth', *words))} [OPTIONS]", berth(*words).stderr)

    def test_a_slip_is_answered_with_what_can_be_written(self):
        for words, meant in [(["rm"], "use --ended for all finished jobs"), (["drain", "gpu-1"], "write node/gpu-1"),
                             (["serve", "--listen", "8080"], "ADDRESS:PORT"), (["why", "replica"], "berth why replica NAME/N"),
                             (["why", "chat/0"], "write berth why replica chat/0"),
                             (["token", "add", "joyn"], "there is no role 'joyn'; did you mean join?"),
                             (["token", "add", "call", "--per-second", "0"],
                              "berth: --per-second is 0; give a number from 1 to 1000000; see berth token add --help"),
                             (["demo", "--frames", "1x"], "--frames is 1x; give a number from 1 to 100000000"),
                             (["run", "-n", "18446744073709551617", "--", "true"], "--devices is 18446744073709551617; give a number from 1 to 4096"),
                             (["token", "add", "king"], "write read, operate, deploy, join or call")]:
            self.assert_refused(berth(*words, BERTH_RUNTIME_DIR=str(self.folder), XDG_STATE_HOME=str(self.folder)), 2, meant)

    @unittest.skipUnless(HAS_OPENCL, "there is no driver of OpenCL here")
    def test_devices_lists_the_host_and_two_opencl_devices(self):
        result = berth("devices", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        devices = json.loads(result.stdout)
        self.assertEqual(len({d["id"] for d in devices}), len(devices), "ids are unique")
        for device in devices:
            for key in ("id", "backend", "name", "health"):
                self.assertTrue(device[key])
            self.assertNotIn(None, device.values(), "unknown is absent, never null")
            self.assertGreater(device.get("memory_bytes_total", 1), 0)
        backends = [d["backend"] for d in devices]
        self.assertEqual(backends.count("host"), 1)
        self.assertEqual(backends.count("opencl"), 2)

    @unittest.skipUnless(HAS_OPENCL, "there is no driver of OpenCL here")
    def test_a_device_has_a_short_id_and_answers_to_its_former_one(self):
        devices = [row for row in json.loads(berth("devices", "--backend", "opencl", "--json").stdout) if row["is_fallback"]]
        self.assertEqual([row["id"] for row in devices], ["cpu-opencl-0", "cpu-opencl-1"], "ids do not depend on the processor's name")
        former = devices[1]["former_id"]
        self.assertRegex(former, r"^opencl/pocl/(basic|cpu-minimal)-.*\.1$")
        here = {"BERTH_RUNTIME_DIR": tempfile.mkdtemp(dir=RUNTIME.name)}
        picked = json.loads(berth("pick", "--device", former, "--json", **here).stdout)
        self.assertEqual([row["id"] for row in picked["devices"]], ["cpu-opencl-1"])
        shown = json.loads(berth("devices", "--json", BERTH_VISIBLE_DEVICES=former, **here).stdout)
        self.assertEqual([row["id"] for row in shown], ["cpu-opencl-1"])
        self.assertIn("opencl:1 cpu-opencl-1 is cordoned", berth("cordon", former, **here).stdout)
        intents = lambda: {row["id"]: row.get("intent", "in_service")
                           for row in json.loads(berth("devices", "--backend", "opencl", "--json", **here).stdout) if row["is_fallback"]}
        self.assertEqual(intents(), {"cpu-opencl-0": "in_service", "cpu-opencl-1": "cordoned"})
        self.assertIn("is in service", berth("uncordon", former, **here).stdout)
        self.assertEqual(set(intents().values()), {"in_service"})

    def test_devices_table_is_aligned_and_fits_a_hundred_columns(self):
        lines = berth("devices", "--simulated", str(ROOT / "examples/devices.toml")).stdout.splitlines()
        self.assertEqual(lines[0].split()[:2], ["DEVICE", "ID"])
        column = lines[0].index("HEALTH")
        for line in lines[1:lines.index("") if "" in lines else None]:  # the processes stand below
            self.assertRegex(line, r"^(cuda|opencl|host|simulated)(:\d+)? ")
            if ":" in line.split()[0]:  # a GPU that is cut is not a device itself
                self.assertEqual(line[column:].split(",")[0], "healthy")
        self.assertLessEqual(max(map(len, lines)), 100)
        self.assertTrue(all(line.isascii() for line in lines), "plain text without a terminal")

    def test_a_device_that_never_answers_does_not_delay_the_others(self):
        path = self.write("hang.toml", '[[device]]\nid = "a"\n[[device]]\nid = "b"\n[[device.fault]]\nkind = "sample_hang"\nat_sample = 1\n')
        result = berth("devices", "--backend", "simulated", "--simulated", path, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        answered, stuck = json.loads(result.stdout)
        self.assertEqual((answered["health"], stuck["health"]), ("healthy", "suspect"))
        self.assertNotIn("sample_age_ms", stuck)
        self.assertIn("has not answered", stuck["error"])
        table = berth("devices", "--backend", "simulated", "--simulated", path)
        self.assertEqual(len(table.stdout.splitlines()), 3)
        self.assertIn("has not answered", table.stderr)

    def test_watching_on_a_terminal_redraws_and_ends_with_an_interrupt(self):
        with Terminal(["devices", "--backend", "simulated", "--simulated", str(ROOT / "examples/devices.toml"), "--watch"]) as terminal:
            terminal.read_until("sim-large-0", times=3)
            os.kill(terminal.pid, signal.SIGINT)
            self.assertEqual(terminal.finish(), 0)
            self.assertIn("\x1b[?25l", terminal.text)
            self.assertGreater(terminal.text.rindex("\x1b[?25h"), terminal.text.rindex("\x1b[?25l"), "the cursor is visible again")
            self.assertIn("sim-large-0", terminal.text[terminal.text.rindex("\x1b[?1049l"):], "the last screen stays")
            self.assertIn("free", terminal.text, "a terminal gets a legend")

    def test_watching_off_a_terminal_appends_one_json_array_a_line(self):
        command = subprocess.Popen([BERTH, "devices", "--backend", "host", "--watch", "--json"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(command.stdout.close)
        for _ in range(2):
            self.assertEqual(json.loads(command.stdout.readline())[0]["id"], "host")
        command.send_signal(signal.SIGINT)
        self.assertEqual(command.wait(60), 0)

    def test_devices_of_one_back_end_only(self):
        devices = json.loads(berth("devices", "--backend", "host", "--host-devices", "2", "--json").stdout)
        self.assertEqual([d["backend"] for d in devices], ["host", "host"])

    def test_a_malformed_partition_is_wrong_input(self):
        for verb in ("devices", "demo"):
            self.assert_refused(berth(verb, "--partition", "cuad:0=8,8"), 2, "'cuad:0=8,8'", "unknown")
        self.assert_refused(berth("devices", "--partition", "host:0=1", "--partition", "cuda:0"), 2, "has no '='")
        self.assert_refused(berth("devices", "--partition"), 2, "--partition")

    def test_an_unknown_back_end_is_wrong_input(self):
        self.assert_refused(berth("devices", "--backend", "vulkan"), 2, "vulkan", "opencl")

    def test_a_missing_back_end_is_a_failure_only_when_it_is_named(self):
        self.assert_refused(without_cuda("devices", "--backend", "cuda"), 1, "libcuda")
        self.assertEqual(without_cuda("devices").returncode, 0)

    def test_simulated_devices_come_from_a_file(self):
        path = str(ROOT / "examples/devices.toml")
        named = json.loads(berth("devices", "--backend", "simulated", "--simulated", path, "--json").stdout)
        self.assertGreater(len(named), 0)
        by_environment = json.loads(berth("devices", "--backend", "simulated", "--json", BERTH_SIMULATED=path).stdout)
        self.assertEqual([d["id"] for d in named], [d["id"] for d in by_environment])

    def test_a_mistake_in_a_simulated_file_is_shown_with_line_and_column(self):
        path = self.write("devices.toml", '[[device]]\nid = "a"\nmemory_bytes = \n')
        self.assert_refused(berth("devices", "--simulated", path), 2, "devices.toml:3:")
        path = self.write("typo.toml", '[[device]]\nid = "a"\nmemroy_bytes = "1GiB"\n')
        self.assert_refused(berth("devices", "--simulated", path), 2, "typo.toml:3:", "memroy_bytes")
        self.assert_refused(berth("devices", "--simulated", str(self.folder / "none.toml")), 2, "none.toml")

    def test_a_named_back_end_that_fails_is_the_error_of_every_verb(self):
        wrong = ("--partition", "cuda:99=1,1")
        project = str(ROOT / "examples/project.toml")
        # Without CUDA this is an environment error, with CUDA wrong input.
        status = berth("devices", *wrong).returncode
        self.assertIn(status, (1, 2))
        for arguments in (("inventory",), ("plan", project), ("cordon", "host:0")):
            self.assertEqual(berth(*arguments, *wrong).returncode, status, arguments)

    def test_an_inventory_is_a_fleet(self):
        result = berth("inventory", "--json", "--simulated", str(ROOT / "examples/devices.toml"))
        self.assertEqual(result.returncode, 0, result.stderr)
        inventory = json.loads(result.stdout)
        self.assertEqual(set(inventory) & {"node", "devices", "links"}, {"node", "devices", "links"})
        self.assertGreater(inventory["node"]["cpus"], 0)
        self.assertGreater(inventory["node"]["memory"], 0)
        fleet = self.write("one.json", result.stdout)
        self.assertIn("valid fleet of 1 node", berth("validate", fleet).stdout)
        shown = json.loads(berth("fleet", "show", fleet, "--json").stdout)["nodes"][0]
        self.assertEqual([d["id"] for d in shown["devices"]], [d["id"] for d in inventory["devices"]])
        self.assertEqual(shown["memory_bytes"], inventory["node"]["memory"])
        # A plan for the inventory file is the plan for its machine.
        project = self.write("p.toml", '[cluster]\nname = "c"\n[[deployment]]\nname = "a"\nmodel = "m"\ngpus = 2\nmemory = "20GiB"\n')
        here = berth("plan", project, "--simulated", str(ROOT / "examples/devices.toml"))
        self.assertEqual((here.returncode, here.stdout), (0, berth("plan", project, "--fleet", fleet).stdout), here.stderr)
        inventory["node"]["name"] += "-2"  # with the same ids of devices, as two equal machines have
        two = self.write("two.json", json.dumps([json.loads(result.stdout), inventory], indent=1))
        self.assertIn("valid fleet of 2 nodes", berth("validate", two).stdout)
        self.assert_refused(berth("plan", project, "--fleet", self.write("bad.json", '{"node": 7}')), 2, "bad.json")

    def test_an_inventory_for_people_names_the_node(self):
        result = berth("inventory")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"^node \S+: \d+ cores?")
        self.assertIn("host:0", result.stdout)
        self.assertLessEqual(max(map(len, result.stdout.splitlines())), 100)

    def test_doctor_finds_nothing_broken_here(self):
        result = berth("doctor", "--json")
        findings = json.loads(result.stdout)
        self.assertEqual(result.returncode, 1 if any(f["severity"] == "error" for f in findings) else 0)
        for finding in findings:
            self.assertEqual(set(finding), {"severity", "check", "message", "why", "fix"})
            self.assertIn(finding["severity"], ("ok", "note", "warning", "error"))
            self.assertTrue(finding["message"])
        text = berth("doctor")
        self.assertEqual(text.returncode, result.returncode)
        self.assertRegex(text.stdout, r"\n\d+ errors?, \d+ warnings?, \d+ notes?\.\n$")

    def findings(self, result, check):
        return [f for f in json.loads(result.stdout) if f["check"] == check]

    def test_doctor_names_what_is_wrong_and_fails_on_errors(self):
        path = self.write("typo.toml", '[[device]]\nid = "a"\nmemroy_bytes = "1GiB"\n')
        result = berth("doctor", "--json", "--simulated", path)
        self.assertEqual(result.returncode, 1)
        self.assertIn("typo.toml:3:", self.findings(result, "back_ends")[0]["message"])
        folder = self.folder / "vendors"
        folder.mkdir()
        (folder / "broken.icd").write_text("libnone.so.1\n")
        result = berth("doctor", "--json", OCL_ICD_VENDORS=str(folder))
        self.assertIn("libnone.so.1", self.findings(result, "opencl_vendors")[0]["message"])

    @unittest.skipIf(HAS_CUDA, "the kernel driver of this machine is not the double's")
    def test_doctor_on_eight_gpus(self):
        result = on_double("eight", "doctor", "--json")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(self.findings(result, "device_order"), [])
        self.assertEqual(len(self.findings(result, "foreign_processes")), 2)
        self.assertIn("power cap", self.findings(result, "throttling")[0]["message"])
        mixed = self.write("mixed.txt", 'gpu pci=0:20:0\ngpu name="NVIDIA L4" sms=58 capability=8.9 pci=0:10:0\n')
        unordered = on_double(mixed, "doctor", "--json")
        self.assertEqual(self.findings(unordered, "device_order")[0]["fix"], "export CUDA_DEVICE_ORDER=PCI_BUS_ID")
        ordered = on_double(mixed, "doctor", "--json", CUDA_DEVICE_ORDER="PCI_BUS_ID")
        self.assertEqual(self.findings(ordered, "device_order"), [])
        by_index = on_double("eight", "doctor", "--json", CUDA_VISIBLE_DEVICES="0,1")
        hides, position = self.findings(by_index, "visible_devices")[::-1]
        self.assertIn("hides 6 of 8", hides["message"])
        self.assertRegex(position["fix"], r"^export CUDA_VISIBLE_DEVICES=GPU-[0-9a-f-]{36},GPU-[0-9a-f-]{36}$")
        malformed = on_double("eight", "doctor", "--json", CUDA_VISIBLE_DEVICES="0,,1")
        self.assertEqual(malformed.returncode, 1)
        self.assertEqual(self.findings(malformed, "visible_devices")[0]["severity"], "error")
        sick = on_double(self.write("sick.txt", "gpus 2\nset 1 recovery_action=1 compute_mode=2 ecc_uncorrected=3\n"), "doctor", "--json")
        self.assertEqual(sick.returncode, 1)
        self.assertIn("--gpu-reset", self.findings(sick, "driver_reports")[0]["fix"])
        self.assertEqual(self.findings(sick, "compute_mode")[0]["severity"], "error")

    def test_devices_of_eight_gpus_fit_a_hundred_columns_and_say_whose_the_memory_is(self):
        result = on_double("eight", "devices")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        lines = result.stdout.splitlines()
        self.assertLessEqual(max(map(len, lines)), 100)
        self.assertIn("xx", lines[2], "foreign memory")
        self.assertIn("power cap", lines[7])
        devices = json.loads(on_double("eight", "devices", "--backend", "cuda", "--json").stdout)
        self.assertEqual(devices[1]["memory_bytes_foreign"], 30 << 30)
        self.assertEqual(devices[1]["processes"], [{"pid": 4194711, "kind": "foreign", "memory_bytes": 30 << 30}])
        for key in ("temperature_celsius", "power_watts", "clock_mhz", "throttle_reasons", "ecc_uncorrected", "sample_age_ms", "utilization"):
            self.assertIn(key, devices[6])

    def test_a_gpu_that_hangs_is_suspect_and_the_rest_is_listed(self):
        path = self.write("hang.txt", "gpus 3\nhang nvmlDeviceGetTemperature gpu=1 times=always\n")
        devices = json.loads(on_double(path, "devices", "--backend", "cuda", "--json").stdout)
        self.assertEqual([d["health"] for d in devices], ["healthy", "suspect", "healthy"])

    def test_slices_and_parts_stand_under_their_gpu(self):
        lines = on_double("mig", "devices", "--backend", "cuda").stdout.splitlines()
        self.assertRegex(lines[1], r"^cuda +GPU-")
        self.assertRegex(lines[2], r"^cuda:0 +\|- MIG-")
        result = on_double("pair", "devices", "--backend", "cuda", "--partition", "cuda:0=64,32,16,16")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        lines = result.stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["DEVICE", "cuda", "cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:4"])
        parts = json.loads(on_double("pair", "devices", "--backend", "cuda", "--partition", "cuda:0=64,32,16,16", "--json").stdout)
        self.assertEqual({d.get("parent") for d in parts[:4]}, {parts[0]["memory_domain"]})
        self.assertNotIn("parent", parts[4])

    def test_what_a_back_end_refuses_is_one_sentence_and_the_rest_is_listed(self):
        for backend, environment, arguments, word, status in (
                ("cuda", {"CUDA_VISIBLE_DEVICES": "0,,1"}, [], "CUDA_VISIBLE_DEVICES", 0),
                ("cuda", {}, ["--partition", "cuda:0=100,100"], "132", 2),
                ("opencl", {"POCL_DEVICES": "basci"}, [], "basci", 0),
                ("opencl", {}, ["--partition", "opencl:7=1"], "opencl:7", 2)):
            result = on_double("pair", "devices", *arguments, **environment)
            self.assertEqual(result.returncode, status)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertIn(word, result.stderr)
            self.assertIn("host:0", result.stdout)
            self.assert_refused(on_double("pair", "devices", "--backend", backend, *arguments, **environment), 2, word)

    def test_eight_gpus_are_eight_devices_with_uuids(self):
        devices = json.loads(on_double("eight", "devices", "--backend", "cuda", "--json").stdout)
        self.assertEqual(len({d["id"] for d in devices}), 8)
        for place, device in enumerate(devices):
            self.assertRegex(device["id"], r"^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
            self.assertEqual((device["ordinal"], device["health"]), (place, "healthy"))

    @unittest.skipIf(HAS_CUDA, "this machine's own driver answers beside the double's")
    def test_a_driver_that_is_too_old_or_does_not_start_is_one_sentence_and_the_rest_is_listed(self):
        old = {"LD_LIBRARY_PATH": DOUBLE + "/old"}
        self.assert_refused(berth("devices", "--backend", "cuda", **old), 1, "too old")
        self.assertIn("host:0", berth("devices", **old).stdout)
        for code, word in ((803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"), (999, "CUDA_ERROR_UNKNOWN"), (802, "CUDA_ERROR_SYSTEM_NOT_READY")):
            path = self.write("start.txt", f"gpu\nerror nvmlInit_v2 code=18 times=always\nerror cuInit code={code} times=always\n")
            self.assert_refused(on_double(path, "devices", "--backend", "cuda"), 1, word)
            listed = on_double(path, "devices")
            self.assertIn("host:0", listed.stdout)
            self.assertIn(word, listed.stderr)
        none = on_double(self.write("none.txt", "gpu\nerror nvmlInit_v2 code=9 times=always\nerror cuInit code=100 times=always\n"),
                         "devices", "--backend", "cuda", "--json")
        self.assertEqual((none.returncode, json.loads(none.stdout)), (0, []))

    @unittest.skipIf(HAS_CUDA, "this machine's own driver answers beside the double's")
    def test_gpus_are_listed_without_starting_cuda_and_the_doctor_starts_it(self):
        hung = on_double(self.write("hung.txt", "gpus 2\nhang cuInit times=always\n"), "devices", "--json", OCL_ICD_VENDORS="/nowhere")
        self.assertEqual((hung.returncode, hung.stderr), (0, ""))
        self.assertEqual([d["backend"] for d in json.loads(hung.stdout)], ["cuda", "cuda", "host"])
        broken = on_double(self.write("broken.txt", "gpus 2\nerror cuInit code=803 times=always\n"), "doctor", "--json")
        self.assertEqual(broken.returncode, 1)
        self.assertEqual(self.findings(broken, "cuda_library")[0]["severity"], "error")

    def test_processes_have_a_user_and_say_that_they_only_draw(self):
        with subprocess.Popen(["sleep", "60"]) as drawing:
            path = self.write("who.txt", f"gpu\nprocess gpu=0 pid={drawing.pid} bytes=1GiB graphics\nprocess gpu=0 pid=4194305 bytes=1GiB\n")
            device, = json.loads(on_double(path, "devices", "--backend", "cuda", "--json").stdout)
            drawing.kill()
        self.assertEqual([(p["pid"], p.get("uid"), p.get("graphics")) for p in device["processes"]],
                         [(drawing.pid, os.getuid(), True), (4194305, None, None)])

    def test_parts_of_a_missing_back_end_are_a_failure(self):
        result = without_cuda("devices", "--partition", "cuda:0=8,8")
        self.assertEqual(result.returncode, 1)
        self.assertIn("libcuda", result.stderr)

    def test_the_inventory_of_two_islands_shows_them(self):
        text = on_double("islands", "inventory").stdout
        self.assertIn("islands: cuda:0 cuda:1 cuda:2 cuda:3, cuda:4 cuda:5 cuda:6 cuda:7", text)
        inventory = json.loads(on_double("islands", "inventory", "--json").stdout)
        self.assertEqual(sorted(map(len, inventory["islands"]))[-2:], [4, 4])
        link = next(l for l in inventory["links"] if l["kind"] == "nvlink")
        self.assertEqual(link["lanes"], 4)
        path = self.write("islands.json", json.dumps(inventory))
        self.assertIn("islands of 4 and 4", berth("fleet", "show", path).stdout)

    @unittest.skipIf(HAS_CUDA, "the kernel driver of this machine is not the double's")
    def test_the_documented_examples_are_what_the_command_prints(self):
        for group, name in (("reference", "devices"), ("guide", "why"), ("guide", "run"), ("guide", "jobs")):
            page = (ROOT / f"docs/{group}/{name}.md").read_text()
            examples = re.findall(r"<!-- run(?: on (\w+))? -->\n```\n\$ berth (.*)\n((?:.*\n)*?)```", page)
            self.assertEqual(len(examples), page.count("<!-- run"))
            for machine, command, expected in examples:
                run = on_double if machine else berth
                arguments = [word.replace("examples/", f"{ROOT}/examples/") for word in command.split()]
                result = run(*([machine] if machine else []), *arguments, BERTH_RUNTIME_DIR=str(self.folder / name))
                # A line of three dots stands for any number of lines.
                pattern = "".join("(?:.*\n)*" if line == "..." else re.escape(line) + "\n" for line in expected.splitlines())
                if "alice" in expected:  # the user who runs the test, in columns of that width
                    pattern = re.sub(r"(\\ )+", " +", pattern).replace("alice", r"\S+")
                self.assertRegex(result.stdout + result.stderr, f"^{pattern}$", command)

    def test_why_says_what_was_decided_and_replay_decides_the_same(self):
        def here(*arguments):
            return berth(*arguments, BERTH_RUNTIME_DIR=str(self.folder / "runtime"))

        simulated = ("--backend", "simulated", "--simulated", str(ROOT / "examples/devices.toml"))
        self.assert_refused(here("why"), 1, "no decision has been recorded")
        self.assertEqual(here("pick", "--mem", "60G", *simulated).returncode, 0)
        self.assertEqual(here("pick", "--mem", "900G", *simulated).returncode, 3)
        refused = json.loads(here("why", "--json").stdout)
        self.assertEqual(refused["explanation"]["cause"], "memory_too_small")
        self.assertEqual(refused["changes"][0]["command"], "--mem 78G")
        listed = json.loads(here("why", "--list", "--json").stdout)
        self.assertEqual([entry["fits"] for entry in listed], [False, True])
        self.assertEqual(len(here("why", "--list").stdout.splitlines()), 3)
        for entry, status in zip(listed, (3, 0)):
            text = here("why", entry["id"], "--json").stdout
            self.assertNotIn("--mem", json.dumps(json.loads(text)["hints"]), "no arguments are recorded")
            again = here("replay", self.write("record.json", text))
            self.assertEqual(again.returncode, status, again.stderr)
            self.assertEqual(again.stdout.splitlines()[0], here("why", entry["id"]).stdout.splitlines()[0])
        changed = json.loads(text)
        changed["outcome"]["winners"] = ["sim-small-0"]
        self.assert_refused(here("replay", self.write("changed.json", json.dumps(changed))), 2, "changed.json", "was edited")
        # A record of an older version, which decided otherwise.
        del changed["check"]
        changed["version"] = 1
        result = here("replay", self.write("older.json", json.dumps(changed)))
        self.assertEqual(result.returncode, 1)
        self.assertIn("the recorded one is sim-small-0, this version chooses sim-large-0", result.stderr)
        refused["devices"][0]["info"]["capability"] = "8.0"
        self.assert_refused(here("replay", self.write("edited.json", json.dumps(refused))), 2, "edited.json", "was edited")
        self.assert_refused(here("replay", self.write("torn.json", text[:-20])), 2, "torn.json", "not JSON")
        self.assert_refused(here("replay", self.write("foreign.json", "{}")), 2, "not the record of a decision")
        self.assert_refused(here("replay", str(self.folder / "absent.json")), 2, "absent.json")
        self.assert_refused(here("why", "absent"), 2, "no job or decision is named 'absent'")
        self.assert_refused(here("why", "a", "b"), 2, "berth why replica NAME/N")

    def test_the_picture_of_the_page_is_what_the_command_draws(self):
        out = self.folder / "devices.svg"
        env = dict(os.environ, LD_LIBRARY_PATH=DOUBLE, BERTH_DOUBLE=str(ROOT / "tests/double/machines/tour.txt"))
        command = [sys.executable, ROOT / "scripts/terminal-picture", out, "--", BERTH, "devices", "--backend", "cuda"]
        self.assertEqual(subprocess.run(command, env=env, timeout=60).returncode, 0)
        self.assertEqual(out.read_text(), (ROOT / "docs/pictures/devices.svg").read_text(), "draw it again with scripts/terminal-picture")

    def test_a_full_disk_is_a_failure_and_not_silence(self):
        with open("/dev/full", "w") as full:
            self.assertEqual(berth("devices", stdout=full).returncode, 1)


if __name__ == "__main__":
    unittest.main()
