"""docs/catalogue.md: every case is told as its row of tests/program/catalogue/bugs.py says, and the trainings without a mistake beside
them pass. Each day another third of them; all with LOCKSTEP_GALLERY=all (five minutes)."""
import datetime
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import unittest

from together import PYTHON, TogetherTest, script_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALL = os.environ.get("LOCKSTEP_GALLERY") == "all"
THIRD = datetime.date.today().toordinal() % 3
NEWER = (2, 6)
# Trainings without a mistake of which one device says nothing either: owners send what they updated, forwards draw.
UNDECIDED = {"right_gathered", "right_random_states"}
WIDE = {"right_levels": 4}
NEW = {"right_sharded"}  # of PyTorch


def loaded(path):
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_loader(path.stem, importlib.machinery.SourceFileLoader(path.stem, str(path)))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLE = loaded(ROOT / "scripts/catalogue_table")
ROWS = TABLE.load_bugs().BUGS
CASES = [row for row in ROWS if TABLE.is_case(row)]


def planted():
    """By file, of its call of run()."""
    found = {}
    for path in sorted(TABLE.CASES.glob("*.py")):
        call = re.search(r"^run\(\{(.*?)\}\)$", path.read_text(), re.S | re.M)
        if call:
            found[path.stem] = re.findall(r'"(\w+)"', call[1])
    return found


def sample(rows):
    return rows if ALL else [row for number, row in enumerate(rows) if number % 3 == THIRD]


def version():
    said = subprocess.run([PYTHON, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, timeout=300,
                          check=True).stdout
    return tuple(int(part) for part in said.split(".")[:2])


class Catalogue(TogetherTest):
    def verify(self, file, case, world=3, options=()):
        """What --json says, and the text."""
        verdict = self.verdict(script_of(TABLE.CASES / f"{file}.py", case), "--world-sizes", world, *options)
        return verdict.result, verdict.said

    def test_each_is_told_as_its_row_says(self):
        new = version() >= NEWER
        wanted = [row for row in sample(CASES) if new or not row.newer]
        for row in wanted:
            with self.subTest(f"B{row.id} {row.case}"):
                result, text = self.verify(row.group, row.case, row.world, row.options)
                world = result["worlds"][0]
                if hasattr(row.expect, "kind"):
                    self.assertEqual(result["verdict"], "fail", text)
                    self.assertEqual((world["failure"]["kind"], world["failure"]["rank"]), tuple(row.expect), text)
                    continue
                lane = next((lane for lane in world["lanes"].values() if lane["cause"]), {})
                self.assertEqual((result["verdict"], lane.get("cause"), lane.get("step") or 0, lane.get("entry")), tuple(row.expect), text)

    def test_trainings_without_the_mistake_pass(self):
        new = version() >= NEWER
        right = [(file, case) for file, cases in planted().items() for case in cases if case.startswith("right_")]
        wanted = [(file, case) for file, case in sample(right) if new or case not in NEW]
        for file, case in wanted:
            with self.subTest(case):
                result, text = self.verify(file, case, WIDE.get(case, 3))
                self.assertEqual(result["verdict"], "inconclusive" if case in UNDECIDED else "pass", text)

    def test_every_case_has_a_row_and_every_row_a_thread(self):
        found = [(file, case) for file, cases in planted().items() for case in cases if not case.startswith("right_")]
        self.assertEqual(sorted(found), sorted((row.group, row.case) for row in CASES))
        self.assertEqual([row.id for row in ROWS], list(range(TABLE.FIRST, TABLE.FIRST + len(ROWS))))
        for row in ROWS:
            self.assertRegex(row.threads, r"^[\w.-]+#\d+(, [\w.-]+#\d+)*$")
            if not TABLE.is_case(row):
                script = re.match(r"[\w/]+\.py", row.of)
                self.assertTrue((ROOT / script[0]).exists() if script else any(row.of == case.case for case in CASES), row.of)
            elif row.expect[0] in ("pass", "inconclusive") or row.expect[1] == "unknown":
                self.assertTrue(row.says, row.case)

    def test_the_page_is_that_of_the_table(self):
        self.assertEqual(TABLE.PAGE.read_text(), TABLE.page())


if __name__ == "__main__":
    unittest.main()
