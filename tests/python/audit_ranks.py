"""Ranks that audit each other while something is broken on purpose; one line of JSON a case. usage: audit_ranks.py W"""
import json
import os
import pathlib
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples")]
import invariant as example
from lockstep.invariant import SilentCorruption, VirtualShards

STEPS, SHARDS, EVERY = 12, 8, 2
BROKEN_FROM = 3


def flipped(tensor):
    """The lowest bit of the first element."""
    with torch.no_grad():
        tensor.view(-1)[:1].view(torch.int32).bitwise_xor_(1)


class Breaks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, unit):
        ctx.unit = unit
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        if ctx.unit.breaks():
            flipped(gradient)
        return gradient, None


class Unit(nn.Module):
    """What computes: wrong where `when(step, shard, again)` holds."""

    def __init__(self, when):
        super().__init__()
        self.when, self.at = when, None

    def breaks(self):
        return self.at is not None and self.when(*self.at)

    def forward(self, x):
        return Breaks.apply(x, self)


def small(when):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 24), nn.Tanh(), Unit(when), nn.Linear(24, 4))


# Name -> the rank that is broken, and how: `when` of its unit, or what is flipped at the begin or end of a step.
CASES = {
    "every gradient": (1, {"when": lambda step, shard, again: step >= BROKEN_FROM}),
    "one shard's gradient": (0, {"when": lambda step, shard, again: step >= BROKEN_FROM and shard == 1}),
    "when it checks": (1, {"when": lambda step, shard, again: again}),
    "when it checks for the first time": (1, {"when": lambda step, shard, again: again == 1}),
    "weights": (1, {"weights": BROKEN_FROM}),
    "optimizer state": (0, {"state": BROKEN_FROM}),
    "averaged gradients": (1, {"average": 4}),
    "nothing": (0, {}),
}


def never(*_):
    return False


def train(rank, broken, how):
    mine = how if rank == broken else {}
    model = DistributedDataParallel(small(mine.get("when", never)), bucket_cap_mb=0.001)
    unit, weights = model.module[2], model.module[0].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    shards = VirtualShards(model, SHARDS, audit_every=EVERY, optimizer=optimizer)
    for step in range(1, STEPS + 1):
        if mine.get("weights") == step:
            flipped(weights)
        done = 0
        for shard in shards:
            unit.at = (step, shard, max(0, done + 1 - len(shards)))
            inputs, targets = example.batch_of("numbers", step, shard, 4)
            with shards.compute(shard):
                nn.functional.cross_entropy(model(inputs), targets).backward()
            done += 1
            if done == len(shards) and mine.get("average") == step:
                flipped(weights.grad)
        optimizer.step()
        if mine.get("state") == step:
            flipped(optimizer.state[weights]["momentum_buffer"])
    return None


def told(rank, name):
    broken, how = CASES[name]
    try:
        train(rank, broken, how)
        return {"case": name, "found": None}
    except SilentCorruption as found:
        return {"case": name, "found": found.what, "step": found.step, "ranks": found.ranks,
                "undecided": found.undecided, "shard": found.shard, "tensor": found.tensor}


def hashes(rank, world_size):
    """Of real models, with an audit in every step and without."""
    for kind in ("convnet", "routed", "tokens"):
        both = []
        for every in (0, 1):
            options = example.parsed(["--model", kind, "--steps", "3", "--samples", "2", "--audit-every", str(every)])
            model = DistributedDataParallel(example.built(options), bucket_cap_mb=0.001,
                                            find_unused_parameters=kind == "routed")
            both.append(example.train(model, options, rank, world_size))
        yield {"case": kind, "same": both[0] == both[1]}


def run_rank(rank, world_size, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    answers = [told(rank, name) for name in CASES] + list(hashes(rank, world_size))
    everybody = [None] * world_size
    dist.all_gather_object(everybody, answers)
    if rank == 0:
        assert all(other == answers for other in everybody), everybody
        for answer in answers:
            print(json.dumps(answer), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        size = int(sys.argv[1])
        mp.spawn(run_rank, (size, os.path.join(folder, "store")), nprocs=size)
