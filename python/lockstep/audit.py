"""Finds silent corruption by computing again what another rank has computed: `audit_every` of lockstep.invariant.

    shards = VirtualShards(model, count=8, audit_every=50, optimizer=optimizer)

The loop stays as it is. Every 50th step a rank is given a shard of the next rank's after its own, and before the
optimizer changes the weights all ranks compare checksums of

* what must be the same everywhere: weights, the buffers that the step began with, the optimizer's state, and the averaged
  gradients. The ranks outside the majority are named; without a majority (on two ranks there is none) all are named, and
  the finding is `undecided`;
* the shard's gradient and buffers, as its owner and its auditor, the other rank, have computed them. If they differ, a
  third rank is given the same shard and decides. With two ranks both compute it once more: a rank that does not get its
  own result again is named; if both do, the pair is named, `undecided`.

A finding is raised as SilentCorruption on every rank alike, or passed to `on_corruption`, after which the training goes on.
docs/invariant.md says what is found how soon, and what is never found.
"""
import collections
import contextlib
import enum
import zlib

import torch
import torch.distributed as dist

__all__ = ["Audit", "SilentCorruption", "What", "checksum"]


class What(enum.Enum):
    """What differs, in the order in which it is named: wrong weights make wrong gradients, too."""
    WEIGHTS = "weights"
    BUFFERS = "buffers"
    OPTIMIZER_STATE = "optimizer state"
    AVERAGES = "averaged gradients"
    GRADIENT = "gradient"
    SUM = "sum of gradients"  # of several shards of one rank; each of them is right


class SilentCorruption(RuntimeError):
    """Ranks that have different bits where they should have the same.

    step:        of the audit
    clean_step:  of the last audit that found nothing, or None: what that audit compared was right then
    what:        a What; `also`: further kinds that differ between ranks
    name:        of the first parameter or buffer that differs
    pair, shard: if a shard was computed twice: (its owner, its auditor), and its number; else None
    ranks:       those whose result is wrong; if `undecided`, those of whom at least one has a wrong result
    """

    def __init__(self, step, what, name, ranks, undecided, pair=None, shard=None, also=(),
                 clean_step=None):
        self.step, self.what, self.name, self.ranks = step, what, name, tuple(ranks)
        self.undecided, self.pair, self.shard, self.also = undecided, pair, shard, tuple(also)
        self.clean_step = clean_step
        super().__init__(self._sentence())

    def __reduce__(self):
        fields = ("step", "what", "name", "ranks", "undecided", "pair", "shard", "also", "clean_step")
        return SilentCorruption, tuple(getattr(self, field) for field in fields)

    def _sentence(self):
        of = "" if self.shard is None else f" of shard {self.shard}"
        of += f" on rank {self.pair[0]} and, audited, on rank {self.pair[1]}" if self.pair else ""
        also = f", also {', '.join(one.value for one in self.also)}" if self.also else ""
        *others, last = map(str, self.ranks)
        ranks = f"ranks {', '.join(others)} and {last}" if others else f"rank {last}"
        who = f"undecided between {ranks}" if self.undecided else f"wrong on {ranks}"
        since = "no clean audit before" if self.clean_step is None else f"last clean audit at step {self.clean_step}"
        return f"step {self.step}: {self.what.value}{of} ({self.name} first{also}): {who}; {since}"


_PIECE = 1 << 16
_FACTORS = {}


def _factors(device):
    """Random odd numbers: a sum of elements times these changes with any one bit."""
    if device not in _FACTORS:
        draws = torch.randint(-(1 << 62), 1 << 62, (_PIECE,), generator=torch.Generator().manual_seed(1))
        _FACTORS[device] = (draws * 2 + 1).to(device)
    return _FACTORS[device]


def checksum(tensor):
    """64 bits, computed on the tensor's device. A single flipped bit always changes them."""
    values = tensor.detach()
    values = (torch.view_as_real(values) if values.is_complex() else values).reshape(-1)
    bits = values.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()])
    factors = _factors(tensor.device)
    sums = [(piece.long() * factors[:piece.numel()]).sum() for piece in bits.split(_PIECE)]
    return sums[0] if len(sums) == 1 else checksum(torch.stack(sums))


