"""berth run, ps, pick, cordon and drain, with real processes and real faults, on scripted GPUs and on this machine's own."""
import json
import os
import resource
import signal
import subprocess
import time
import unittest

from berth_case import BERTH, DOUBLE, GIB, PRINT_SIGNALS, ROOT, Machine, user_name


class Run(Machine):
    def test_the_commands_status_and_output_are_its_own(self):
        answer = self.berth("run", "--mem", "1G", "--", "sh", "-c", "echo out; echo err >&2; exit 42")
        self.assertEqual((answer.returncode, answer.stdout), (42, "out\n"))
        self.assertIn("err\n", answer.stderr)
        self.assertEqual(self.berth("run", "--mem", "1G", "--", "sh", "-c", "kill -9 $$").returncode, -9, "the status is that of the command alone")

    def test_only_its_devices_are_visible_by_uuid(self):
        gpus = self.gpus()
        answer = self.berth("run", "--mem", "1G", "--device", gpus[1], "--", BERTH, "devices", "--json")
        self.assertEqual([device["id"] for device in json.loads(answer.stdout)], [gpus[1]])
        answer = self.berth("run", "--mem", "1G", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES $BERTH_LEASE")
        self.assertRegex(answer.stdout, r"^GPU-[0-9a-f-]{36} [0-9a-f]{16}:\d+\n$")

    def test_says_where_it_runs_and_how_strong_the_limit_is_unless_quiet(self):
        answer = self.berth("run", "--mem", "20G", "--", "true")
        self.assertRegex(answer.stderr, r"^berth: GPU-\S+ \(.*\), 20.0 GiB of 80.0 GiB; not enforced: .*\n$")
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
        self.assertIn("10.0 GiB of 20.0 GiB; the hardware limits it to the slice's 20.0 GiB (MIG)", answer.stderr)

    def test_two_commands_do_not_get_the_same_bytes(self):
        first, second = self.hold("--mem", "50G"), self.hold("--mem", "50G")
        self.assertNotEqual(first.devices, second.devices)
        self.assertRefused(self.berth("run", "--mem", "50G", "--", "true"), 3, "50.0 GiB", "berth why")
        self.assertEqual(self.berth("run", "--mem", "20G", "--", "true").returncode, 0, "the remaining memory is available")
        first.communicate("")
        self.assertEqual(self.berth("run", "--mem", "50G", "--", "true").returncode, 0, "ended leases return their memory")

    def test_a_file_of_simulated_devices_is_found_from_another_folder(self):
        (self.folder / "one.toml").write_text('[[device]]\nid = "s0"\nmemory_bytes = "80GiB"\n')
        show = ("--mem", "1G", "--", "sh", "-c", "echo $BERTH_SIMULATED")
        there = ("env", "-C", str(self.folder))
        for answer in (self.berth("run", "--backend", "simulated", "--simulated", "one.toml", *show, prefix=there),
                       self.berth("run", "--backend", "simulated", *show, prefix=there, BERTH_SIMULATED="one.toml")):
            self.assertEqual(answer.stdout, f"{self.folder}/one.toml\n", answer.stderr)

    def test_policies_of_share_and_turns_use_every_device(self):
        path = self.folder / "four.toml"
        path.write_text("".join(f'[[device]]\nid = "s{i}"\nmemory_bytes = "80GiB"\n' for i in range(4)))
        simulated = ("--backend", "simulated", "--simulated", str(path), "--mem", "1G")
        show = ("--", "sh", "-c", "echo $BERTH_VISIBLE_DEVICES")
        turns = [self.berth("run", *simulated, "--policy", "round_robin", *show).stdout for _ in range(8)]
        self.assertEqual(len(set(turns[:4])), 4, turns)
        self.assertEqual(turns[:4], turns[4:], "the devices take turns, although each command has ended before the next")
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
        self.machine.write_text("gpu memory=80GiB\nprocess gpu=0 pid=4194711 bytes=30GiB\n")
        self.assertRefused(self.berth("run", "--mem", "60G", "--", "true"), 3, "60.0 GiB")
        first = self.hold("--mem", "30G")
        # The driver says that the command has allocated 25 of its 30 GiB.
        self.machine.write_text(f"gpu memory=80GiB\nprocess gpu=0 pid=4194711 bytes=30GiB\n"
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

        shared = 'memory = "30G"\n'
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
        # Almost all bytes are free: the lease itself counts, or that it is exclusive.
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
        process = self.start("run", "-q", "--mem", "1G", "--", *PRINT_SIGNALS)
        self.assertEqual(process.stdout.readline(), "ready\n")
        for each in signal.SIGUSR1, signal.SIGTERM:
            process.send_signal(each)
            self.assertEqual(process.stdout.readline(), each.name + "\n")
        self.assertEqual(process.communicate("go\n")[0], "go\n")

    def test_an_interrupt_from_the_terminal_reaches_the_command_once(self):
        pid, master, read_until = self.terminal(BERTH, "run", "-q", "--mem", "1G", "--", *PRINT_SIGNALS)
        text = read_until(b"", b"ready")
        os.write(master, b"\x03")
        text = read_until(text, b"SIGINT")
        os.write(master, b"end\n")
        text = read_until(text, b"end\r\n")
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0, text)
        self.assertEqual(text.count(b"SIGINT"), 1, text)

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
        self.assertEqual(sorted(four.devices), sorted(gpus[4:]), "the complete island")
        pair = self.hold("--mem", "30G", "-n", "2")
        self.assertLessEqual(set(pair.devices), set(gpus[1:4]))
        self.assertRefused(self.berth("run", "--mem", "30G", "-n", "2", "--", "true"), 3, "1 of the 2")
        held.communicate("")
        near = self.berth("pick", "--mem", "5G", "--near", gpus[5], "--exclusive", "--avoid", gpus[5])
        self.assertEqual(near.returncode, 0, near.stderr)

    def test_loads_on_one_device_are_one_after_the_other(self):
        first = self.hold("--mem", "10G", "--device", "cuda:0", "--load-lock", "1h")
        self.assertRefused(self.berth("run", "--mem", "10G", "--device", "cuda:0", "--load-lock", "1h", "--", "true"), 3)
        self.assertEqual(self.berth("run", "--mem", "10G", "--device", "cuda:0", "--", "true").returncode, 0, "a command without a load lock does not wait")
        self.assertEqual(self.berth("run", "--mem", "10G", "--load-lock", "1h", "--", "true").returncode, 0, "another device")
        first.communicate("")
        self.assertEqual(self.berth("run", "--mem", "10G", "--device", "cuda:0", "--load-lock", "1s", "--", "true").returncode, 0)

    def test_a_command_that_crashes_is_restarted_where_asked(self):
        count = self.folder / "count"
        script = f"echo x >> {count}; test $(wc -l < {count}) -ge 3 || kill -SEGV $$; echo fine"
        answer = self.berth("run", "--mem", "1G", "--on-fault", "restart", "--", "sh", "-c", script)
        self.assertEqual((answer.returncode, answer.stdout), (0, "fine\n"), answer.stderr)
        count.unlink()
        answer = self.berth("run", "--mem", "1G", "--on-fault", "restart", "--", "sh", "-c", f"echo x >> {count}; kill -SEGV $$")
        self.assertEqual(answer.returncode, -signal.SIGSEGV)
        self.assertEqual(len(count.read_text().split()), 4, "three restarts, then the fault itself")
        count.unlink()
        answer = self.berth("run", "--mem", "1G", "--on-fault", "restart", "--", "sh", "-c", f"echo x >> {count}; exit 3")
        self.assertEqual((answer.returncode, len(count.read_text().split())), (3, 1), "a plain failure is not a fault")
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

    @unittest.skipIf(os.path.exists("/dev/nvidiactl"), "this machine has an accelerator")
    def test_without_an_accelerator_a_device_that_stands_in_serves(self):
        answer = self.berth("run", "--mem", "1G", "--", BERTH, "devices", "--json", LD_LIBRARY_PATH="", CUDA_VISIBLE_DEVICES="")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual([device["is_fallback"] for device in json.loads(answer.stdout)], [True])

    @unittest.skipIf(os.path.exists("/dev/nvidiactl"), "this machine has an accelerator")
    def test_without_an_accelerator_opencl_serves_where_it_is_asked_for(self):
        self.needs_pocl()
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
        self.assertNotEqual(first.devices, second.devices, "the second is a part of the other GPU, which has more free memory")
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
        self.assertEqual(self.ps(), [], "no partial lease exists")

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
        self.assertRefused(self.berth("cordon", "GPU-"), 2, "give more")

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
        user = user_name()
        self.assertEqual([(c["device"], c["intent"], c["user"]) for c in cordons], [(first, "cordoned", user), (second, "draining", user)])
        self.assertTrue(all(0 <= c["age_ms"] < 60_000 for c in cordons), cordons)


if __name__ == "__main__":
    unittest.main()
