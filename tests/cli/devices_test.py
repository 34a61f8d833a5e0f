"""Devices of a machine without a GPU: cuda is an error that says what is missing, auto the cpu; and the
faults of a device's stream on devices that stand in for one."""
import re
import shutil
import unittest

from harness import ROOT, TOY, ProgramTest, read_json


class Devices(ProgramTest):
    def setUp(self):
        super().setUp()
        found = re.search(r"^(ok|missing) +CUDA +(.*?)  ", self.run_program("doctor").out, re.M)
        if found[1] == "ok":
            self.skipTest("this machine has a GPU: tests/gpu")
        self.problem = found[2]

    def test_cuda_says_what_is_missing_before_anything_runs(self):
        result = self.verify_json(TOY, "--device", "cuda", code=2)
        self.assertEqual(result["runs"], [])
        error = result["errors"][0]
        self.assertEqual((error["pointer"], error["message"]), ("/device", f"device cuda: {self.problem}"))

    def test_a_folder_leaves_out_what_needs_a_gpu_and_says_so(self):
        folder = self.tmp / "scenarios"
        folder.mkdir()
        shutil.copy(ROOT / TOY, folder)
        on_gpu = ROOT / "scenarios/gpu/gpu_slow_device.json"
        shutil.copy(on_gpu, folder)
        result, junit = self.tmp / "result.json", self.tmp / "junit.xml"
        run = self.run_program("verify", folder, "-q", "--json", result, "--junit", junit)
        self.assertEqual(run.code, 0, run.text)
        self.assertIn(f"left out: 2 runs: device cuda: {self.problem}", run.err)
        self.assertTrue(run.out.endswith(", 2 not run\n"), run.out)
        self.assertEqual({one["why"] for one in read_json(result)["not_run"]}, {f"device cuda: {self.problem}"})
        self.assertEqual(junit.read_text().count("<skipped message=\"left out: device cuda"), 2)
        named = self.run_program("verify", folder, on_gpu)
        self.assertEqual(named.code, 2, named.text)
        self.assertIn("gpu_slow_device.json: error: device cuda", named.err)
        nothing_else = self.run_program("verify", "scenarios/gpu")
        self.assertEqual(nothing_else.code, 2, nothing_else.text)
        self.assertIn("10 errors; nothing was run", nothing_else.err)

    def test_auto_is_the_cpu_and_says_so(self):
        run = self.run_program("verify", TOY, "--device", "auto")
        self.assertEqual(run.code, 0, run.text)
        self.assertEqual(run.err.count(f"device auto: the cpu, since {self.problem}"), 1)
        hashes = [self.verify_json(TOY, "--device", device)["runs"][0]["final_hash"] for device in ("auto", "cpu")]
        self.assertEqual(hashes[0], hashes[1])

    def test_nccl_wants_a_gpu(self):
        run = self.run_program("verify", TOY, "--set", "/communicator/kind=nccl")
        self.assertEqual(run.code, 2)
        self.assertIn("NCCL knows the memory of GPUs alone, not device cpu", run.err)

    def test_scenarios_for_gpus_can_be_checked_without_one(self):
        run = self.run_program("scenario", "check", "scenarios/gpu")
        self.assertEqual(run.code, 0, run.text)


class FaultsOfDevices(ProgramTest):
    def test_they_need_a_device(self):
        run = self.run_program("verify", TOY, "--set", '/faults=[{"kind":"slow_device","rank":1}]')
        self.assertEqual(run.code, 2)
        self.assertIn("slow_device is about what a host puts into a device's stream", run.err)

    def test_each_is_named(self):
        for fault in ('{"kind":"slow_device","rank":2,"matmuls":40,"size":400}',
                      '{"kind":"launch_stall","rank":2,"duration_ms":10}'):
            with self.subTest(fault=fault):
                path = self.tmp / "result.json"
                run = self.run_program("run", TOY, "--device", "fake", "--set", f"/faults=[{fault}]",
                                       "--set", "/steps=10", "--json", path)
                self.assertEqual(run.code, 0, run.text)
                straggler = read_json(path)["runs"][0]["straggler"]
                self.assertEqual((straggler["rank"], straggler["phase"]), (2, "backward"))


if __name__ == "__main__":
    unittest.main()
