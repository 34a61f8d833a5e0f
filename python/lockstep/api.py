"""`lockstep verify -- COMMAND` for Python: its JSON result as objects."""
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import typing

from lockstep import program

PASS, FAIL, INCONCLUSIVE = "pass", "fail", "inconclusive"
EXIT_CODES = (0, 1, 3)  # of invocations that leave a result (docs/programs.md)


class EquivalenceError(AssertionError):
    """The training on several ranks is not that of one device, or this could not be decided."""

    def __init__(self, result):
        super().__init__(result.text)
        self.result = result


@dataclasses.dataclass(frozen=True)
class Lane:
    """One way of comparing. `verdict`: pass, fail, inconclusive, or void (nothing differs, but the control did not fail)."""
    name: str
    verdict: str
    control: str  # detected | missed
    steps: int  # compared
    worst_distance: float  # relative to a tensor's norm
    step: typing.Optional[int]  # the first wrong one, from 1; None: of the run as a whole, or nothing is wrong
    entry: typing.Optional[str]  # what is wrong: "gradient of fc.weight"
    cause: typing.Optional[str]  # a word of docs/programs.md
    line: typing.Optional[str]  # of the script: "train.py:31"
    evidence: typing.Optional[str]  # the same in words, or why it is inconclusive


@dataclasses.dataclass(frozen=True)
class World:
    """What was found at one world size. `not_run`: why lanes are missing; None: none is. `broken_off`: who broke the ranks'
    run off, if that is certain, in a sentence: then the verdict is fail, whatever the lanes say."""
    world_size: int
    verdict: str
    lanes: typing.Dict[str, Lane]
    not_run: typing.Optional[str]
    broken_off: typing.Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Result:
    """`verdict`: pass, fail or inconclusive over all world sizes. True where it is pass."""
    verdict: str
    worlds: typing.List[World]
    text: str  # what the program printed
    document: dict = dataclasses.field(repr=False)  # as of `lockstep schema --program`

    def __bool__(self):
        return self.verdict == PASS

    @property
    def failure(self):
        """The first lane that failed, or None."""
        return next((lane for world in self.worlds for lane in world.lanes.values() if lane.verdict == FAIL), None)


def check(*command, world_sizes=(2,), spawns=False, local_batch_norm=False, limit_s=120, cwd=None, env=None):
    """Runs a training on each number of ranks and on one device, and says whether they agree.

    `command`: a script and its arguments (run by this Python), or any program and its arguments. `spawns`: it starts its
    ranks itself. `local_batch_norm`: BatchNorm normalizes each rank's own batch on purpose. `limit_s`: seconds that one
    run may take. Blocks; ends all processes when interrupted. Raises ValueError for bad input, FileNotFoundError
    where the program is missing, RuntimeError where it ended without a result.
    """
    words = [os.fspath(word) for word in command]
    if not words:
        raise ValueError("check() wants a script or a command")
    if words[0].endswith(".py"):
        words.insert(0, sys.executable)
    options = ["--world-sizes", ",".join(str(int(size)) for size in world_sizes), "--limit", str(float(limit_s))]
    options += ["--spawns"] if spawns else []
    options += ["--local-batch-norm"] if local_batch_norm else []
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        report = os.path.join(folder, "result.json")
        ran = subprocess.run([program.path(), "verify", *options, "--annotations", "none", "--json", report, "--",
                              *words], capture_output=True, text=True, errors="replace", cwd=cwd, env=env, check=False)
        if ran.returncode == 2:
            raise ValueError(ran.stderr.strip())
        if ran.returncode not in EXIT_CODES:
            raise RuntimeError(f"lockstep ended with {ran.returncode}: {ran.stderr.strip() or ran.stdout.strip()}")
        with open(report, encoding="utf-8") as file:
            return result_of(json.load(file), ran.stdout)


def assert_equivalent(*command, **options):
    """check() that raises EquivalenceError, an AssertionError, unless the verdict is pass: what could not be decided is
    no pass. Returns the result."""
    result = check(*command, **options)
    if not result:
        raise EquivalenceError(result)
    return result


def result_of(document, text):
    """Members that this version does not know are left in `document`."""
    names = [field.name for field in dataclasses.fields(Lane) if field.name != "name"]
    worlds = [World(world["world_size"], world["verdict"],
                    {name: Lane(name, **{key: lane[key] for key in names}) for name, lane in world["lanes"].items()},
                    world["not_run"], (world.get("failure") or {}).get("message")) for world in document["worlds"]]
    return Result(document["verdict"], worlds, text, document)
