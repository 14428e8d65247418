"""berth run, ps, pick, cordon and drain, with real processes and real faults, on scripted GPUs and on this machine's own."""
import json
import os
import pathlib
import pwd
import re
import resource
import select
import signal
import subprocess
import sys
import time
import unittest

from berth_case import BERTH, DOUBLE, GIB, ROOT, Machine


class Run(Machine):
    def test_the_commands_status_and_output_are_its_own(self):
        answer = self.berth("run", "--mem", "1G", "--", "sh", "-c", "echo out; echo err >&2; exit 42")
        self.assertEqual((answer.returncode, answer.stdout), (42, "out\n"))
        self.assertIn("err\n", answer.stderr)
        self.assertEqual(self.berth("run", "--mem", "1G", "--", "sh", "-c", "kill -9 $$").returncode, -9, "as if berth were not there")

    def test_only_its_devices_are_visible_by_uuid(self):
        gpus = self.gpus()
        answer = self.berth("run", "--mem", "1G", "--device", gpus[1], "--", BERTH, "devices", "--json")
        self.assertEqual([device["id"] for device in json.loads(answer.stdout)], [gpus[1]])
        answer = self.berth("run", "--mem", "1G", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES $BERTH_LEASE")
        self.assertRegex(answer.stdout, r"^GPU-[0-9a-f-]{36} [0-9a-f]{16}:\d+\n$")

    def test_says_where_it_runs_and_how_strong_the_limit_is_unless_quiet(self):
        answer = self.berth("run", "--mem", "20G", "--", "true")
        self.assertRegex(answer.stderr, r"^berth: GPU-\S+ \(.*\), 20.0 GiB of 80.0 GiB; admission only: .*\n$")
        self.assertRegex(self.berth("run", "--exclusive", "--", "true").stderr, r"^berth: GPU-\S+ \(.*\), whole device\n$")
        self.assertEqual(self.berth("run", "-q", "--mem", "20G", "--", "true").stderr, "")

    def test_mps_and_mig_are_stronger_limits_and_are_named(self):
        pipes = self.mps_daemon()
        answer = self.berth("run", "--mem", "20G", "-n", "2", "--", "sh", "-c", "echo $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
                            CUDA_MPS_PIPE_DIRECTORY=pipes)
        self.assertEqual(answer.stdout, "0=20480M,1=20480M\n")
        self.assertIn("(MPS)", answer.stderr)
        self.machine.write_text("gpu memory=80GiB\nslice gpu=0 memory=20GiB sms=16\n")
        answer = self.berth("run", "--mem", "10G", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
        self.assertTrue(answer.stdout.startswith("MIG-"), answer.stdout + answer.stderr)
        self.assertIn("10.0 GiB of 20.0 GiB; the hardware holds it to the slice's 20.0 GiB (MIG)", answer.stderr)

    def test_two_commands_do_not_get_the_same_bytes(self):
        first, second = self.hold("--mem", "50G"), self.hold("--mem", "50G")
        self.assertNotEqual(first.devices, second.devices)
        self.assertRefused(self.berth("run", "--mem", "50G", "--", "true"), 3, "50.0 GiB", "berth why")
        self.assertEqual(self.berth("run", "--mem", "20G", "--", "true").returncode, 0, "what is left can be had")
        first.communicate("")
        self.assertEqual(self.berth("run", "--mem", "50G", "--", "true").returncode, 0, "what ended was given back")

    def test_policies_of_share_and_turns_use_every_device(self):
        path = self.folder / "four.toml"
        path.write_text("".join(f'[[device]]\nid = "s{i}"\nmemory_bytes = "80GiB"\n' for i in range(4)))
        simulated = ("--backend", "simulated", "--simulated", str(path), "--mem", "1G")
        show = ("--", "sh", "-c", "echo $BERTH_VISIBLE_DEVICES")
        turns = [self.berth("run", *simulated, "--policy", "round_robin", *show).stdout for _ in range(8)]
        self.assertEqual(len(set(turns[:4])), 4, turns)
        self.assertEqual(turns[:4], turns[4:], "each in turn, although each command has ended before the next")
        held = []
        for _ in range(4):
            held.append(self.start("run", *simulated, "--policy", "weighted_capacity", "--", "sh", "-c",
                                   "echo $BERTH_VISIBLE_DEVICES; read line"))
            held[-1].first_line = held[-1].stdout.readline()
        self.assertEqual(len({process.first_line for process in held}), 4, [process.first_line for process in held])

    def test_sixteen_at_once_are_never_promised_more_than_there_is(self):
        script = "echo $CUDA_VISIBLE_DEVICES; read line"
        processes = [self.start("run", "-q", "--mem", "30G", "--", "sh", "-c", script) for _ in range(16)]
        lines = [process.stdout.readline().strip() for process in processes]
        granted = [line for line in lines if line]
        self.assertEqual(sorted(granted.count(gpu) for gpu in self.gpus()), [2, 2], lines)
        held = [lease for lease in self.ps() if lease["state"] == "running"]
        self.assertEqual(len(held), 4)
        for process, line in zip(processes, lines):
            process.communicate("")
            self.assertEqual(process.returncode, 1 if line else 3)
        self.assertEqual(self.ps(), [])

    def test_without_an_amount_devices_are_held_alone(self):
        alone = self.hold()
        shared = self.hold("--mem", "1G")
        self.assertNotEqual(alone.devices, shared.devices)
        self.assertRefused(self.berth("run", "--", "true"), 3, "held")
        self.assertRefused(self.berth("run", "--mem", "1G", "--device", alone.devices[0], "--", "true"), 3)

    def test_memory_of_others_counts_and_a_promise_that_is_used_counts_once(self):
        self.machine.write_text("gpu memory=80GiB\nprocess gpu=0 pid=4711 bytes=30GiB\n")
        self.assertRefused(self.berth("run", "--mem", "60G", "--", "true"), 3, "60.0 GiB")
        first = self.hold("--mem", "30G")
        # The driver says that the command has allocated 25 of its 30 GiB.
        self.machine.write_text(f"gpu memory=80GiB\nprocess gpu=0 pid=4711 bytes=30GiB\n"
                                f"process gpu=0 pid={first.command_pid} bytes=25GiB\n")
        self.assertEqual(self.ps()[0]["devices"][0]["memory_bytes_used"], 25 * GIB)
        self.assertEqual(self.berth("run", "--mem", "18G", "--", "true").returncode, 0)
        self.assertRefused(self.berth("run", "--mem", "21G", "--", "true"), 3)

    def test_devices_show_what_is_promised_and_cordoned(self):
        held = self.hold("--mem", "30G", "--device", "cuda:0")
        self.machine.write_text(self.script + f"process gpu=0 pid={held.command_pid} bytes=10GiB\n")
        self.berth("cordon", "cuda:1")
        first, second = json.loads(self.berth("devices", "--backend", "cuda", "--json").stdout)
        self.assertEqual((first["memory_bytes_promised"], first["holders"], first["memory_bytes_berth"]), (20 * GIB, 1, 10 * GIB))
        self.assertEqual(second["intent"], "cordoned")
        self.assertNotIn("memory_bytes_promised", second)
        table = self.berth("devices", "--backend", "cuda").stdout
        self.assertRegex(table.splitlines()[1], r"\[=+\++\.+\]")
        self.assertIn("healthy, cordoned", table.splitlines()[2])

    def test_a_plan_on_this_machine_leaves_out_what_is_held(self):
        def plan(gpus, more=""):
            project = self.folder / "project.toml"
            project.write_text(f'[cluster]\nname = "c"\n[[deployment]]\nname = "llm"\nmodel = "llama-70b"\ngpus = {gpus}\n{more}')
            answer = self.berth("plan", str(project), "--json")
            return answer.returncode, [device for a in json.loads(answer.stdout)["assignments"] for device in a["devices"]]

        shared = 'memory = "30G"\nsharing = "memory"\n'
        self.assertEqual(plan(2), (0, self.gpus()))
        alone = self.hold()
        free = [gpu for gpu in self.gpus() if gpu not in alone.devices]
        self.assertEqual(plan(1), (0, free))
        self.assertEqual(plan(1, shared), (0, free))
        self.assertEqual(plan(2), (3, []))
        # 60 of 80 GiB are promised: 30 GiB do not fit beside them, 10 GiB do.
        part = self.hold("--mem", "60G")
        self.assertEqual(part.devices, free)
        self.assertEqual(plan(1, shared), (3, []))
        self.assertEqual(plan(1, shared.replace("30G", "10G")), (0, free))
        alone.communicate("")
        self.assertEqual(plan(1, shared), (0, alone.devices))
        part.communicate("")
        # Almost all bytes are free: what counts is that there is a lease, or that it is exclusive.
        small = self.hold("--mem", "100M")
        other = [gpu for gpu in self.gpus() if gpu not in small.devices]
        self.assertEqual(plan(1), (0, other))
        self.assertEqual(plan(2), (3, []))
        self.assertEqual(plan(2, shared)[0], 0)
        small.communicate("")
        self.hold("--exclusive", "--mem", "100M")
        self.assertEqual(plan(2, shared), (3, []))

    def test_a_share_of_a_device_can_be_asked_for(self):
        first, second = self.hold("--mem", "60%"), self.hold("--mem", "60%")
        self.assertNotEqual(first.devices, second.devices)
        self.assertRefused(self.berth("run", "--mem", "60%", "--", "true"), 3)
        for wrong in ("0%", "101%", "-5%", "x%", "%"):
            self.assertRefused(self.berth("run", "--mem", wrong, "--", "true"), 2, wrong)

    def test_killing_berth_leaves_the_command_its_lease(self):
        held = self.hold("--mem", "60G", "--device", "cuda:0", "--on-fault", "restart")
        held.kill()
        held.wait()
        self.assertEqual([p["pid"] for lease in self.ps() for p in lease["kept_by"]], [held.command_pid])
        self.assertRefused(self.berth("run", "--mem", "60G", "--device", "cuda:0", "--", "true"), 3)
        os.kill(held.command_pid, signal.SIGKILL)
        self.until(lambda: not self.ps(), "the lease of the dead command returns")
        self.assertEqual(self.berth("run", "--mem", "60G", "--device", "cuda:0", "--", "true").returncode, 0)

    def test_a_command_that_is_killed_gives_its_devices_back_at_once(self):
        held = self.hold("--mem", "60G")
        os.kill(held.command_pid, signal.SIGKILL)
        held.communicate()
        self.assertEqual(held.returncode, -signal.SIGKILL)
        self.assertEqual(self.ps(), [])

    def test_signals_are_passed_on_once(self):
        script = "trap 'echo term' TERM; trap 'echo usr1' USR1; echo ready; until read line; do :; done; echo $line"
        process = self.start("run", "-q", "--mem", "1G", "--", "sh", "-c", script)
        for sent, said in ((None, "ready\n"), (signal.SIGUSR1, "usr1\n"), (signal.SIGTERM, "term\n")):
            if sent:
                process.send_signal(sent)
            self.assertEqual(process.stdout.readline(), said)
        self.assertEqual(process.communicate("go\n")[0], "go\n")

    def test_an_interrupt_from_the_terminal_reaches_the_command_once(self):
        script = "trap 'echo one-interrupt' INT; echo ready; read line; echo end"
        pid, master, read_until = self.terminal(BERTH, "run", "-q", "--mem", "1G", "--", "sh", "-c", script)
        text = read_until(b"", b"ready")
        os.write(master, b"\x03")
        text = read_until(text, b"one-interrupt")
        os.write(master, b"\n")
        text = read_until(text, b"end\r\n")
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0, text)
        self.assertEqual(text.count(b"one-interrupt"), 1, text)

    def test_waiting_ends_with_room_or_with_the_deadline(self):
        held = self.hold("--mem", "60G", "--device", "cuda:0")
        answer = self.berth("run", "--mem", "60G", "--device", "cuda:0", "--wait", "1500ms", "--", "true")
        self.assertEqual(answer.returncode, 3, answer.stderr)
        self.assertIn("berth: waiting, place 1 in line: ", answer.stderr)
        waiting = self.start("run", "--mem", "60G", "--device", "cuda:0", "--wait", "2m", "--", "echo", "in")
        self.until(lambda: any(lease["state"] == "waiting" for lease in self.ps()), "it stands in line")
        held.communicate("")
        out, _ = waiting.communicate()
        self.assertEqual((waiting.returncode, out), (0, "in\n"))

    def test_those_who_wait_are_served_by_priority_and_then_in_order(self):
        held = self.hold("--mem", "60G", "--device", "cuda:0")
        log = self.folder / "log"
        processes = []
        for name, priority in (("a", "normal"), ("b", "low"), ("c", "normal"), ("d", "high")):
            processes.append(self.start("run", "-q", "--mem", "60G", "--device", "cuda:0", "--wait", "5m", "--priority", priority,
                                        "--", "sh", "-c", f"echo {name} >> {log}"))
            self.until(lambda: sum(lease["state"] == "waiting" for lease in self.ps()) == len(processes), "it stands in line")
        held.communicate("")
        for process in processes:
            process.communicate()
            self.assertEqual(process.returncode, 0)
        self.assertEqual(log.read_text().split(), ["d", "a", "c", "b"])

    def test_interrupting_a_wait_leaves_nothing_behind(self):
        self.hold("--mem", "60G", "-n", "2")
        waiting = self.start("run", "--mem", "60G", "--wait", "5m", "--", "true")
        self.until(lambda: any(lease["state"] == "waiting" for lease in self.ps()), "it stands in line")
        waiting.send_signal(signal.SIGINT)
        waiting.communicate()
        self.assertEqual(waiting.returncode, -signal.SIGINT)
        self.assertEqual([lease["state"] for lease in self.ps()], ["running"])

    def test_what_no_machine_state_can_serve_is_refused_at_once(self):
        for request, words in ((["--mem", "100G"], "100.0 GiB"), (["--mem", "1G", "-n", "3"], "3 devices"),
                               (["--mem", "1G", "--capability", "10.0"], "10.0"), (["--mem", "1G", "--feature", "nonesuch"], "nonesuch"),
                               (["--mem", "1G", "--label", "room=7"], "room=7")):
            answer = self.berth("run", *request, "--wait", "1h", "--", "true")
            self.assertRefused(answer, 3, words, "even when idle")

    def test_a_gang_is_all_or_nothing_and_stays_on_one_island(self):
        self.machine.write_text((ROOT / "tests/double/machines/islands.txt").read_text())
        gpus = self.gpus()
        held = self.hold("--mem", "30G", "--device", gpus[0])
        four = self.hold("--mem", "30G", "-n", "4")
        self.assertEqual(sorted(four.devices), sorted(gpus[4:]), "the island that is whole")
        pair = self.hold("--mem", "30G", "-n", "2")
        self.assertLessEqual(set(pair.devices), set(gpus[1:4]))
        self.assertRefused(self.berth("run", "--mem", "30G", "-n", "2", "--", "true"), 3, "1 of the 2")
        held.communicate("")
        near = self.berth("pick", "--mem", "5G", "--near", gpus[5], "--exclusive", "--avoid", gpus[5])
        self.assertEqual(near.returncode, 0, near.stderr)

    def test_loads_on_one_device_are_one_after_the_other(self):
        first = self.hold("--mem", "10G", "--device", "cuda:0", "--load-lock", "1h")
        self.assertRefused(self.berth("run", "--mem", "10G", "--device", "cuda:0", "--load-lock", "1h", "--", "true"), 3)
        self.assertEqual(self.berth("run", "--mem", "10G", "--device", "cuda:0", "--", "true").returncode, 0, "no load of its own")
        self.assertEqual(self.berth("run", "--mem", "10G", "--load-lock", "1h", "--", "true").returncode, 0, "another device")
        first.communicate("")
        self.assertEqual(self.berth("run", "--mem", "10G", "--device", "cuda:0", "--load-lock", "1s", "--", "true").returncode, 0)

    def test_a_command_that_crashes_is_started_again_where_asked(self):
        count = self.folder / "count"
        script = f"echo x >> {count}; test $(wc -l < {count}) -ge 3 || kill -SEGV $$; echo fine"
        answer = self.berth("run", "--mem", "1G", "--on-fault", "restart", "--", "sh", "-c", script)
        self.assertEqual((answer.returncode, answer.stdout), (0, "fine\n"), answer.stderr)
        count.unlink()
        answer = self.berth("run", "--mem", "1G", "--on-fault", "restart", "--", "sh", "-c", f"echo x >> {count}; kill -SEGV $$")
        self.assertEqual(answer.returncode, -signal.SIGSEGV)
        self.assertEqual(len(count.read_text().split()), 4, "it is the fault itself, in the end")
        count.unlink()
        answer = self.berth("run", "--mem", "1G", "--on-fault", "restart", "--", "sh", "-c", f"echo x >> {count}; exit 3")
        self.assertEqual((answer.returncode, len(count.read_text().split())), (3, 1), "a plain failure is no fault")
        self.assertRefused(self.berth("run", "--mem", "1G", "--on-fault", "pray", "--", "true"), 2, "pray")

    def test_a_command_that_cannot_start_holds_nothing(self):
        self.assertRefused(self.berth("run", "--mem", "1G", "--", "no-such-command"), 127, "no-such-command")
        script = self.folder / "script"
        script.write_text("#!/no/such/interpreter\n")
        self.assertRefused(self.berth("run", "--mem", "1G", "--", str(script)), 126, "chmod +x")
        script.chmod(0o755)
        answer = self.berth("run", "-q", "--mem", "1G", "--", str(script))
        self.assertRefused(answer, 127, "interpreter")
        self.assertRefused(self.berth("run", "--mem", "1G"), 2, "after two dashes")
        self.assertEqual(self.ps(), [])

    def test_amounts_as_people_write_them(self):
        for amount in ("20G", "20GiB", "20000MB", "20 GiB", "1.5T"):
            self.assertIn(self.berth("pick", "--mem", amount).returncode, (0, 3), amount)
        for amount in ("-1", "1e9", "20X", "", "G", "0"):
            self.assertRefused(self.berth("pick", f"--mem={amount}"), 2)
        for time_text in ("5x", "-1s", "m"):
            self.assertRefused(self.berth("run", "--mem", "1G", f"--wait={time_text}", "--", "true"), 2, time_text)

    def test_without_an_accelerator_an_opencl_or_host_device_serves(self):
        answer = self.berth("run", "--mem", "1G", "--", BERTH, "devices", "--json", LD_LIBRARY_PATH="", CUDA_VISIBLE_DEVICES="")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual([device["is_fallback"] for device in json.loads(answer.stdout)], [True])
        answer = self.berth("run", "--mem", "1G", "--backend", "opencl", "--", BERTH, "devices", "--json", LD_LIBRARY_PATH="", CUDA_VISIBLE_DEVICES="")
        self.assertEqual([device["backend"] for device in json.loads(answer.stdout)], ["opencl"])

    def test_cuda_is_not_started_to_choose_a_gpu(self):
        self.machine.write_text("gpus 2 memory=80GiB\nhang cuInit times=always\n")
        for arguments in (("pick", "--mem", "1G"), ("run", "--mem", "1G", "--", "true"), ("run", "-n", "2", "--device", "cuda:0", "--device", "cuda:1", "--", "true")):
            began = time.monotonic()
            answer = self.berth(*arguments)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assertLess(time.monotonic() - began, 10, "the driver would hang for 15 s")

    def test_opencl_is_asked_only_where_its_answer_matters(self):
        wrong = {"POCL_DEVICES": "basic basci"}  # reported by every verb that lists OpenCL devices
        for arguments in ((), ("--device", "cuda:0"), ("--avoid", "cuda:1")):
            answer = self.berth("pick", "--mem", "1G", *arguments, **wrong)
            self.assertEqual((answer.returncode, answer.stderr), (0, ""))
        for arguments in (("--avoid", "opencl:0"), ("--device", "opencl:0")):
            self.assertIn("basci", self.berth("pick", "--mem", "1M", *arguments, **wrong).stderr)

    def test_the_processor_does_not_stand_in_for_a_gpu_that_should_be_there(self):
        broken = self.folder / "broken.txt"
        broken.write_text("gpu\nerror nvmlInit_v2 code=18 times=always\nerror cuInit code=803 times=always\n")
        for environment, arguments, status, word in (
                ({"CUDA_VISIBLE_DEVICES": "foo"}, (), 2, "'foo'"),
                ({"CUDA_VISIBLE_DEVICES": "9"}, (), 2, "'9'"),
                ({"CUDA_VISIBLE_DEVICES": ""}, (), 1, "CUDA_VISIBLE_DEVICES is empty"),
                ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, (), 1, "NoDevFiles"),
                ({}, ("--partition", "cuda:0=999"), 2, "999"),
                ({}, ("--partition", "cuda:9=8"), 2, "cuda:9"),
                ({}, ("--partition", "cuda:9=8", "--device", "host"), 2, "cuda:9"),
                ({"LD_LIBRARY_PATH": DOUBLE + "/old"}, (), 1, "too old"),
                ({"BERTH_DOUBLE": str(broken)}, (), 1, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH")):
            for verb in (("run", "--mem", "1M", *arguments, "--", "echo", "ran"), ("pick", "--mem", "1M", *arguments)):
                answer = self.berth(*verb, **environment)
                self.assertRefused(answer, status, word)
                self.assertEqual(answer.stdout, "")
            if not arguments:
                self.assertEqual(self.berth("run", "--backend", "host", "--mem", "1M", "--", "true", **environment).returncode, 0)

    def test_a_run_inside_one_on_the_processor_stays_there(self):
        answer = self.berth("run", "--backend", "host", "--mem", "2M", "--", BERTH, "pick", "--mem", "1M")
        self.assertEqual((answer.returncode, answer.stdout), (0, "host\n"), answer.stderr)

    def test_the_processor_is_not_taken_for_a_gpu_that_is_full(self):
        self.hold("--mem", "70G", "-n", "2")
        self.assertRefused(self.berth("run", "--mem", "15G", "--", "true"), 3, "15.0 GiB")
        self.assertEqual(self.berth("run", "--mem", "1G", "--backend", "host", "--", "true").returncode, 0)

    def test_parts_of_the_host_keep_to_their_cores(self):
        if os.cpu_count() < 2:
            self.skipTest("one core cannot be cut")
        answer = self.berth("run", "--mem", "1M", "--host-devices", "2", "--backend", "host", "--", "nproc")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(int(answer.stdout), os.cpu_count() // 2)

    def test_a_berth_program_on_a_part_has_that_part(self):
        answer = self.berth("run", "--mem", "1G", "--partition", "cuda:1=64,32", "--device", "cuda:2", "--", BERTH, "devices", "--json")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        device, = json.loads(answer.stdout)
        self.assertTrue(device["id"].startswith(self.gpus()[1] + "/sm32"), device["id"])
        self.assertRefused(self.berth("devices", BERTH_PARTITION="cuda:0"), 2, "BERTH_PARTITION", "cuda:0")

    def test_parts_of_a_gpu_share_its_memory(self):
        cut = ["--partition", "cuda:0=64,64", "--partition", "cuda:1=64,64"]
        first = self.hold("--mem", "50G", *cut)
        second = self.hold("--mem", "50G", *cut)
        self.assertNotEqual(first.devices, second.devices, "a part of the other GPU, of which there is more memory")
        self.assertRefused(self.berth("run", "--mem", "50G", *cut, "--", "true"), 3)

    def test_an_unhealthy_gpu_gets_no_command(self):
        self.machine.write_text("gpus 2 memory=80GiB\nset 0 recovery_action=1\n")
        gpus = self.gpus()
        for _ in range(2):
            self.assertEqual(self.hold("--mem", "1G").devices, [gpus[1]])

    def test_a_file_that_is_not_a_ledger_is_reported_and_ignored(self):
        self.runtime.mkdir(mode=0o700)
        strange = self.runtime / f"berth-ledger-{os.geteuid()}"
        strange.write_text("mine")
        self.hold("--mem", "60G", "--device", "cuda:0")
        self.assertRefused(self.berth("run", "--mem", "60G", "--device", "cuda:0", "--", "true"), 3)
        self.assertEqual(strange.read_text(), "mine")
        self.assertIn(str(strange), self.berth("doctor").stdout.replace("\n" + 28 * " ", ""))
        self.runtime.chmod(0o777)
        self.assertRefused(self.berth("run", "--mem", "1G", "--", "true"), 1, "BERTH_RUNTIME_DIR")

    def test_a_full_disk_is_said_and_nothing_is_started(self):
        def no_room():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

        answer = subprocess.run([BERTH, "run", "--mem", "1G", "--", "echo", "started"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, timeout=120, env=self.environment(), preexec_fn=no_room)
        self.assertRefused(answer, 1, "cannot write")
        self.assertEqual(answer.stdout, "")
        self.assertEqual(self.ps(), [], "nothing half made")

    def test_pick_holds_nothing_and_speaks_to_scripts(self):
        gpus = self.gpus()
        answer = self.berth("pick", "--mem", "20G", "-n", "2")
        self.assertEqual(sorted(answer.stdout.split()), sorted(gpus))
        answer = self.berth("pick", "--mem", "20G", "--env")
        self.assertRegex(answer.stdout, r"^CUDA_VISIBLE_DEVICES=GPU-[0-9a-f-]{36}\n$")
        picked = json.loads(self.berth("pick", "--mem", "20G", "--json").stdout)
        self.assertEqual(picked["devices"][0]["memory_bytes_available"] > 70 * GIB, True)
        refused = self.berth("pick", "--mem", "900G", "--json")
        self.assertEqual(refused.returncode, 3)
        self.assertEqual(json.loads(refused.stdout)["devices"], [])
        self.assertEqual(self.ps(), [])
        self.assertRefused(self.berth("pick", "--mem", "1G", "--policy", "least_lodaed"), 2, "did you mean least_loaded")


class Intent(Machine):
    def test_a_cordon_holds_for_every_process_until_it_is_ended(self):
        gpus = self.gpus()
        self.assertEqual(self.berth("cordon", gpus[0]).returncode, 0)
        for _ in range(3):
            self.assertEqual(self.berth("pick", "--mem", "1G").stdout.strip(), gpus[1])
        self.assertIn("cordoned", self.berth("ps").stdout)
        self.assertRefused(self.berth("run", "--mem", "1G", "-n", "2", "--", "true"), 3, "cordoned")
        self.assertEqual(self.berth("uncordon", gpus[0][:12]).returncode, 0)
        self.assertEqual(len(self.berth("pick", "--mem", "1G", "-n", "2").stdout.split()), 2)

    def test_draining_shows_what_runs_and_waits_for_it(self):
        held = self.hold("--mem", "1G")
        plan = self.berth("drain", held.devices[0], "--plan")
        self.assertIn("would be draining", plan.stdout)
        self.assertIn(str(held.command_pid), plan.stdout)
        self.assertNotIn("draining", self.berth("ps").stdout, "a plan changes nothing")
        late = self.berth("drain", held.devices[0], "--wait", "200ms")
        self.assertRefused(late, 1, "still hold")
        draining = self.start("drain", held.devices[0], "--wait", "5m")
        self.assertIn("is draining", draining.stdout.readline())
        held.communicate("")
        draining.communicate()
        self.assertEqual(draining.returncode, 0)
        self.assertNotEqual(self.berth("pick", "--mem", "1G").stdout.strip(), held.devices[0])

    def test_a_device_that_is_not_there_is_named(self):
        self.assertRefused(self.berth("cordon", "GPU-nonesuch"), 2, "GPU-nonesuch", "berth devices")
        self.assertRefused(self.berth("cordon", "GPU-"), 2, "write more")

    def test_a_device_that_is_gone_can_be_put_back_in_service(self):
        gone = self.gpus()[1]
        self.berth("cordon", gone)
        self.machine.write_text("gpu memory=80GiB\n")
        self.assertEqual(self.berth("uncordon", gone).returncode, 0)
        self.assertNotIn("cordoned", self.berth("ps").stdout)

    def test_ps_lists_cordons_as_data(self):
        first, second = self.gpus()
        self.berth("cordon", first)
        self.berth("drain", second)
        cordons = json.loads(self.berth("ps", "--json").stdout)["cordons"]
        user = pwd.getpwuid(os.geteuid()).pw_name
        self.assertEqual([(c["device"], c["intent"], c["user"]) for c in cordons], [(first, "cordoned", user), (second, "draining", user)])
        self.assertTrue(all(0 <= c["age_ms"] < 60_000 for c in cordons), cordons)


# Without --on-fault restart the command takes berth's place; with it, it runs below berth.
BOTH_WAYS = ([], ["--on-fault", "restart"])


class InPlace(Machine):
    """The command in the place of berth, and the same below it: no difference that a caller can see."""

    def test_the_command_has_the_process_number_of_berth(self):
        held = self.hold("--mem", "1G")
        self.assertEqual(held.command_pid, held.pid)
        self.assertEqual([lease["pid"] for lease in self.ps()], [held.pid])
        held.communicate("")
        self.assertEqual(self.ps(), [])

    def test_the_status_is_exact(self):
        for way in BOTH_WAYS:
            for status in (0, 1, 42, 127, 255):
                answer = self.berth("run", "-q", "--mem", "1G", *way, "--", "sh", "-c", f"exit {status}")
                self.assertEqual((answer.returncode, answer.stderr), (status, ""))
            for sent in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
                answer = self.berth("run", "-q", "--mem", "1G", *way, "--", "sh", "-c", f"kill -{int(sent)} $$")
                self.assertEqual((answer.returncode, answer.stderr), (-sent, ""))

    def test_a_signal_to_the_group_arrives_once(self):
        script = "trap 'echo term' TERM; echo ready; until read line; do :; done; echo $line"
        for way in BOTH_WAYS:
            process = subprocess.Popen([BERTH, "run", "-q", "--mem", "1G", *way, "--", "sh", "-c", script], text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment(), start_new_session=True)
            self.started.append(process)
            self.assertEqual(process.stdout.readline(), "ready\n")
            # As timeout(1), systemd and job schedulers do.
            os.killpg(process.pid, signal.SIGTERM)
            self.assertEqual(process.stdout.readline(), "term\n")
            self.assertEqual(process.communicate("end\n")[0], "end\n")

    def test_a_shell_loop_ends_on_an_interrupt(self):
        for way in BOTH_WAYS:
            run = " ".join([BERTH, "run", "-q", "--mem", "1G", *way, "--", "sh", "-c", "'echo ready; exec sleep 60'"])
            pid, master, read_until = self.terminal("sh", "-c", f"for i in 1 2 3; do {run}; echo went-on; done")
            text = read_until(b"", b"ready")
            os.write(master, b"\x03")
            text = read_until(text, b"went-on")
            self.assertNotIn(b"went-on", text, way)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), -signal.SIGINT)

    def test_a_command_below_berth_has_the_terminal(self):
        pid, master, read_until = self.terminal(BERTH, "run", "-q", "--mem", "1G", "--on-fault", "restart", "--",
                                                "sh", "-c", "echo ready; read line; echo got-$line; exit 5")
        text = read_until(b"", b"ready")
        os.write(master, b"word\n")
        self.assertIn(b"got-word", read_until(text, b"got-word"))
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 5)

    def test_a_command_below_berth_stops_and_goes_on_with_the_shells_job(self):
        pid, master, read_until = self.terminal("bash", "--norc", "-i")
        text = read_until(b"", b"prompt> ")
        run = f"{BERTH} run -q --mem 1G --on-fault restart -- sh -c 'echo rea''dy; read line; echo got-$line'"
        os.write(master, run.encode() + b"\n")
        text = read_until(text, b"ready")
        os.write(master, b"\x1a")
        text = read_until(text, b"Stopped")
        self.assertIn(b"Stopped", text)
        os.write(master, b"fg\n")
        text = read_until(text[:0], b"berth run")
        time.sleep(0.5)
        os.write(master, b"word\n")
        self.assertIn(b"got-word", read_until(text, b"got-word"))
        os.write(master, b"exit\n")
        os.waitpid(pid, 0)

    def test_a_pipeline_with_a_command_below_berth_shares_the_terminal(self):
        run = f"{BERTH} run -q --mem 1G --on-fault restart -- sh -c"
        for line, said in ((f"{run} 'echo out; sleep 2' | (read out; sleep 0.2; read word < /dev/tty; echo pag''er-$word; cat)", b"pager-word"),
                           (f"{run} 'read word; echo g''ot-$word' | cat", b"got-word")):
            pid, master, read_until = self.terminal("bash", "--norc", "-i")
            text = read_until(b"", b"prompt> ")
            os.write(master, line.encode() + b"\n")
            time.sleep(1)
            os.write(master, b"word\n")
            self.assertIn(said, read_until(text, said))
            os.write(master, b"exit\n")
            os.waitpid(pid, 0)

    def test_a_pipeline_with_a_command_below_berth_ends_and_stops_by_keys(self):
        pid, master, read_until = self.terminal("bash", "--norc", "-i")
        text = read_until(b"", b"prompt> ")
        # One process: a shell that is stopped while it starts another never says that it is stopped.
        script = "import time; print('rea' 'dy', flush=True); time.sleep(1); print('on', flush=True); time.sleep(60)"
        run = f'{BERTH} run -q --mem 1G --on-fault restart -- {sys.executable} -c "{script}" | cat'
        os.write(master, run.encode() + b"\n")
        text = read_until(text, b"ready")
        os.write(master, b"\x1a")
        self.assertIn(b"Stopped", read_until(text, b"Stopped"))
        lease, = self.ps()
        command = pathlib.Path(f"/proc/{lease['pid']}/stat")
        self.until(lambda: command.read_text().split(") ")[1][0] == "T", "the command is stopped")
        os.write(master, b"fg\n")
        self.assertIn(b"\non", read_until(b"", b"\non"))
        os.write(master, b"\x03")
        self.until(lambda: not self.ps(), "Ctrl-C ends it")
        os.write(master, b"exit\n")
        os.waitpid(pid, 0)

    def test_without_a_shell_a_stop_from_the_terminal_does_not_freeze_the_command(self):
        pid, master, read_until = self.terminal(BERTH, "run", "-q", "--mem", "1G", "--on-fault", "restart", "--",
                                                "sh", "-c", "echo ready; until read line; do :; done; echo got-$line")
        text = read_until(b"", b"ready")
        os.write(master, b"\x1a")
        time.sleep(0.5)
        os.write(master, b"word\n")
        self.assertIn(b"got-word", read_until(text, b"got-word"))
        os.waitpid(pid, 0)

    def test_only_descriptors_of_the_caller_reach_the_command(self):
        ours, theirs = os.pipe()
        self.addCleanup(os.close, ours)
        self.addCleanup(os.close, theirs)
        look = "import os\nfor i in range(1024):\n try: os.fstat(i); print(i)\n except OSError: pass"
        for way in BOTH_WAYS:
            answer = subprocess.run([BERTH, "run", "-q", "--mem", "1G", *way, "--", sys.executable, "-c", look], text=True,
                                    stdout=subprocess.PIPE, timeout=120, env=self.environment(), pass_fds=[theirs])
            *others, lease = [int(n) for n in answer.stdout.split()]
            self.assertEqual(others, [0, 1, 2, theirs], way)
            self.assertGreater(lease, theirs, "and the lease's own")

    def test_signals_that_the_caller_ignores_or_blocks_stay_so(self):
        def as_nohup():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])

        def masks(text):
            # Up to 31: the two after it belong to the C library, which takes them when a thread starts.
            return {name: int(mask, 16) & 0x7fffffff for name, mask in re.findall(r"(Sig\w+):\t(\w+)", text)}

        look = ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"]
        plain = masks(subprocess.run(look, stdout=subprocess.PIPE, text=True, preexec_fn=as_nohup).stdout)
        self.assertTrue(plain["SigIgn"] & 1, "nohup's signal, beside whatever this test's own caller ignores")
        for way in BOTH_WAYS:
            answer = subprocess.run([BERTH, "run", "-q", "--mem", "1G", *way, "--", *look], stdout=subprocess.PIPE, text=True,
                                    timeout=120, env=self.environment(), preexec_fn=as_nohup)
            self.assertEqual(masks(answer.stdout), plain, way)

    def test_a_script_without_an_interpreter_line_is_run_by_the_shell(self):
        script, binary = self.folder / "script", self.folder / "binary"
        script.write_text("echo $0 $1; exit 7\n")
        binary.write_bytes(b"\x7fELF\0\0nothing")
        for path in (script, binary):
            path.chmod(0o755)
        for way in BOTH_WAYS:
            answer = self.berth("run", "-q", "--mem", "1G", *way, "--", str(script), "one two")
            self.assertEqual((answer.returncode, answer.stdout), (7, f"{script} one two\n"))
            self.assertRefused(self.berth("run", "-q", "--mem", "1G", *way, "--", str(binary)), 126, "cannot be run")
            self.assertEqual(self.ps(), [])

    def test_the_arguments_arrive_as_they_were_given(self):
        given = ["", "[a,b]", "[]", "--mem", "--", "a b", "\n", "--x="]
        show = "import sys; print(repr(sys.argv[1:]))"
        for dashes in (["--"], []):
            answer = self.berth("run", "-q", "--mem", "1G", *dashes, sys.executable, "-c", show, *given)
            self.assertEqual(answer.stdout, repr(given) + "\n", answer.stderr)

    def test_a_driver_that_hangs_does_not_keep_the_command_from_starting(self):
        self.machine.write_text(self.script + "hang nvmlDeviceGetMemoryInfo* gpu=1 times=always\n")
        answer = self.berth("run", "-q", "--mem", "1G", "--device", "cuda:0", "--", "sh", "-c", "echo in; kill -TERM $$")
        self.assertEqual((answer.returncode, answer.stdout), (-signal.SIGTERM, "in\n"), answer.stderr)


