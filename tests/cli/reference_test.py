"""docs/reference is what scripts/reference makes of the schemas and of the program's help."""
import json
import re
import subprocess
import sys
import unittest

from harness import PROGRAM, ROOT, ProgramTest

PAGES = ROOT / "docs/reference"


def reference(*words):
    return subprocess.run([sys.executable, "-B", ROOT / "scripts/reference", *words], capture_output=True, text=True, check=False)


class Reference(ProgramTest):
    def test_pages_are_up_to_date(self):
        done = reference("--check", PROGRAM)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr + "\nscripts/reference writes them")

    def test_every_key_of_a_scenario_and_every_verb_is_there(self):
        keys = (PAGES / "scenario_keys.md").read_text()
        schema = json.loads((ROOT / "scenarios/schema.json").read_text())
        for key in schema["properties"]:
            self.assertIn(f"\n| `{key}` |", keys)
        for kind in schema["definitions"]["reducer"]["properties"]["kind"]["enum"]:
            self.assertIn(f'`"{kind}"`', keys)
        verbs = (PAGES / "verbs.md").read_text()
        for verb in ("verify", "run", "sweep", "simulate", "program", "worker"):
            self.assertRegex(verbs, rf"(?m)^## {verb}$")
            self.assertIn(f"Usage: lockstep {verb}" if not verb.startswith("program") else "Usage: lockstep verify", verbs)
        self.assertEqual(re.findall(r"/(?:root|home|work)/\S+", verbs), [])

    def test_an_option_that_is_none_is_refused(self):
        done = reference("--nonsense")
        self.assertEqual(done.returncode, 1)
        self.assertIn("usage:", done.stderr)


if __name__ == "__main__":
    unittest.main()
