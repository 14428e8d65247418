"""Storms of programs on a real GPU: 36 short PyTorch programs in three rounds, each round within two seconds, (a) as is usual
without Berth: look at the free memory, and start when there is enough; (b) the same programs under `berth run`. Counts
programs that ran out of memory, and measures how long (b) takes beside an ideal first-fit schedule of the same sizes and
durations. Then smaller storms of `berth run` with kills and refusals: no lease may be lost.

  gpu_storm.py BERTH HOLD_MEMORY      exit status 77: there is no GPU; 1: something that must not happen did

Each round: parents with a spawned child, one program that takes more than it asked for, one that does not use Berth and
has its memory before the others start, and plain ones. Without PyTorch all of them are HOLD_MEMORY. The results are
also written to $OUT/storm.json. BERTH_STORM_SCALE=0.01 scales all sizes and times (for trying the script itself)."""
import dataclasses
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

BERTH, HOLD = sys.argv[1], sys.argv[2]
PROGRAM = pathlib.Path(__file__).with_name("storm_program.py")
SCALE = float(os.environ.get("BERTH_STORM_SCALE", "1"))
SEED, ROUNDS, PROGRAMS = 20261115, 3, 12
GIB = 1 << 30
# Memory of a process on the GPU besides its allocations: its context, and PyTorch's own kernels.
CONTEXT_GIB = 1.5 * SCALE
WAIT_S = 300
OUT_OF_MEMORY, STOPPED = 42, 43  # of storm_program.py

folder = tempfile.TemporaryDirectory()
ENV = dict(os.environ, BERTH_RUNTIME_DIR=folder.name)


@dataclasses.dataclass
class Program:
    kind: str  # plain, parent, greedy, foreign
    gib: float  # in its own process
    seconds: float
    child_gib: float = 0
    arrives_s: float = 0  # after the round began

    @property
    def asks_gib(self):
        return self.gib + self.child_gib + CONTEXT_GIB * (2 if self.child_gib else 1)


@dataclasses.dataclass
class Ran:
    program: Program
    status: int
    began: float
    ended: float
    message: str


def berth(*arguments, timeout=60):
    return subprocess.run([BERTH, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV, timeout=timeout)


def gpu():
    answer = berth("devices", "--backend", "cuda", "--json")
    devices = json.loads(answer.stdout) if answer.returncode == 0 else []
    return devices[0] if devices else None


def find_python():
    """A Python with a PyTorch that sees the GPU, and how its programs are held to their limit; or None."""
    check = "import torch; torch.ones(1, device='cuda'); print(torch.__version__)"
    for python in dict.fromkeys(filter(None, (os.environ.get("BERTH_TORCH_PYTHON"), sys.executable, shutil.which("python3"),
                                              shutil.which("python"), "/opt/conda/bin/python"))):
        for share in ("per_process_memory_fraction:0.5", ""):
            env = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=share) if share else dict(os.environ)
            try:
                answer = subprocess.run([python, "-c", check], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                        env=env, timeout=120)
            except (OSError, subprocess.TimeoutExpired):
                break
            if answer.returncode == 0:
                return python, answer.stdout.strip(), bool(share)
    return None


