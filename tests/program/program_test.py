"""`lockstep verify -- COMMAND`: correct programs pass, planted mistakes are found with their cause."""
import os
import pathlib
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("LOCKSTEP_PROGRAM", str(ROOT / "build/test/bin/lockstep"))
BUGS = ("summed_loss", "divided_twice", "lr_scaled", "same_samples", "epoch_never_set", "local_batch_norm",
        "module_past_ddp", "outside_ddp", "no_sync_at_step", "update_on_one_rank")


def verify(script, *words, options=()):
    return subprocess.run([PROGRAM, "verify", *options, "--", "/usr/bin/python3", str(ROOT / "examples" / script),
                           *words], capture_output=True, text=True, timeout=600)


class Programs(unittest.TestCase):
    def test_correct_programs_pass(self):
        self.assertEqual(verify("toy_ddp.py").returncode, 0)
        self.assertEqual(verify("spawned.py", options=["--spawns"]).returncode, 0)

    def test_planted_mistakes_are_found(self):
        for bug in BUGS:
            with self.subTest(bug):
                ran = verify("toy_ddp.py", "--bug", bug)
                self.assertEqual(ran.returncode, 1, ran.stdout)
                self.assertIn(f"cause {bug}", ran.stdout)


if __name__ == "__main__":
    unittest.main()
