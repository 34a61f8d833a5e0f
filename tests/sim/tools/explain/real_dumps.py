#!/usr/bin/env python3
"""Makes flight recorder dumps and logs of real PyTorch jobs over Gloo, most with one faulty rank, and counts what
`lockstep explain` says of the dumps, of both, and of the logs alone. Every fourth job is torchrun's. Wants a Python
whose torch is 2.10 or newer; a machine under load only makes jobs slower.

usage: real_dumps.py PROGRAM FOLDER [--jobs N] [--seed S] [--clean | --paced]
       real_dumps.py PROGRAM FOLDER --again
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
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

TIMEOUT_S = 4
STEPS, PACED_STEPS = 6, 11
CLEAN = ("clean", "slow", "ddp_clean", "fsdp_clean", "group_clean", "mesh_clean", "pipe_clean")
# A step takes a while, on the faulty rank longer: by a fifth to three fifths of that.
EVEN, LATE = ("even", "ddp_even", "fsdp_even", "pipe_even"), ("late", "ddp_late", "fsdp_late", "pipe_late")
STAGE_S = 0.015  # of a stage of a pipeline, forward and backward each
STEP_S = 0.12
SLEEP_S = {"stall": 2 * TIMEOUT_S, "slow": 0.25 * TIMEOUT_S, "hang": 3 * TIMEOUT_S}  # and "late", of each job
FAULTS = ("stall", "hang", "exception", "kill", "crash", "stop", "size", "dtype", "operation", "order", "skip", "uneven",
          "ddp_stall", "ddp_hang", "ddp_uneven", "fsdp_stall", "fsdp_hang", "fsdp_uneven", "group_stall", "group_hang",
          "mesh_stall", "mesh_hang", "mesh_kill", "pipe_stall", "pipe_hang", "pipe_skip")
SIGNALS = {"kill": signal.SIGKILL, "crash": signal.SIGSEGV, "stop": signal.SIGSTOP}  # the last as a debugger does


def reduce(shape, dtype=torch.float32, group=None):
    dist.all_reduce(torch.ones(shape, dtype=dtype), group=group)


def misbehave(fault):
    """False: the rank does nothing more."""
    time.sleep(SLEEP_S.get(fault, 0))
    if fault == "exception":
        raise RuntimeError("made on purpose")
    if fault in SIGNALS:
        os.kill(os.getpid(), SIGNALS[fault])
    return fault not in ("hang", "uneven")


def plain_step(fault):
    if not misbehave(fault):
        return False
    if fault == "order":
        reduce(8)
    if fault != "skip":
        dist.broadcast(torch.ones(3), 0)
    if fault == "operation":
        dist.broadcast(torch.ones(8), 0)
    elif fault != "order":
        reduce(9 if fault == "size" else 8, torch.float64 if fault == "dtype" else torch.float32)
    return True


def model_step(model, fault):
    if fault == "uneven":
        return False
    loss = model(torch.randn(4, 50)).sum()
    if not misbehave(fault):
        return False
    loss.backward()
    return True


def pipeline_step(rank, world, fault, work_s):
    """Each rank is a stage; of its sends and receives Gloo's recorder keeps none. The first stage is last in each step."""
    reduce(4)
    for step in (1, -1):
        if 0 <= rank - step < world:
            dist.recv(torch.ones(8), rank - step)
        time.sleep(work_s)
        if step < 0 and not misbehave(fault):
            return False
        if 0 <= rank + step < world and not (step < 0 and fault == "skip"):
            dist.send(torch.ones(8), rank + step)
    reduce(8)
    return True


def model_of(place):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(50, 50) for _ in range(4)])
    if place == "ddp":
        return DistributedDataParallel(model, bucket_cap_mb=0.02)
    for layer in model:
        fully_shard(layer)
    return fully_shard(model)


def groups_of(place, rank, world, faulty_rank):
    """Those that this rank is in: a pair with the faulty one, or a row of two and a column of a mesh."""
    members = [sorted({faulty_rank, (faulty_rank + 1) % world})]
    if place == "mesh":
        members = [[first, first + 1] for first in range(0, world, 2)] + [[*range(world)[first::2]] for first in (0, 1)]
    timeout = datetime.timedelta(seconds=TIMEOUT_S)
    return [group for ranks, group in [(ranks, dist.new_group(ranks, timeout=timeout)) for ranks in members]
            if rank in ranks]


