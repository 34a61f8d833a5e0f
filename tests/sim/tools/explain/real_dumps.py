#!/usr/bin/env python3
"""Makes flight recorder dumps of real PyTorch jobs over Gloo, most with one faulty rank, and counts what
`lockstep explain` says of them. Wants a Python whose torch is 2.10 or newer; a machine under load only
makes jobs slower.

usage: real_dumps.py PROGRAM FOLDER [--jobs N] [--seed S]
Exit status 1 if an innocent rank was accused.
"""
import argparse
import collections
import datetime
import json
import os
import pathlib
import random
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TIMEOUT_S = 4
STEPS = 6
CLEAN = ("clean", "clean_ddp", "clean_groups", "slow")
FAULTS = ("stall", "hang", "exception", "kill", "size", "dtype", "operation", "uneven", "skip", "ddp_stall",
          "ddp_hang", "group_stall", "group_hang")


def reduce(shape, dtype=torch.float32, group=None):
    dist.all_reduce(torch.ones(shape, dtype=dtype), group=group)


def plain_step(kind, faulty):
    if faulty and kind in ("stall", "group_stall"):
        time.sleep(2 * TIMEOUT_S)
    if faulty and kind in ("hang", "group_hang"):
        time.sleep(3 * TIMEOUT_S)
        return False
    if faulty and kind == "uneven":
        return False
    if faulty and kind == "slow":
        time.sleep(TIMEOUT_S / 4)
    if faulty and kind == "exception":
        raise RuntimeError("made on purpose")
    if faulty and kind == "kill":
        os._exit(9)
    if not (faulty and kind == "skip"):
        dist.broadcast(torch.ones(3), 0)
    if faulty and kind == "operation":
        dist.broadcast(torch.ones(8), 0)
    else:
        reduce(9 if faulty and kind == "size" else 8, torch.float64 if faulty and kind == "dtype" else torch.float32)
    return True


def train(rank, world, kind, faulty_rank, faulty_step):
    if "ddp" in kind:
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(50, 50) for _ in range(4)]), bucket_cap_mb=0.02)
    pair = sorted({faulty_rank, (faulty_rank + 1) % world})
    group = dist.new_group(pair, timeout=datetime.timedelta(seconds=TIMEOUT_S)) if "group" in kind else None
    for step in range(STEPS):
        faulty = rank == faulty_rank and step == faulty_step
        if "ddp" in kind:
            loss = model(torch.randn(4, 50)).sum()
            if faulty and kind == "ddp_stall":
                time.sleep(2 * TIMEOUT_S)
            if faulty and kind == "ddp_hang":
                time.sleep(3 * TIMEOUT_S)
                return
            loss.backward()
            continue
        if group is not None and rank in pair:  # the others wait in the next collective of all
            if not plain_inside(kind, faulty, group):
                return
            faulty = False
        if not plain_step(kind, faulty):
            return


def plain_inside(kind, faulty, group):
    if faulty:
        time.sleep((2 if kind == "group_stall" else 3 if kind == "group_hang" else 0) * TIMEOUT_S)
        if kind == "group_hang":
            return False
    reduce(5, group=group)
    return True


def one_rank(folder, rank, world, kind, faulty_rank, faulty_step):
    os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world,
                                timeout=datetime.timedelta(seconds=TIMEOUT_S))
        train(rank, world, kind, faulty_rank, faulty_step)
    except Exception as error:
        (folder / f"error_{rank}.txt").write_text(str(error))
    time.sleep(0.2)  # Gloo retires what completed in a thread of its own
    dump = torch._C._distributed_c10d._dump_fr_trace(includeCollectives=True, includeStackTraces=False, onlyActive=False)
    (folder / "dumps" / f"_dump_{rank}").write_bytes(dump)
    if kind in CLEAN:  # nobody leaves while others are in it
        time.sleep(1)
    os._exit(0)


def run_job(folder, world, kind, faulty_rank, faulty_step):
    (folder / "dumps").mkdir(parents=True)
    children = []
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 2)
            try:
                one_rank(folder, rank, world, kind, faulty_rank, faulty_step)
            finally:
                os._exit(1)
        children.append(pid)
    return children


def explain(program, folder):
    path = folder / "answer.json"
    subprocess.run([program, "explain", folder / "dumps", "--json", path], capture_output=True, timeout=60)
    return json.loads(path.read_text())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=len(CLEAN + FAULTS))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    table = collections.defaultdict(collections.Counter)
    accused = 0
    for job in range(options.jobs):
        kind = (FAULTS + CLEAN)[job % len(FAULTS + CLEAN)]
        world = draw.randint(2, 6)
        faulty = draw.randrange(world)
        folder = options.folder / f"{job:04}-{kind}-{world}-{faulty}"
        for pid in run_job(folder, world, kind, faulty, draw.randrange(1, STEPS - 1)):
            os.waitpid(pid, 0)
        answer = explain(options.program, folder)
        guilty = set() if kind in CLEAN else {faulty}
        named = set(answer["guilty"])
        result = ("innocent" if named - guilty else "undecided" if answer["verdict"] == "undecided" else
                  "exact" if named == guilty else "missed")
        accused += result == "innocent"
        table[kind][result] += 1
        print(folder.name, result, answer["class"], answer["guilty"], answer["candidates"], flush=True)
    for kind in sorted(table):
        print(f"{kind:12}", dict(table[kind]))
    print(f"{options.jobs} jobs, {accused} with an innocent accused, seed {options.seed}, torch {torch.__version__}")
    return 1 if accused else 0


if __name__ == "__main__":
    sys.exit(main())
