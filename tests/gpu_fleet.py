"""A fleet of one node on a real GPU: a PyTorch server (examples/torch_server.py) as a deployment of two replicas that share the
GPU by memory. Served requests, the ledger's view of them, a replica that is killed, a rolling update, an end without leftovers.

usage: tests/gpu_fleet.py BERTH"""
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BERTH = os.path.abspath(sys.argv[1])
SERVER = pathlib.Path(__file__).parent.parent / "examples/torch_server.py"
folder = tempfile.TemporaryDirectory()
ENV = dict(os.environ, BERTH_RUNTIME_DIR=folder.name)


def find_torch():
    for python in filter(None, (os.environ.get("BERTH_TORCH_PYTHON"), sys.executable, shutil.which("python3"), shutil.which("python"))):
        check = "import torch; torch.ones(1, device='cuda')"
        if subprocess.run([python, "-c", check], capture_output=True).returncode == 0:
            return python
    print("[  SKIPPED ] gpu_fleet: no GPU with PyTorch here")  # as scripts/skips reads it
    sys.exit(77)


def berth(*words, status=0):
    done = subprocess.run([BERTH, *words], capture_output=True, text=True, env=ENV, timeout=200)
    assert done.returncode == status, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout


def replicas():
    return [replica for replica in json.loads(berth("replicas", "--json"))["replicas"] if replica["state"] != "gone"]


def wait_for(what, found, seconds=120):
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        if found():
            print(f"gpu_fleet: {what} after {time.monotonic() - began:.1f} s", flush=True)
            return
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {seconds} s\n" + berth("replicas") + berth("events"))


def ask(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/")
    return connection.getresponse().read().decode().strip()


def project(python, name):
    path = pathlib.Path(folder.name) / "project.toml"
    path.write_text(f"""[cluster]
name = "gpu"
[[deployment]]
name = "torch"
gpus = 1
memory = "4G"
replicas = 2
command = [{json.dumps(python)}, {json.dumps(str(SERVER))}, "{{port}}"]
environment = {{ NAME = "{name}" }}
[deployment.readiness]
http = "/"
timeout = "10s"
""")
    return str(path)


def main():
    python = find_torch()
    log = open(pathlib.Path(folder.name) / "server.log", "w+")
    server = subprocess.Popen([BERTH, "serve", "--gateway", "none", "--store", "memory", "--listen", "127.0.0.1:0"], env=ENV, stderr=log)
    try:
        wait_for("the server answers", lambda: subprocess.run([BERTH, "status"], env=ENV, capture_output=True).returncode == 0)
        berth("apply", project(python, "one"))
        wait_for("two PyTorch servers are ready", lambda: [replica["state"] for replica in replicas()] == ["ready"] * 2)
        for replica in replicas():
            print("gpu_fleet:", replica["name"], ask(replica["port"]), flush=True)
        leases = json.loads(berth("ps", "--json"))
        print("gpu_fleet: leases", json.dumps(leases)[:400], flush=True)
        before = {replica["name"]: replica for replica in replicas()}
        victims = subprocess.run(["pgrep", "-f", str(SERVER)], capture_output=True, text=True).stdout.split()
        os.kill(int(victims[0]), signal.SIGKILL)
        wait_for("a killed replica is noticed", lambda: any(replica["failures"] for replica in replicas()))
        wait_for("and serves again", lambda: [replica["state"] for replica in replicas()] == ["ready"] * 2)
        assert {replica["name"]: replica["generation"] for replica in replicas()} == {k: v["generation"] for k, v in before.items()}
        berth("apply", project(python, "two"), "--wait")
        wait_for("both are replaced", lambda: sorted(replica["revision"] for replica in replicas()) == [2, 2]
                 and all(replica["state"] == "ready" for replica in replicas()))
        print(berth("nodes"), berth("events"), flush=True)
        berth("delete", "torch")
        wait_for("all are gone", lambda: not replicas())
        left = subprocess.run(["pgrep", "-f", str(SERVER)], capture_output=True, text=True).stdout
        assert not left, left
        print("gpu_fleet: done")
    except BaseException:
        log.seek(0)
        print(log.read())
        raise
    finally:
        server.terminate()
        server.wait(20)


if __name__ == "__main__":
    main()
