"""The same weights, bit for bit, from any number of ranks: docs/invariant.md.

    python3 examples/invariant.py --world-size 3

prints a hash of the weights. With --plain, DDP with gradient accumulation: the hash depends on the number of ranks.

    python3 examples/invariant.py --world-size 3 --audit-every 5 --flip 1:weights@3

plants a silent corruption and says in whom it is found. Runs under torchrun, too, where a lost rank is replaced: all go on
from the checkpoint, and the hash is the same:

    torchrun --standalone --nproc_per_node 3 --max_restarts 1 examples/invariant.py --checkpoint FILE --lose 1@4
"""
import argparse
import contextlib
import hashlib
import itertools
import os
import pathlib
import re
import signal
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

try:
    from lockstep import kernels
    from lockstep.invariant import SilentCorruption, VirtualShards, shards_of_rank
except ImportError:  # from a checkout
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
    from lockstep import kernels
    from lockstep.invariant import SilentCorruption, VirtualShards, shards_of_rank

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


def flip_bit(tensor):
    tensor.detach().view(-1)[:1].view(torch.int32).bitwise_xor_(1 << 20)


class Flip:
    """One flipped bit on one rank (`where`: (rank, what, step), or None), as a broken machine would flip it."""

    WHAT = {
        "weights": "before the step",
        "optimizer": "before the step, in its state",
        "buffers": "as the rank has received them for the step",
        "average": "an averaged gradient, before it is used",
        "gradient": "of each of the rank's own shards, in this step",
        "unit": "of each shard that the rank computes, from this step on",
        "audit": "of the shards that the rank audits in this step",
    }

    def __init__(self, where, rank, module, optimizer):
        if where and where[1] == "buffers" and not list(module.buffers()):
            raise ValueError("--flip of buffers, of which the model has none")
        self.what, self.step = where[1:] if where and where[0] == rank else (None, None)
        self.parameter, self.optimizer = next(module.parameters()), optimizer
        self.now, self.auditing = None, False
        self.parameter.register_hook(self._at_gradient)
        module.register_forward_pre_hook(lambda *_: self._once("buffers", lambda: next(module.buffers())))

    def before_step(self, step):
        self.now = step
        self._once("weights", lambda: self.parameter)
        self._once("optimizer", lambda: next(value for _, value in sorted(self.optimizer.state[self.parameter].items())
                                             if value.shape == self.parameter.shape))

    def before_shard(self, auditing):
        self.auditing = auditing
        if auditing:
            self.before_update()

    def before_update(self):
        self._once("average", lambda: self.parameter.grad)

    def _once(self, what, tensor):
        if self.what == what and self.step == self.now:
            self.step = None
            flip_bit(tensor())

    def _at_gradient(self, gradient):
        own = self.now == self.step and self.what == ("audit" if self.auditing else "gradient")
        if own or self.what == "unit" and self.now >= self.step:
            gradient = gradient.clone()
            flip_bit(gradient)
        return gradient


def save(path, step, module, optimizer):
    """So that a reader finds the old file or the new one, and never half of it."""
    torch.save({"step": step, "module": module.state_dict(), "optimizer": optimizer.state_dict()}, path + ".new")
    os.replace(path + ".new", path)


def load(path, module, optimizer):
    """How many steps have been made."""
    if not path or not os.path.exists(path):
        return 0
    saved = torch.load(path)
    module.load_state_dict(saved["module"])
    optimizer.load_state_dict(saved["optimizer"])
    return saved["step"]


def lose(options, rank, step):
    """Dies as by kill -9, with --agent its launcher as well. Once: who goes on from the checkpoint finds the mark."""
    mark = pathlib.Path(f"{options.checkpoint}.lost")
    if options.lose == (rank, step) and not mark.exists():
        mark.touch()
        if options.agent:
            os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def virtual_shards(model, options, optimizer, step):
    audits = {"audit_every": options.audit_every, "audit": options.audit, "optimizer": optimizer}
    return VirtualShards(model, options.shards, step=step, **audits if options.audit_every is not None else {})


def train(model, options, rank, world_size):
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    optimizer = OPTIMIZERS[options.optimizer](inner.parameters())
    kind, count = MODELS[options.model][1], options.shards
    start = load(options.checkpoint, inner, optimizer)
    flip = Flip(options.flip, rank, inner, optimizer)
    own = shards_of_rank(count, world_size, rank)
    shards = own if options.plain else virtual_shards(model, options, optimizer, start)
    for step in range(start, options.steps):
        optimizer.zero_grad()
        flip.before_step(step)
        for shard in shards:
            inputs, targets = batch_of(kind, step, shard, options.samples)
            if options.plain:
                last = shard == own[-1] or world_size == 1
                around = contextlib.nullcontext() if last else model.no_sync()
            else:
                flip.before_shard(shards.auditing)
                around = shards.compute(shard)
            with around:
                loss = nn.functional.cross_entropy(model(inputs), targets)
                lose(options, rank, step)
                (loss * world_size / count if options.plain else loss).backward()
        flip.before_update()
        optimizer.step()
        if options.checkpoint and rank == 0:
            save(options.checkpoint, step + 1, inner, optimizer)
    return hash_of(inner, optimizer)


def hash_of(module, optimizer):
    state = [*module.parameters(), *module.buffers()]
    state += [value for p in module.parameters() for _, value in sorted(optimizer.state[p].items())
              if isinstance(value, torch.Tensor)]
    return hashlib.sha1(b"".join(one.detach().contiguous().numpy().tobytes() for one in state)).hexdigest()


