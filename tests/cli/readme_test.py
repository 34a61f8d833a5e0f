"""What README.md shows is what the program prints: every command with its output is run as it stands, and compared but for
times, versions, what a machine is called and the last bits of a sum."""
import pathlib
import re
import subprocess
import unittest

from harness import PROGRAM, ROOT, ProgramTest
from shown import comparable, run

TEXT = (ROOT / "README.md").read_text()


def shown():
    """Pairs of a command and its output."""
    blocks = re.findall(r"^```\n(.*?)^```", TEXT, re.M | re.S)
    for before, block in zip(["", *blocks], blocks):
        if block.startswith("$ "):
            command, output = block[2:].split("\n", 1)
            yield command, output
        elif before.strip().split("\n")[-1].startswith("lockstep ") and not block.startswith("lockstep "):
            yield before.strip().split("\n")[-1], block


class Readme(ProgramTest):
    def test_every_output_is_what_the_command_prints(self):
        pairs = list(shown())
        self.assertEqual(len(pairs), 3, [command for command, _ in pairs])
        for command, output in pairs:
            with self.subTest(command):
                ran = run(command, ROOT, self.env)
                self.assertEqual(comparable(ran.stdout), comparable(output), ran.stderr)

    def test_it_is_short(self):
        self.assertLessEqual(len(TEXT.splitlines()), 150)

    def test_every_verb_it_names_is_there(self):
        verbs = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=True).stdout
        for verb in set(re.findall(r"`lockstep ([a-z]+)", TEXT)):
            self.assertRegex(verbs, rf"(?m)^  {verb} ", verb)

    def test_scripts_and_examples_are_there(self):
        for path in set(re.findall(r"(?<!docs/)(?:scripts|examples|scenarios)/[\w/.]+", TEXT)):
            self.assertTrue(pathlib.Path(ROOT, path.rstrip(".")).exists(), path)


if __name__ == "__main__":
    unittest.main()
