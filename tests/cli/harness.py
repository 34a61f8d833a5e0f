"""Runs the built program from outside, as a user would. Standard library only."""
import functools
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


PATIENCE_S = 900  # ends what hangs, on any machine; nothing is judged by it
RESTS_S = (2, 5, 10, 20)


def contended_s():
    """For how long so far something on this machine was ready to run and had no core; 0 where the
    kernel does not tell."""
    try:
        return int(pathlib.Path("/proc/pressure/cpu").read_text().split("total=")[1].split()[0]) / 1e6
    except (OSError, IndexError, ValueError):
        return 0.0


class QuietTime:
    """Time for tests that bound it: what is contended does not count."""

    def __init__(self):
        self._began, self._contended = time.monotonic(), contended_s()

    def contended(self):
        return contended_s() - self._contended

    def passed(self):
        return max(0.0, time.monotonic() - self._began - self.contended())


def needs_quiet_machine(test):
    """A test of what is measured: one that fails while other work wants the cores is repeated, four
    times at most, each time after a longer rest, and then skipped. On a quiet machine it fails at once."""
    @functools.wraps(test)
    def repeated(self):
        for rest_s in (*RESTS_S, None):
            clock, began = QuietTime(), time.monotonic()
            try:
                return test(self)
            except AssertionError as failure:
                busy = clock.contended() / max(time.monotonic() - began, 1e-9)
                if busy < 0.25 and os.getloadavg()[0] <= os.cpu_count():
                    raise
                print(f"busy machine ({busy:.0%} contended): {failure}", flush=True)
            if rest_s is None:
                return self.skipTest("needs a quieter machine")
            time.sleep(rest_s)
            self.tearDown()
            self.setUp()
        return None
    return repeated


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

    def run_program(self, *args, timeout=PATIENCE_S, cwd=ROOT, **options):
        clock = QuietTime()
        done = subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True,
                              errors="replace", timeout=timeout, cwd=cwd,
                              env=options.pop("env", self.env), **options)
        return Result(done, clock.passed())

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