class Storm:
    def __init__(self, torch, gpu_gib):
        self.torch, self.gpu_gib = torch, gpu_gib
        self.smi = shutil.which("nvidia-smi")

    def programs(self, number):
        """The programs of a round, the same for both ways."""
        draw = random.Random(SEED + number)
        most = min(60 * SCALE, 0.45 * self.gpu_gib)
        least = min(10 * SCALE, most / 4)

        def size():
            return round(draw.triangular(least, most, least + (most - least) / 4), 3)

        def seconds():
            return round(draw.uniform(1, 3) * SCALE, 3)

        made = [Program("plain", size(), seconds()) for _ in range(PROGRAMS - 4)]
        for _ in range(2):
            half = size() / 2
            made.append(Program("parent", half, seconds(), half))
        made.append(Program("greedy" if self.torch else "plain", size(), seconds()))
        draw.shuffle(made)
        for program, arrives in zip(made, sorted(draw.uniform(0, 2 * SCALE) for _ in made)):
            program.arrives_s = round(arrives, 3)
        return [Program("foreign", round(draw.uniform(least, most / 2), 3), seconds())] + made

    def command(self, program):
        if self.torch:
            python, _, reads_share = self.torch
            command = [python, str(PROGRAM), str(program.gib), str(program.seconds)]
            if program.child_gib:
                command += ["--child", str(program.child_gib)]
            if program.kind == "greedy":
                command += ["--more", str(20 * SCALE)]
            return command + ([] if reads_share else ["--limit"])
        def hold(gib):
            return f"'{HOLD}' driver {int(gib * GIB)} {program.seconds}"
        say = "echo '{\"began\": '$(date +%s.%N)'}'"
        if not program.child_gib:
            return ["sh", "-c", f"{say}; exec {hold(program.gib)}"]
        return ["sh", "-c", f"{say}; {hold(program.child_gib)} & {hold(program.gib)}; own=$?; wait $! && exit $own"]

    def free_gib(self):
        if self.smi:
            answer = subprocess.run([self.smi, "--query-gpu=memory.free", "--format=csv,noheader,nounits", "-i", "0"],
                                    stdout=subprocess.PIPE, text=True, timeout=60)
            return float(answer.stdout.split()[0]) / 1024
        return gpu()["memory_bytes_free"] / GIB

    def start(self, program, under_berth):
        command = self.command(program)
        if under_berth and program.kind != "foreign":
            limit = ["--limit", "framework"] if self.torch and self.torch[2] else []
            command = [BERTH, "run", "-q", "--mem", f"{int(program.asks_gib * GIB)}B", *limit, "--wait", f"{WAIT_S}s",
                       "--"] + command
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV,
                                start_new_session=True)

    def finish(self, program, process, began):
        try:
            out, err = process.communicate(timeout=WAIT_S)
            status = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            status = 124
        ended = time.time()
        for line in out.splitlines():
            if line.startswith("{"):
                began = json.loads(line)["began"]
        if "CUDA answers 2" in out:
            status = OUT_OF_MEMORY
        return Ran(program, status, began, ended, (err.strip() or out.strip())[-300:])

    def round(self, number, under_berth):
        """Runs a round. Returns the results of all programs, and when it began."""
        ran, threads, gate = [], [], threading.Event()
        programs = self.programs(number)

        def run_program(program):
            gate.wait()
            time.sleep(program.arrives_s)
            deadline = time.time() + WAIT_S
            while not under_berth and self.free_gib() < program.asks_gib and time.time() < deadline:
                time.sleep(0.5)
            began = time.time()
            ran.append(self.finish(program, self.start(program, under_berth), began))

        # The foreign program has its memory before the others look.
        foreign = self.start(programs[0], under_berth)
        watch = threading.Timer(120, foreign.kill)
        watch.start()
        for line in foreign.stdout:
            if line == "holding\n":
                break
        watch.cancel()
        for program in programs[1:]:
            threads.append(threading.Thread(target=run_program, args=(program,)))
            threads[-1].start()
        storm_began = time.time()
        gate.set()
        ran.append(self.finish(programs[0], foreign, storm_began))
        for thread in threads:
            thread.join()
        # Sorted in the order in which they were started.
        ran.sort(key=lambda r: programs.index(r.program))
        return ran, storm_began


def ideal_makespan(ran, began, capacity_gib):
    """First-fit list schedule: whenever a program arrives or ends, every waiting one that fits starts, in the order of arrival.
    The foreign one runs from the beginning on."""
    waiting = [(r.program.arrives_s, r.program.asks_gib, r.ended - r.began) for r in ran if r.program.kind != "foreign"]
    running = [(r.ended - began, r.program.asks_gib) for r in ran if r.program.kind == "foreign"]
    now = last = 0.0
    while waiting:
        running = [(end, gib) for end, gib in running if end > now]
        free = capacity_gib - sum(gib for _, gib in running)
        left = []
        for arrives, gib, duration in waiting:
            if arrives <= now and gib <= free:
                free -= gib
                running.append((now + duration, gib))
                last = max(last, now + duration)
            else:
                left.append((arrives, gib, duration))
        waiting = left
        events = [end for end, _ in running] + [arrives for arrives, _, _ in waiting if arrives > now]
        if not events:
            break  # this program never fits
        now = min(events)
    return max([last] + [r.ended - began for r in ran if r.program.kind == "foreign"])


def storms(storm, under_berth):
    free_gib = gpu()["memory_bytes_free"] / GIB
    result = {"way": "berth run" if under_berth else "look, then start", "programs": 0, "out_of_memory": 0, "stopped_at_limit": 0,
              "failed": 0, "makespan_s": 0.0, "ideal_s": 0.0}
    for number in range(ROUNDS):
        ran, began = storm.round(number, under_berth)
        for r in ran:
            result["programs"] += 1
            greedy = r.program.kind == "greedy"
            if r.status == STOPPED:
                result["stopped_at_limit"] += 1
            elif r.status == OUT_OF_MEMORY:
                # Without a limit, the greedy program itself may fail; that does not count.
                result["out_of_memory"] += 0 if greedy and not under_berth else 1
            elif r.status != 0 or (greedy and under_berth):
                result["failed"] += 1
            if r.status not in (0, STOPPED):
                print(f"storm: {result['way']}, round {number}: {r.program} ended with {r.status}: {r.message}", flush=True)
        result["makespan_s"] += max(r.ended for r in ran) - began
        if under_berth:
            result["ideal_s"] += ideal_makespan(ran, began, free_gib)
    result["over_ideal"] = result["makespan_s"] / result["ideal_s"] if result["ideal_s"] else None
    return result


