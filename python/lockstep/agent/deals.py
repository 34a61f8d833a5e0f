"""What was trained on, of all that loaders gave: how samplers dealt it, and where in its iteration the loader is. An evaluation,
a first batch for a summary or a mean over the data set may see any order, as often as it likes."""

import array
import hashlib
import sys
import weakref

from .models import trained

MOST_SHUFFLES = 1024
MOST_INDICES = 1 << 22


def split_of(dataset):
    """A hash of the indices that a part of a data set has, in their order; empty: it is no part, or too large a one."""
    data, hashes = sys.modules.get("torch.utils.data"), []
    while data is not None and isinstance(dataset, data.Subset):
        if len(dataset.indices) > MOST_INDICES:
            return ""
        keys = bytes_of(dataset.indices)
        if keys is None:
            return ""
        hashes.append(keys)
        dataset = dataset.dataset
    return hashlib.blake2b(b";".join(hashes), digest_size=8).hexdigest() if hashes else ""


def bytes_of(indices):
    """Mostly of numbers; a data set may have keys of another kind. None: of one that need not say the same on every rank, as
    an object that is shown by its address."""
    try:
        return array.array("q", indices).tobytes()
    except (TypeError, ValueError, OverflowError):
        return repr(list(indices)).encode() if all(is_plain(index) for index in indices) else None


def is_plain(key):
    return all(map(is_plain, key)) if isinstance(key, tuple) else key is None or type(key) in (str, bytes, bool, int, float)


class Iteration:
    """Of one loader, once."""

    def __init__(self, batches, dataset=None, size=None):
        self.batches, self.number, self.calls = batches, 0, 0
        self.size = size  # of a batch; not known where the script cuts them
        self.dataset, self.items = dataset, []  # items: fetched since it was trained on last
        self.deals, self.trained, self.over, self.sure = [], False, False, True

    def train(self, recorder):
        recorder.position, recorder.batches = self.number, self.batches
        if not self.trained:
            self.trained = True
            for deal in self.deals:
                deal.note(recorder, self.sure)
        for deal in self.deals:
            deal.note_padding(recorder, None if self.size is None else self.size * self.number)
        if len(self.deals) == 1 and self.deals[0].replicas == recorder.world:
            recorder.items.trained(self.dataset, self.items)
        self.items = []


class Used:
    """Epochs that samplers of one data set and seed dealt to the end, for a model to be trained on: a sampler that is made anew
    for each epoch repeats what another one gave, and one that resumes goes on where another had stopped."""

    def __init__(self):
        self.epochs = {}  # by ids; those whose objects are gone are none

    def note(self, key, things):
        try:
            self.epochs[key] = [weakref.ref(thing) for thing in things]
        except TypeError:  # a list of samples, which may be another one at the same place later
            pass

    def __contains__(self, key):
        return all(thing() is not None for thing in self.epochs.get(key, [lambda: None]))


class Deal:
    """What a DistributedSampler gave, as it was then."""

    def __init__(self, sampler):
        self.used = sampler.__dict__.setdefault("_lockstep_epochs", set())
        self.dataset, self.model = sampler.dataset, None
        self.shuffle, self.seed, self.epoch = sampler.shuffle, sampler.seed, sampler.epoch
        self.replicas, self.rank = sampler.num_replicas, sampler.rank
        self.padded = sampler.total_size - len(sampler.dataset)
        self.split = split_of(sampler.dataset) if self.replicas > 1 else ""

    def note(self, recorder, sure):
        end = recorder.end
        if not sure:
            return
        self.model = next(filter(trained, recorder.computed.values()), None)
        if self.shuffle:
            end["stale_epochs"] += self.epoch in self.used or self.key() in recorder.deals.used_up
            if self.replicas == recorder.world and len(end["shuffles"]) < MOST_SHUFFLES:
                end["shuffles"].append(f"seed {self.seed}, epoch {self.epoch}")
        self.used.add(self.epoch)
        if self.replicas == recorder.world and len(end["splits"]) < MOST_SHUFFLES:
            end["splits"].append(self.split)
        end["replicas"] = max(end["replicas"], self.replicas)
        if self.rank not in end["replicas_dealt"]:
            end["replicas_dealt"].append(self.rank)

    def note_padding(self, recorder, reached):
        """Samples that are repeated come last, and loaders may drop them: of each rank's own, batches `reached` so many."""
        if reached is None or reached > len(self.dataset) // self.replicas:
            recorder.end["padded"] = max(recorder.end["padded"], self.padded)

    def key(self):
        return id(self.dataset), id(self.model), self.seed, self.replicas, self.rank, self.epoch

    def use_up(self, used_up):
        if self.shuffle and self.model is not None:
            used_up.note(self.key(), (self.dataset, self.model))


class Deals:
    def __init__(self, recorder):
        self.recorder, self.fetched, self.under_way, self.used_up = recorder, [], None, Used()
        self.iterations = 0  # of loaders, begun

    def dealt(self, sampler):
        """Of a sampler that no loader asks, whoever trains next has what it gave."""
        iteration, deal = self.under_way or Iteration(0), Deal(sampler)
        for other in self.fetched:  # was only looked at, if the sampler deals again before anything is trained
            other.sure &= not (other.over and any(one.used is deal.used for one in other.deals))
        if not any(one.used is deal.used and one.epoch == deal.epoch for one in iteration.deals):  # else begun once more
            iteration.deals.append(deal)
        if iteration is not self.under_way:
            iteration.over = True
            self.fetched.append(iteration)

    def within(self, iteration, action):
        """Samplers that deal meanwhile deal to it: one of several workers is asked ahead of the first batch."""
        around, self.under_way = self.under_way, iteration
        try:
            return action()
        finally:
            self.under_way = around

    def next_of(self, iteration, batches):
        """The loader's next batch; raises StopIteration."""
        batch = self.within(iteration, lambda: next(batches))
        iteration.number, iteration.calls = iteration.number + 1, self.recorder.calls
        if iteration not in self.fetched:
            self.fetched.append(iteration)
        return batch

    def fetched_items(self, items):
        if self.under_way is not None:
            self.under_way.items += items

    def ended(self, iteration, exhausted):
        """What it gave last went through a module, and no gradient came of it: an evaluation."""
        iteration.over = True
        if exhausted and iteration.trained:
            for deal in iteration.deals:
                deal.use_up(self.used_up)
        if iteration not in self.fetched:
            return
        if self.recorder.calls != iteration.calls:
            self.fetched.remove(iteration)
        elif exhausted:  # all of it was looked at, or kept to be trained on
            iteration.sure = False

    def trained(self):
        for iteration in self.fetched:
            iteration.train(self.recorder)
        self.fetched = []
