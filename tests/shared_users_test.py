"""One machine, several people: what berth promises holds between users, hostile ones too, and whatever their folders are.

They need root, for users and namespaces, and say so where they are skipped. Codes in comments are those of shared_box_test.py.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from shared_box_case import ALICE, MALLORY, MOUNTS, NEW_TMP, SharedFolder, shell, user


class SeveralUsers(SharedFolder):
    def test_two_users_never_get_the_same_bytes(self):
        held = self.hold("--mem", "60G", prefix=user(ALICE))
        self.assertFalse(self.fits("60G", prefix=user(MALLORY)))
        self.assertFalse(self.fits("60G"))
        held.communicate("")
        self.assertTrue(self.fits("60G", prefix=user(MALLORY)))

    # B1
    def test_users_do_not_all_begin_with_the_same_gpu(self):
        self.machine.write_text("gpus 8 memory=80GiB\n")
        picked = {self.berth("pick", "--mem", "1G", prefix=user(uid)).stdout for uid in range(5001, 5009)}
        self.assertGreater(len(picked), 2)

    # H3
    def test_another_boot_id_wipes_nothing(self):
        boot = self.folder / "boot_id"
        boot.write_text("11111111-2222-3333-4444-555555555555\n")
        self.hold("--mem", "60G", prefix=user(ALICE))
        container = shell(f"mount --bind {boot} /proc/sys/kernel/random/boot_id")
        self.assertEqual(self.berth("ps", prefix=container).returncode, 0)
        self.assertFalse(self.fits("60G", prefix=container))
        self.assertFalse(self.fits("60G"))

    # H3
    def test_leases_are_seen_whatever_of_proc_is_hidden(self):
        for proc in ("mount -t proc -o subset=pid proc /proc", "mount -t proc -o hidepid=2 proc /proc", "mount -t tmpfs none /proc"):
            hidden = (*shell(proc), *user(MALLORY))
            held = self.hold("--mem", "60G", prefix=user(ALICE))
            self.assertFalse(self.fits("60G", prefix=hidden), proc)
            self.assertEqual(self.berth("ps", prefix=hidden).stdout.count("sh"), 1, proc)
            self.assertFalse(self.fits("60G"), "reading the ledger changed nothing")
            held.communicate("")
            self.assertTrue(self.fits("60G", prefix=hidden), proc)
            # A lease that is taken there counts outside.
            held = self.hold("--mem", "60G", prefix=hidden)
            self.assertFalse(self.fits("60G", prefix=user(ALICE)), proc)
            held.communicate("")
            self.assertTrue(self.fits("60G", prefix=user(ALICE)), proc)

    # Low: in a user namespace the folder belongs to nobody.
    def test_a_rootless_container_sees_the_machines_leases(self):
        if subprocess.run([*user(ALICE), "unshare", "-r", "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("users may not make user namespaces here")
        held = self.hold("--mem", "60G", prefix=user(MALLORY))
        for container in (("unshare", "-r"), ("unshare", "-U")):
            answer = self.berth("run", "--mem", "60G", "--", "true", prefix=(*user(ALICE), *container))
            self.assertNotEqual(answer.returncode, 0, answer.stderr)
        held.communicate("")
        held = self.hold("--mem", "60G", prefix=(*user(ALICE), "unshare", "-r"))
        self.assertFalse(self.fits("60G", prefix=user(MALLORY)))

    def test_a_variable_of_another_users_lease_is_not_believed(self):
        held = self.start("run", "-q", "--mem", "60G", "--", "sh", "-c", "echo $BERTH_LEASE; read line", prefix=user(ALICE))
        lease = held.stdout.readline().strip()
        answer = self.berth("run", "--mem", "30G", "--", "true", prefix=user(MALLORY), BERTH_LEASE=lease)
        self.assertRefused(answer, 3)
        self.assertNotIn("inside lease", answer.stderr)

    def test_many_requests_of_one_user_do_not_block_another(self):
        self.machine.write_text("gpus 4 memory=80GiB\n")
        held = self.hold("-n", "4", "--mem", "60G")
        log = self.folder / "log"
        log.touch()
        log.chmod(0o666)
        run = lambda name: ("-q", "--mem", "60G", "--wait", "5m", "--", "sh", "-c", f"echo {name} >> {log}; exec sleep 2")
        many = [self.start("run", *run("many"), prefix=user(MALLORY)) for _ in range(20)]
        self.until(lambda: self.waiting() == 20, "they stand in line")
        waiting = self.wait_in_line(*run("one"), prefix=user(ALICE))
        held.communicate("")
        waiting.communicate()
        self.assertEqual(waiting.returncode, 0)
        self.assertLessEqual(log.read_text().split().index("one"), 3, log.read_text())
        for process in many:
            process.kill()

    def test_only_its_user_and_root_release_a_lease(self):
        alice = self.hold("--mem", "20G", prefix=user(ALICE))
        number = str(self.ps()[0]["id"])
        self.assertRefused(self.berth("release", number, prefix=user(MALLORY)), 1, "belongs to 5001", "root")
        self.assertEqual(len(self.ps()), 1)
        self.assertRefused(self.berth("release", f"5002/{number}"), 2, "user 5002")
        self.assertEqual(self.berth("release", f"5001/{number}").returncode, 0)
        self.assertEqual(self.ps(), [])
        self.assertIsNone(alice.poll())
        self.hold("--mem", "20G", prefix=user(ALICE))
        self.assertEqual(self.berth("release", str(self.ps()[0]["id"]), prefix=user(ALICE)).returncode, 0)

    def test_a_cordon_counts_for_all_and_its_author_or_root_lifts_it(self):
        self.assertEqual(self.berth("cordon", "cuda:0", prefix=user(ALICE)).returncode, 0)
        self.assertFalse(self.fits("1G", prefix=user(MALLORY)))
        self.assertRefused(self.berth("uncordon", "cuda:0", prefix=user(MALLORY)), 1, "5001")
        self.assertEqual(self.berth("uncordon", "cuda:0").returncode, 0)
        self.assertTrue(self.fits("1G", prefix=user(MALLORY)))


class HostileUser(SharedFolder):
    # M5
    def test_another_users_file_cannot_be_cut_written_or_replaced(self):
        self.hold("--mem", "60G", prefix=user(ALICE))
        path = self.ledger_of(ALICE)
        attack = f"""