def ledger_checks(gpu_gib):
    """Checks that commands that are refused, killed or wait leave nothing behind. Sizes are those of hold_memory."""
    draw = random.Random(SEED)
    counts = {"granted": 0, "refused": 0, "killed": 0, "lost_leases": 0, "wrong": 0}
    for number in range(2):
        runs = []
        for _ in range(8):
            asks = draw.uniform(0.05, 0.4) * gpu_gib
            wait = ["--wait", "60s"] if draw.random() < 0.6 else []
            runs.append(subprocess.Popen(
                [BERTH, "run", "-q", "--mem", f"{int(asks * GIB)}B", *wait, "--", HOLD, "driver",
                 str(int((asks - CONTEXT_GIB) * GIB)), "%.2f" % draw.uniform(0.2, 1.0)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV))
        victims = draw.sample(runs, 2)
        time.sleep(draw.uniform(0.3, 1.0))
        for victim in victims:
            victim.send_signal(signal.SIGKILL if draw.random() < 0.5 else signal.SIGTERM)
        for run in runs:
            out, err = run.communicate(timeout=120)
            if run in victims:
                counts["killed"] += 1
            elif run.returncode == 0 and out == "holding\n":
                counts["granted"] += 1
            elif run.returncode == 3:
                counts["refused"] += 1
            else:
                counts["wrong"] += 1
                print(f"storm: check {number}: status {run.returncode}, said {out!r}, {err!r}", flush=True)
        left = []
        for _ in range(100):
            left = json.loads(berth("ps", "--json").stdout)["leases"]
            if not left:
                break
            time.sleep(0.05)
        if left:
            counts["lost_leases"] += len(left)
            print(f"storm: check {number}: leases left behind: {left}", flush=True)
    return counts


def median_ms(command):
    times = []
    for _ in range(10):
        began = time.monotonic()
        try:
            status = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENV, timeout=60).returncode
        except (OSError, subprocess.TimeoutExpired):
            return None
        if status != 0:
            return None
        times.append((time.monotonic() - began) * 1000)
    return round(statistics.median(times), 1)


def text(value, unit=""):
    return "-" if value is None else f"{value:.2f}{unit}" if isinstance(value, float) else f"{value}{unit}"


def main():
    device = gpu()
    if not device:
        print("[  SKIPPED ] run_storm: there is no GPU here")  # as scripts/skips reads it
        return 77
    gpu_gib = device["memory_bytes_total"] / GIB
    torch = find_python()
    print("storm: programs are PyTorch " + torch[1] if torch else
          "storm: there is no PyTorch here, so the programs are hold_memory and none of them is held to a limit", flush=True)
    storm = Storm(torch, gpu_gib)
    ways = [storms(storm, False), storms(storm, True)]
    results = {
        "storm": "pytorch " + torch[1] if torch else "hold_memory",
        "limit": None if not torch else "--limit framework" if torch[2] else "set_per_process_memory_fraction",
        "gpu": device["name"], "gpu_bytes": device["memory_bytes_total"], "rounds": ROUNDS, "ways": ways,
        "checks": ledger_checks(gpu_gib),
        "median_ms": {"berth run -q --mem 1G -- true": median_ms([BERTH, "run", "-q", "--mem", "1G", "--", "true"]),
                      "berth devices": median_ms([BERTH, "devices"]),
                      "nvidia-smi -L": median_ms(["nvidia-smi", "-L"])},
    }
    print("\n| way | programs | out of memory | makespan | over ideal |\n|---|---|---|---|---|")
    for way in ways:
        print(f"| {way['way']} | {way['programs']} | {way['out_of_memory']} | {text(way['makespan_s'], ' s')} "
              f"| {text(way['over_ideal'])} |")
    print("\n| command | median of 10 |\n|---|---|")
    for name, value in results["median_ms"].items():
        print(f"| `{name}` | {text(value, ' ms')} |")
    print("\n" + json.dumps(results), flush=True)
    if os.environ.get("OUT"):
        pathlib.Path(os.environ["OUT"], "storm.json").write_text(json.dumps(results, indent=2) + "\n")
    ours, checks = ways[1], results["checks"]
    expected_stops = ROUNDS if torch else 0
    good = (ours["out_of_memory"] == 0 and ours["failed"] == 0 and ours["stopped_at_limit"] == expected_stops and
            checks["wrong"] == 0 and checks["lost_leases"] == 0)
    return 0 if good else 1


sys.exit(main())
