"""The same weights, bit for bit, from any number of ranks: docs/invariant.md.

    python3 examples/invariant.py --world-size 3

prints a hash of the weights. With --plain, DDP with gradient accumulation: the hash depends on the number of ranks.

    torchrun --standalone --nproc-per-node 3 --max-restarts 1 examples/invariant.py --checkpoint run.pt --lose 1@4

loses rank 1 in step 4; torchrun replaces it, all go on from the checkpoint, and the hash is the same. So it is where
another number of ranks goes on.
"""
import argparse
import contextlib
import hashlib
import os
import pathlib
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

try:
    from lockstep.invariant import VirtualShards, shards_of_rank
except ImportError:  # from a checkout
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
    from lockstep.invariant import VirtualShards, shards_of_rank

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
}


class Routed(nn.Module):
    """Two heads, of which every shard uses one."""

    def __init__(self):
        super().__init__()
        self.body, self.left, self.right = nn.Linear(16, 12), nn.Linear(12, 4), nn.Linear(12, 4)

    def forward(self, x):
        hidden = torch.relu(self.body(x))
        return self.left(hidden) if x[0, 0] > 0 else self.right(hidden)


class Tokens(nn.Module):
    """An embedding and an attention layer; the output head is the embedding."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(31, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)

    def forward(self, x):
        return self.layer(self.embedding(x)).mean(1) @ self.embedding.weight.t()


# Name -> the model and whether it takes images, tokens or numbers.
MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 4)), "numbers"),
    "dropout": (lambda: nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Dropout(0.3), nn.Linear(24, 4)), "numbers"),
    "batch_norm": (lambda: nn.Sequential(nn.Linear(16, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 4)), "numbers"),
    "convnet": (lambda: nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(),
                                      nn.Linear(6 * 8 * 8, 4)), "images"),
    "routed": (Routed, "numbers"),
    "tokens": (Tokens, "tokens"),
}


def batch_of(kind, step, shard, samples):
    """By step and shard alone: whoever computes the shard gets these samples."""
    draws = torch.Generator().manual_seed(100_000 * step + shard)
    if kind == "tokens":
        return torch.randint(0, 31, (samples, 6), generator=draws), torch.randint(0, 31, (samples,), generator=draws)
    shape = (samples, 3, 10, 10) if kind == "images" else (samples, 16)
    return torch.randn(shape, generator=draws), torch.randint(0, 4, (samples,), generator=draws)


def save(path, step, inner, optimizer):
    """So that a reader finds the old file or the new one, and never half of it."""
    torch.save({"step": step, "model": inner.state_dict(), "optimizer": optimizer.state_dict()}, path + ".new")
    os.replace(path + ".new", path)


def load(path, inner, optimizer):
    """How many steps have been made."""
    if not path or not os.path.exists(path):
        return 0
    saved = torch.load(path)
    inner.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return saved["step"]


def lose(options, rank, step):
    """Once: what goes on from the checkpoint finds the mark."""
    mark = pathlib.Path(f"{options.checkpoint}.lost")
    if options.lose == f"{rank}@{step}" and not mark.exists():
        mark.touch()
        os._exit(1)


def train(model, options, rank, world_size):
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    optimizer = OPTIMIZERS[options.optimizer](inner.parameters())
    kind, count = MODELS[options.model][1], options.shards
    if options.plain:
        own = shards_of_rank(count, world_size, rank)
    else:
        shards = own = VirtualShards(model, count, audit_every=options.audit_every, optimizer=optimizer)
    start = load(options.checkpoint, inner, optimizer)
    if not options.plain:
        shards.step = start
    for step in range(start, options.steps):
        lose(options, rank, step + 1)
        optimizer.zero_grad()
        for shard in own:
            inputs, targets = batch_of(kind, step, shard, options.samples)
            if options.plain:
                last = shard == own[-1]
                around = contextlib.nullcontext() if last or world_size == 1 else model.no_sync()
            else:
                around = shards.compute(shard)
            with around:
                loss = nn.functional.cross_entropy(model(inputs), targets)
                (loss * world_size / count if options.plain else loss).backward()
        optimizer.step()
        if options.checkpoint and rank == 0:
            save(options.checkpoint, step + 1, inner, optimizer)
    state = [*inner.parameters(), *inner.buffers()]
    state += [value for p in inner.parameters() for _, value in sorted(optimizer.state[p].items())
              if isinstance(value, torch.Tensor)]
    return hashlib.sha1(b"".join(one.detach().contiguous().numpy().tobytes() for one in state)).hexdigest()


def cases(options):
    models = list(MODELS) if options.model == "all" else [options.model]
    optimizers = list(OPTIMIZERS) if options.optimizer == "all" else [options.optimizer]
    for model in models:
        for optimizer in optimizers:
            yield argparse.Namespace(**{**vars(options), "model": model, "optimizer": optimizer})


def built(options):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return MODELS[options.model][0]()


def on_one_device(options):
    return train(built(options), options, 0, 1)


def run_rank(rank, options, store=None):
    """Without a store, of a launcher that has set RANK, WORLD_SIZE and the rest."""
    where = {"init_method": f"file://{store}", "rank": rank, "world_size": options.world_size} if store else {}
    dist.init_process_group("gloo", **where)
    for case in cases(options):
        model = DistributedDataParallel(built(case), bucket_cap_mb=0.001, find_unused_parameters=case.model == "routed")
        digest = train(model, case, rank, options.world_size)
        if rank == 0:
            print(case.model, case.optimizer, options.world_size, digest, flush=True)
    dist.barrier()
    dist.destroy_process_group()


def parsed(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--shards", type=int, default=8, help="virtual shards of a step")
    parser.add_argument("--samples", type=int, default=4, help="of each")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--model", choices=[*MODELS, "all"], default="convnet")
    parser.add_argument("--optimizer", choices=[*OPTIMIZERS, "all"], default="adam")
    parser.add_argument("--audit-every", type=int, default=0, metavar="STEPS",
                        help="ranks check each other for silent corruption (docs/invariant.md)")
    parser.add_argument("--checkpoint", default="", metavar="FILE", help="saved after every step, and gone on from")
    parser.add_argument("--lose", default="", metavar="RANK@STEP", help="this rank dies in this step, once")
    parser.add_argument("--plain", action="store_true", help="DDP with gradient accumulation instead")
    return parser.parse_args(words)


def main():
    options = parsed()
    if "RANK" in os.environ:
        options.world_size = int(os.environ["WORLD_SIZE"])
        run_rank(int(os.environ["RANK"]), options)
    elif options.world_size == 1:
        for case in cases(options):
            print(case.model, case.optimizer, 1, on_one_device(case), flush=True)
    else:
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(run_rank, (options, os.path.join(folder, "store")), nprocs=options.world_size)


if __name__ == "__main__":
    main()
