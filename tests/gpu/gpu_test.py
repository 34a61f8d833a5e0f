"""scenarios/gpu on a machine with a GPU; skipped (exit code 77) with the reason elsewhere."""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ["LOCKSTEP_PROGRAM"]

doctor = subprocess.run([PROGRAM, "doctor"], capture_output=True, text=True).stdout
state, found = re.search(r"^(ok|missing) +CUDA +(.*?)  ", doctor, re.M).groups()
if state == "missing":
    print("no GPU:", found)
    sys.exit(77)
no_nccl = re.search(r"^missing +NCCL +(.*?)  ", doctor, re.M)
scenarios = sorted((ROOT / "scenarios/gpu").glob("*.json"))
if no_nccl:
    print("no NCCL:", no_nccl[1])
    scenarios = [path for path in scenarios if path.name != "gpu_nccl.json"]
sys.exit(subprocess.run([PROGRAM, "verify", *scenarios]).returncode)
