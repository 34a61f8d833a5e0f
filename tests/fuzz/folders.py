"""Changes folders and files that strangers hand over, and runs the whole program on them.

Each case follows from a seed: a folder is copied, files in it are changed (changes.py), and one verb
looks at it. A finding is a signal, an exit code that no document knows, more than 10 s, more than 1 GB
of memory, output that could steer a terminal or a CI, or --json that is no JSON.

usage: folders.py [--runs N | --seconds S] [--seed S] [--program FILE] [--jobs J] [--findings FOLDER]
       folders.py --case N [--seed S]      this case alone, with what it said
"""
import argparse
import collections
import ctypes
import ctypes.util
import json
import os
import pathlib
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))
import changes  # noqa: E402

LONGEST_S = 10  # of the processor's time: other work on the machine does not count
PATIENCE_S = 60
MOST_KB = 1_000_000
ADDRESS_SPACE = 4 << 30
EXIT_CODES = {0, 1, 2, 3, 4}
CASES_A_SEED = 1 << 32
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]|^::|^##\\[",
                    re.MULTILINE)
SCENARIO = """{"name": "kept", "what": "a run to look at", "seed": 1, "world_size": 3, "steps": 4,
 "data": {"kind": "randn", "samples": 24, "features": 4, "targets": 2}, "batch_size": 6,
 "model": {"kind": "mlp", "in_features": 4, "hidden": [4, 4], "out_features": 2},
 "loss": {"kind": "mse"}, "optimizer": {"kind": "sgd", "lr": 0.1},
 "compute": {"kind": "emulated", "forward_ms": 1, "backward_ms": 2}, "lanes": ["replica"], "expect": {"verdict": "pass"}}
"""
HASHES = """{"step": 1, "gradient": {"a": "b"}, "buffer": {}, "parameter": {"w": "c"}, "optimizer_state": {}}
{"step": 4, "end": true, "buffer": {}, "parameter": {"w": "c"}, "optimizer_state": {}}
"""


class Bases:
    """Folders as they should be, one of each kind, and the verbs that look at them."""

    def __init__(self, folder, program):
        self.folder, self.program = folder, program
        for kind in ("kept", "recording", "weights", "trace", "result", "scenario", "machine", "images", "job"):
            (folder / kind).mkdir()
            getattr(self, kind)(folder / kind)

    def ran(self, *words):
        done = subprocess.run([self.program, *map(str, words)], cwd=ROOT, capture_output=True)
        if done.returncode != 0:
            sys.exit(f"error: {shlex.join(map(str, words))}: {done.stderr.decode()}")

    def kept(self, at):
        (at / "a.json").write_text(SCENARIO)
        self.ran("simulate", at / "a.json", "--out", at / "run", "-q")
        (at / "a.json").unlink()
        inner = at / "run"
        if not (inner / "plan.json").exists():
            inner = next(p.parent for p in inner.rglob("plan.json"))
        inner.rename(at / "0001")
        shutil.rmtree(at / "run", ignore_errors=True)
        (at / "libraries.json").write_text('{"torch": "1.13.1", "gloo_linked": "own"}')
        (at / "result.json").write_text(
            '{"runs": [{"run_dir": "%s", "again": "lockstep verify a.json"}]}' % (at / "0001"))

    def recording(self, at):
        for run in ("a", "b"):
            (at / run).mkdir()
            for records in (self.folder / "kept/0001").glob("rank-*.records"):
                shutil.copy(records, at / run)
                (at / run / records.name.replace(".records", ".hashes")).write_text(HASHES)
            (at / run / "recording.json").write_text(
                '{"format": "lockstep_recording", "version": 1, "name": "a", "world_size": 3,\n'
                ' "hash_every": 1, "hash": 2, "tensors": false}')

    def weights(self, at):
        for name in ("a", "b"):
            (at / name).mkdir()
            for path in (ROOT / "tests/sim/tools/compare/data").glob("*"):
                if path.suffix in (".pt", ".safetensors"):
                    shutil.copy(path, at / name / path.name)

    def trace(self, at):
        shutil.copy(HERE / "corpus/trace/pipeline.json", at / "trace.json")
        shutil.copy(HERE / "corpus/packed_trace/pipeline.json.gz", at / "trace.json.gz")

    def result(self, at):
        shutil.copy(HERE / "corpus/result/runs.json", at / "result.json")

    def scenario(self, at):
        (at / "a.json").write_text(SCENARIO)
        for path in ("equivalence/mlp_matrix.json", "faults/kill.json", "gallery",
                     "checkpoint/save_and_resume.json", "features/join.json"):
            for file in sorted((ROOT / "scenarios" / path).glob("*.json")) or [ROOT / "scenarios" / path]:
                shutil.copy(file, at)

    def machine(self, at):
        (at / "a.json").write_text(SCENARIO)
        self.ran("calibrate", self.folder / "kept", "--out", at / "machine.json", "-q")

    def job(self, at):
        for rank, name in enumerate(("gloo", "never_entered", "mismatch")):
            shutil.copy(HERE / f"corpus/dump/{name}.json", at / f"_dump_{rank}.json")
        for kind in ("log", "kineto"):
            for path in (HERE / "corpus" / kind).glob("*"):
                shutil.copy(path, at / (path.name if "." in path.name else path.name + ".log"))

    def images(self, at):
        for kind in ("mnist", "cifar10"):
            self.ran("data", kind, at / kind, "--samples", "6")
        for kind in ("mnist", "cifar10"):
            (at / f"{kind}.json").write_text(
                SCENARIO.replace('"kind": "randn", "samples": 24, "features": 4, "targets": 2',
                                 f'"kind": "{kind}", "path": "{kind}", "samples": 6'))


