"""What the ranks trained on, handed to the one device, which would draw something else: the weights that a model begins
with, and the tensors that forwards and losses are given. Ranks keep theirs in LOCKSTEP_PROGRAM_KEEP_DATA, the one device
finds them in LOCKSTEP_PROGRAM_HANDED; both are folders. In a step it makes as many forwards as a rank, and is given the
batches of all ranks as one, or (LOCKSTEP_PROGRAM_IN_TURN) as many as all of them, and is given one after another.
LOCKSTEP_PROGRAM_OWN_BATCHES: its loaders' batches are no larger than the script has them.
Where its loaders make batches for all ranks, they give those of the ranks: what the script then computes of them is compared with
what the ranks computed, which is handed on, in the script's own order where it is the same."""
import os

from . import inputs, scales
from .models import trained

MOST_BYTES = 512 << 20  # of a rank; what has more is not handed on
MOST_COMPARED = 1 << 22  # elements of a tensor that is compared with what ranks computed
NEAR = 1e-9  # in double: what a product rounds otherwise for another number of rows


def watch(recorder):
    kept, handed = os.environ.get("LOCKSTEP_PROGRAM_KEEP_DATA"), os.environ.get("LOCKSTEP_PROGRAM_HANDED")
    if kept:
        recorder.hands = Keeper(recorder, kept)
    elif handed:
        recorder.hands = Receiver(recorder, handed, bool(os.environ.get("LOCKSTEP_PROGRAM_IN_TURN")))


class Refused(Exception):
    """Why the data of ranks is no use to one device."""


def is_data(leaf):
    import torch
    return isinstance(leaf, torch.Tensor) and not leaf.requires_grad


def inner(module):
    import torch
    return module.module if isinstance(module, torch.nn.parallel.DistributedDataParallel) else module


def weights_of(module):
    """Buffers begin alike, too."""
    tensors = [*module.parameters(), *module.buffers()]
    if any(hasattr(tensor, "placements") for tensor in tensors):
        raise Refused("its parameters are sharded")
    return tensors


class Hands:
    """Sees the calls; what is done with their tensors is a subclass's."""

    def __init__(self, recorder, folder):
        self.recorder, self.folder, self.seen, self.why = recorder, folder, {}, ""
        self.step, self.number = 0, 0  # number: of the call within the step
        self.results, self.of_results = [], 0  # of calls that were given data, in which step
        self.backwards = {}  # by step: of each, by which numbers the loss multiplies results; None: it is made otherwise

    def call(self, module, args, kwargs):
        """Of a module that no other surrounds: its arguments, or those that it shall have."""
        from torch.utils import _pytree as tree
        leaves, form = tree.tree_flatten((args, kwargs))
        trains = trained(module)
        if not trains and not any(getattr(leaf, "requires_grad", False) for leaf in leaves):
            return args, kwargs  # neither a model nor a loss
        if trains and id(inner(module)) not in self.seen:
            self.seen[id(inner(module))] = inner(module)  # kept, so that the number is not another's
            self.attempt(lambda: self.begins(weights_of(inner(module))))
        return tree.tree_unflatten(self.exchanged(leaves), form)

    def target(self, tensor, output):
        """Of one of torch's losses, where no module surrounds it."""
        given = self.exchanged([tensor])[0]
        if tensor.shape[:1] == output.shape[:1] != given.shape[:1]:
            self.why = self.why or "what its losses are given is computed of its own data as well"
            return tensor
        return given

    def exchanged(self, leaves):
        data = [leaf for leaf in leaves if is_data(leaf)]
        if not data:
            return leaves
        if self.step != self.recorder.steps:
            self.step, self.number = self.recorder.steps, 0
        others = self.attempt(lambda: self.exchange(data))
        self.number += 1
        if others is None:
            return leaves
        others = iter(others)
        return [next(others) if is_data(leaf) else leaf for leaf in leaves]

    def loaded(self, batch):
        """Of a loader: it, or what it shall give."""
        return batch

    def made(self, result):
        """Of a call that was given its data."""
        from torch.utils import _pytree as tree
        if self.of_results != self.recorder.steps:
            self.results, self.of_results = [], self.recorder.steps
        self.results += tree.tree_flatten(result)[0] + [getattr(result, "loss", None)]

    def begin_backward(self, loss):
        self.backwards.setdefault(self.recorder.steps, []).append(scales.factors(loss, self.results))

    def attempt(self, action):
        """Refused once, it does nothing any more."""
        if self.why:
            return None
        try:
            return action()
        except Refused as refusal:
            self.why = str(refusal)
            return None


