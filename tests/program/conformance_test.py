"""docs/conformance.md has the rows and columns that scripts/conformance runs, and says of one row what a run says now."""
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("LOCKSTEP_PROGRAM", str(ROOT / "build/test/bin/lockstep"))
PYTHON = os.environ.get("LOCKSTEP_PEER_PYTHON", "/usr/bin/python3")


def loaded(path):
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_loader("conformance", importlib.machinery.SourceFileLoader("conformance", str(path)))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BOARD = loaded(ROOT / "scripts/conformance")
TEXT = BOARD.PAGE.read_text()


class Conformance(unittest.TestCase):
    def test_every_row_has_a_cell_of_each_column(self):
        columns, cells = BOARD.read_page(TEXT)
        self.assertEqual(len(columns), 3, columns)
        for row in BOARD.ROWS:
            for torch in columns:
                for world in BOARD.WORLDS:
                    word, why = cells[row, torch, world]
                    self.assertRegex(word, r"^(bits|bound|\*\*fail.*\*\*|inconclusive)( \+ order)?$", row)
                    self.assertEqual(word.startswith(("bits", "bound")), not why, (row, word, why))
        self.assertEqual(len(re.findall(r"^\| (?!library|---)", TEXT, re.M)), len(BOARD.ROWS))

    def test_a_page_that_is_read_is_written_alike(self):
        self.assertEqual(BOARD.page(*BOARD.read_page(TEXT)).split("\n* PyTorch", 1)[1], TEXT.split("\n* PyTorch", 1)[1])
        self.assertTrue(TEXT.startswith(BOARD.HEAD))

    def test_what_is_no_pass_is_no_pass_on_the_page(self):
        """Of words of --json, with the reason."""
        lane = {"verdict": "pass", "cause": None, "meaning": None, "entry": None, "evidence": None, "worst_distance": 0}
        world = {"verdict": "pass", "failure": None, "not_run": None, "log_tail": [], "lanes": {"replica": lane, "float64": lane}}
        self.assertEqual(BOARD.cell(world), ("bits", ""))
        beyond = {**lane, "worst_distance": 1e-16}
        self.assertEqual(BOARD.cell({**world, "lanes": {"replica": lane, "replay": lane, "float64": beyond}}), ("bound + order", ""))
        bad = {**lane, "verdict": "fail", "cause": "summed_loss", "meaning": "the loss sums"}
        self.assertEqual(BOARD.cell({**world, "verdict": "fail", "lanes": {"replica": lane, "float64": bad}}),
                         ("**fail: `summed_loss`**", "float64 fail: summed_loss: the loss sums"))
        self.assertEqual(BOARD.cell({**world, "verdict": "inconclusive", "lanes": {}, "log_tail": ["No module named 'x'", ""]}),
                         ("inconclusive", "`No module named 'x'`"))

    def test_a_row_says_what_the_page_says(self):
        ran = subprocess.run([sys.executable, "-B", ROOT / "scripts/conformance", "--program", PROGRAM, "--python", PYTHON, "--only", "ddp exact"],
                             capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertIn(": bits", ran.stdout)


if __name__ == "__main__":
    unittest.main()