def cases(options):
    models = list(MODELS) if options.model == "all" else [options.model]
    optimizers = list(OPTIMIZERS) if options.optimizer == "all" else [options.optimizer]
    for model, optimizer, flip in itertools.product(models, optimizers, options.flip or [None]):
        yield argparse.Namespace(**{**vars(options), "model": model, "optimizer": optimizer, "flip": flip})


def outcome(options, rank=0, world_size=1):
    """A training's hash, or what an audit has found in it."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = MODELS[options.model][0]()
    if world_size > 1:
        model = DistributedDataParallel(model, bucket_cap_mb=0.001, find_unused_parameters=options.model == "routed")
    try:
        return train(model, options, rank, world_size)
    except SilentCorruption as found:
        return found


def run_rank(rank, options, address):
    if address:
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=options.world_size)
    found = False
    for case in cases(options):
        result = outcome(case, rank, options.world_size)
        found |= isinstance(result, SilentCorruption)
        if rank == 0:
            print(case.model, case.optimizer, options.world_size, result, flush=True)
    if address:
        dist.barrier()
        dist.destroy_process_group()
    sys.exit(int(found))


def split(pattern, form):
    """A type for argparse: the pattern's groups, numbers as numbers."""

    def parse(text):
        match = re.fullmatch(pattern, text)
        if not match:
            raise argparse.ArgumentTypeError(f"{text!r} is not {form}")
        return tuple(int(word) if word.isdigit() else word for word in match.groups())

    return parse


def parsed(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world-size", type=int, default=2, help="without torchrun")
    parser.add_argument("--shards", type=int, default=8, help="virtual shards of a step")
    parser.add_argument("--samples", type=int, default=4, help="of each")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--model", choices=[*MODELS, "all"], default="convnet")
    parser.add_argument("--optimizer", choices=[*OPTIMIZERS, "all"], default="adam")
    parser.add_argument("--kernels", action="store_true",
                        help="name the operators whose bits depend on the batch or on the number of threads, and end")
    parser.add_argument("--plain", action="store_true", help="DDP with gradient accumulation instead")
    parser.add_argument("--audit-every", type=int, metavar="STEPS", help="look for silent corruption every so many steps")
    parser.add_argument("--audit", choices=["one", "all"], default="one", help="how many of a rank's shards at once")
    kinds = "|".join(Flip.WHAT)
    parser.add_argument("--flip", action="append", metavar="RANK:WHAT@STEP",
                        type=split(rf"(\d+):({kinds})@(\d+)", f"RANK:WHAT@STEP, WHAT being one of {kinds}"),
                        help="flip a bit: " + "; ".join(": ".join(item) for item in Flip.WHAT.items())
                        + ". Several: each in a training of its own")
    parser.add_argument("--checkpoint", metavar="FILE", help="saved after every step, and gone on from")
    parser.add_argument("--lose", type=split(r"(\d+)@(\d+)", "RANK@STEP"), metavar="RANK@STEP",
                        help="this rank dies in this step, once; needs --checkpoint")
    parser.add_argument("--agent", action="store_true", help="and with it the torchrun that has started it")
    options = parser.parse_args(words)
    if "RANK" in os.environ:  # torchrun's, and other launchers'
        options.world_size = int(os.environ["WORLD_SIZE"])
    refuse(parser, options)
    return options


def refuse(parser, options):
    # A launcher may go on with fewer ranks than the one that is to be lost.
    lost = [options.lose] if options.lose and "RANK" not in os.environ else []
    for rank, *_ in [*(options.flip or []), *lost]:
        if rank >= options.world_size:
            parser.error(f"there is no rank {rank}: 0 to {options.world_size - 1}")
    if options.plain and options.flip:
        parser.error("--plain finds no flips")
    if options.lose and not options.checkpoint:
        parser.error("--lose needs --checkpoint")
    if options.agent and not (options.lose and "TORCHELASTIC_RUN_ID" in os.environ):
        parser.error("--agent belongs to --lose, under torchrun")
    if options.plain and options.audit_every is not None:
        parser.error("--plain has no audits")
    if options.audit != "one" and options.audit_every is None:
        parser.error("--audit belongs to --audit-every")
    if options.checkpoint and (options.flip or "all" in (options.model, options.optimizer)):
        parser.error("--checkpoint is of one training, without --flip")


def look_at_kernels(options):
    for case in cases(options):
        torch.manual_seed(0)
        make, kind = MODELS[case.model]
        inputs, _ = batch_of(kind, 0, 0, case.samples)
        print(f"{case.model}\n{kernels.look(make(), inputs)}")


def main():
    options = parsed()
    if options.kernels:
        return look_at_kernels(options)
    if "RANK" in os.environ:
        run_rank(int(os.environ["RANK"]), options, "env://")
    if options.world_size == 1:
        run_rank(0, options, None)
    method = "fork" if sys.platform == "linux" else "spawn"  # quicker: torch is loaded once
    with tempfile.TemporaryDirectory() as folder:
        try:
            mp.start_processes(run_rank, (options, f"file://{folder}/store"), options.world_size, start_method=method)
        except mp.ProcessExitedException as ended:
            if ended.exit_code != 1:
                raise
            sys.exit(1)


if __name__ == "__main__":
    main()
