"""What the pages on mutants say is what the scenarios say, and what a run says."""
import pathlib
import resource
import subprocess
import sys
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
    """scripts/mutate without building anything of lockstep."""

    @classmethod
    def listed(cls, *words):
        build = pathlib.Path(PROGRAM).parent.parent
        return subprocess.run([ROOT / "scripts" / "mutate", "--list", "--build", build, *words, "reducer/bucket.cc"],
                              stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()

    @classmethod
    def setUpClass(cls):
        cls.mutants = cls.listed()

    def test_every_mutant_changes_what_stands_there(self):
        lines = (ROOT / "reducer" / "bucket.cc").read_text().splitlines()
        self.assertGreater(len(self.mutants), 40)
        self.assertEqual(len(set(self.mutants)), len(self.mutants))
        for mutant in self.mutants:
            place, kind, change = mutant.split(": ", 2)
            _, line, column = place.split(":")
            before, after = change.split(" -> ", 1)
            self.assertTrue(lines[int(line) - 1][int(column) - 1:].startswith(before.split(" ")[0]), mutant)
            self.assertNotEqual(before, after)
            self.assertIn(kind, ("relation", "logic", "arithmetic", "constant", "call", "condition", "statement"))
        late = [mutant for mutant in self.mutants if mutant.endswith(" -> (bucket.bytes) <= (limits_bytes[bucket.limit])")]
        self.assertEqual(len(late), 1)

    def test_slices_are_the_whole(self):
        slices = [mutant for index in (1, 2) for mutant in self.listed("--slice", f"{index}/2")]
        self.assertEqual(sorted(slices), sorted(self.mutants))
        self.assertEqual(len(self.listed("--most", "5", "--seed", "2")), 5)


# Every kind of mutant, some within others, and what looks like one: constants of the compiler, a template's brackets.
INCLUDES = "#include <cstdio>\n#include <cstdlib>\n#include <vector>\n"
SMALL = """
constexpr int kSize = 2;
template <class T> T larger(T a, T b) { if (a < b) return b; return a; }
int counted(std::vector<int>& seen, int most) {
  int sum = 0;
  for (int i = 0; i < most && i <= 3; ++i) sum += i * 2;  // not 3 < 4
  seen.push_back(sum);
  static_assert(kSize == 2);
  if (sum > 5) seen.pop_back();
  else seen[0] -= 1;
  const auto odd = [&](int value) { return value % 2 == 1 || most != 4; };
  switch (sum) { case 12: return std::min(sum, most) / 2; default: break; }
  return odd(sum) ? larger(sum, most) : -1;
}
int all() {
  std::vector<int> seen{4, 7};
  const bool both = true;
  const int counts[] = {counted(seen, 4), counted(seen, 2)};
  std::printf("%d %d %d %d %d\\n", counts[0], counts[1], seen[0], static_cast<int>(seen.size()), both);
  return 7;
}
"""


class Placing(ProgramTest):
    """scripts/mutation: a source with all its mutants in it is each of them."""

    def setUp(self):
        super().setUp()
        sys.path.insert(0, str(ROOT / "scripts" / "mutation"))
        import placing
        self.placing, self.path = placing, self.tmp / "small.cc"
        self.path.write_text(INCLUDES + SMALL)
        self.places = placing.Source(self.path, INCLUDES + SMALL, ["-std=c++20"], placing.index()).places
        self.number_of = {placing.name_of(place.mutant): n for n, place in enumerate(self.places, 1)}

    def compiled(self, name, text):
        (self.tmp / f"{name}.cc").write_text(text)
        subprocess.run(["g++", "-std=c++20", "-w", "-Wno-narrowing", "-include", self.placing.HEADER, "-o", self.tmp / name,
                        self.tmp / f"{name}.cc"], check=True)
        return self.tmp / name

    def each_alone(self):
        """A program of the source as it is, and with each change alone, as namespaces."""
        text, choice = INCLUDES, ""
        for number, place in enumerate([None, *self.places]):
            changed = SMALL
            if place is not None:
                start, end = place.start - len(INCLUDES), place.end - len(INCLUDES)
                now = place.mutant.after if place.mutant.kind != "statement" else ""
                changed = SMALL[:start] + now + SMALL[end:]
            text += f"namespace n{number} {{{changed}}}\n"
            choice += f"case {number}: return n{number}::all();\n"
        return self.compiled("alone", text + 'int main() { switch (std::atoi(std::getenv("LOCKSTEP_MUTANT"))) {'
                             + choice + "} return 0; }\n")

    def said(self, program, number=0, **more):
        """What it prints and how it ends; a mutant may count for ever, or read beyond what there is."""
        second = (resource.RLIMIT_CPU, (1, 1))
        run = subprocess.run([program], capture_output=True, text=True, check=False,
                             env={**self.env, "LOCKSTEP_MUTANT": str(number), **more},
                             preexec_fn=lambda: resource.setrlimit(*second))
        return run.stdout, run.returncode

    def test_each_number_is_the_source_with_that_change(self):
        kinds = {place.mutant.kind for place in self.places}
        self.assertEqual(kinds, {"relation", "logic", "arithmetic", "constant", "call", "condition", "statement"})
        self.assertFalse([place for place in self.places if "kSize" in place.mutant.before])
        text = self.placing.placed(INCLUDES + SMALL, self.places, self.number_of)
        together, alone = self.compiled("together", text + "int main() { return all(); }\n"), self.each_alone()
        unchanged, notes = self.said(alone), self.tmp / "notes"
        notes.write_bytes(bytes(len(self.places) + 1))
        self.assertEqual(unchanged[1], 7)
        self.assertEqual(self.said(together, 0, LOCKSTEP_MUTANT_NOTES=str(notes)), unchanged)
        apart = 0
        for number, place in enumerate(self.places, 1):
            with self.subTest(mutant=place.mutant):
                changed = self.said(alone, number)
                self.assertEqual(self.said(together, number), changed)
                if changed != unchanged:
                    apart += 1
                    self.assertEqual(notes.read_bytes()[number], 3, "came to it, and it makes a difference")
        self.assertGreater(apart, 20)
        same = [place.mutant for n, place in enumerate(self.places, 1) if notes.read_bytes()[n] == 1]
        self.assertTrue([mutant for mutant in same if mutant.before == "sum > 5"], "6 and 2 are on one side of 5 and of 6")


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
