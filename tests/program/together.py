"""Many scripts, verified by one `lockstep verify` of as many scenarios: ranks of all of them are forked of one Python, which has
imported torch once.

Tests stay as they are, and ask for one verdict after another. Before the first of a class, all of them are run ahead for what
they ask for, up to where one wants a verdict that is not there yet; those that are wanted are then made together, and so on
until no test wants one more. What a test says in the end it says of the verdicts of its own scripts."""
import contextlib
import json
import os
import pathlib
import re
import subprocess
import tempfile
import typing

from folders import FolderTest, variables_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("LOCKSTEP_PROGRAM", str(ROOT / "build/test/bin/lockstep"))
PYTHON = os.environ.get("LOCKSTEP_PEER_PYTHON", "/usr/bin/python3")  # one that has torch
# Becomes the script of the words in sys.argv: it leaves no name behind, and the script's lines are those of its own file.
BECOMES = """__file__ = sys.argv[0]
with open(__file__, encoding="utf-8") as file: code = compile(file.read(), __file__, "exec")
del file, sys
exec(globals().pop("code"))
"""
# The command of all scenarios, the n-th of which has its files in run-n.
DISPATCHER = """import os, sys
sys.path[0] = os.path.join(sys.path[0], os.environ["LOCKSTEP_PROGRAM_DIR"].rpartition("/run-")[2].partition("/")[0])
sys.argv[0] = os.path.join(sys.path[0], "train.py")
del os
""" + BECOMES

VALUES = {"--world-sizes": "world_size", "--seed": "seed"}
VALUES_OF_PROGRAM = {"--hook-error": "hook_error", "--hook-owed": "hook_owed", "--limit": "limit_s"}
FLAGS = {"--drill": {"drill": "always"}, "--no-drill": {"drill": "never"}, "--local-batch-norm": {"local_batch_norm": True},
         "--pretend-gpus": {"pretend_gpus": True}}


def script_of(path, *words):
    """A text that becomes this script with these words of its command line."""
    return f"""import sys
sys.path[0], sys.argv[:] = {str(pathlib.Path(path).parent)!r}, {list(map(str, (path, *words)))!r}
""" + BECOMES


class Asked(typing.NamedTuple):
    text: str
    options: tuple  # as of a command line

    def scenario(self, name):
        program, words = {"command": [PYTHON, "dispatcher.py"]}, iter(map(str, self.options))
        scenario = {"name": name, "program": program}
        for word in words:
            if word in VALUES:
                scenario[VALUES[word]] = int(next(words))
            elif word in VALUES_OF_PROGRAM:
                program[VALUES_OF_PROGRAM[word]] = float(next(words))
            else:
                program.update(FLAGS[word])
        return scenario


class Verdict(typing.NamedTuple):
    code: int
    said: str
    result: dict  # as of --json
    left: list  # what was left behind by any of those that were made together


class NotYet(BaseException):
    """Of a test that is run ahead: it wants what it cannot have now."""


def texts_of(printed):
    """By name, what was printed of each, without the last line, which is of all."""
    parts = re.split(r"^(script-\d+): .*\n", "".join(printed.splitlines(keepends=True)[:-1]), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def verdicts_of(asked):
    """In one call, in its order."""
    with tempfile.TemporaryDirectory() as holder:
        folder, names = pathlib.Path(holder), [f"script-{number}" for number in range(1, len(asked) + 1)]
        (folder / "dispatcher.py").write_text(DISPATCHER)
        for number, (name, one) in enumerate(zip(names, asked), 1):
            (folder / str(number)).mkdir()
            (folder / str(number) / "train.py").write_text(one.text)
            (folder / f"{name}.json").write_text(json.dumps(one.scenario(name)))
        (folder / "tmp").mkdir()
        ran = subprocess.run([PROGRAM, "verify", "--trust-programs", "--json", "result", *(f"{name}.json" for name in names)],
                             capture_output=True, text=True, timeout=1700, cwd=folder, check=False,
                             env={**variables_of(folder), "OMP_NUM_THREADS": "1"})  # ranks share the cores
        if not (folder / "result").exists():
            raise AssertionError(ran.stdout + ran.stderr)
        runs, left = json.loads((folder / "result").read_text()).get("runs", []), os.listdir(folder / "tmp")
    texts = texts_of(ran.stdout)
    if [run["name"] for run in runs] != names or list(texts) != names:
        raise AssertionError(ran.stdout + ran.stderr)
    return [Verdict(run["result"]["exit_code"], texts[run["name"]] + ran.stderr, run["result"], left) for run in runs]


class Ahead:
    """Of one class."""

    def __init__(self):
        self.tests, self.verdicts, self.wanted = set(), {}, {}
        self.is_running = False

    def run(self, kind):
        tests, self.tests = sorted(self.tests), set()
        while tests:
            self.is_running, self.wanted = True, {}
            tests = [test for test in tests if self.wants_more(kind(test), test)]
            self.is_running = False
            self.make(list(self.wanted))

    def wants_more(self, instance, test):
        try:
            instance.setUp()
            getattr(instance, test)()
        except (NotYet, Exception):  # what is wrong is said where the test is run
            pass
        finally:
            instance.doCleanups()
        return instance.wants_more

    def make(self, asked):
        if asked:
            self.verdicts.update(zip(asked, verdicts_of(asked)))


class TogetherTest(FolderTest):
    """verdict() is what is made together. A test that does anything slow beside it says apart() first."""

    def __init_subclass__(cls, **keys):
        super().__init_subclass__(**keys)
        cls.ahead = Ahead()

    def __init__(self, *names):
        super().__init__(*names)
        self.wants_more = False
        if not self.ahead.is_running:
            self.ahead.tests.add(self._testMethodName)  # unittest makes those alone that were selected

    def subTest(self, *args, **keys):
        return contextlib.suppress(NotYet, Exception) if self.ahead.is_running else super().subTest(*args, **keys)

    def apart(self):
        if self.ahead.is_running:
            raise NotYet

    def verdict(self, text, *options):
        asked = Asked(text, options)
        if asked not in self.ahead.verdicts:
            if self.ahead.is_running:
                self.ahead.wanted[asked] = self.wants_more = True
                raise NotYet
            self.ahead.run(type(self))
        if asked not in self.ahead.verdicts:
            self.ahead.make([asked])
        verdict = self.ahead.verdicts[asked]
        self.assertEqual(verdict.left, [], "nothing is left behind")
        return verdict

    def verify_text(self, text, *options):
        verdict = self.verdict(text, *options)
        return verdict.code, verdict.said