class Restart(Machine):
    def starts(self, *arguments, script="kill -SEGV $$"):
        """The devices of every start of a command that crashes the first time."""
        log = self.folder / "starts"
        log.unlink(missing_ok=True)
        once = f"echo $CUDA_VISIBLE_DEVICES >> {log}; test $(wc -l < {log}) -ge 2 || {{ {script}; }}"
        answer = self.berth("run", "--mem", "1G", "--on-fault", "restart", *arguments, "--", "sh", "-c", once)
        return answer, log.read_text().split()

    def test_the_next_start_is_on_another_device_where_one_has_room(self):
        answer, starts = self.starts()
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertRegex(answer.stderr, r"was ended by signal 11 \(Segmentation fault\); it is started again in 1 s\n")
        self.assertEqual(sorted(starts), sorted(self.gpus()))
        answer, starts = self.starts("--device", "cuda:1")
        self.assertEqual((answer.returncode, starts), (0, [self.gpus()[1]] * 2), "the only one that may serve")
        self.hold("--mem", "80G", "--device", "cuda:1")
        answer, starts = self.starts()
        self.assertEqual((answer.returncode, starts), (0, [self.gpus()[0]] * 2), answer.stderr)

    def test_a_part_that_fails_is_left_with_its_whole_gpu(self):
        cut = ["--partition", "cuda:0=64,64", "--device", "cuda:0,cuda:1,cuda:2"]
        _, starts = self.starts(*cut, "--prefer", "cuda:0")
        self.assertEqual(len(set(starts)), 2, starts)

    def test_a_command_that_was_asked_to_end_is_not_started_again(self):
        for sent in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            held = self.hold("--mem", "1G", "--on-fault", "restart")
            self.assertNotEqual(held.command_pid, held.pid)
            held.send_signal(sent)
            held.wait()
            held.communicate()
            self.assertEqual(held.returncode, -sent)
        self.assertEqual(self.ps(), [])

    def test_signals_reach_the_whole_group_of_the_command(self):
        process = self.start("run", "-q", "--mem", "1G", "--on-fault", "restart", "--", "sh", "-c",
                             "sh -c 'trap \"echo child; exit\" TERM; echo ready; while :; do sleep 0.1; done' & trap : TERM; wait; wait")
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.stdout.readline(), "child\n")
        process.communicate()


