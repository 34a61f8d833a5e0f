"""Silent corruption, looked for by ranks that check each other: `VirtualShards(..., audit_every=k)` of lockstep.invariant.

In every k-th step each rank computes one shard of its neighbour again, from the same weights, buffers, random stream and
samples. Virtual shards have the same bits wherever they are computed, so a difference is a defect of a device, its memory
or its libraries: the two ranks are known, and a third one, which computes the same shard, decides between them. What must
be the same on all ranks anyway (weights, optimizer state, the buffers that a step began with, averaged gradients) is
compared by its hashes: whoever has not what most have is named.

The loop of lockstep.invariant stays what it is: in such a step it yields one number more, and the samples of that shard
are wanted. Nothing of an audit changes a bit of the training. It costs a shard, of the V / W that a rank computes, and
the hashes, once in k steps.

What it finds: state that differs between ranks, at the next audit; a rank that computes wrong gradients again and again,
at the next audit if all its shards are wrong, else when that shard's turn comes (V / W audits at most). What it cannot
find: one wrong gradient of one shard in a step or shard that is not audited. All ranks get the same wrong average then.
"""
import collections
import contextlib
import hashlib

import torch
import torch.distributed as dist

__all__ = ["SilentCorruption"]


class SilentCorruption(RuntimeError):
    """step (from 1), what ("weights", "buffers", "optimizer state", "averaged gradients" or "gradient"), tensor (the
    first that differs), shard (of a gradient, else None), ranks: those that are wrong, or, where `undecided`, among
    which they are. The same on every rank."""

    def __init__(self, step, what, tensor, ranks, undecided=False, shard=None):
        self.step, self.what, self.tensor, self.ranks = step, what, tensor, sorted(ranks)
        self.undecided, self.shard = undecided, shard
        place = f"{what} of {tensor}" + ("" if shard is None else f" in virtual shard {shard}")
        named = ("rank " if len(self.ranks) == 1 else "ranks ") + ", ".join(map(str, self.ranks))
        who = f"one of {named} is wrong, which is not known" if undecided else f"{named} is wrong"
        super().__init__(f"silent corruption, step {step}: {place}: {who}")


def digest(tensor):
    """63 bits of a tensor's bytes."""
    flat = tensor.detach().reshape(-1).contiguous().cpu()
    data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") >> 1


def outsiders(values):
    """Of one value a rank: the ranks that have not what most have; None where no value has most of them."""
    value, votes = collections.Counter(values).most_common(1)[0]
    if 2 * votes <= len(values):
        return None
    return [rank for rank, own in enumerate(values) if own != value]


