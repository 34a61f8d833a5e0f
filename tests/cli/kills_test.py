"""Launchers, zygotes and ranks killed at random moments: nobody is left behind, nothing stays in /dev/shm or the
folder for temporary files, and nothing torn is taken for whole. LOCKSTEP_KILLS says how often (20),
LOCKSTEP_KILLS_SEED when and whom (1)."""
import collections
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import time
import unittest

from harness import PATIENCE_S, PROGRAM, ROOT, TOY, ProgramTest, descendants, rank_of
from orphans_test import marked_processes
from schema_check import problems

KILLS = int(os.environ.get("LOCKSTEP_KILLS", "20"))
SEED = int(os.environ.get("LOCKSTEP_KILLS_SEED", "1"))
SIDE_BY_SIDE = 4
LATEST = 2.5  # s: reading, loading, forking, meeting, stepping, judging, writing
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
RESUMED = "resumed.json"
RUNS = {
    "gloo": ("verify", TOY, "--set", "/steps=1000"),
    "fresh": ("verify", TOY, "--set", "/world_size=2", "--fresh-processes"),
    "shm": ("verify", TOY, "--set", "/communicator/kind=shm", "--set", "/steps=1000"),
    "local": ("verify", TOY, "--set", "/communicator/kind=local", "--set", "/steps=1000"),
    "checkpoint": ("verify", RESUMED),
    "campaign": ("campaign", "--seeds", "6"),
    "sweep": ("sweep", TOY, "--worlds", "2", "--rounds", "1", "--steps", "20"),
}
ANSWERS = (0, 1, 2, 3)