def _of_state(value, device):
    """Checksum of an optimizer's state: tensors and numbers in dictionaries and lists."""
    if isinstance(value, torch.Tensor):
        return checksum(value).to(device)
    if isinstance(value, dict):
        value = [one for item in sorted(value.items(), key=lambda item: str(item[0])) for one in item]
    if isinstance(value, (list, tuple)):
        return checksum(torch.stack([_of_state(one, device) for one in value])) if value else _of_state(None, device)
    known = isinstance(value, (int, float, complex, str, type(None)))
    return torch.tensor(zlib.crc32(repr(value if known else type(value).__name__).encode()), device=device)


class _Evidence:
    """Checksums of what one rank has computed of the shards that are audited."""

    def __init__(self, tree=None):
        self.sums, self.trees = {}, collections.defaultdict(tree) if tree else None

    def gradient(self, shard, place, leaf):
        self.sums[What.GRADIENT, shard, place] = checksum(leaf)
        if self.trees is not None:  # the auditor adds by itself; of the owner we see what it has added
            self.trees[place].put((0, shard), leaf)

    def buffers(self, shard, buffers):
        for place, buffer in enumerate(buffers):
            self.sums[What.BUFFERS, shard, place] = checksum(buffer)

    def root(self, place, node, value):
        self.sums[What.SUM, node, place] = checksum(value)

    def close(self):
        for place, tree in (self.trees or {}).items():
            for node, value in tree.take():
                self.root(place, node, value)
        self.trees = None


