"""A TorchScript module from a file: trained only where --trust-model names it."""
import pathlib
import subprocess
import unittest

from harness import PATIENCE_S, ROOT, ProgramTest

PYTHON = "/usr/bin/python3"
MAKE = ROOT / "tests/python/make_script_model.py"
SCENARIO = """{
  "name": "scripted", "what": "a test", "world_size": 3, "steps": 5, "batch_size": 12,
  "model": {"kind": "torchscript", "file": "net.pt"},
  "data": {"kind": "randn", "samples": 24, "features": 8, "targets": 4},
  "loss": {"kind": "mse"}, "optimizer": {"kind": "adam", "lr": 0.01},
  "reducer": {"bucket_cap_mb": 0.0005, "first_bucket_mb": 0.0002},
  "lanes": ["replica", "replay", "float64"],
  "matrix": {"/reducer/kind": ["bucketed", "c10d"]}
}"""


def has_torch():
    probe = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    return pathlib.Path(PYTHON).exists() and subprocess.run([PYTHON, "-c", probe]).returncode == 0


class ScriptModel(ProgramTest):
    def setUp(self):
        super().setUp()
        self.scenario = self.tmp / "scenario.json"
        self.scenario.write_text(SCENARIO)
        self.module = self.tmp / "net.pt"

    def make(self, *words):
        if not has_torch():
            self.skipTest("no torch in /usr/bin/python3 (Debian: python3-torch)")
        subprocess.run([PYTHON, "-B", MAKE, self.module, *words], check=True, timeout=PATIENCE_S)

    def test_a_trusted_module_is_trained_and_judged(self):
        self.make()
        document = self.verify_json(self.scenario, "--trust-model", self.module)
        self.assertEqual([run["reducer"] for run in document["runs"]], ["bucketed", "c10d"])
        for run in document["runs"]:
            self.assertEqual({lane["verdict"] for lane in run["lanes"].values()}, {"pass"}, run)
            self.assertEqual({lane["control"] for lane in run["lanes"].values()}, {"detected"})
        self.assertEqual(len({run["final_hash"] for run in document["runs"]}), 1)
        defect = self.verify_json(self.scenario, "--trust-model", self.module, "--set",
                                  '/mutants=[{"kind":"wrong_divisor"}]', code=1)
        self.assertEqual({run["first_divergence"]["cause"] for run in defect["runs"]},
                         {"wrong_divisor"})
        self.assertIn(f"--trust-model {self.module}", defect["runs"][0]["again"])

    def test_a_module_that_looks_at_the_whole_batch_is_another_function(self):
        self.make("by_batch")
        runs = self.verify_json(self.scenario, "--trust-model", self.module, code=1)["runs"]
        self.assertEqual({run["first_divergence"]["cause"] for run in runs},
                         {"not_shard_decomposable"})

    def test_nothing_is_loaded_without_trust(self):
        self.module.write_bytes(b"looked at by nobody")
        (self.tmp / "other.pt").write_bytes(b"")
        for trust in ((), ("--trust-model", self.tmp / "other.pt")):
            result = self.run_program("verify", self.scenario, *trust)
            self.assertEqual(result.code, 2, result.text)
            self.assertIn("net.pt holds code, which loading it runs", result.text)

    def test_what_is_no_module_is_an_exception_with_its_name(self):
        self.module.write_bytes(b"not a module")
        document = self.verify_json(self.scenario, "--trust-model", self.module, "--set",
                                    "/reducer/kind=bucketed", code=3)
        self.assertEqual(document["runs"][0]["failure"]["kind"], "exception")


if __name__ == "__main__":
    unittest.main()