def in_shared_memory():
    """But for what Python's multiprocessing keeps there, for other tests."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("sem.mp-")}


class Kill:
    """One run that is killed."""

    def __init__(self, number, tmp, dice, env):
        self.kind = dice.choice(sorted(RUNS))
        self.whom = dice.choice(("launcher", "zygote", "rank"))
        self.signal = dice.choice(SIGNALS)
        self.after = dice.uniform(0, LATEST)
        self.dice = random.Random(dice.random())
        self.folder = tmp / str(number)
        self.mark = f"{os.getpid()}-kill-{number}"
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir(parents=True)
        self.env = {**env, "LOCKSTEP_TEST_MARK": self.mark, "TMPDIR": str(self.temporary)}
        self.hit = False

    def __str__(self):
        return f"{self.mark}: {self.kind}, {self.whom} by {self.signal.name} after {self.after:.3f} s"

    def start(self):
        words = list(RUNS[self.kind])
        if self.kind == "checkpoint":
            text = (ROOT / TOY).read_text().replace('"world_size"', (
                '"checkpoint": {"kind": "resume", "path": "run.checkpoint", "if_missing": "start", '
                '"every_steps": 1},\n  "world_size"'), 1)
            text = text.replace('"$schema": "../schema.json",', "")
            (self.folder / RESUMED).write_text(re.sub(r'"steps": \d+', '"steps": 150', text, count=1))
            words[1] = str(self.folder / RESUMED)
        words += ["--json", str(self.folder / "result.json"), "--out", str(self.folder / "out")]
        if self.kind != "sweep":
            words.append("--keep")
        self.began = time.monotonic()
        with open(self.folder / "log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([PROGRAM, *words], cwd=ROOT, env=self.env, stdout=log,
                                            stderr=subprocess.STDOUT)

    def victim(self):
        if self.whom == "launcher":
            return self.process.pid
        below = descendants(self.process.pid)
        ranks = [pid for pid in below if rank_of(pid) is not None]
        if self.whom == "rank" and ranks:
            return self.dice.choice(ranks)
        return below[0] if self.whom == "zygote" and below else None

    # A rank of that moment may not be there yet: then the next one that is.
    def kill(self):
        while self.process.poll() is None:
            pid = self.victim()
            if pid is not None:
                try:
                    os.kill(pid, self.signal)
                    self.hit = True
                    return
                except ProcessLookupError:
                    pass
            time.sleep(0.002)


class Kills(ProgramTest):
    @classmethod
    def setUpClass(cls):
        def schema(*words):
            return json.loads(subprocess.run([PROGRAM, "schema", *words], capture_output=True,
                                             check=True).stdout)
        cls.result_schema, cls.sweep_schema = schema("--result"), schema("--sweep")

    def ended(self, kill):
        try:
            kill.process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            kill.process.kill()
            kill.process.wait()
            self.fail(f"{kill}: the launcher goes on")
        code = kill.process.returncode
        own = kill.whom == "launcher" and kill.hit
        allowed = (*ANSWERS, *([128 + kill.signal, -kill.signal] if own else []))
        self.assertIn(code, allowed, f"{kill}: {(kill.folder / 'log').read_text()}")

    # Whole by its schema, or not there.
    def check_result(self, kill):
        path = kill.folder / "result.json"
        if not path.exists():
            return "none"
        schema = self.sweep_schema if kill.kind == "sweep" else self.result_schema
        document = json.loads(path.read_text())
        if document.get("errors"):
            schema = self.result_schema
        self.assertEqual(problems(document, schema)[:3], [], str(kill))
        return "whole"

    # What analyze takes for a run has run to its end, and has the answer that the launcher gave.
    def check_kept(self, kill):
        for folder in sorted((kill.folder / "out").glob("[0-9]*")):
            done = subprocess.run([PROGRAM, "analyze", str(folder)], capture_output=True, text=True,
                                  env=kill.env, check=False, timeout=PATIENCE_S, errors="replace")
            self.assertIn(done.returncode, ANSWERS, f"{kill}: {done.stdout}{done.stderr}")
            if done.returncode == 0:
                self.assertTrue((folder / "ends.json").exists(), str(kill))

    # A run that goes on from a torn file would end with other weights.
    def check_checkpoint(self, kill):
        if kill.kind != "checkpoint":
            return
        again = subprocess.run([PROGRAM, "verify", str(kill.folder / RESUMED)], capture_output=True,
                               text=True, env=kill.env, check=False, timeout=PATIENCE_S)
        text = f"{kill}: {again.stdout}{again.stderr}"
        self.assertIn(again.returncode, (0, 2), text)
        if again.returncode == 2:
            self.assertIn("nothing", text)

    def check_left(self, kill, left):
        self.assertEqual(left.get(kill.mark, []), [], f"{kill}: processes are left")
        killed = kill.whom == "launcher" and kill.signal == signal.SIGKILL
        if not killed:
            self.assertEqual(os.listdir(kill.temporary), [], f"{kill}: temporary files are left")

    def test_nothing_is_left_and_nothing_torn_is_taken(self):
        dice = random.Random(SEED)
        before, tally = in_shared_memory(), collections.Counter()
        for wave in range(0, KILLS, SIDE_BY_SIDE):
            kills = [Kill(number, self.tmp, dice, self.env)
                     for number in range(wave, min(wave + SIDE_BY_SIDE, KILLS))]
            for kill in kills:
                kill.start()
            for kill in sorted(kills, key=lambda kill: kill.began + kill.after):
                time.sleep(max(0.0, kill.began + kill.after - time.monotonic()))
                kill.kill()
            for kill in kills:
                self.ended(kill)
            time.sleep(1)
            left = marked_processes()
            for kill in kills:
                for pid in left.get(kill.mark, []):
                    os.kill(pid, signal.SIGKILL)
            for kill in kills:
                self.check_left(kill, left)
                tally[f"{self.check_result(kill)} result"] += 1
                self.check_kept(kill)
                self.check_checkpoint(kill)
                tally["hit" if kill.hit else "ended before"] += 1
                tally[kill.whom] += kill.hit
        self.assertEqual(in_shared_memory() - before, set())
        print(f"{KILLS} kills, seed {SEED}: {dict(sorted(tally.items()))}")


if __name__ == "__main__":
    unittest.main()
