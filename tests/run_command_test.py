"""berth run: the process of the command, how it gets its limits, restarts after a fault, and wrong input."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

from berth_case import BERTH, BERTH_WORD, GIB, PRINT_SIGNALS, ROOT, Machine

# Without --on-fault restart the command replaces berth's process; with it, it is a child of berth.
BOTH_WAYS = ([], ["--on-fault", "restart"])


class InPlace(Machine):
    """The command as berth's process and as its child: a caller sees no difference."""

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
        for way in BOTH_WAYS:
            process = subprocess.Popen([BERTH, "run", "-q", "--mem", "1G", *way, "--", *PRINT_SIGNALS], text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment(), start_new_session=True)
            self.started.append(process)
            self.assertEqual(process.stdout.readline(), "ready\n")
            # Like timeout(1), systemd and job schedulers.
            os.killpg(process.pid, signal.SIGTERM)
            self.assertEqual(process.stdout.readline(), "SIGTERM\n")
            self.assertEqual(process.communicate("end\n")[0], "end\n")

    def test_a_shell_loop_ends_on_an_interrupt(self):
        for way in BOTH_WAYS:
            run = " ".join([BERTH_WORD, "run", "-q", "--mem", "1G", *way, "--", "sh", "-c", "'echo ready; exec sleep 60'"])
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
        run = f"{BERTH_WORD} run -q --mem 1G --on-fault restart -- sh -c 'echo rea''dy; read line; echo got-$line'"
        os.write(master, run.encode() + b"\n")
        text = read_until(text, b"ready")
        os.write(master, b"\x1a")
        text = read_until(text, b"Stopped")
        self.assertIn(b"Stopped", text)
        os.write(master, b"fg\n")
        text = read_until(text[:0], b"run -q")
        time.sleep(0.5)
        os.write(master, b"word\n")
        self.assertIn(b"got-word", read_until(text, b"got-word"))
        os.write(master, b"exit\n")
        os.waitpid(pid, 0)

    def test_a_pipeline_with_a_command_below_berth_shares_the_terminal(self):
        run = f"{BERTH_WORD} run -q --mem 1G --on-fault restart -- sh -c"
        for line, shown in ((f"{run} 'echo out; sleep 2' | (read out; sleep 0.2; read word < /dev/tty; echo pag''er-$word; cat)", b"pager-word"),
                           (f"{run} 'read word; echo g''ot-$word' | cat", b"got-word")):
            pid, master, read_until = self.terminal("bash", "--norc", "-i")
            text = read_until(b"", b"prompt> ")
            os.write(master, line.encode() + b"\n")
            time.sleep(1)
            os.write(master, b"word\n")
            self.assertIn(shown, read_until(text, shown))
            os.write(master, b"exit\n")
            os.waitpid(pid, 0)

    def test_a_pipeline_with_a_command_below_berth_ends_and_stops_by_keys(self):
        pid, master, read_until = self.terminal("bash", "--norc", "-i")
        text = read_until(b"", b"prompt> ")
        # A single process: a shell that is stopped while it starts another process never reports that.
        script = "import time; print('rea' 'dy', flush=True); time.sleep(1); print('on', flush=True); time.sleep(60)"
        run = f'{BERTH_WORD} run -q --mem 1G --on-fault restart -- {sys.executable} -c "{script}" | cat'
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
            self.assertGreater(lease, theirs, "the last descriptor is that of the lease")

    def test_signals_that_the_caller_ignores_or_blocks_stay_so(self):
        def as_nohup():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])

        def masks(text):
            # Up to 31: the two after it belong to the C library, which takes them when a thread starts.
            return {name: int(mask, 16) & 0x7fffffff for name, mask in re.findall(r"(Sig\w+):\t(\w+)", text)}

        look = ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"]
        plain = masks(subprocess.run(look, stdout=subprocess.PIPE, text=True, preexec_fn=as_nohup).stdout)
        self.assertTrue(plain["SigIgn"] & 1, "nohup's signal, besides those that the caller of this test ignores")
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
        self.assertRegex(answer.stderr, r"was ended by signal 11 \(Segmentation fault\); restarting it in 1 s\n")
        self.assertEqual(sorted(starts), sorted(self.gpus()))
        answer, starts = self.starts("--device", "cuda:1")
        self.assertEqual((answer.returncode, starts), (0, [self.gpus()[1]] * 2), "the only eligible device")
        self.hold("--mem", "80G", "--device", "cuda:1")
        answer, starts = self.starts()
        self.assertEqual((answer.returncode, starts), (0, [self.gpus()[0]] * 2), answer.stderr)

    def test_a_part_that_fails_is_left_with_its_whole_gpu(self):
        cut = ["--partition", "cuda:0=64,64", "--device", "cuda:0,cuda:1,cuda:2"]
        _, starts = self.starts(*cut, "--prefer", "cuda:0")
        self.assertEqual(len(set(starts)), 2, starts)

    def test_a_command_that_was_asked_to_end_is_not_restarted(self):
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
                             "trap : TERM; sh -c 'trap \"echo child; exit\" TERM; echo ready; while :; do sleep 0.1; done' & wait; wait")
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
        variables = self.variables("--mem", "20G", "--device", "0")
        self.assertEqual(variables, {"BERTH_MEMORY_BYTES": str(20 * GIB), "BERTH_MEMORY_FRACTION": "0.2500", "CUDA_VISIBLE_DEVICES": gpu,
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
        variables = self.variables("--mem", "20G", "--limit", "framework", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True",
                              XLA_PYTHON_CLIENT_MEM_FRACTION=".1")
        self.assertEqual(variables["PYTORCH_CUDA_ALLOC_CONF"], "expandable_segments:True,per_process_memory_fraction:0.2500")
        self.assertEqual(variables["PYTORCH_ALLOC_CONF"], variables["PYTORCH_CUDA_ALLOC_CONF"])
        self.assertEqual(variables["XLA_PYTHON_CLIENT_MEM_FRACTION"], ".1")
        answer = self.berth("run", "--mem", "20G", "--limit", "framework", "--", "true")
        self.assertIn("; PyTorch, JAX and CuPy enforce it for each process; other programs can use more\n", answer.stderr)
        self.assertRefused(self.berth("run", "--mem", "1G", "--limit", "wach", "--", "true"), 2, "wach", "none, watch, framework or mps")

    def test_a_stale_or_foreign_mps_socket_limits_nothing(self):
        stale = self.mps_daemon(listening=False)
        self.assertNotIn("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", self.variables("--mem", "20G", CUDA_MPS_PIPE_DIRECTORY=stale))
        answer = self.berth("run", "--mem", "20G", "--", "true", CUDA_MPS_PIPE_DIRECTORY=stale)
        self.assertIn("not enforced", answer.stderr)
        self.assertRefused(self.berth("run", "--mem", "1G", "--limit", "mps", "--", "true", CUDA_MPS_PIPE_DIRECTORY=stale), 1,
                           "MPS control daemon", "nvidia-cuda-mps-control -d")
        self.assertEqual(self.ps(), [])

    def test_mps_limits_count_gpus_as_cuda_does_and_are_never_zero(self):
        pipes = self.mps_daemon()
        variables = self.variables("--mem", "1000B", "-n", "2", "--partition", "cuda:0=64,64", "--device", "cuda:0,cuda:1",
                              CUDA_MPS_PIPE_DIRECTORY=pipes)
        self.assertEqual(variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"], "0=1M")
        self.assertEqual(variables["CUDA_VISIBLE_DEVICES"], self.gpus()[0])
        answer = self.berth("run", "--mem", "20G", "--limit", "mps", "--", "true", CUDA_MPS_PIPE_DIRECTORY=pipes)
        self.assertIn("the driver enforces it for each process (MPS)", answer.stderr)
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
        self.assertIn("CUDA shows only one MIG slice to a process; start one process per slice", answer.stderr)

    def test_a_partition_is_said_to_confine_only_programs_that_use_berth(self):
        answer = self.berth("run", "--mem", "1G", "--partition", "cuda:0=64,64", "--device", "cuda:0", "--", "true")
        self.assertIn("not enforced for programs that do not use Berth (partition)", answer.stderr)

    def test_a_run_inside_another_sets_its_own_amounts(self):
        inner = " ".join([BERTH_WORD, "run", "-q", "--mem", "10G", "--limit", "framework", "--", "printenv",
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
        self.assertEqual(self.berth("run", "--mem", "1G", "--wait", "0", "--", "true").returncode, 0, "0 needs no unit")

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
            self.assertRefused(answer, 2, "devices match the number 0", "opencl:0", " or ", "host:0")

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
        self.assertIn("--wait TIME wait until it is empty", " ".join(self.berth("drain", "--help").stdout.split()))


if __name__ == "__main__":
    unittest.main()
