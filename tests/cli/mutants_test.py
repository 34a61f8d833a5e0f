"""The page on mutants says what the scenarios say."""
import pathlib
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class MutantTable(unittest.TestCase):
    def test_it_is_what_the_script_writes(self):
        run = subprocess.run([ROOT / "scripts" / "mutant_table", "--check"], capture_output=True, text=True, check=False)
        self.assertEqual(run.stderr, "")
        self.assertEqual(run.returncode, 0)


if __name__ == "__main__":
    unittest.main()