class Audit:
    """Of one VirtualShards, `shards`. All ranks call alike."""

    def __init__(self, shards, every, optimizer):
        if every < 1:
            raise ValueError(f"audit_every={every}: a number of steps, at least 1")
        self.shards, self.every, self.optimizer = shards, every, optimizer
        self.inner = shards.model.module if shards.ddp else shards.model
        self.names = [name for name, p in self.inner.named_parameters() if p.requires_grad]
        self.noted = None  # in a step that is audited: digests of this rank's audited shard, by place
        self.computed = None  # of the shard that was computed again

    def begin(self):
        """Of a step: is it one that is audited? Which shards are, by rank?"""
        step = self.shards.step + 1
        self.noted = {} if step % self.every == 0 else None
        self.turn = step // self.every - 1

    def shard_of(self, rank):
        own = self.shards.ranges[rank]
        return own[self.turn % len(own)]

    def note(self, shard, place, leaf):
        if self.noted is not None and shard == self.shard_of(self.shards.rank):
            self.noted[place] = digest(leaf)

    # Who checks whom.

    def neighbour(self, rank):
        return (rank + 1) % self.shards.world_size

    def thirds(self, owner):
        """Who decides between a rank and the one that checked it; of two ranks, each itself, once more."""
        return [self.neighbour(owner)] if self.shards.world_size > 2 else list(range(self.shards.world_size))

    def run(self):
        """A generator of what this rank computes again; see VirtualShards.__iter__. Raises SilentCorruption."""
        step, owner = self.shards.step, self.neighbour(self.shards.rank)
        state = self._state()  # of before anybody computes again
        again = yield from self._again(self.shard_of(owner))
        rows = self._exchange([self.noted[place] for place in range(len(self.names))] + again + [v for _, _, v in state])
        self._compare_state(step, state, [row[2 * len(self.names):] for row in rows])
        yield from self._compare_shards(step, [row[:len(self.names)] for row in rows],
                                        [row[len(self.names):2 * len(self.names)] for row in rows])
        self.noted = None

    def _again(self, shard):
        self.computed, self.shards.auditing = None, shard
        yield shard
        self.shards.auditing = None
        if self.computed is None:
            raise ValueError(f"virtual shard {shard}, which this step audits, was not computed")
        return self.computed

    def _state(self):
        """(what, name, digest) of what all ranks have alike, weights first."""
        shards, found = self.shards, []
        found += [("weights", name, digest(p)) for name, p in zip(self.names, shards.parameters)]
        names = [name for name, _ in self.inner.named_buffers()]
        found += [("buffers", name, digest(b)) for name, b in zip(names, shards.audited_buffers or ())]
        for name, p in zip(self.names, shards.parameters) if self.optimizer else ():
            for key, value in sorted(self.optimizer.state.get(p, {}).items()):
                if isinstance(value, torch.Tensor):
                    found.append(("optimizer state", f"{name} ({key})", digest(value)))
        return found + [("averaged gradients", name, 0 if p.grad is None else digest(p.grad))
                        for name, p in zip(self.names, shards.parameters)]

    def _exchange(self, row):
        """One row of whole numbers a rank."""
        if self.shards.world_size == 1:
            return [row]
        own = torch.tensor(row, dtype=torch.int64, device=self.shards.parameters[0].device)
        rows = [torch.empty_like(own) for _ in range(self.shards.world_size)]
        dist.all_gather(rows, own, group=self.shards.group)
        return [one.tolist() for one in rows]

    @staticmethod
    def _compare_state(step, state, rows):
        for place, (what, name, _) in enumerate(state):
            values = [row[place] for row in rows]
            if len(set(values)) == 1:
                continue
            wrong = outsiders(values)
            raise SilentCorruption(step, what, name, range(len(rows)) if wrong is None else wrong, wrong is None)

    def _compare_shards(self, step, owned, again):
        """Of each owner its own digests, and those of the rank before it, which checked it."""
        world_size = self.shards.world_size
        pairs = [(owner, (owner - 1) % world_size) for owner in range(world_size)]
        pairs = [(owner, checker) for owner, checker in pairs if owned[owner] != again[checker]]
        if not pairs:
            return
        if world_size == 1:
            raise self._corruption(step, 0, owned[0], again[0], [0], False)
        wrong, doubtful = set(), set()
        for owner, checker in pairs:
            decided = yield from self._third_of(owner, owned[owner])
            ranks = self._decide(owner, checker, owned[owner], again[checker], decided)
            wrong.update(ranks or ())
            doubtful.update(() if ranks else (owner, checker))
        owner, checker = pairs[0]
        raise self._corruption(step, owner, owned[owner], again[checker], wrong or doubtful, not wrong)

    def _third_of(self, owner, like):
        """The digests of the same shard, by the rank that computed it once more."""
        thirds = self.thirds(owner)
        mine = [0] * len(like)
        if self.shards.rank in thirds:
            mine = yield from self._again(self.shard_of(owner))
        rows = self._exchange(mine)
        return {rank: rows[rank] for rank in thirds}

    def _decide(self, owner, checker, owned, again, decided):
        """The ranks that are wrong; none where nobody can tell."""
        if self.shards.world_size > 2:
            (third,) = decided.values()
            return [checker] if third == owned else [owner] if third == again else []
        # Of two, who does not repeat itself.
        return [rank for rank, first in ((owner, owned), (checker, again)) if decided[rank] != first]

    def _corruption(self, step, owner, owned, again, ranks, undecided):
        place = next(place for place, (a, b) in enumerate(zip(owned, again)) if a != b)
        return SilentCorruption(step, "gradient", self.names[place], ranks, undecided, self.shard_of(owner))

    @contextlib.contextmanager
    def compute(self):
        """Around forward and backward of a shard that is computed again, on copies of weights and buffers: no hook of
        DDP, no gradient and no buffer of the training sees it."""
        begun = dict(zip(self.shards.buffers, self.shards.audited_buffers or ()))
        copies = {p: torch.nn.Parameter(p.detach().clone(), p.requires_grad) for p in self.inner.parameters()}
        copies.update((buffer, begun.get(buffer, buffer).detach().clone()) for buffer in self.inner.buffers())
        put_back = [(module, name, value) for module in self.inner.modules()
                    for name, value in [*module._parameters.items(), *module._buffers.items()] if value is not None]
        for module, name, value in put_back:
            setattr(module, name, copies[value])
        if self.shards.ddp:  # not its forward, which would broadcast buffers
            object.__setattr__(self.shards.model, "forward", lambda *words, **named: self.inner(*words, **named))
        try:
            yield
        finally:
            if self.shards.ddp:
                object.__delattr__(self.shards.model, "forward")
            for module, name, value in put_back:
                setattr(module, name, value)
        self.computed = [digest(self.shards.leaf(copies[p], copies[p].grad)) for p in self.shards.parameters]
