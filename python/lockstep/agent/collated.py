"""Batches that a collate function makes of samples of unequal size, and pads to the longest: one device, whose batches are
larger, pads more than ranks do. It notes which samples it made each batch of; ranks that find its notes in the folder
LOCKSTEP_PROGRAM_COLLATED have the script's own function make the whole batch, and take their rows of it. Then they differ
from one device by their padding no more."""
import glob
import json
import os
import time

from .items import Carried, Seen

MOST_BYTES = 64 << 20  # of a process
MOST_PAIRS = 1 << 16  # of rows of a batch that are held against each other


class Unknown(Exception):
    """The rows of a rank are not found in the whole batch."""


def watch(recorder):
    from torch.utils.data._utils.fetch import _MapDatasetFetcher as fetcher
    folder = os.environ.get("LOCKSTEP_PROGRAM_COLLATED")
    if folder:
        whole = Whole(folder)
    elif recorder.larger > 1:
        whole = Notes(recorder.folder)
    else:
        return
    fetch = fetcher.fetch

    def fetched(self, indices):
        batch = fetch(self, indices)
        if not pads(self, indices):
            return batch
        if isinstance(batch, Carried):
            return Carried(whole.fetched(self, indices, batch.batch), batch.items, batch.drew)
        return whole.fetched(self, indices, batch)
    fetcher.fetch = fetched


def pads(fetcher, indices):
    from torch.utils.data._utils.collate import default_collate
    return fetcher.auto_collation and fetcher.collate_fn is not default_collate and isinstance(indices, list) and all(
        type(index) is int for index in indices)


class Notes:
    """Of one device: workers of a loader write files of their own."""

    def __init__(self, folder):
        self.folder, self.pid, self.file, self.bytes = folder, 0, None, 0

    def fetched(self, fetcher, indices, batch):
        if self.pid != os.getpid():
            self.pid = os.getpid()
            self.file = open(f"{self.folder}/collated-{self.pid}.jsonl", "a", encoding="utf-8")
        line = json.dumps([time.monotonic_ns(), indices]) + "\n"
        self.bytes += len(line)
        if self.bytes <= MOST_BYTES:
            self.file.write(line)
            self.file.flush()
        return batch


class Whole:
    """Of a rank."""

    def __init__(self, folder):
        self.folder, self.batches, self.next = folder, None, 0

    def load(self):
        lines = []
        for path in glob.glob(f"{self.folder}/collated-*.jsonl"):
            with open(path, encoding="utf-8") as file:
                lines += map(json.loads, file)
        self.batches = [(indices, set(indices)) for _, indices in sorted(lines)]

    def batch_of(self, indices):
        """Of one device, the next one that these are a part of. A worker has some of a rank's batches, in their order."""
        if self.batches is None:
            self.load()
        own = set(indices)
        for at in (*range(self.next, len(self.batches)), *range(self.next)):
            batch, of_batch = self.batches[at]
            if len(batch) > len(indices) and own <= of_batch:
                self.next = at + 1
                return batch
        return None

    def fetched(self, fetcher, indices, batch):
        others = self.batch_of(indices)
        if others is None:
            return batch
        data = fetcher.dataset.dataset if isinstance(fetcher.dataset, Seen) else fetcher.dataset
        several = getattr(data, "__getitems__", None)
        whole = fetcher.collate_fn(several(others) if several else [data[index] for index in others])
        places = [others.index(index) for index in indices]
        try:
            return Rows(len(indices), len(others), batch, whole).taken(places)
        except Unknown:
            return batch


class Rows:
    """Of a rank's batch, within the whole one: each lies in a row that is longer, or as long, in every tensor and list."""

    def __init__(self, count, whole_count, own, whole):
        self.counts, self.own, self.whole, self.leaves = (count, whole_count), own, whole, []
        self.walk(own, whole, lambda own, whole: self.leaves.append((own, whole)))
        if not self.leaves:
            raise Unknown

    def taken(self, places):
        """At these places, or wherever a function that sorts its samples has put them."""
        if not all(self.lies_in(row, place) for row, place in enumerate(places)):
            places = self.found()
        return self.walk(self.own, self.whole, lambda _, whole: picked(whole, places))

    def found(self):
        if self.counts[0] * self.counts[1] > MOST_PAIRS:
            raise Unknown
        free, places = list(range(self.counts[1])), []
        for row in range(self.counts[0]):
            place = next((place for place in free if self.lies_in(row, place)), None)
            if place is None:
                raise Unknown
            free.remove(place)
            places.append(place)
        return places

    def lies_in(self, row, place):
        return all(begins_or_ends_with(whole[place], own[row]) for own, whole in self.leaves)

    def walk(self, own, whole, leaf):
        """A batch of the form of both, of what `leaf` makes of tensors and lists with one row for each sample."""
        import torch
        if type(own) is not type(whole):
            raise Unknown
        if isinstance(own, torch.Tensor) and own.dim() == 0 or own is None or isinstance(own, (bool, int, float, str)):
            return whole
        if isinstance(own, (torch.Tensor, list, tuple)) and (len(own), len(whole)) == self.counts:
            return leaf(own, whole)
        if isinstance(own, (list, tuple)) and len(own) == len(whole):
            parts = [self.walk(*pair, leaf) for pair in zip(own, whole)]
            return type(own)(*parts) if hasattr(own, "_fields") else type(own)(parts)
        if hasattr(own, "keys") and hasattr(own, "__getitem__") and list(own.keys()) == list(whole.keys()):
            return type(own)({key: self.walk(own[key], whole[key], leaf) for key in own.keys()})
        raise Unknown


def picked(rows, places):
    import torch
    return rows[places] if isinstance(rows, torch.Tensor) else type(rows)(rows[place] for place in places)


def begins_or_ends_with(whole, own):
    """Along each dimension: padding comes after a sample, or before it."""
    import torch
    if not isinstance(own, torch.Tensor) or not isinstance(whole, torch.Tensor):
        return type(own) is type(whole) and isinstance(own, (bool, int, float, str)) and own == whole
    if own.dim() != whole.dim() or own.dtype != whole.dtype or any(a > b for a, b in zip(own.shape, whole.shape)):
        return False
    first = whole[tuple(slice(0, size) for size in own.shape)]
    last = whole[tuple(slice(full - size, full) for size, full in zip(own.shape, whole.shape))]
    return torch.equal(first, own) or torch.equal(last, own)
