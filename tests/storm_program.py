"""A short PyTorch program for gpu_storm.py: takes memory of the first visible GPU, works, and ends.

  storm_program.py GIB SECONDS [--child GIB] [--more GIB] [--limit]

--child: a process started with multiprocessing's spawn, which inherits no descriptor, takes this much too.
--more:  then takes this much beyond what was asked for.
--limit: holds itself to BERTH_MEMORY_FRACTION, for a PyTorch that does not read its share from the environment.
Prints "holding" when it has its memory. Last line: a JSON object with `began` and `outcome`. Status 0: it had all its memory;
42: out of memory; 43: stopped by the limit that was set for it."""
import time

BEGAN = time.time()  # before the imports below, which take seconds

import argparse  # noqa: E402
import json  # noqa: E402
import multiprocessing  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402

GIB = 1 << 30
OUT_OF_MEMORY, STOPPED = 42, 43


def take(torch, gib):
    """Allocates memory piece by piece, like loading weights."""
    pieces, left = [], int(gib * GIB)
    while left > 0:
        size = min(left, GIB)
        pieces.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        pieces[-1].fill_(1)
        left -= size
        time.sleep(0.01)
    return pieces


def work(torch, seconds):
    a = torch.ones(1024, 1024, device="cuda")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        a = a.add(1).mul(0.5)
        torch.cuda.synchronize()
        time.sleep(0.005)


def hold_to_limit(torch):
    if "BERTH_MEMORY_FRACTION" in os.environ:
        torch.cuda.set_per_process_memory_fraction(float(os.environ["BERTH_MEMORY_FRACTION"]))


def status_of(torch, error, takes_more):
    """The exit status of a program that ended with this error. A context that does not fit is a plain RuntimeError."""
    print(error, file=sys.stderr)
    if "out of memory" not in str(error):
        return 1
    # At the next piece it would have had more than it was given.
    given = int(os.environ.get("BERTH_MEMORY_BYTES", "0"))
    limited = takes_more and given and torch.cuda.memory_reserved() + GIB > given
    return STOPPED if limited else OUT_OF_MEMORY


def child(gib, seconds, limit):
    import torch
    if limit:
        hold_to_limit(torch)
    try:
        held = take(torch, gib)
        work(torch, seconds)
        del held
    except RuntimeError as error:
        sys.exit(status_of(torch, error, False))


def run(arguments):
    started = None
    if arguments.child:
        started = multiprocessing.get_context("spawn").Process(target=child, args=(arguments.child, arguments.seconds,
                                                                                   arguments.limit))
        started.start()
    import torch
    if arguments.limit:
        hold_to_limit(torch)
    status = 0
    try:
        held = take(torch, arguments.gib)
        print("holding", flush=True)
        if arguments.more:
            held += take(torch, arguments.more)
        work(torch, arguments.seconds)
        del held
    except RuntimeError as error:
        status = status_of(torch, error, arguments.more > 0)
    if started:
        started.join()
        status = status or (0 if started.exitcode == 0 else OUT_OF_MEMORY if started.exitcode == OUT_OF_MEMORY else 1)
    return status


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gib", type=float)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--child", type=float, default=0)
    parser.add_argument("--more", type=float, default=0)
    parser.add_argument("--limit", action="store_true")
    status = run(parser.parse_args())
    outcome = {0: "done", OUT_OF_MEMORY: "out of memory", STOPPED: "stopped"}.get(status, "failed")
    print(json.dumps({"began": BEGAN, "outcome": outcome}), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