VERBS = {
    "kept": [["analyze", "{}/0001"], ["analyze", "{}/0001", "--json", "{json}", "--metrics"],
             ["analyze", "{}"],
             ["analyze", "{}/0001", "--trace", "{out}", "--svg", "{out}.svg", "--html", "{out}.html"],
             ["whatif", "{}/0001"], ["whatif", "{}", "--fix-rank", "1", "--json", "{json}"],
             ["calibrate", "{}", "--out", "{out}"]],
    "recording": [["analyze", "{}/a"], ["analyze", "{}/a", "--json", "{json}"],
                  ["compare", "{}/a", "{}/b"], ["compare", "{}/a", "{}/b", "--json", "{json}"]],
    "weights": [["compare", "{}/a", "{}/b"], ["compare", "{}/a", "{}/b", "--json", "{json}", "-v"],
                ["compare", "{}/a/pytorch.pt", "{}/b/pytorch.pt", "--rtol", "1e-5"],
                ["compare", "{}/a/library.safetensors", "{}/b/library.safetensors"]],
    "trace": [["analyze", "{}/trace.json"], ["analyze", "{}/trace.json.gz", "--json", "{json}"]],
    "result": [["verify", "scenarios/equivalence/toy_model.json", "--baseline", "{}/result.json",
                "--filter", "no such run"]],
    "scenario": [["scenario", "check", "{}"], ["scenario", "list", "{}"],
                 ["scenario", "explain", "{}/a.json"],
                 ["simulate", "{}/a.json", "--json", "{json}"], ["scenario", "check", "{}/kill.json"],
                 ["verify", "{}", "--list"]],
    "machine": [["simulate", "{}/a.json", "--machine", "{}/machine.json"]],
    "job": [["explain", "{}"], ["explain", "{}", "--json", "{json}", "--html", "{out}.html"],
            ["explain", "{}/gpu.json", "{}/gloo.json"], ["explain", "{}/_dump_1.json", "--scenario", "{out}"],
            ["analyze", "{}"]],
    "images": [["scenario", "check", "{}/mnist.json"], ["scenario", "check", "{}/cifar10.json"],
               ["scenario", "explain", "{}/mnist.json"]],
}
# Kept runs and scenarios hold the most.
WEIGHTS = {"kept": 5, "scenario": 4, "job": 4, "recording": 3, "weights": 3, "trace": 2, "result": 1,
           "machine": 1, "images": 1}