class Limits(Machine):
    show = ("sh", "-c", "env | grep -E '^(BERTH_MEM|XLA|CUPY|PYTORCH|CUDA_MPS|NVIDIA_VIS|CUDA_VIS)' | sort")

    def variables(self, *arguments, **environment):
        answer = self.berth("run", "-q", *arguments, "--", *self.show, **environment)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return dict(line.split("=", 1) for line in answer.stdout.splitlines())

    def environment(self, **more):
        own = ("XLA_", "CUPY_", "PYTORCH_", "NVIDIA_VISIBLE")
        return {name: value for name, value in super().environment(**more).items() if name in more or not name.startswith(own)}

    def test_the_command_is_told_how_much_memory_it_was_promised(self):
        gpu = self.gpus()[0]
        told = self.variables("--mem", "20G", "--device", "0")
        self.assertEqual(told, {"BERTH_MEMORY_BYTES": str(20 * GIB), "BERTH_MEMORY_FRACTION": "0.2500", "CUDA_VISIBLE_DEVICES": gpu,
                                "NVIDIA_VISIBLE_DEVICES": gpu, "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.2500",
                                "CUPY_GPU_MEMORY_LIMIT": str(20 * GIB)})
        whole = self.variables("--device", "0", "--limit", "framework")
        self.assertEqual(whole, {"BERTH_MEMORY_BYTES": str(80 * GIB), "BERTH_MEMORY_FRACTION": "1.0000", "CUDA_VISIBLE_DEVICES": gpu,
                                 "NVIDIA_VISIBLE_DEVICES": gpu})
        host = self.variables("--mem", "1G", "--backend", "host")
        self.assertEqual((host["CUDA_VISIBLE_DEVICES"], host["NVIDIA_VISIBLE_DEVICES"], host["BERTH_MEMORY_BYTES"]), ("", "void", str(GIB)))
        self.assertNotIn("XLA_PYTHON_CLIENT_MEM_FRACTION", host)

    def test_frameworks_are_told_as_the_limit_says(self):
        none = self.variables("--mem", "20G", "--limit", "none")
        self.assertEqual(set(none), {"BERTH_MEMORY_BYTES", "BERTH_MEMORY_FRACTION", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"})
        told = self.variables("--mem", "20G", "--limit", "framework", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True",
                              XLA_PYTHON_CLIENT_MEM_FRACTION=".1")
        self.assertEqual(told["PYTORCH_CUDA_ALLOC_CONF"], "expandable_segments:True,per_process_memory_fraction:0.2500")
        self.assertEqual(told["PYTORCH_ALLOC_CONF"], told["PYTORCH_CUDA_ALLOC_CONF"])
        self.assertEqual(told["XLA_PYTHON_CLIENT_MEM_FRACTION"], ".1")
        answer = self.berth("run", "--mem", "20G", "--limit", "framework", "--", "true")
        self.assertIn("; PyTorch, JAX and CuPy hold each of their processes to that; nothing stops other programs\n", answer.stderr)
        self.assertRefused(self.berth("run", "--mem", "1G", "--limit", "wach", "--", "true"), 2, "wach", "none, watch, framework or mps")

    def test_a_stale_or_foreign_mps_socket_limits_nothing(self):
        stale = self.mps_daemon(listening=False)
        self.assertNotIn("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", self.variables("--mem", "20G", CUDA_MPS_PIPE_DIRECTORY=stale))
        answer = self.berth("run", "--mem", "20G", "--", "true", CUDA_MPS_PIPE_DIRECTORY=stale)
        self.assertIn("admission only", answer.stderr)
        self.assertRefused(self.berth("run", "--mem", "1G", "--limit", "mps", "--", "true", CUDA_MPS_PIPE_DIRECTORY=stale), 1,
                           "MPS control daemon", "nvidia-cuda-mps-control -d")
        self.assertEqual(self.ps(), [])

    def test_mps_limits_count_gpus_as_cuda_does_and_are_never_zero(self):
        pipes = self.mps_daemon()
        told = self.variables("--mem", "1000B", "-n", "2", "--partition", "cuda:0=64,64", "--device", "cuda:0,cuda:1",
                              CUDA_MPS_PIPE_DIRECTORY=pipes)
        self.assertEqual(told["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"], "0=1M")
        self.assertEqual(told["CUDA_VISIBLE_DEVICES"], self.gpus()[0])
        answer = self.berth("run", "--mem", "20G", "--limit", "mps", "--", "true", CUDA_MPS_PIPE_DIRECTORY=pipes)
        self.assertIn("the driver holds each of its processes to that (MPS)", answer.stderr)
        none = self.variables("--mem", "20G", "--limit", "none", CUDA_MPS_PIPE_DIRECTORY=pipes)
        self.assertNotIn("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", none)
        self.assertRefused(self.berth("run", "--mem", "1G", "--limit", "mps", "--backend", "host", "--", "true"), 2, "host")

    def test_a_command_does_not_get_several_slices_unless_it_names_them(self):
        self.machine.write_text((ROOT / "tests/double/machines/mig.txt").read_text())
        for verb in (["run", "--mem", "1G", "-n", "2", "--", "true"], ["pick", "--mem", "1G", "-n", "2"]):
            self.assertRefused(self.berth(*verb), 3, "one MIG slice to a process", "--device")
        slices = self.gpus()
        answer = self.berth("run", "--mem", "1G", "-n", "2", "--device", ",".join(slices[:2]), "--", "printenv", "CUDA_VISIBLE_DEVICES")
        self.assertEqual(sorted(answer.stdout.strip().split(",")), sorted(slices[:2]), answer.stderr)
        self.assertIn("CUDA shows one MIG slice to a process; start a process for each", answer.stderr)

    def test_a_partition_is_said_to_confine_only_programs_that_use_berth(self):
        answer = self.berth("run", "--mem", "1G", "--partition", "cuda:0=64,64", "--device", "cuda:0", "--", "true")
        self.assertIn("admission only: a partition confines only programs that use Berth", answer.stderr)

    def test_a_run_inside_another_sets_its_own_amounts(self):
        inner = " ".join([BERTH, "run", "-q", "--mem", "10G", "--limit", "framework", "--", "printenv",
                          "XLA_PYTHON_CLIENT_MEM_FRACTION", "PYTORCH_ALLOC_CONF"])
        answer = self.berth("run", "-q", "--mem", "20G", "--limit", "framework", "--device", "0", "--", "sh", "-c",
                            f"unset CUDA_VISIBLE_DEVICES BERTH_VISIBLE_DEVICES; {inner}")
        self.assertEqual(answer.stdout, "0.1250\nper_process_memory_fraction:0.1250\n", answer.stderr)


class Input(Machine):
    def test_an_amount_needs_a_unit(self):
        for amount, meant in (("20", "20G"), ("1.5", "1.5G"), ("40960", "40960M"), ("21474836480", "21474836480B")):
            self.assertRefused(self.berth("run", "--mem", amount, "--", "true"), 2, f'"{amount}"', f"did you mean {meant}?")
        self.assertRefused(self.berth("run", "--mem", "1G", "--wait", "90", "--", "true"), 2, "did you mean 90s?")
        self.assertRefused(self.berth("run", "--mem", "1G", "--load-lock", "60", "--", "true"), 2, "did you mean 60s?")
        self.assertEqual(self.berth("run", "--mem", "1G", "--wait", "0", "--", "true").returncode, 0, "0 has no unit")

    def test_an_empty_value_is_an_error(self):
        for option in ("--mem", "--wait", "--policy", "--device", "--avoid", "--prefer", "--near", "--capability", "--backend", "--feature",
                       "--label", "--priority", "--load-lock", "--limit", "--on-fault", "--simulated", "--partition"):
            self.assertRefused(self.berth("run", option, "", "--", "echo", "started"), 2, option, "empty")
            self.assertRefused(self.berth("run", f"{option}=", "--", "echo", "started"), 2, option, "empty")
        self.assertRefused(self.berth("run", "-n", "", "--", "echo", "started"), 2, "--devices")
        for verb in (["drain", "cuda:0", "--wait", ""], ["cordon", ""], ["plan", ""], ["devices", "--backend", ""], ["demo", "--policy", ""]):
            self.assertRefused(self.berth(*verb), 2, "empty")
        for devices in (",", "cuda:0,", ",cuda:0", "cuda:0,,cuda:1"):
            self.assertRefused(self.berth("pick", "--mem", "1G", "--device", devices), 2, "empty")

    def test_a_device_can_be_named_by_number_or_by_the_start_of_its_id(self):
        gpus = self.gpus()
        for index, gpu in enumerate(gpus):
            for name in (str(index), f"cuda:{index}", gpu, gpu[:12], gpu[4:12]):
                self.assertEqual(self.berth("pick", "--mem", "1G", "--device", name).stdout, gpu + "\n", name)
        self.assertEqual(self.berth("cordon", "1").stdout, f"cuda:1 {gpus[1][:12]} is cordoned\n")
        self.assertRefused(self.berth("pick", "--mem", "1G", "--device", "77"), 2, "'77'")

    def test_a_number_that_two_back_ends_have_is_ambiguous(self):
        answer = self.berth("pick", "--mem", "1M", "--device", "0", LD_LIBRARY_PATH="", CUDA_VISIBLE_DEVICES="")
        devices = json.loads(self.berth("devices", "--json", LD_LIBRARY_PATH="", CUDA_VISIBLE_DEVICES="").stdout)
        if len({device["backend"] for device in devices}) < 2:
            self.assertEqual(answer.returncode, 0, answer.stderr)
        else:
            self.assertRefused(answer, 2, "devices have the number 0", "opencl:0", " or ", "host:0")

    def test_a_wait_that_ran_out_says_how_long_it_was(self):
        self.hold("--mem", "60G", "-n", "2")
        answer = self.berth("run", "-q", "--mem", "60G", "--wait", "1200ms", "--", "true")
        self.assertRefused(answer, 3, "gave up after waiting 1 s; see berth why")
        self.assertNotIn("--wait", answer.stderr)
        self.assertRefused(self.berth("run", "--mem", "60G", "--", "true"), 3, "or wait with --wait")

    def test_help_names_what_works_and_nothing_else(self):
        text = self.berth("run", "--help").stdout
        for word in ("--limit", "none", "watch", "framework", "mps", "BERTH_MEMORY_BYTES", "NVIDIA_VISIBLE_DEVICES", "3 times in a minute"):
            self.assertIn(word, " ".join(text.split()))
        self.assertNotIn("KEY", self.berth("why", "--help").stdout)
        self.assertIn("with --wait", " ".join(self.berth("drain", "--help").stdout.split()))


if __name__ == "__main__":
    unittest.main(verbosity=1)