import os
def fails(action):
    try: action()
    except PermissionError: return
    raise SystemExit('it worked')
for action in (lambda: os.truncate({str(path)!r}, 0), lambda: open({str(path)!r}, 'r+b'), lambda: os.unlink({str(path)!r}),
               lambda: os.rename({str(path)!r}, {str(path)!r} + '-old'), lambda: os.link({str(path)!r}, {str(path)!r} + '-link'),
               lambda: os.rename({str(self.runtime)!r}, {str(self.runtime)!r} + '-old'), lambda: os.chmod({str(path)!r}, 0o666)):
    fails(action)
"""
        self.python(MALLORY, attack)
        self.assertFalse(self.fits("60G", prefix=user(MALLORY)))
        self.assertFalse(self.fits("60G", prefix=user(ALICE)))

    # M5
    def test_a_name_that_was_taken_before_means_nothing(self):
        victim = self.folder / "precious"
        victim.write_text("mine")
        victim.chmod(0o666)
        for take in (f"open({str(self.ledger_of(ALICE))!r}, 'w').write('berth-ledger 1 nonsense')", f"import os; os.symlink({str(victim)!r}, {str(self.ledger_of(ALICE))!r})",
                     f"import os; os.mkfifo({str(self.ledger_of(ALICE))!r})", f"import os; os.mkdir({str(self.ledger_of(ALICE))!r})"):
            self.python(MALLORY, take)
            held = self.hold("--mem", "60G", prefix=user(ALICE))
            self.assertFalse(self.fits("60G", prefix=user(MALLORY)), take)
            held.communicate("")
            self.assertTrue(self.fits("60G", prefix=user(MALLORY)), take)
            for path in self.runtime.glob("berth-ledger-*"):
                path.unlink() if path.is_symlink() or not path.is_dir() else shutil.rmtree(path)
        self.assertEqual(victim.read_text(), "mine")

    # M5
    def test_a_forged_file_speaks_for_its_author_alone(self):
        self.hold("--mem", "60G", prefix=user(ALICE))
        forged = self.runtime / "berth-ledger-5001-0000000000000001"
        self.python(MALLORY, f"import shutil; shutil.copyfile({str(self.ledger_of(ALICE))!r}, {str(forged)!r})")
        self.assertEqual(forged.stat().st_uid, MALLORY)
        self.assertEqual([lease["user"] for lease in self.ps() if lease["user"] != "5001"], [], "no process of another user keeps the copied leases")
        self.assertTrue(self.fits("15G"), "the copy promises nothing more")
        self.assertFalse(self.fits("60G", prefix=user(MALLORY)))

    # M5
    def test_a_held_lock_is_a_sentence_that_names_its_holder(self):
        process = self.python(MALLORY, f"import fcntl, os; fd = os.open({str(self.runtime)!r}, os.O_RDONLY); fcntl.flock(fd, fcntl.LOCK_EX)")
        began = time.monotonic()
        answer = self.berth("run", "--mem", "1G", "--", "echo", "started", prefix=user(ALICE))
        self.assertRefused(answer, 1, f"pid {process.pid}", "5002", str(self.runtime))
        self.assertEqual(answer.stdout, "")
        self.assertLess(time.monotonic() - began, 15)
        process.kill()
        process.wait()
        self.assertTrue(self.fits("1G", prefix=user(ALICE)))

    # M5
    def test_read_locks_on_another_users_file_stand_in_no_ones_way(self):
        self.assertTrue(self.fits("1G", prefix=user(ALICE)))
        self.python(MALLORY, f"import fcntl; file = open({str(self.ledger_of(ALICE))!r}, 'rb'); fcntl.lockf(file, fcntl.LOCK_SH)")
        held = self.hold("--mem", "60G", prefix=user(ALICE))
        self.assertFalse(self.fits("60G", prefix=user(MALLORY)))
        held.communicate("")
        self.assertTrue(self.fits("60G", prefix=user(MALLORY)), "a read lock does not keep a lease alive")

    # M5
    def test_hundreds_of_files_of_one_user_hold_up_no_other(self):
        self.hold("--mem", "60G", prefix=user(ALICE))
        self.python(MALLORY, f"for i in range(500): open({str(self.runtime)!r} + f'/berth-ledger-{{i}}', 'wb').write(bytes(100))")
        began = time.monotonic()
        self.assertFalse(self.fits("60G", prefix=user(MALLORY)))
        self.assertTrue(self.fits("15G", prefix=user(ALICE)))
        self.assertQuick(time.monotonic() - began, 5)

    # M5
    def test_many_waiting_requests_of_one_user_hold_up_no_other(self):
        self.rewrite("process gpu=0 pid=4194711 bytes=75GiB")
        waiting = [self.start("run", "-q", "--mem", "70G", "--priority", "high", "--wait", "5m", "--", "true", prefix=user(MALLORY)) for _ in range(30)]
        self.until(lambda: self.waiting() == 30, "they stand in line")
        self.machine.write_text("gpus 2 memory=80GiB\nprocess gpu=0 pid=4194711 bytes=75GiB\nprocess gpu=1 pid=4194711 bytes=60GiB\n")
        began = time.monotonic()
        self.assertTrue(self.fits("10G", prefix=user(ALICE)), "on the GPU that is not kept for a request")
        self.assertLess(time.monotonic() - began, 10)
        for process in waiting:
            process.kill()

    def test_ps_shows_arguments_to_their_user_alone(self):
        self.hold("--mem", "1G", prefix=user(ALICE))
        for prefix, sees in ((user(ALICE), self.assertIn), (user(MALLORY), self.assertNotIn), ((), self.assertNotIn)):
            for options in ((), ("--json",)):
                shown = self.berth("ps", *options, prefix=prefix).stdout
                self.assertRegex(shown, r"\bsh\b")
                sees("read line", shown)

    # M5
    def test_names_carry_no_control_characters_to_a_terminal(self):
        odd = self.folder / "x\x1b[2J\x07y"
        odd.write_text("#!/bin/sh\necho; read line\n")
        odd.chmod(0o755)
        process = self.start("run", "-q", "--mem", "1G", "--", str(odd), prefix=user(MALLORY))
        process.stdout.readline()
        for verb in ("ps", "devices"):
            text = self.berth(verb).stdout
            self.assertFalse(set(text) & {"\x1b", "\x07"}, text)

    # A format that this build does not know.
    def test_a_file_of_another_version_beside_ours_is_reported_and_harms_nothing(self):
        self.python(MALLORY, f"open({str(self.runtime)!r} + '/berth-ledger-5002', 'w').write('berth-ledger 9 ' + 'x' * 20000)")
        self.python(ALICE, f"open({str(self.runtime)!r} + '/ledger', 'wb').write(bytes(100000))")
        held = self.hold("--mem", "60G", prefix=user(ALICE))
        self.assertFalse(self.fits("60G", prefix=user(MALLORY)))
        mallory = self.hold("--mem", "15G", prefix=user(MALLORY))
        self.assertFalse(self.fits("15G", prefix=user(ALICE)))
        self.assertIn("berth-ledger-5002", self.berth("doctor").stdout)


class DefaultFolders(SharedFolder):
    """The machine's own folders, in a mount namespace where they are empty: /run, /dev/shm and /tmp."""

    def setUp(self):
        super().setUp()
        # Not below /tmp, which is a different folder inside.
        folder = tempfile.TemporaryDirectory(dir="/var/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.folder.chmod(0o755)
        self.machine = self.folder / "machine.txt"
        self.machine.write_text(self.script)
        self.keeper = self.spawn([*shell(MOUNTS), "sh", "-c", "echo ready; read line"])
        self.assertEqual(self.keeper.stdout.readline(), "ready\n")
        self.inside = ("nsenter", f"--mount=/proc/{self.keeper.pid}/ns/mnt", "--")

    def environment(self, **more):
        env = super().environment(**more)
        del env["BERTH_RUNTIME_DIR"]
        return {"XDG_STATE_HOME": str(self.folder), **env, "HOME": "/nonexistent", **more}

    def do(self, script):
        return subprocess.run([*self.inside, "sh", "-ec", script], stdout=subprocess.PIPE, text=True, check=True).stdout

    def ps(self):
        return super().ps(prefix=self.inside)

    # B1, H4
    def test_two_users_with_default_set_up_never_get_the_same_bytes(self):
        held = self.hold("--mem", "60G", prefix=(*self.inside, *user(ALICE)))
        self.assertFalse(self.fits("60G", prefix=(*self.inside, *user(MALLORY))))
        self.assertTrue(self.fits("15G", prefix=(*self.inside, *user(MALLORY))))
        held.communicate("")
        self.assertTrue(self.fits("60G", prefix=(*self.inside, *user(MALLORY))))
        self.assertEqual(self.do("ls /run/lock /dev/shm /tmp | grep -c ledger").split(), ["2"], "one file for each, in one folder")

    # H4
    def test_a_login_shell_and_a_cron_job_have_one_ledger(self):
        session = self.folder / "session"
        session.mkdir(mode=0o700)
        os.chown(session, ALICE, ALICE)
        held = self.hold("--mem", "60G", prefix=(*self.inside, *user(ALICE)), XDG_RUNTIME_DIR=str(session))
        self.assertFalse(self.fits("60G", prefix=(*self.inside, *user(ALICE)), XDG_RUNTIME_DIR=""))
        self.assertFalse(self.fits("60G", prefix=(*self.inside, *user(ALICE)), XDG_RUNTIME_DIR=str(self.folder / "gone")))
        self.assertEqual(list(session.iterdir()), [])
        # The session's folder is removed at the last logout.
        session.rmdir()
        self.assertFalse(self.fits("60G", prefix=(*self.inside, *user(ALICE))))
        held.communicate("")

    def test_a_service_with_a_private_tmp_or_a_read_only_run_has_the_same_ledger(self):
        self.hold("--mem", "60G", prefix=(*self.inside, *user(ALICE)))
        for private in (NEW_TMP, "mount -o remount,ro,bind /run 2>/dev/null || mount -o remount,ro /run"):
            service = (*self.inside, *shell(private), *user(MALLORY))
            self.assertFalse(self.fits("60G", prefix=service), private)

    def test_what_a_service_with_a_read_only_run_takes_is_seen_by_all(self):
        # Like ProtectSystem=strict: a read-only view of the same folder.
        service = (*self.inside, *shell("mount --bind /run/lock /run/lock; mount -o remount,bind,ro /run/lock"), *user(MALLORY))
        self.hold("--mem", "60G", prefix=service)
        self.assertFalse(self.fits("60G", prefix=(*self.inside, *user(ALICE))))

    def test_a_folder_made_at_noon_does_not_split_the_ledger(self):
        self.hold("--mem", "30G", prefix=(*self.inside, *user(ALICE)))
        self.do("mkdir /run/berth; chmod 1777 /run/berth")
        self.hold("--mem", "30G", prefix=(*self.inside, *user(ALICE)))
        self.assertEqual(self.do("ls /run/berth").split(), ["berth-ledger-5001"])
        self.assertFalse(self.fits("30G", prefix=(*self.inside, *user(MALLORY))))

    def test_a_full_folder_is_passed_over_for_the_next(self):
        self.do("mkdir -p /run/berth; mount -t tmpfs -o mode=1777,size=64k none /run/berth")
        self.python_inside(MALLORY, "fill = open('/run/berth/fill', 'wb', 0)\nwhile True:\n    try: fill.write(bytes(512))\n    except OSError: break")
        self.hold("--mem", "60G", prefix=(*self.inside, *user(ALICE)))
        self.assertFalse(self.fits("60G", prefix=(*self.inside, *user(MALLORY))))
        self.assertIn("berth-ledger-5001", self.do("ls /run/lock").split())

    def test_a_folder_that_fills_up_later_is_passed_over_too(self):
        self.do("mkdir -p /run/berth; mount -t tmpfs -o mode=1777,size=128k none /run/berth")
        alice = (*self.inside, *user(ALICE))
        first = self.hold("--mem", "20G", prefix=alice)
        self.python_inside(MALLORY, "fill = open('/run/berth/fill', 'wb', 0)\nwhile True:\n    try: fill.write(bytes(512))\n    except OSError: break")
        second = self.hold("--mem", "40G", prefix=alice)
        self.assertFalse(self.fits("30G", prefix=(*self.inside, *user(MALLORY))), "both leases count")
        self.assertEqual(len(self.ps()), 2)
        first.communicate("")
        second.communicate("")
        self.assertTrue(self.fits("70G", prefix=(*self.inside, *user(MALLORY))))
        self.assertTrue(self.fits("70G", prefix=alice))

    def test_a_folder_that_is_not_roots_or_not_sticky_is_not_used(self):
        self.do("mkdir /run/berth; chmod 777 /run/berth; chown 5002 /run/lock; chmod 755 /dev/shm")
        self.hold("--mem", "60G", prefix=(*self.inside, *user(ALICE)))
        self.assertEqual(self.do("ls /tmp | grep ledger; ls /run/berth /run/lock /dev/shm | grep ledger || true").split(), ["berth-ledger-5001"])

    def test_without_any_folder_nothing_is_started(self):
        self.do("chmod 755 /run/lock /dev/shm /tmp")
        answer = self.berth("run", "--mem", "1G", "--", "echo", "started", prefix=(*self.inside, *user(ALICE)))
        self.assertRefused(answer, 1, "BERTH_RUNTIME_DIR")
        self.assertEqual(answer.stdout, "")

    def python_inside(self, uid, script):
        subprocess.run([*self.inside, *user(uid), sys.executable, "-c", script], check=True)


if __name__ == "__main__":
    unittest.main()
