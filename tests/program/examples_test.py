"""docs/examples is what scripts/examples writes: pages for all scripts, their mistakes as in the gallery, and outputs that the commands
print, here of two pages; of all with LOCKSTEP_GALLERY=all."""
import os
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/cli"))
import gallery  # noqa: E402
from harness import ProgramTest  # noqa: E402
from shown import comparable, run  # noqa: E402

PAGES = ROOT / "docs/examples"
SHOWN = re.compile(r"^```\n\$ (?P<command>[^\n]*)\n(?P<output>.*?)^```$", re.M | re.S)
SAMPLE = ("linear_split.md", "zero_optimizer.md")


def hashless(text):
    return re.sub(r"\b[0-9a-f]{40}\b", "HASH", comparable(text))


class Examples(ProgramTest):
    def test_a_page_for_each_script_and_a_line_in_the_index(self):
        scripts = {path.stem for path in (ROOT / "examples").glob("*.py")}
        self.assertEqual({path.stem for path in PAGES.glob("*.md")}, scripts | {"README"})
        index = (PAGES / "README.md").read_text()
        for script in scripts:
            self.assertIn(f"| [{script}.py]({script}.md) |", index)

    def test_mistakes_are_those_of_the_gallery(self):
        for script in gallery.SCRIPTS:
            text = (PAGES / script.replace(".py", ".md")).read_text()
            told = re.findall(r"^\| `(\w+)` \| (\w+) \| `(\w+)` \| (?:step (\d+), )?(.*) \|$", text, re.M)
            rows = [(row.bug, row.verdict, row.cause, str(row.step or ""), row.entry) for row in gallery.ROWS if row.script == script]
            self.assertEqual(told, rows, script)

    def test_outputs_are_what_the_commands_print(self):
        everything = os.environ.get("LOCKSTEP_GALLERY") == "all"
        for page in sorted(PAGES.glob("[a-z]*.md")) if everything else [PAGES / name for name in SAMPLE]:
            blocks = SHOWN.findall(page.read_text())
            self.assertGreaterEqual(len(blocks), 2, page.name)
            for command, output in blocks:
                with self.subTest(command):
                    ran = run(command, ROOT, self.env)
                    self.assertEqual(hashless(ran.stdout), hashless(output), ran.stderr)


if __name__ == "__main__":
    unittest.main()
