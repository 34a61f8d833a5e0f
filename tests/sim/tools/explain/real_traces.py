#!/usr/bin/env python3
"""Makes profiler traces of real PyTorch jobs over Gloo, half of them with one rank that is late in each step, and counts
what `lockstep explain` says of them. Wants a Python whose torch has Kineto (PyPI's, not Debian's).

usage: real_traces.py PROGRAM FOLDER [--jobs N] [--seed S]
Exit status 1 if an innocent rank was accused.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    fully_shard = None

STEP_S = 0.12
KINDS = ("ddp", "by_hand") + (("fsdp",) if fully_shard else ())


def model_of(job):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(job["layers"])])
    if job["kind"] == "ddp":
        return DistributedDataParallel(model, bucket_cap_mb=job["cap_mb"])
    if job["kind"] == "fsdp":
        for layer in model:
            fully_shard(layer, mesh=dist.init_device_mesh("cpu", (job["world"],)))
        fully_shard(model, mesh=dist.init_device_mesh("cpu", (job["world"],)))
    return model


def train(job, rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=job["world"])
    model = model_of(job)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    when = schedule(wait=1, warmup=1, active=job["steps"])
    traces = folder / "traces"
    with profile(activities=[ProfilerActivity.CPU], schedule=when, record_shapes=job["shapes"],
                 on_trace_ready=lambda p: p.export_chrome_trace(str(traces / f"{rank}.json{job['packed']}"))) as profiler:
        for _ in range(2 + job["steps"]):
            loss = model(torch.randn(8, 64)).square().mean()
            time.sleep(STEP_S * (1 + (job["share"] if rank == job["late"] else 0)))
            loss.backward()
            if job["kind"] == "by_hand":
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    dist.destroy_process_group()


def run(job, folder):
    (folder / "traces").mkdir()
    children = []
    for rank in range(job["world"]):
        pid = os.fork()
        if pid == 0:
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 2)
            try:
                train(job, rank, folder)
            finally:
                os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


def made_job(dice):
    job = {"kind": dice.choice(KINDS), "world": dice.choice((2, 3, 4, 5)), "steps": dice.randrange(8, 13), "late": -1,
           "layers": dice.randrange(2, 6), "cap_mb": dice.choice((0.02, 1)), "share": dice.uniform(0.2, 0.6),
           "shapes": dice.random() < 0.5, "packed": dice.choice(("", ".gz"))}
    if dice.random() < 0.5:
        job["late"] = dice.randrange(job["world"])
    return job


def outcome(answer, job):
    if answer["verdict"] == "undecided":
        return "undecided"
    wanted = [job["late"]] if job["late"] >= 0 else []
    if answer["guilty"] == wanted:
        return "exact"
    return "innocent" if answer["guilty"] else "missed"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    counts = collections.Counter()
    for number in range(options.jobs):
        job = made_job(random.Random(options.seed * 1_000_003 + number))
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"job-{number}-", dir=options.folder)).resolve()
        run(job, folder)
        done = subprocess.run([options.program, "explain", folder / "traces", "--json", folder / "answer.json"],
                              capture_output=True, text=True)
        if done.returncode == 2:
            sys.exit(f"{job}: {done.stdout}{done.stderr}")
        said = outcome(json.loads((folder / "answer.json").read_text()), job)
        counts["late" if job["late"] >= 0 else "even", said] += 1
        if said != "exact":
            print(f"{said}: {folder} {job}\n{done.stdout}", flush=True)
    for (kind, said), count in sorted(counts.items()):
        print(f"{kind}: {count} {said}")
    return 1 if any(said == "innocent" for _, said in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
