"""The pages of docs/howto, docs/start.md and docs/defects.md, followed to the letter: in an empty folder, with the files that a page shows, each
command prints what the page says."""
import re
import unittest

from harness import ROOT, ProgramTest, needs_quiet_machine
from shown import comparable, run

INDEXED = sorted([ROOT / "docs/start.md", *(ROOT / "docs/howto").glob("[a-z]*.md")])
PAGES = [*INDEXED, ROOT / "docs/defects.md"]
PART = re.compile(r"^`(?P<file>[\w.]+)`:\n\n```\w*\n(?P<text>.*?)^```$|"
                  r"^(?P<measured><!-- measured -->\n\n)?```\n\$ (?P<command>[^\n]*)\n(?P<output>.*?)^```$", re.M | re.S)


class HowTo(ProgramTest):
    def follow(self, page):
        commands = 0
        for part in PART.finditer(page.read_text()):
            if part["file"]:
                (self.tmp / part["file"]).write_text(part["text"])
                continue
            ran = run(part["command"], self.tmp, self.env)
            measured = bool(part["measured"])
            self.assertEqual(comparable(ran.stdout, measured), comparable(part["output"], measured),
                             f"{page.name}: {part['command']}\n{ran.stdout}{ran.stderr}")
            commands += 1
        return commands

    def test_every_page_is_indexed(self):
        index = (ROOT / "docs/howto/README.md").read_text()
        for page in INDEXED:
            self.assertIn(f"({page.name})" if page.parent.name == "howto" else "(../start.md)", index)


def test_of(page):
    def test(self):
        self.assertGreaterEqual(self.follow(page), 1)
    return needs_quiet_machine(test) if "<!-- measured -->" in page.read_text() else test


for _page in PAGES:
    setattr(HowTo, "test_" + _page.stem, test_of(_page))

if __name__ == "__main__":
    unittest.main()