class Hash:
    """XXH3 as ends.json names its plan by; a plan of another hash is refused before it is read."""

    def __init__(self):
        library = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
        self._hash = library.XXH3_64bits
        self._hash.restype = ctypes.c_uint64
        self._hash.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

    def __call__(self, data):
        return f"{self._hash(data, len(data)):016x}"


def fit_ends(run, hash_of):
    plan, ends = run / "plan.json", run / "ends.json"
    if all(p.is_file() and not p.is_symlink() and p.stat().st_size < 64 << 20 for p in (plan, ends)):
        ends.write_bytes(re.sub(rb'("plan": ")[0-9a-f]{16}"',
                                b'\\g<1>' + hash_of(plan.read_bytes()).encode() + b'"',
                                ends.read_bytes(), count=1))


def make_case(dice, bases, case, hash_of):
    """The words of the command line."""
    kind = dice.choices(list(WEIGHTS), WEIGHTS.values())[0]
    at = case / kind
    shutil.copytree(bases.folder / kind, at)
    files = sorted(p for p in at.rglob("*") if p.is_file())
    for _ in range(dice.choice([1, 1, 1, 2, 4])):
        changes.change_file(dice, dice.choice(files))
    if kind == "kept" and dice.random() < 0.9:
        fit_ends(at / "0001", hash_of)
    return [word.format(at, json=case / "out.json", out=case / "out")
            for word in dice.choice(VERBS[kind])]


Ended = collections.namedtuple("Ended", "status seconds kilobytes out err")


def limits():
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))


def run_case(program, words, case):
    env = {**os.environ, "XDG_STATE_HOME": str(case / "state"), "XDG_CACHE_HOME": str(case / "state")}
    with open(case / "stdout", "wb") as out, open(case / "stderr", "wb") as err:
        began = time.monotonic()
        child = subprocess.Popen([program, *words], cwd=ROOT, env=env, stdin=subprocess.DEVNULL,
                                 stdout=out, stderr=err, preexec_fn=limits, start_new_session=True)
        end = threading.Timer(PATIENCE_S, os.killpg, (child.pid, signal.SIGKILL))
        end.start()
        _, status, usage = os.wait4(child.pid, 0)
        end.cancel()
        child.returncode = status
        waited = time.monotonic() - began
    seconds = waited if waited >= PATIENCE_S else usage.ru_utime + usage.ru_stime
    return Ended(status, seconds, usage.ru_maxrss, (case / "stdout").read_bytes(),
                 (case / "stderr").read_bytes())


def problem_of(ended, case):
    """What the program has done that it should not, or nothing."""
    if ended.seconds > LONGEST_S:
        return f"took {ended.seconds:.1f} s"
    if os.WIFSIGNALED(ended.status):
        return f"was ended by {signal.Signals(os.WTERMSIG(ended.status)).name}"
    code = os.waitstatus_to_exitcode(ended.status)
    if code not in EXIT_CODES:
        return f"ended with exit code {code}"
    if ended.kilobytes > MOST_KB:
        return f"took {ended.kilobytes / 1e6:.1f} GB"
    if code != 0 and not ended.err and not ended.out:
        return f"ended with exit code {code} and said nothing"
    for name, printed in (("stdout", ended.out), ("stderr", ended.err)):
        try:
            found = STEERS.search(printed.decode())
        except UnicodeDecodeError as error:
            return f"printed no UTF-8 on {name}: {error}"
        if found:
            return f"printed {found.group()!r} on {name}"
    result = case / "out.json"
    if result.is_file() and not changes.loads_bounded(result.read_bytes()):
        return "wrote a --json that is none"
    return None


