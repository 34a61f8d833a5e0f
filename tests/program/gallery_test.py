"""examples/: every script passes as it is, and each planted mistake is found with step, entry and cause.
A sample of one variant a cause; all with LOCKSTEP_GALLERY=all."""
import json
import os
import pathlib
import re
import socket
import subprocess
import unittest

import gallery
from together import PROGRAM, PYTHON, TogetherTest, script_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALL = os.environ.get("LOCKSTEP_GALLERY") == "all"


def first_finding(result):
    lanes = [lane for world in result["worlds"] for lane in world["lanes"].values() if lane["cause"]]
    return lanes[0] if lanes else {}


class Gallery(TogetherTest):
    def verify(self, script, *words, options=()):
        """The result, as --json writes it, and the text."""
        path = ROOT / "examples" / script
        if "--spawns" not in options:
            verdict = self.verdict(script_of(path, *words), *options)
            return verdict.result, verdict.said
        self.apart()
        result = self.folder / "result.json"
        ran = subprocess.run([PROGRAM, "verify", "--json", result, *options, "--", PYTHON, path, *words], capture_output=True,
                             text=True, timeout=600, env={**self.environment, "OMP_NUM_THREADS": "1"})
        return json.loads(result.read_text()), ran.stdout + ran.stderr

    def test_scripts_pass_as_they_are(self):
        for script, options in gallery.SCRIPTS.items():
            with self.subTest(script):
                result, text = self.verify(script, options=options)
                self.assertEqual(result["verdict"], "pass", text)

    def test_planted_mistakes_are_found(self):
        for row in gallery.ROWS if ALL else gallery.SAMPLE:
            with self.subTest(f"{row.script} {row.bug}"):
                result, text = self.verify(row.script, "--bug", row.bug, options=row.options)
                found = first_finding(result)
                self.assertEqual((result["verdict"], found.get("step") or 0, found.get("entry"), found.get("cause")),
                                 (row.verdict, row.step, row.entry, row.cause), text)
                self.assertTrue("to do: " in text or row.cause == "unknown", text)

    def test_the_table_is_that_of_the_scripts(self):
        for script in gallery.SCRIPTS:
            text = (ROOT / "examples" / script).read_text()
            planted = re.findall(r'"(\w+)"', re.search(r"^BUGS = \((.*?)\)", text, re.S | re.M)[1])
            self.assertEqual(sorted(planted), sorted(row.bug for row in gallery.ROWS if row.script == script))
        on_disk = {path.name for path in (ROOT / "examples").glob("*.py")}
        self.assertEqual(on_disk, set(gallery.SCRIPTS) | gallery.OTHERS)

    def test_the_split_by_hand_prints_the_published_weights(self):
        self.apart()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        variables = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                     "WORLD_SIZE": "4"}
        ranks = [subprocess.Popen([PYTHON, "-B", ROOT / "examples/linear_split.py"], stdout=subprocess.PIPE,
                                  text=True, env={**variables, "RANK": str(rank)}) for rank in range(4)]
        printed = [float(word) for word in [rank.communicate(timeout=600)[0] for rank in ranks][0].split()]
        self.assertEqual(len(printed), 100)
        for row in json.loads((ROOT / "golden/data/linear_20x10.json").read_text())["published"]:
            if row["tensor"] == "weight":
                self.assertEqual(printed[:len(row["values"])], row["values"], row["of"])

    def test_pytorchs_sync_batch_norm_runs_on_the_cpu(self):
        result, text = self.verify("sync_batch_norm.py", "--torch")
        self.assertEqual(result["verdict"], "pass", text)


if __name__ == "__main__":
    unittest.main()
