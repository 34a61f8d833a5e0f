"""examples/: every script passes as it is, and each planted mistake is found with step, entry and cause.
A sample of one variant a cause; all with LOCKSTEP_GALLERY=all."""
import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import unittest

import gallery

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("LOCKSTEP_PROGRAM", str(ROOT / "build/test/bin/lockstep"))
PYTHON = os.environ.get("LOCKSTEP_PEER_PYTHON", "/usr/bin/python3")  # one that has torch
ALL = os.environ.get("LOCKSTEP_GALLERY") == "all"


def verify(*words, options=()):
    """The result, as --json writes it, and the text."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "result.json"
        ran = subprocess.run([PROGRAM, "verify", "--json", path, *options, "--", PYTHON, *map(str, words)],
                             capture_output=True, text=True, timeout=600,
                             env={**os.environ, "OMP_NUM_THREADS": "1"})
        return json.loads(path.read_text()), ran.stdout + ran.stderr


def first_finding(result):
    lanes = [lane for world in result["worlds"] for lane in world["lanes"].values() if lane["cause"]]
    return lanes[0] if lanes else {}


class Gallery(unittest.TestCase):
    def test_scripts_pass_as_they_are(self):
        for script, options in gallery.SCRIPTS.items():
            with self.subTest(script):
                result, text = verify(ROOT / "examples" / script, options=options)
                self.assertEqual(result["verdict"], "pass", text)

    def test_planted_mistakes_are_found(self):
        for row in gallery.ROWS if ALL else gallery.SAMPLE:
            with self.subTest(f"{row.script} {row.bug}"):
                result, text = verify(ROOT / "examples" / row.script, "--bug", row.bug, options=row.options)
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
        result, text = verify(ROOT / "examples/sync_batch_norm.py", "--torch")
        self.assertEqual(result["verdict"], "pass", text)


if __name__ == "__main__":
    unittest.main()