class Keeper(Hands):
    def __init__(self, recorder, folder):
        super().__init__(recorder, folder)
        self.bytes, self.loaded_bytes, self.models, self.steps, self.loads = 0, 0, [], [], {}

    def copy(self, tensor):
        import torch
        if tensor.layout != torch.strided:
            raise Refused("it is given tensors that are not dense")
        self.bytes += tensor.numel() * tensor.element_size()
        if self.bytes > MOST_BYTES:
            raise Refused(f"the data of a rank has more than {MOST_BYTES >> 20} MiB")
        return tensor.detach().cpu().clone()

    def loaded(self, batch):
        leaves = leaves_of(batch)[0]
        size = sum(leaf.numel() * leaf.element_size() for leaf in leaves)
        fits = leaves and self.loaded_bytes + size <= MOST_BYTES  # else what forwards are given is all that is handed on
        self.loaded_bytes += size if fits else 0
        self.loads.setdefault(self.recorder.steps, []).append([leaf.detach().cpu().clone() for leaf in leaves] if fits else None)
        return batch

    def begins(self, weights):
        self.models.append([self.copy(tensor) for tensor in weights])

    def exchange(self, data):
        while len(self.steps) <= self.step:
            self.steps.append([])
        self.steps[self.step].append([self.copy(tensor) for tensor in data])

    def close(self):
        import torch
        kept = {"why": self.why, "models": self.models, "steps": self.steps, "loads": self.loads, "backwards": self.backwards}
        torch.save(kept, f"{self.folder}/rank-{self.recorder.rank}.data")


