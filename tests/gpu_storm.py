"""A storm of `berth run` on a real GPU: commands that start in the same instant and really allocate what they asked for,
some of them killed, and memory of programs that know nothing of Berth between them. Nobody may run out of memory.

  gpu_storm.py BERTH HOLD_MEMORY [ROUNDS]      exit status 77: there is no GPU"""
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

BERTH, HOLD = sys.argv[1], sys.argv[2]
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 6
MIB, GIB = 1 << 20, 1 << 30
# What a process needs on the GPU beside what it allocates: its context.
CONTEXT = 1 * GIB

folder = tempfile.TemporaryDirectory()
ENV = dict(os.environ, BERTH_RUNTIME_DIR=folder.name)


def berth(*arguments):
    return subprocess.run([BERTH, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV, timeout=120)


def gpu():
    answer = berth("devices", "--backend", "cuda", "--json")
    devices = json.loads(answer.stdout) if answer.returncode == 0 else []
    return devices[0] if devices else None


def main():
    if not gpu():
        print("storm: there is no GPU here\n[  SKIPPED ] run_storm")  # as scripts/skips reads it
        return 77
    total = gpu()["memory_bytes_total"]
    draw = random.Random(20261115)
    granted = refused = killed = foreign_count = 0
    for number in range(ROUNDS):
        # Memory of a program that knows nothing of Berth, there before the storm or not.
        foreign = None
        if number % 2:
            bytes_foreign = draw.randrange(20, 50) * GIB
            foreign = subprocess.Popen([HOLD, "driver", str(bytes_foreign)], stdout=subprocess.PIPE, text=True)
            assert foreign.stdout.readline() == "holding\n"
            foreign_count += 1
        runs = []
        for _ in range(draw.randrange(6, 13)):
            wanted = draw.randrange(5, 40) * GIB
            command = [BERTH, "run", "-q", "--mem", str(wanted)]
            if draw.random() < 0.6:
                command += ["--wait", "60s"]
            command += ["--", HOLD, "driver", str(wanted - CONTEXT), "%.2f" % draw.uniform(0.2, 1.5)]
            runs.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV))
        victims = draw.sample(runs, 2)
        time.sleep(draw.uniform(0.3, 1.0))
        for victim in victims:
            victim.send_signal(signal.SIGKILL if draw.random() < 0.5 else signal.SIGTERM)
        # Once everybody has what was promised, more foreign memory appears in what is left.
        late = None
        for _ in range(100):
            leases = json.loads(berth("ps", "--json").stdout)
            if all(lease["state"] == "running" and
                   lease["devices"][0].get("memory_bytes_used", 0) + CONTEXT >= lease["devices"][0]["memory_bytes_promised"]
                   for lease in leases):
                free = gpu()["memory_bytes_free"] - sum(
                    max(0, d["memory_bytes_promised"] - d.get("memory_bytes_used", 0)) for l in leases for d in l["devices"])
                if free > 8 * GIB:
                    late = subprocess.Popen([HOLD, "driver", str(4 * GIB), "0.5"], stdout=subprocess.PIPE, text=True)
                    foreign_count += 1
                break
            time.sleep(0.02)
        for run in runs:
            out, err = run.communicate(timeout=120)
            if run in victims:
                killed += 1
            elif run.returncode == 0 and out == "holding\n":
                granted += 1
            elif run.returncode == 3:
                refused += 1
            else:
                print(f"storm: round {number}: status {run.returncode}, said {out!r}, {err!r}")
                return 1
        for process in (foreign, late):
            if process:
                process.kill()
                process.communicate()
        # What survived its `berth` ends by itself; then nothing may be left.
        for _ in range(400):
            left = json.loads(berth("ps", "--json").stdout)
            if not left:
                break
            time.sleep(0.05)
        if left:
            print(f"storm: round {number}: leases left behind: {left}")
            return 1
    print(json.dumps({"storm": "h200", "rounds": ROUNDS, "gpu_bytes": total, "granted": granted, "refused": refused,
                      "killed": killed, "foreign": foreign_count, "out_of_memory": 0, "lost_leases": 0}))
    return 0


sys.exit(main())
