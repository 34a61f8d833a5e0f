#!/usr/bin/env python3
"""Makes flight recorder dumps and logs of real PyTorch jobs over Gloo, most with one faulty rank, and counts what
`lockstep explain` says of the dumps, of both, and of the logs alone. Every fourth job is torchrun's. Wants a Python
whose torch is 2.10 or newer; a machine under load only makes jobs slower.

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
import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TIMEOUT_S = 4
STEPS = 6
CLEAN = ("clean", "clean_ddp", "clean_groups", "slow")
FAULTS = ("stall", "hang", "exception", "kill", "crash", "size", "dtype", "operation", "uneven", "skip", "ddp_stall",
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
        os.kill(os.getpid(), signal.SIGKILL)
    if faulty and kind == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
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


def leave_dump(folder, rank):
    time.sleep(0.2)  # Gloo retires what completed in a thread of its own
    dump = torch._C._distributed_c10d._dump_fr_trace(includeCollectives=True, includeStackTraces=False, onlyActive=False)
    (folder / "dumps" / f"_dump_{rank}").write_bytes(dump)


def one_rank(folder, rank, world, kind, faulty_rank, faulty_step, init):
    os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
    torch.set_num_threads(1)
    code = 0
    try:
        dist.init_process_group("gloo", init_method=init, rank=rank, world_size=world,
                                timeout=datetime.timedelta(seconds=TIMEOUT_S))
        train(rank, world, kind, faulty_rank, faulty_step)
    except Exception:
        sys.excepthook(*sys.exc_info())  # PyTorch's, which tells the rank
        code = 1
    leave_dump(folder, rank)
    if kind in CLEAN:  # nobody leaves while others are in it
        time.sleep(1)
    sys.stderr.flush()
    os._exit(code)


def run_forked(folder, world, *job):
    (folder / "logs").mkdir()
    children = []
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            log = os.open(folder / "logs" / f"log.{rank}", os.O_WRONLY | os.O_CREAT)
            os.dup2(log, 2)
            try:
                one_rank(folder, rank, world, *job, f"file://{folder}/store")
            finally:
                os._exit(1)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


def run_torchrun(folder, world, kind, faulty_rank, faulty_step):
    (folder / "logs").mkdir()
    with open(folder / "logs" / "agent.log", "wb") as log:
        subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world),
                        "--log-dir", folder / "logs", "--redirects", "3", __file__, "--rank-of", folder, kind,
                        str(faulty_rank), str(faulty_step)], stderr=log, stdout=log, timeout=300)


def rank_of_torchrun(folder, kind, faulty_rank, faulty_step):
    one_rank(pathlib.Path(folder), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), kind, int(faulty_rank),
             int(faulty_step), "env://")


def explain(program, folder, *sources):
    path = folder / "answer.json"
    path.unlink(missing_ok=True)
    subprocess.run([program, "explain", *[folder / source for source in sources], "--json", path], capture_output=True,
                   timeout=60)
    return json.loads(path.read_text())


def judged(answer, guilty):
    named = set(answer["guilty"])
    return ("innocent" if named - guilty else "undecided" if answer["verdict"] == "undecided" else
            "exact" if named == guilty else "missed")


SOURCES = (("dumps",), ("dumps", "logs"), ("logs",))


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
        torchrun = job % 4 == 3
        world = draw.randint(2, 4 if torchrun else 8)
        faulty = draw.randrange(world)
        folder = (options.folder / f"{job:04}-{kind}-{world}-{faulty}{'-torchrun' if torchrun else ''}").absolute()
        (folder / "dumps").mkdir(parents=True)
        (run_torchrun if torchrun else run_forked)(folder, world, kind, faulty, draw.randrange(1, STEPS - 1))
        guilty = set() if kind in CLEAN else {faulty}
        for sources in SOURCES:
            if not any((folder / sources[0]).iterdir()):
                continue
            answer = explain(options.program, folder, *sources)
            result = judged(answer, guilty)
            accused += result == "innocent"
            table[kind, sources][result] += 1
            print(folder.name, "+".join(sources), result, answer["class"], answer["guilty"], answer["candidates"], flush=True)
    for kind, sources in sorted(table):
        print(f"{kind:12} {'+'.join(sources):12}", dict(table[kind, sources]))
    print(f"{options.jobs} jobs, {accused} answers that accuse an innocent, seed {options.seed}, torch {torch.__version__}")
    return 1 if accused else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank-of"]:
        rank_of_torchrun(*sys.argv[2:])
    sys.exit(main())
