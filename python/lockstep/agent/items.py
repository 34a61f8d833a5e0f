"""What a data set has at its indices. Where a DistributedSampler deals one data set to all ranks, that must be the same for
all of them, unless it is drawn when it is fetched: a vocabulary, a scaler or a choice of rows that each rank makes of
what it has itself is another data set."""
import functools
import hashlib
import weakref

from .sketches import digest

MOST_ITEMS = 4096  # of a process
MOST_SETS = 16
MOST_STREAMED = 64  # batches that are fetched of what has no indices, and looked at for draws


class Unknown(Exception):
    """It is of a kind whose content need not be told by its parts."""


class Carried:
    """From a loader's worker to the process that trains: the batch, and what it is made of."""

    def __init__(self, batch, items, drew):
        self.batch, self.items, self.drew = batch, items, drew


class Seen:
    """A data set of which is noted what it gives; index, hash."""

    def __init__(self, dataset):
        self.dataset, self.items = dataset, []

    def __getitem__(self, index):
        return self.noted(index, self.dataset[index])

    def __getattr__(self, name):
        found = getattr(self.dataset, name)
        if name != "__getitems__" or found is None:
            return found
        return lambda indices: [self.noted(index, item) for index, item in zip(indices, found(indices))]

    def look_again(self):
        """At one of them, once an iteration: by a generator of its own, or by the clock, it is made anew each time. Was it?"""
        index, code = self.items[0]
        try:
            self.noted(index, self.dataset[index])
        except Exception:  # the script's own, of whom nothing is known then
            self.items.append((index, ""))
        return self.items[-1][1] not in ("", code)

    def noted(self, index, item):
        if type(index) is int and len(self.items) < MOST_ITEMS:
            try:
                code = hashlib.blake2b(digest_size=8)
                add(code, item)
                self.items.append((index, code.hexdigest()))
            except Unknown:
                pass
        return item


def add(code, item):
    """To a hash: all that an item consists of, in its order."""
    import torch
    code.update(type(item).__name__.encode())
    if isinstance(item, torch.Tensor):
        if item.layout != torch.strided:
            raise Unknown
        code.update(repr(tuple(item.shape)).encode())
        code.update(digest([item]).encode())
    elif isinstance(item, (list, tuple)):
        for part in item:
            add(code, part)
    elif isinstance(item, dict):
        for key, part in item.items():
            code.update(repr(key).encode())
            add(code, part)
    elif item is None or type(item) in (bool, int, float, str, bytes):
        code.update(repr(item).encode())
    elif type(item).__module__ == "numpy" and hasattr(item, "tobytes") and not getattr(item.dtype, "hasobject", True):
        code.update(repr(item.shape).encode())
        code.update(item.tobytes())
    else:
        raise Unknown


class Items:
    """By data set, in the order in which they were trained on, and index: the hash of what it had there."""

    def __init__(self):
        self.sets, self.hashes, self.constant = [], {}, True
        self.streamed = MOST_STREAMED
        self.carried = False  # here is a worker of torch's own loaders, which unpack what it sends (torchdata's do not)
        self.drew = False  # did anybody draw random numbers while a batch was fetched, to be trained on?

    def number_of(self, dataset):
        for number, known in enumerate(self.sets):
            if known() is dataset:
                return number
        if len(self.sets) == MOST_SETS:
            return None
        try:
            self.sets.append(weakref.ref(dataset))
        except TypeError:  # a list; kept, so that no other one comes to its place
            self.sets.append(lambda: dataset)
        return len(self.sets) - 1

    def wants_more(self):
        return self.constant and len(self.hashes) < MOST_ITEMS

    def trained(self, dataset, items):
        number = self.number_of(dataset) if self.constant and items else None
        if number is None:
            return
        for index, code in items:
            if len(self.hashes) < MOST_ITEMS:
                self.constant &= self.hashes.setdefault((number, index), code) == code

    def lines(self):
        """Empty where an item changed from one time to the next: somebody draws whom nobody sees."""
        return [[number, index, code] for (number, index), code in self.hashes.items()] if self.constant else []


def watch(recorder):
    from torch.utils.data import dataloader, get_worker_info
    from torch.utils.data._utils import worker
    from torch.utils.data._utils.fetch import _IterableDatasetFetcher as streamer, _MapDatasetFetcher as fetcher
    fetch, stream, loader = fetcher.fetch, streamer.fetch, dataloader._MultiProcessingDataLoaderIter
    process, work = loader._process_data, worker._worker_loop

    def of_evaluation():
        return get_worker_info() is None and recorder.deals.under_way is None

    def streamed(self, *args):
        if of_evaluation() or recorder.items.streamed == 0:
            return stream(self, *args)
        before = recorder.generators.states()
        batch = stream(self, *args)
        drew = before != recorder.generators.states()
        recorder.items.streamed = 0 if drew else recorder.items.streamed - 1
        return delivered(batch, [], drew)

    def fetched(self, *args):
        if of_evaluation() or not recorder.items.wants_more():
            if isinstance(self.dataset, Seen):
                self.dataset = self.dataset.dataset
            return fetch(self, *args)
        is_first = not isinstance(self.dataset, Seen)
        if is_first:
            self.dataset = Seen(self.dataset)
        self.dataset.items, before = [], recorder.generators.states()
        batch = fetch(self, *args)
        drew = before != recorder.generators.states()
        if is_first and self.dataset.items and not drew:
            drew = self.dataset.look_again()
        items = [] if before != recorder.generators.states() else self.dataset.items
        return delivered(batch, items, drew)

    def delivered(batch, items, drew):
        if get_worker_info() is not None:
            return Carried(batch, items, drew) if recorder.items.carried else batch
        fetched_items(items, drew)
        return batch

    def fetched_items(items, drew):
        recorder.items.drew |= drew
        recorder.deals.fetched_items(items)

    def processed(self, data, *args):
        if isinstance(data, Carried):
            fetched_items(data.items, data.drew)
            data = data.batch
        return process(self, data, *args)
    @functools.wraps(work)
    def worked(*args, **kwargs):
        recorder.items.carried = True
        return work(*args, **kwargs)
    fetcher.fetch, streamer.fetch, loader._process_data, worker._worker_loop = fetched, streamed, processed, worked
