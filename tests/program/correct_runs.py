"""Correct trainings of random shape: none may be accused. Prints one line a run that did not pass, and
how many passed. Ends with 1 if one was accused, or fewer than half could be decided.

usage: correct_runs.py [--runs N] [--seed S] [--seconds S]"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("LOCKSTEP_PROGRAM", str(ROOT / "build/test/bin/lockstep"))
PYTHON = os.environ.get("LOCKSTEP_PEER_PYTHON", "/usr/bin/python3")  # one that has torch
WORLDS = (2, 3, 2, 5)


def run(seed):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "result.json"
        command = [PROGRAM, "verify", "--json", path, "--world-sizes", str(WORLDS[seed % len(WORLDS)]), "--", PYTHON,
                   str(ROOT / "tests/program/random_training.py"), "--seed", str(seed)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=600,
                             env={**os.environ, "OMP_NUM_THREADS": "1"})
        return json.loads(path.read_text())["verdict"], ran.stdout + ran.stderr


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin none after so many")
    options = parser.parse_args()
    counts, begun = collections.Counter(), time.monotonic()
    for seed in range(options.seed, options.seed + options.runs):
        if time.monotonic() - begun > options.seconds:
            break
        verdict, text = run(seed)
        counts[verdict] += 1
        if verdict != "pass":
            print(f"seed {seed}: {verdict}\n{text}", flush=True)
    total = sum(counts.values())
    print(f"{total} runs: " + ", ".join(f"{counts[word]} {word}" for word in ("pass", "fail", "inconclusive")))
    return 1 if counts["fail"] or 2 * counts["pass"] < total else 0


if __name__ == "__main__":
    sys.exit(main())