class Audit:
    """The audits of a VirtualShards (`shards`), which reports what its own shards gave and asks here for further ones."""

    def __init__(self, shards, every, optimizer, scope, on_corruption, tree):
        self.shards, self.every, self.scope, self.on_corruption, self.tree = shards, every, scope, on_corruption, tree
        self.optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
        self._refuse()
        self.clean_step, self.turn, self.step, self.evidence = None, None, None, {}

    def _refuse(self):
        if not isinstance(self.every, int) or self.every < 1:
            raise ValueError(f"audit_every is {self.every!r}: a number of steps, at least 1")
        if self.scope not in ("one", "all"):
            raise ValueError(f"audit is {self.scope!r}: 'one' or 'all' of a rank's shards")
        for optimizer in self.optimizers:
            if not isinstance(optimizer, torch.optim.Optimizer):
                raise ValueError("audit_every needs the optimizer, whose state is compared, too")
            if "ZeroRedundancyOptimizer" in (kind.__name__ for kind in type(optimizer).__mro__):
                raise ValueError("audit_every compares the optimizer's state, of which every rank has another part here")

    def due(self, step):
        return step % self.every == self.every - 1

    @property
    def open(self):
        """A step whose own shards are computed and whose audit has not ended."""
        return self.step is not None

    # What VirtualShards tells of its own shards.

    def begin_step(self, step):
        self.own = _Evidence()
        self.listed = self.audited(self.shards.rank, step) if self.due(step) else ()

    def note_gradient(self, shard, place, leaf):
        if shard in self.listed:
            self.own.gradient(shard, place, leaf)

    def note_buffers(self, shard):
        if shard in self.listed:
            self.own.buffers(shard, self.shards.buffers)

    def note_root(self, place, node, value):
        if self.listed and self.sees_sums(self.shards.rank):
            self.own.root(place, node, value)

    def end_step(self, step, start_buffers):
        if self.due(step):
            self.step, self.start_buffers = step, start_buffers
            self.evidence = {self.shards.rank: [self.own]}

    # Which shards are computed again, and by whom.

    def audited(self, owner, step):
        own = self.shards.ranges[owner]
        return own if self.scope == "all" else (own[step // self.every % len(own)],)

    def sees_sums(self, owner):
        return self.scope == "all" and len(self.shards.ranges[owner]) > 1

    def _auditor(self, owner):
        return (owner - 1) % self.shards.world_size

    def deciders(self, owner):
        """Who computes the owner's shards once more if its auditor has got something else."""
        size = self.shards.world_size
        if size > 2:
            return [(owner - 2) % size]
        return [0, 1] if size == 2 else []

    def rounds(self):
        """Gives the shards to compute after the rank's own, compares, and reports what it has found."""
        if not self.open:
            raise RuntimeError("an audit before this rank's own shards are computed: each is, when the iterator gives it")
        shards = self.shards
        auditee = (shards.rank + 1) % shards.world_size
        yield from self._recompute(auditee)
        found, pairs = self._compare()
        if pairs:
            for owner in pairs:
                if shards.rank in self.deciders(owner):
                    yield from self._recompute(owner)
            found = self._decide(pairs)
        step, self.step, self.evidence = self.step, None, {}
        if found is None:
            self.clean_step = step
        elif self.on_corruption is None:
            raise found
        else:
            self.on_corruption(found)

    def _recompute(self, owner):
        evidence = _Evidence(self.tree if self.sees_sums(owner) else None)
        for shard in self.audited(owner, self.step):
            self.turn = (shard, evidence)
            yield shard
            if self.turn is not None:
                raise RuntimeError(f"shard {shard} is audited and was not computed")
        evidence.close()
        self.evidence.setdefault(owner, []).append(evidence)

    @contextlib.contextmanager
    def compute(self, shard):
        """As VirtualShards.compute, but nothing of it stays: gradients, buffers, random stream and DDP are as before."""
        if self.turn is None:
            raise RuntimeError(f"step {self.step} ends with an audit: iterate over the VirtualShards for its shards")
        if shard != self.turn[0]:
            raise ValueError(f"shard {shard}, where {self.turn[0]} is audited")
        shards, evidence = self.shards, self.turn[1]
        averages = [parameter.grad for parameter in shards.parameters]
        buffers = [buffer.detach().clone() for buffer in shards.buffers]
        shards.restore(self.start_buffers)
        for parameter in shards.parameters:
            parameter.grad = None
        try:
            with shards.random_stream(self.step, shard), self._without_exchange():
                yield
            for place, parameter in enumerate(shards.parameters):
                evidence.gradient(shard, place, shards.leaf(parameter, parameter.grad))
            evidence.buffers(shard, shards.buffers)
        finally:
            shards.restore(buffers)
            for parameter, average in zip(shards.parameters, averages):
                parameter.grad = average
        self.turn = None

    @contextlib.contextmanager
    def _without_exchange(self):
        model = self.shards.model
        if not self.shards.ddp:
            yield
            return
        # The next step's first forward broadcasts buffers if this is set; an audit's must neither do that nor clear it.
        broadcasts, model.require_forward_param_sync = model.require_forward_param_sync, False
        try:
            with model.no_sync():
                yield
        finally:
            model.require_forward_param_sync = broadcasts

    # Comparing. All ranks judge the same gathered checksums, so all come to the same finding.

    def _states(self):
        """[(What, name, checksum)] of what all ranks must have alike."""
        shards = self.shards
        device = shards.parameters[0].device
        for name, parameter in shards.named_parameters:
            yield What.WEIGHTS, name, checksum(parameter)
        for (name, _), buffer in zip(shards.named_buffers, self.start_buffers):
            yield What.BUFFERS, name, checksum(buffer)
        names = {parameter: name for name, parameter in shards.named_parameters}
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    state = optimizer.state.get(parameter, {})
                    yield What.OPTIMIZER_STATE, names.get(parameter, "a parameter"), _of_state(state, device)
                options = {key: value for key, value in group.items() if key != "params"}
                yield What.OPTIMIZER_STATE, "the options of a parameter group", _of_state(options, device)
        for name, parameter in shards.named_parameters:
            if parameter.requires_grad:
                gradient = parameter.grad
                yield What.AVERAGES, name, _of_state(None, device) if gradient is None else checksum(gradient)

    def _labels(self, owner):
        """Of what is computed of an owner's shards: (What, shard or node, place)."""
        shards = self.shards
        for shard in self.audited(owner, self.step):
            yield from ((What.GRADIENT, shard, place) for place in range(len(shards.parameters)))
            yield from ((What.BUFFERS, shard, place) for place in range(len(shards.buffers)))
        if self.sees_sums(owner):
            yield from ((What.SUM, node, place) for node in shards.roots[owner] for place in range(len(shards.parameters)))

    def _gather(self, sums, length):
        """The checksums of every rank, filled up with zeros to a length that all know."""
        shards = self.shards
        if shards.world_size == 1:
            return [[int(one) for one in sums]]
        sent = torch.zeros(length, dtype=torch.int64, device=shards.parameters[0].device)
        if sums:
            sent[:len(sums)] = torch.stack([one.to(sent.device) for one in sums])
        received = [torch.empty_like(sent) for _ in range(shards.world_size)]
        dist.all_gather(received, sent, group=shards.group)
        return [one.tolist() for one in received]

    def _evidence_of(self, owner, nth):
        sums = self.evidence[owner][nth].sums
        return [sums[label] for label in self._labels(owner)]

    def _compare(self):
        """(what differs of the states, or None; {owner: (its checksums, its auditor's)} that differ)."""
        rank, size = self.shards.rank, self.shards.world_size
        states = list(self._states())
        computed = self._evidence_of(rank, 0) + self._evidence_of((rank + 1) % size, -1)
        counts = [len(list(self._labels(owner))) for owner in range(size)]
        longest = len(states) + max(counts[owner] + counts[self._auditor(owner)] for owner in range(size))
        gathered = self._gather([one for _, _, one in states] + computed, longest)
        found = self._judge_states([(what, name) for what, name, _ in states], gathered)
        if found is not None:
            return found, {}
        pairs = {}
        for owner, auditor in ((owner, self._auditor(owner)) for owner in range(size)):
            own = gathered[owner][len(states):][:counts[owner]]
            other = gathered[auditor][len(states) + counts[auditor]:][:counts[owner]]
            if own != other:
                pairs[owner] = (own, other)
        return None, pairs

    def _judge_states(self, labels, gathered):
        differing = []
        for column, label in enumerate(labels):
            if len({sums[column] for sums in gathered}) > 1:
                differing.append((column, label))
        if not differing:
            return None
        kinds = [what for what in What if any(what is of for _, (of, _) in differing)]
        columns = [column for column, (what, _) in differing if what is kinds[0]]
        values = [tuple(sums[column] for column in columns) for sums in gathered]
        (common, times), = collections.Counter(values).most_common(1)
        majority = 2 * times > len(values)
        ranks = [rank for rank, value in enumerate(values) if not majority or value != common]
        return SilentCorruption(self.step, kinds[0], labels[columns[0]][1], ranks, not majority, also=kinds[1:],
                                clean_step=self.clean_step)

    def _decide(self, pairs):
        """Once the deciders have computed the shards of these pairs."""
        rank = self.shards.rank
        mine = {owner: self._evidence_of(owner, -1) for owner in pairs if rank in self.deciders(owner)}
        seconds = collections.defaultdict(dict)
        for owner, (own, _) in pairs.items():
            gathered = self._gather(mine.get(owner, []), len(own))
            for decider in self.deciders(owner):
                seconds[owner][decider] = gathered[decider]
        verdicts = {owner: self._wrong(owner, *pair, seconds[owner]) for owner, pair in pairs.items()}
        wrong = {rank for ranks in verdicts.values() for rank in ranks}
        # That many are not wrong by accident: the program does not repeat itself, or the machines are not alike.
        undecided = not wrong or self.shards.world_size > 2 and 2 * len(wrong) > self.shards.world_size
        owner = next((owner for owner, ranks in verdicts.items() if ranks), next(iter(pairs)))
        label = next(label for label, one, other in zip(self._labels(owner), *pairs[owner]) if one != other)
        what, where, place = label
        named = self.shards.named_buffers[place] if what is What.BUFFERS else self.shards.named_trained[place]
        ranks = sorted(wrong or {owner, self._auditor(owner)})
        return SilentCorruption(self.step, what, named[0], ranks, undecided, clean_step=self.clean_step,
                                pair=(owner, self._auditor(owner)), shard=where if what is not What.SUM else None)

    def _wrong(self, owner, own, other, seconds):
        """The ranks whose result is not the third one's, or not their own of before; none if that decides nothing."""
        auditor = self._auditor(owner)
        if owner == auditor:
            return [owner]
        if self.shards.world_size == 2:
            unsteady = [rank for rank, first in ((owner, own), (auditor, other)) if seconds[rank] != first]
            return unsteady if len(unsteady) == 1 else []
        (third,) = seconds.values()
        return [auditor] if third == own else [owner] if third == other else []