def train(rank, world, kind, faulty_rank, faulty_step):
    place, _, fault = kind.rpartition("_")
    paced = kind in EVEN + LATE
    if kind in LATE:
        SLEEP_S["late"] = STEP_S * random.Random(faulty_step).uniform(0.2, 0.6)
    model = model_of(place) if place in ("ddp", "fsdp") else None
    groups = groups_of(place, rank, world, faulty_rank) if place in ("group", "mesh") else []
    for _ in range(5 if paced else 0):  # as where a model is distributed before the steps
        reduce(3)
    for step in range(PACED_STEPS if paced else STEPS):
        time.sleep(STEP_S if paced else 0)
        now = fault if rank == faulty_rank and (paced or step == faulty_step) else ""
        if groups and not misbehave(now):
            return
        if place == "pipe":
            if not pipeline_step(rank, world, now, STAGE_S if paced else 0):
                return
            continue
        for group in groups:  # the others of a pair wait in the next collective of all
            reduce(5, group=group)
        if not (model_step(model, now) if model is not None else plain_step("" if groups else now)):
            return


def leave_dump(folder, rank):
    time.sleep(0.2)  # Gloo retires what completed in a thread of its own
    dump = torch._C._distributed_c10d._dump_fr_trace(includeCollectives=True, includeStackTraces=False, onlyActive=False)
    (folder / "dumps" / f"_dump_{rank}").write_bytes(dump)


def one_rank(folder, rank, world, kind, faulty_rank, faulty_step, init):
    os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, lambda *_: (leave_dump(folder, rank), os._exit(143)))  # torchrun's, to who hangs
    code = 0
    try:
        dist.init_process_group("gloo", init_method=init, rank=rank, world_size=world,
                                timeout=datetime.timedelta(seconds=TIMEOUT_S))
        train(rank, world, kind, faulty_rank, faulty_step)
    except Exception:
        sys.excepthook(*sys.exc_info())  # PyTorch's, which tells the rank
        code = 1
    leave_dump(folder, rank)
    if kind in CLEAN + EVEN + LATE:  # nobody leaves while others are in it
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
    stopped = [pid for pid in children if os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])]
    for pid in stopped:
        os.kill(pid, signal.SIGKILL)
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


def make_jobs(folder, jobs, kinds, seed):
    draw = random.Random(seed)
    for job in range(jobs):
        kind = kinds[job % len(kinds)]
        torchrun = job % 4 == 3
        world = draw.randint(2, 4 if torchrun else 6 if kind in EVEN + LATE else 8)
        if kind.startswith("mesh"):
            world = 4 if torchrun else draw.choice((4, 6, 8))
        faulty = draw.randrange(world)
        step = job if kind in LATE else draw.randrange(1, STEPS - 1)
        made = (folder / f"{job:04}-{kind}-{world}-{faulty}{'-torchrun' if torchrun else ''}").absolute()
        (made / "dumps").mkdir(parents=True)
        (run_torchrun if torchrun else run_forked)(made, world, kind, faulty, step)
        yield made


def made_before(folder):
    return sorted(path.parent for path in folder.glob("**/*-*-*-*/dumps"))


def judge_jobs(program, jobs):
    """Counts by kind, ranks (two or more) and sources."""
    table = collections.defaultdict(collections.Counter)
    for folder in jobs:
        _, kind, world, faulty = folder.name.split("-")[:4]
        guilty = set() if kind in CLEAN + EVEN else {int(faulty)}
        for sources in SOURCES:
            if not any((folder / sources[0]).iterdir()):
                continue
            answer = explain(program, folder, *sources)
            result = judged(answer, guilty)
            table[kind, "2" if world == "2" else "3+", sources][result] += 1
            print(folder.name, "+".join(sources), result, answer["class"], answer["guilty"], answer["candidates"], flush=True)
    return table


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=len(CLEAN + FAULTS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clean", action="store_true", help="only jobs without a fault")
    parser.add_argument("--paced", action="store_true", help="only jobs that go on, half of them with a late rank")
    parser.add_argument("--again", action="store_true", help="explain the jobs that are in the folder; run none")
    options = parser.parse_args()
    kinds = CLEAN if options.clean else EVEN + LATE if options.paced else FAULTS + CLEAN
    jobs = made_before(options.folder) if options.again else make_jobs(options.folder, options.jobs, kinds, options.seed)
    table = judge_jobs(options.program, jobs)
    for (kind, ranks, sources), counts in sorted(table.items()):
        print(f"{kind:12} {ranks:2} ranks {'+'.join(sources):12}", dict(counts))
    accused = sum(counts["innocent"] for counts in table.values())
    print(f"{accused} answers that accuse an innocent, torch {torch.__version__}")
    return 1 if accused else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank-of"]:
        rank_of_torchrun(*sys.argv[2:])
    sys.exit(main())
