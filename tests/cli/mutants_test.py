"""What the pages on mutants say is what the scenarios say, and what a run says."""
import subprocess
import unittest

from harness import PROGRAM, ROOT, ProgramTest, read_json


class Pages(ProgramTest):
    def check(self, *words):
        run = subprocess.run([ROOT / "scripts" / words[0], *words[1:], "--check"], capture_output=True, text=True,
                             env=self.env, check=False)
        if run.returncode == 3:
            self.skipTest("needs a quieter machine: " + run.stderr)
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_mutants_is_what_the_script_writes(self):
        self.check("mutant_table")

    def test_power_is_what_a_run_says(self):
        if "LibTorch 1.13" not in self.run_program("version").out:
            self.skipTest("docs/power.md is of LibTorch 1.13")
        self.check("power_page", PROGRAM)


class OwnCode(unittest.TestCase):
    """scripts/mutate without building anything."""

    def listed(self, *words):
        return subprocess.run([ROOT / "scripts" / "mutate", "--list", *words, "reducer/bucket.cc"], capture_output=True,
                              text=True, check=True).stdout.splitlines()

    def test_every_mutant_changes_what_a_line_does(self):
        lines = (ROOT / "reducer" / "bucket.cc").read_text().splitlines()
        mutants = self.listed()
        self.assertGreater(len(mutants), 40)
        self.assertEqual(len(set(mutants)), len(mutants))
        for mutant in mutants:
            place, kind, change = mutant.split(": ", 2)
            before, after = change.split(" -> ")
            self.assertEqual(lines[int(place.split(":")[1]) - 1].split("//")[0].strip(), before, mutant)
            self.assertNotEqual(before, after)
            self.assertIn(kind, ("relation", "logic", "arithmetic", "constant", "call", "condition", "statement"))
        late = [mutant for mutant in mutants if "bucket.bytes <= limits_bytes" in mutant]
        self.assertEqual(len(late), 1)

    def test_slices_are_the_whole(self):
        slices = [mutant for index in (1, 2, 3) for mutant in self.listed("--slice", f"{index}/3")]
        self.assertEqual(sorted(slices), sorted(self.listed()))
        self.assertEqual(len(self.listed("--most", "5", "--seed", "2")), 5)


class KillMatrix(ProgramTest):
    def test_it_ends_a_run_of_mutants_in_every_form(self):
        markdown, result = self.tmp / "kills.md", self.tmp / "result.json"
        run = self.run_program("verify", "scenarios/mutants", "--filter", "b01", "--markdown", markdown, "--json", result)
        self.assertEqual(run.code, 0, run.text)
        self.assertRegex(run.out, r"\nb01_wrong_divisor +2  killed   \. +x +x ")
        self.assertIn("| b01_wrong_divisor | 2 | killed | . | x | x |", markdown.read_text())
        self.assertEqual(read_json(result)["kills"]["killed"], 4)

    def test_a_defect_that_is_expected_elsewhere_is_not_killed(self):
        file = self.tmp / "wrong_place.json"
        text = (ROOT / "scenarios/mutants/b01_wrong_divisor.json").read_text()
        file.write_text(text.replace('"step": 2, "tensor"', '"step": 3, "tensor"').replace("b01_wrong_divisor", "wrong_place"))
        run = self.run_program("verify", file)
        self.assertEqual(run.code, 1, run.text)
        self.assertIn("killed: 0 of 2 runs", run.out)
        self.assertRegex(run.out, r"\nwrong_place +2  no ")

    def test_a_file_that_cannot_be_written_is_said_first(self):
        run = self.run_program("verify", "scenarios/mutants", "--markdown", "/nowhere/kills.md")
        self.assertEqual(run.code, 2)
        self.assertIn("--markdown /nowhere/kills.md: No such file or directory", run.err)


if __name__ == "__main__":
    unittest.main()
