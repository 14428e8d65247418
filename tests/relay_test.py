#!/usr/bin/env python3
"""`berth relay` as a process: what it keeps of the process that started it, and how it ends.

usage: tests/relay_test.py BERTH ROOT DOUBLE"""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from berth_case import BERTH


def until(condition, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


class Control(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=20)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Relay(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="berth-relay-"))
        self.log = self.folder.with_suffix(".log")
        self.addCleanup(self.log.unlink, missing_ok=True)
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)  # a relay that is left ends then

    def start(self, **more):
        with open(self.log, "a") as log:
            return subprocess.run([BERTH, "relay", "--folder", self.folder, "--node", "n1"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=log, timeout=60, **more).returncode

    def pid(self):
        return int(re.search(r"process (\d+)", (self.folder / "relay" / "control.lock").read_text())[1])

    def put(self, targets=()):
        control = Control(str(self.folder / "relay" / "control"))
        control.request("PUT", "/targets", json.dumps({"targets": list(targets), "gateways": []}))
        self.addCleanup(control.close)
        answer = control.getresponse()
        self.assertEqual(answer.status, 200)
        return json.loads(answer.read())

    def test_leaves_its_parent_and_keeps_nothing_of_it(self):
        reader, writer = os.pipe()
        os.set_inheritable(writer, True)
        self.assertEqual(self.start(pass_fds=[writer]), 0)  # the command has ended: the relay runs in the background
        os.close(writer)
        self.assertEqual(os.read(reader, 1), b"", "the relay has closed what it inherited")
        os.close(reader)
        pid = self.pid()
        self.assertEqual(os.getsid(pid), pid)
        self.assertEqual(os.readlink(f"/proc/{pid}/fd/0"), "/dev/null")
        self.assertEqual(os.readlink(f"/proc/{pid}/fd/2"), str(self.log))
        self.assertEqual(os.readlink(f"/proc/{pid}/cwd"), "/")
        self.assertEqual(os.stat(self.folder / "relay" / "control").st_mode & 0o777, 0o600)
        self.assertEqual(self.put([{"name": "a/0#1", "address": "http://127.0.0.1:1", "concurrent_max": 2}])["in_flight"], {"a/0#1": 0})

    def test_outlives_the_group_of_its_starter(self):
        with open(self.log, "a") as log:
            starter = subprocess.Popen(["/bin/sh", "-c", '"$@" && echo started && exec sleep 600', "sh", BERTH, "relay", "--folder", self.folder, "--node", "n1"],
                                       stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        self.assertEqual(starter.stdout.readline(), b"started\n")
        os.killpg(starter.pid, signal.SIGKILL)
        starter.communicate()
        self.put()

    def test_one_runs_per_folder(self):
        self.assertEqual(self.start(), 0)
        pid = self.pid()
        self.assertEqual(self.start(), 1)
        self.assertIn(f"a relay of this agent is already running: another relay (process {pid})", self.log.read_text())
        self.put()
        os.kill(pid, signal.SIGKILL)
        self.assertTrue(until(lambda: self.start() == 0), "the lock of a killed relay is free")
        self.assertNotEqual(self.pid(), pid)

    def test_a_signal_and_the_end_of_its_folder_end_it(self):
        self.assertEqual(self.start(), 0)
        pid = self.pid()
        os.kill(pid, signal.SIGTERM)
        self.assertTrue(until(lambda: not os.path.exists(f"/proc/{pid}")))
        self.assertFalse((self.folder / "relay" / "control").exists())
        self.assertEqual(self.start(), 0)
        pid = self.pid()
        shutil.rmtree(self.folder)
        self.assertTrue(until(lambda: not os.path.exists(f"/proc/{pid}")))
        self.assertIn("its socket was removed", self.log.read_text())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
