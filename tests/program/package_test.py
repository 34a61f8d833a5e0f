"""The package `lockstep` for Python: check(), assert_equivalent() and the marker for pytest, on real trainings."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("LOCKSTEP_PEER_PYTHON", "/usr/bin/python3")  # one that has torch
sys.path.insert(0, str(ROOT / "python"))
import lockstep  # noqa: E402
from lockstep import program  # noqa: E402

TOY = str(ROOT / "examples/toy_ddp.py")
TESTS = '''
import pytest, sys
sys.path.insert(0, {examples!r})

def train(bug):
    import toy_ddp
    sys.argv = ["toy_ddp.py"] + (["--bug", bug] if bug else [])
    toy_ddp.main()

@pytest.mark.lockstep(world_sizes=[2])
def test_correct():
    train(None)

@pytest.mark.lockstep(local_batch_norm=True)
def test_local_on_purpose():
    train("local_batch_norm")

@pytest.mark.lockstep
def test_wrong():
    train("divided_twice")

@pytest.mark.lockstep(worlds=[2])
def test_misspelt():
    train(None)

@pytest.mark.lockstep
def test_with_fixture(tmp_path):
    train(None)

def test_unmarked():
    pass
'''


class Package(unittest.TestCase):
    def test_a_correct_training_is_true(self):
        result = lockstep.assert_equivalent(PYTHON, TOY)
        self.assertTrue(result)
        self.assertIsNone(result.failure)
        self.assertEqual(result.worlds[0].lanes["float64"].control, "detected")

    def test_a_wrong_one_has_step_entry_and_cause(self):
        result = lockstep.check(PYTHON, TOY, "--bug", "summed_loss")
        self.assertFalse(result)
        found = result.failure
        self.assertEqual((found.name, found.step, found.entry, found.cause),
                         ("float64", 1, "gradient of 0.weight", "summed_loss"))
        self.assertRegex(found.line, r"^toy_ddp\.py:\d+$")

    def test_what_cannot_be_decided_is_no_pass(self):
        with self.assertRaises(lockstep.EquivalenceError) as raised:
            lockstep.assert_equivalent(PYTHON, "-c", "raise SystemExit('no data')")
        self.assertEqual(raised.exception.result.verdict, "inconclusive")
        self.assertIn("no data", str(raised.exception))

    def test_bad_input_is_a_value_error(self):
        with self.assertRaisesRegex(ValueError, "expected an integer from 2 to 64"):
            lockstep.check(PYTHON, TOY, world_sizes=[1])
        with self.assertRaisesRegex(ValueError, "wants a script"):
            lockstep.check()
        with self.assertRaisesRegex(ValueError, "/no/such/script.py: no such file"):
            lockstep.check(PYTHON, "/no/such/script.py")

    def test_a_missing_program_is_named(self):
        given = os.environ.get("LOCKSTEP_PROGRAM")
        os.environ["LOCKSTEP_PROGRAM"] = "/no/such/program"
        self.addCleanup(lambda: os.environ.pop("LOCKSTEP_PROGRAM") and given
                        and os.environ.update(LOCKSTEP_PROGRAM=given))
        with self.assertRaisesRegex(FileNotFoundError, "/no/such/program"):
            program.path()

    def test_the_program_takes_the_place_of_its_entry_point(self):
        ran = subprocess.run([sys.executable, "-c", "from lockstep.program import main; main()", "verfy"],
                             capture_output=True, text=True, check=False,
                             env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
        self.assertEqual(ran.returncode, 2)
        self.assertIn('unknown verb "verfy"', ran.stderr)

    def test_functions_with_the_marker(self):
        probe = subprocess.run([PYTHON, "-c", "import pytest"], capture_output=True, check=False)
        if probe.returncode != 0 and not os.environ.get("CI"):
            self.skipTest(f"{PYTHON} has no pytest")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "test_training.py"
            path.write_text(TESTS.format(examples=str(ROOT / "examples")))
            ran = subprocess.run([PYTHON, "-B", "-m", "pytest", "-q", "-p", "lockstep.pytest_plugin", "-p", "no:cacheprovider",
                                  str(path)], capture_output=True, text=True, check=False, timeout=600,
                                 env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
        self.assertIn("3 failed, 3 passed", ran.stdout)
        self.assertIn("cause divided_twice", ran.stdout)
        self.assertIn("got worlds", ran.stdout)
        self.assertIn("takes no fixtures", ran.stdout)


if __name__ == "__main__":
    unittest.main()