class Campaign:
    def __init__(self, options, bases, scratch):
        self.options, self.bases, self.scratch = options, bases, scratch
        self.hash_of = Hash()
        self.lock = threading.Lock()
        self.began = time.monotonic()
        self.stopped = False
        self.next, self.done, self.slowest, self.largest = options.first, 0, 0, 0
        self.codes = collections.Counter()
        self.findings = []

    def over(self):
        if self.stopped:
            return True
        if self.options.runs:
            return self.next >= self.options.first + self.options.runs
        return time.monotonic() - self.began >= self.options.seconds

    def stop(self, *_):
        self.stopped = True

    def summary(self):
        """As tests/fuzz/ledger.py takes it."""
        return {"executions": self.done, "seconds": time.monotonic() - self.began,
                "peak_mb": self.largest // 1000, "findings": len(self.findings)}

    def work(self):
        while True:
            with self.lock:
                if self.over() or len(self.findings) >= 20:
                    return
                number, self.next = self.next, self.next + 1
            try:
                self.one(number)
            except Exception as error:  # ours, not the program's: no case may be lost in silence
                with self.lock:
                    self.findings.append(number)
                    print(f"case {number}: it could not be made: {error!r}", flush=True)

    def one(self, number, keep=False):
        case = pathlib.Path(tempfile.mkdtemp(prefix=f"case-{number}-", dir=self.scratch))
        dice = random.Random(self.options.seed * CASES_A_SEED + number)
        words = make_case(dice, self.bases, case, self.hash_of)
        ended = run_case(self.options.program, words, case)
        if ended.seconds >= PATIENCE_S:  # once more: it may have been the machine
            ended = run_case(self.options.program, words, case)
        problem = problem_of(ended, case)
        with self.lock:
            self.done += 1
            self.codes[ended.status] += 1
            self.slowest = max(self.slowest, ended.seconds)
            self.largest = max(self.largest, ended.kilobytes)
        if problem:
            self.report(number, problem, words, case)
        elif not keep:
            remove(case)
        return ended, words

    def report(self, number, problem, words, case):
        kept = self.options.findings / f"folders-{self.options.seed}-{number}"
        remove(kept)
        kept.parent.mkdir(parents=True, exist_ok=True)
        moved = [word.replace(str(case), str(kept)) for word in words]
        subprocess.run(["mv", case, kept], check=False)
        command = shlex.join([str(self.options.program), *moved])
        (kept / "again.sh").write_text(f"# {problem}\n{command}\n")
        with self.lock:
            self.findings.append(number)
            print(f"case {number}: {problem}\n  again: {command}", flush=True)


def remove(folder):
    if folder.exists():
        subprocess.run(["chmod", "-R", "u+rwX", folder], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--summary", type=pathlib.Path, help="what was done, as JSON")
    parser.add_argument("--case", type=int)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--program", type=pathlib.Path, default=os.environ.get(
        "LOCKSTEP_PROGRAM", str(ROOT / "build/test/bin/lockstep")))
    parser.add_argument("--findings", type=pathlib.Path, default=ROOT / "build/fuzz/findings")
    options = parser.parse_args()
    options.program = pathlib.Path(options.program).resolve()
    return options


def main():
    options = arguments()
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-folders-", dir=memory))
    try:
        (scratch / "bases").mkdir()
        campaign = Campaign(options, Bases(scratch / "bases", options.program), scratch)
        if options.case is not None:
            ended, words = campaign.one(options.case)
            print(shlex.join(words), ended, sep="\n")
            return 1 if campaign.findings else 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, campaign.stop)
        threads = [threading.Thread(target=campaign.work) for _ in range(options.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        remove(scratch)
    if options.summary:
        options.summary.write_text(json.dumps(campaign.summary()))
    codes = ", ".join(f"{os.waitstatus_to_exitcode(s)}: {n:,}" for s, n in sorted(campaign.codes.items()))
    print(f"folders: seed {options.seed}, {campaign.done:,} runs of the program in "
          f"{time.monotonic() - campaign.began:.0f} s, slowest {campaign.slowest:.1f} s, largest "
          f"{campaign.largest / 1000:.0f} MB; exit codes {codes}; {len(campaign.findings)} findings")
    return 1 if campaign.findings or campaign.done == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
