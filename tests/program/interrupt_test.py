"""Ctrl-C at random moments of verify, run and sweep of programs and of a scenario: exit 130, no process is left, no temporary file,
nothing in /dev/shm, and a result is whole or not there. LOCKSTEP_INTERRUPTS says how often (6), LOCKSTEP_INTERRUPTS_SEED
when (1): scripts/interrupts."""
import collections
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/cli"))
from harness import PATIENCE_S, PROGRAM, TOY, descendants  # noqa: E402
from orphans_test import marked_processes  # noqa: E402

PYTHON = os.environ.get("LOCKSTEP_PEER_PYTHON", "/usr/bin/python3")
SCRIPT = str(ROOT / "examples/toy_ddp.py")
INTERRUPTS = int(os.environ.get("LOCKSTEP_INTERRUPTS", "6"))
TRIES = 4  # of a run that ended before its moment came
SEED = int(os.environ.get("LOCKSTEP_INTERRUPTS_SEED", "1"))
SIDE_BY_SIDE = 2
RUNS = {
    "verify": ("verify", "--world-sizes", "2", "--", PYTHON, SCRIPT),
    "drill": ("verify", "--world-sizes", "2", "--", PYTHON, SCRIPT, "--bug", "summed_loss"),
    "fresh": ("verify", "--fresh-processes", "--world-sizes", "2", "--", PYTHON, SCRIPT),
    "spawns": ("verify", "--spawns", "--", PYTHON, str(ROOT / "examples/spawned.py")),
    "run": ("run", "--world-size", "2", "--", PYTHON, SCRIPT),
    "sweep": ("sweep", "--caps", "1,25", "--steps", "5", "--warmup", "2", "--rounds", "1", "--allow-busy", "--", PYTHON, SCRIPT),
    "scenario": ("verify", TOY, "--set", "/steps=200")}
ANSWERS = (0, 1, 3)


def in_shared_memory():
    return {name for name in os.listdir("/dev/shm") if not name.startswith("sem.mp-")}


class Interrupted:
    """One run, in a process group of its own as a shell gives it."""

    def __init__(self, number, folder, kind):
        self.number, self.kind, self.mark = number, kind, f"{os.getpid()}-interrupt-{number}"
        self.folder = folder / str(number)
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir(parents=True)
        words = list(RUNS[kind])
        words[1:1] = ["--json", str(self.folder / "result.json")]
        self.output = open(self.folder / "output", "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [PROGRAM, *words], cwd=ROOT, stdout=self.output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "LOCKSTEP_TEST_MARK": self.mark, "TMPDIR": str(self.temporary), "OMP_NUM_THREADS": "1",
                 "XDG_STATE_HOME": str(self.folder / "state"), "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor")})
        self.began = time.monotonic()

    def interrupt(self, group):
        """As a terminal does, or as `kill -INT` of the program alone."""
        self.hit = self.process.poll() is None
        self.below = len(descendants(self.process.pid)) if self.hit else 0
        if self.hit:
            (os.killpg if group else os.kill)(self.process.pid, signal.SIGINT)
        self.sent = time.monotonic()

    def wait(self):
        try:
            self.process.wait(timeout=PATIENCE_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
        self.took = time.monotonic() - self.began
        self.output.seek(0)
        self.text = self.output.read()
        self.output.close()


class Interrupts(unittest.TestCase):
    def setUp(self):
        # A shell's background jobs begin with it ignored, and programs leave it so.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        holder = tempfile.TemporaryDirectory(prefix="lockstep-test-")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def durations(self):
        """Of runs that nobody disturbs, side by side as below."""
        took, kinds = {}, sorted(RUNS)[:INTERRUPTS]
        for wave in range(0, len(kinds), SIDE_BY_SIDE):
            runs = [Interrupted(f"whole-{kind}", self.folder, kind) for kind in kinds[wave:wave + SIDE_BY_SIDE]]
            for run in runs:
                run.wait()
                self.assertIn(run.process.returncode, ANSWERS, run.text)
                took[run.kind] = run.took
        return took

    def check(self, run, left, what):
        self.assertEqual(left.get(run.mark, []), [], f"{what}: processes are left")
        self.assertEqual(os.listdir(run.temporary), [], f"{what}: temporary files are left")
        self.assertNotIn("Traceback", run.text, what)
        if (run.folder / "result.json").exists():
            json.loads((run.folder / "result.json").read_text())
        # Before main() the system's own answer, which a shell shows as 130 too.
        codes = (130, -signal.SIGINT) if run.hit else ANSWERS
        if run.hit and run.process.returncode in ANSWERS:
            return "ended by itself"
        self.assertIn(run.process.returncode, codes, f"{what}\n{run.text}")
        return "interrupted" if run.hit else "ended before"

    def stays_in_shared_memory(self, before):
        """What came since, and does not go: other programs come and go too."""
        new = in_shared_memory() - before
        for _ in range(60):
            if not new:
                break
            time.sleep(1)
            new &= in_shared_memory()
        return new

    def test_nothing_is_left(self):
        dice, before, tally = random.Random(SEED), in_shared_memory(), collections.Counter()
        took, waiting = self.durations(), list(range(INTERRUPTS))
        while waiting:
            wave, waiting = waiting[:SIDE_BY_SIDE], waiting[SIDE_BY_SIDE:]
            runs = [Interrupted(number, self.folder, sorted(RUNS)[number % INTERRUPTS % len(RUNS)]) for number in wave]
            plans = [(run, dice.uniform(0, 0.95 * took[run.kind]), dice.random() < 0.5) for run in runs]
            for run, after, group in sorted(plans, key=lambda plan: plan[1]):
                time.sleep(max(0.0, run.began + after - time.monotonic()))
                run.interrupt(group)
            for run in runs:
                run.wait()
            time.sleep(1)
            left = marked_processes()
            for run, after, group in plans:
                for pid in left.get(run.mark, []):
                    os.kill(pid, signal.SIGKILL)
                what = f"{run.kind} after {after:.3f} of {took[run.kind]:.1f} s, {'group' if group else 'program'}, seed {SEED}"
                end = self.check(run, left, what)
                tally[end] += 1
                tally["with processes below it"] += run.below > 0
                if end == "ended before" and run.number + INTERRUPTS < TRIES * INTERRUPTS:  # the machine was busier before
                    took[run.kind] = min(took[run.kind], run.took)
                    waiting.append(run.number + INTERRUPTS)
        self.assertEqual(self.stays_in_shared_memory(before), set())
        print(f"{INTERRUPTS} interrupts, seed {SEED}: {dict(sorted(tally.items()))}")
        # Whoever goes on after a signal ends by itself; so does who was about to.
        self.assertLessEqual(tally["ended by itself"], 1 + INTERRUPTS // 10)
        self.assertGreaterEqual(tally["interrupted"], INTERRUPTS // 2)


if __name__ == "__main__":
    unittest.main()