class Receiver(Hands):
    def __init__(self, recorder, folder, in_turn):
        super().__init__(recorder, folder)
        self.in_turn, self.ranks, self.counts = in_turn, None, {}  # counts: calls, by step
        self.resized, self.scale_known, self.row_counts = False, True, set()
        self.batches = Batches()
        self.tells_owners = bool(os.environ.get("LOCKSTEP_PROGRAM_LOCAL_BATCH_NORM"))
        self.owners = []  # if it does: of each row of what it was given last as one the rank

    def load(self):
        import torch
        if self.ranks is not None:
            return
        self.ranks = [torch.load(f"{self.folder}/rank-{rank}.data") for rank in range(self.recorder.scale)]
        for rank in self.ranks:
            if rank["why"]:
                raise Refused(rank["why"])

    def loaded(self, batch):
        if self.in_turn or self.recorder.larger == 1:
            return batch
        self.attempt(self.load)
        return batch if self.why else self.batches.given(self.recorder.steps, batch, self.ranks)

    def begins(self, weights):
        import torch
        self.load()
        models = self.ranks[0]["models"]
        number = len(self.seen) - 1
        if number >= len(models) or [part.shape for part in models[number]] != [part.shape for part in weights]:
            raise Refused("its models are others than those of the ranks")
        with torch.no_grad():
            for mine, theirs in zip(weights, models[number]):
                self.batches.of_other_weights |= not torch.equal(mine, theirs)
                mine.copy_(theirs)

    def expected(self, step):
        """Calls of the step: those of a rank, and how many one device makes."""
        calls = [rank["steps"][step] if step < len(rank["steps"]) else [] for rank in self.ranks]
        each = len(calls[0])
        if any(len(rank) != each for rank in calls):
            raise Refused("the ranks make different numbers of forwards in a step")
        return calls, each * (len(calls) if self.in_turn else 1)

    def exchange(self, data):
        self.load()
        calls, count = self.expected(self.step)
        if self.number >= count:
            raise Refused("it makes other forwards in a step than the ranks")
        self.counts[self.step] = self.number + 1
        if self.in_turn:
            chosen = [calls[self.number // len(calls[0])][self.number % len(calls[0])]]
        else:
            chosen = [rank[self.number] for rank in calls]
        if any(len(one) != len(data) for one in chosen):
            raise Refused("its forwards are given other tensors than those of the ranks")
        given = [joined(mine, theirs) for mine, theirs in zip(data, zip(*chosen))]
        self.row_counts |= scales.counts_of([*data, *given])
        self.resized |= any(mine.shape != one.shape for mine, one in zip(data, given))
        inputs.note_draws(self.recorder)
        self.batches.computed(self.step, data, given, self.recorder.drew)
        used = [self.batches.in_own_order(self.step, mine, one) for mine, one in zip(data, given)]
        if self.tells_owners:
            self.owners = owners_of(chosen, given, used) or self.owners
        return used

    def begin_backward(self, loss):
        """Whoever divides by a number of samples that he counts himself counts those that he drew: only a loss that is what
        calls made of data handed to it, or a sum of that times numbers that are the script's, has the scale of larger batches."""
        super().begin_backward(loss)
        self.scale_known &= not self.resized or any(loss is result for result in self.results) or self.has_scale_of_ranks()

    def has_scale_of_ranks(self):
        """Numbers that are counted differ between ranks, or are those of rows that one of them has."""
        step, own = self.recorder.steps, self.backwards[self.recorder.steps]
        theirs = [rank["backwards"].get(step, [])[len(own) - 1:len(own)] for rank in self.ranks]
        if own[-1] is None or any(numbers != own[-1:] for numbers in theirs):
            return False
        return not any(scales.may_be_a_count(number, self.row_counts) for number in own[-1])

    def check_counts(self):
        for step in range(self.recorder.steps):
            count = self.expected(step)[1]
            if step >= len(self.ranks[0]["steps"]):
                raise Refused("it makes more steps than the ranks")
            if count == 0 or self.counts.get(step) != count:
                raise Refused("it makes other forwards in a step than the ranks")

    def close(self):
        end = self.recorder.end
        if self.ranks is not None:
            self.attempt(self.check_counts)
        end["handed"] = self.ranks is not None and not self.why
        end["why_not_handed"] = self.why
        end["scale_known"] = self.scale_known
        end["recomputed"], end["compared"] = self.batches.found()


def leaves_of(batch):
    """Its tensors, by their rows, and its form; none where it has anything else."""
    import torch
    from torch.utils import _pytree as tree
    leaves, form = tree.tree_flatten(batch)
    dense = all(isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided and leaf.dim() > 0 for leaf in leaves)
    return (leaves if dense else []), form


def projected(tensor):
    """A number for each row."""
    import torch
    values = tensor.detach().double().reshape(len(tensor), -1)
    return (values @ torch.sin(torch.arange(1.0, values.shape[1] + 1, dtype=torch.float64))).tolist()


class Batches:
    """Of all ranks, as the loaders of one device give them; and by step what is computed of them, here and by the ranks."""

    def __init__(self):
        self.counts, self.unknown, self.rows = {}, set(), {}
        self.of_other_weights = False  # a teacher may have been made of those that one device began with

    def given(self, step, batch, ranks):
        import torch
        from torch.utils import _pytree as tree
        number = self.counts[step] = self.counts.get(step, -1) + 1
        loads = [rank["loads"].get(step, []) for rank in ranks]
        theirs = [rank[number] if number < len(rank) else None for rank in loads]
        leaves, form = leaves_of(batch)
        if not leaves or not are_parts(leaves, theirs):
            self.unknown.add(step)
            return batch
        return tree.tree_unflatten([torch.cat(parts) for parts in zip(*theirs)], form)

    def computed(self, step, data, given, drew):
        """In any order of the step's calls."""
        with_rows = [pair for pair in zip(data, given) if pair[0].dim() > 0 and pair[1].dim() > 0]
        if drew or step not in self.counts or any(one.numel() > MOST_COMPARED for pair in with_rows for one in pair):
            self.unknown.add(step)
        if step in self.unknown:
            return
        mine, theirs = self.rows.setdefault(step, ([], []))
        for own, other in with_rows:
            mine += projected(own)
            theirs += projected(other)

    def in_own_order(self, step, mine, given):
        """What the script makes of the ranks' batches itself, if it has their rows: it knows where it put them (two views of
        each sample, one after the other, which it takes apart again)."""
        if step not in self.counts or step in self.unknown or mine.shape != given.shape or mine.dim() == 0:
            return given
        return mine if are_close(sorted(projected(mine)), sorted(projected(given))) else given

    def found(self):
        """Is it something else, and was all of it compared?"""
        differs = any(not are_close(sorted(mine), sorted(theirs)) for step, (mine, theirs) in self.rows.items() if step not in self.unknown)
        if differs and self.of_other_weights:
            return False, False
        return differs, bool(self.rows) and not self.unknown


def are_close(mine, theirs):
    return len(mine) == len(theirs) and all(abs(a - b) <= NEAR * max(1.0, abs(a), abs(b)) for a, b in zip(mine, theirs))


def are_parts(leaves, theirs):
    """Batches of the ranks that make one like this, and are not one batch that each of them has."""
    import torch
    if any(rank is None or len(rank) != len(leaves) for rank in theirs):
        return False
    if any(part.dtype != leaf.dtype or part.shape[1:] != leaf.shape[1:] for rank in theirs for part, leaf in zip(rank, leaves)):
        return False
    return not all(part.shape == first.shape and torch.equal(part, first) for rank in theirs[1:] for part, first in zip(rank, theirs[0]))


def owners_of(chosen, given, used):
    """Of the rows of the first tensor that ranks were given of their own."""
    import torch
    for theirs, one, mine in zip(zip(*chosen), given, used):
        if theirs[0].dim() == 0 or all(torch.equal(other, theirs[0]) for other in theirs[1:]):
            continue
        owners = [rank for rank, part in enumerate(theirs) for _ in part]
        if mine is one:
            return owners
        places = [sorted(range(len(rows)), key=projected(rows).__getitem__) for rows in (mine, one)]
        found = dict(zip(*places))
        return [owners[found[place]] for place in range(len(owners))]
    return []


def joined(mine, theirs):
    """The tensors of the ranks as one, of however many rows each; what is the same everywhere, such as a mask, is as it
    is."""
    import torch
    if all(one.dtype == mine.dtype and one.shape == mine.shape and torch.equal(mine, one) for one in theirs):
        return mine
    if mine.dim() == 0 or any(one.dtype != mine.dtype or one.dim() != mine.dim() or one.shape[1:] != mine.shape[1:]
                              for one in theirs):
        raise Refused("its batches do not have the shape of those of the ranks")
    return torch.cat(theirs).to(mine.device)
