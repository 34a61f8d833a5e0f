"""Runs the built program from outside, as a user would. Standard library only."""
import json
import os
import pathlib
import subprocess
import tempfile
import time
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("LOCKSTEP_PROGRAM", str(ROOT / "build/test/bin/lockstep"))
LINEAR = "scenarios/equivalence/linear_manual_split.json"
TOY = "scenarios/equivalence/toy_model.json"


class Result:
    def __init__(self, completed, seconds):
        self.code = completed.returncode
        self.out = completed.stdout
        self.err = completed.stderr
        self.text = completed.stdout + completed.stderr
        self.seconds = seconds


class ProgramTest(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(prefix="lockstep-test-")
        self.tmp = pathlib.Path(self._folder.name)
        self.env = {**os.environ, "XDG_STATE_HOME": str(self.tmp / "state")}
        self.env.pop("GITHUB_ACTIONS", None)

    def tearDown(self):
        self._folder.cleanup()

    def run_program(self, *args, timeout=60, cwd=ROOT, **options):
        start = time.monotonic()
        done = subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True,
                              errors="replace", timeout=timeout, cwd=cwd,
                              env=options.pop("env", self.env), **options)
        return Result(done, time.monotonic() - start)

    def verify_json(self, *args, code=0):
        path = self.tmp / "result.json"
        result = self.run_program("verify", *args, "--json", path)
        self.assertEqual(result.code, code, result.text)
        return read_json(path)


def read_json(path):
    def no_constants(word):
        raise ValueError(f"{word} is not JSON")
    return json.loads(pathlib.Path(path).read_text(), parse_constant=no_constants)


def svg_texts(path):
    """What stands in a picture that is XML, in its order; tooltips are none of it."""
    name = "{http://www.w3.org/2000/svg}"
    root = xml.etree.ElementTree.parse(path).getroot()
    if root.tag != name + "svg":
        raise ValueError(f"{path} is no SVG")
    return [element.text for element in root.iter(name + "text")]


def descendants(pid):
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    try:
        found = [int(word) for word in children.read_text().split()]
    except OSError:
        return []
    return found + [d for child in found for d in descendants(child)]


def alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def rank_of(pid):
    try:
        name = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None
    return int(name[10:]) if name.startswith("lockstep-r") and name[10:].isdigit() else None
