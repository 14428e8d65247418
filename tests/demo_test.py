"""`berth demo` on every kind of device: each frame is right, and the final table has the measurements."""
import json
import unittest

from command_case import HAS_CUDA, CommandCase, berth, on_double


class Demo(CommandCase):
    def clip(self, frames):
        """A clip of small pictures, because a GPU of the driver double computes slowly."""
        path = self.folder / f"{frames}.y4m"
        picture = bytes((7 * x * y) % 256 for y in range(18) for x in range(32))
        path.write_bytes(b"YUV4MPEG2 W32 H18 F25:1 Cmono\n" + frames * (b"FRAME\n" + picture))
        return str(path)

    def test_a_device_of_pocl_that_does_not_exist_is_said_by_the_demo_too(self):
        result = berth("demo", "--input", self.clip(2), POCL_DEVICES="basci")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("basci", result.stderr)
        self.assertNotIn(" 1 devices", result.stdout)

    @unittest.skipIf(HAS_CUDA, "OpenCL shows this machine's own GPU beside the double's")
    def test_demo_filters_every_frame_right_on_eight_gpus(self):
        clip = self.clip(40)
        report = json.loads(on_double("eight", "demo", "--input", clip, "--json", "--policy", "round_robin").stdout)
        self.assertEqual((report["frames"], report["failed"], report["wrong"]), (40, 0, 0))
        gpus = [d for d in report["devices"] if d["id"].startswith("GPU-")]
        self.assertEqual(len(gpus), 8)
        for gpu in gpus:
            self.assertGreater(gpu["frames"], 0, f"{gpu['id']} got no work")
        # A kernel that faults on a GPU loses the context and one worker.
        arguments = ("--isolation", "process", "--inject-fault", "--backend", "cuda")
        report = json.loads(on_double("eight", "demo", *arguments, "--input", clip, "--json").stdout)
        self.assertEqual((report["frames"], report["failed"], report["wrong"]), (40, 0, 0))
        self.assertEqual([d["worker_deaths"] for d in report["devices"] if d["id"] == report["faulty"]], [1])
        faulty = next(d for d in report["devices"] if d["id"] == report["faulty"])
        self.assertIn("can no longer use its device", faulty["last_death"])
        self.assertEqual(sum(d["worker_deaths"] for d in report["devices"]), 1)

    def test_demo_filters_every_frame_right_on_every_device(self):
        result = berth("demo", "--input", self.clip(60), "--json", "--policy", "round_robin")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual((report["frames"], report["failed"], report["wrong"]), (60, 0, 0))
        self.assertEqual(sum(d["frames"] for d in report["devices"]), 60)
        for device in report["devices"]:
            self.assertGreater(device["frames"], 0, f"{device['id']} got no work")

    def test_demo_survives_a_crash_in_a_worker(self):
        result = berth("demo", "--isolation", "process", "--inject-fault", "--input", self.clip(90), "--json")
        report = json.loads(result.stdout)
        self.assertEqual((result.returncode, report["frames"], report["failed"], report["wrong"]), (0, 90, 0, 0), result)
        self.assertEqual(sum(device["frames"] for device in report["devices"]), 90)
        self.assertEqual(sum(device["worker_deaths"] for device in report["devices"]), 1)
        faulty = next(device for device in report["devices"] if device["id"] == report["faulty"])
        self.assertEqual(faulty["worker_starts"], 2)
        # On a GPU a kernel faults; on other devices the worker itself does.
        self.assertRegex(faulty["last_death"], "SIGSEGV|CUDA_ERROR_ILLEGAL_ADDRESS")
        self.assertGreater(report["recovery_seconds"], 0)
        text = berth("demo", "--isolation", "process", "--input", self.clip(20)).stdout
        self.assertRegex(text, r"DEVICE +ID +WORKER +DEATHS +FRAMES")
        self.assertIn("every frame matches", text.replace("\n", " "))
        self.assert_refused(berth("demo", "--inject-fault"), 2, "--isolation process")
        self.assert_refused(berth("demo", "--isolation", "proces"), 2, "proces", "none or process")

    def test_demo_prints_a_closing_table_and_no_progress_off_a_terminal(self):
        result = berth("demo", "--backend", "host", "--frames", "10")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("every frame matches the processor's result", " ".join(result.stdout.split()))
        self.assertRegex(result.stdout, r"(?m)^DEVICE .* START-UP .* OF SPEED .* OF FRAMES")
        self.assertNotIn("\r", result.stderr + result.stdout)

    def test_demo_reports_start_up_apart_and_shares_near_those_of_speed(self):
        # Speeds that do not depend on the load of this machine: launches last as the script says.
        devices = "".join(f'[[device]]\nid = "sim-{speed}"\nspeed = {speed}\nitem_ns = 1500\n' for speed in (1, 3))
        clip = self.clip(200)
        result = berth("demo", "--backend", "simulated", "--simulated", self.write("two.toml", devices), "--input", clip, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual((report["frames"], report["wrong"], report["failed"]), (200, 0, 0))
        slow, fast = report["devices"]
        self.assertAlmostEqual(fast["speed_share"], 0.75, delta=0.1)
        for device in (slow, fast):
            self.assertAlmostEqual(device["frame_share"], device["speed_share"], delta=0.1, msg=device)
            self.assertAlmostEqual(device["frame_share"], device["frames"] / 200)
            self.assertGreater(device["startup_seconds"], 0.5 / device["frames_per_second"], "the startup includes the first frame")

    def test_demo_reads_a_video(self):
        width, height = 32, 18
        picture = bytes((x * y) % 256 for y in range(height) for x in range(width))
        chroma = bytes(2 * (width // 2) * (height // 2))
        path = self.folder / "clip.y4m"
        path.write_bytes(b"YUV4MPEG2 W32 H18 F25:1 C420jpeg\n" + 5 * (b"FRAME\n" + picture + chroma))
        report = json.loads(berth("demo", "--input", str(path), "--json").stdout)
        self.assertEqual((report["frames"], report["wrong"]), (5, 0))
        path.write_bytes(path.read_bytes()[:-1])
        self.assert_refused(berth("demo", "--input", str(path)), 2, "clip.y4m", "cut off")
        self.assert_refused(berth("demo", "--input", str(self.folder / "none.y4m")), 2, "none.y4m")
        self.assert_refused(berth("demo", "--input", self.write("a.y4m", "hello")), 2, "YUV4MPEG2")

    def test_demo_refuses_what_makes_no_sense(self):
        self.assert_refused(berth("demo", "--policy", "least_laoded"), 2, "least_loaded")
        self.assert_refused(berth("demo", "--frames", "0"), 2, "--frames")
        self.assert_refused(berth("demo", "--frames", "many"), 2, "--frames")


if __name__ == "__main__":
    unittest.main()
