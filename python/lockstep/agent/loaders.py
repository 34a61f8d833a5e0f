"""Loaders: batches W times as large on one device; the epochs that samplers deal."""
from .double import in_double


class Scaled(int):
    """A batch size that is W times as large already: libraries make loaders out of loaders."""


def watch(recorder):
    import torch
    from torch.utils import data
    begin, iterate = data.DataLoader.__init__, data.DataLoader.__iter__

    def init(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, *args, **kwargs):
        if batch_sampler is None and batch_size is not None:
            batch_size = scaled(batch_size)
        elif isinstance(getattr(batch_sampler, "batch_size", None), int):
            batch_sampler.batch_size = scaled(batch_sampler.batch_size)
        begin(self, dataset, batch_size, shuffle, sampler, batch_sampler, *args, **kwargs)

    def scaled(size):
        return size if isinstance(size, Scaled) else Scaled(size * recorder.larger)

    def iterated(self):
        for number, batch in enumerate(iterate(self), 1):
            if torch.is_grad_enabled():
                recorder.position, recorder.batches = number, length(self)
            yield in_double(batch) if recorder.in_double else batch
    data.DataLoader.__init__, data.DataLoader.__iter__ = init, iterated
    watch_samplers(recorder)


def length(loader):
    try:
        return len(loader)
    except TypeError:  # of an iterable data set nobody knows
        return 0


def deal_as_many(sampler, ranks):
    """One device is dealt what `ranks` ranks are: as many repeated, or as many dropped."""
    samples = len(sampler.dataset)
    each = samples // ranks if sampler.drop_last else -(-samples // ranks)
    sampler.num_samples = sampler.total_size = each * ranks


MOST_SHUFFLES = 1024


def note_replica(recorder, sampler):
    shuffles = recorder.end["shuffles"]
    if sampler.shuffle and sampler.num_replicas == recorder.world and len(shuffles) < MOST_SHUFFLES:
        shuffles.append(f"seed {sampler.seed}, epoch {sampler.epoch}")
    recorder.end["replicas"] = max(recorder.end["replicas"], sampler.num_replicas)
    if sampler.rank not in recorder.end["replicas_dealt"]:
        recorder.end["replicas_dealt"].append(sampler.rank)


def watch_samplers(recorder):
    from torch.utils import data
    sampler = data.distributed.DistributedSampler
    begin, deal = sampler.__init__, sampler.__iter__

    def init(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        if recorder.larger > 1 and self.num_replicas == 1:
            deal_as_many(self, recorder.larger)

    def dealt(self):
        import torch
        used = self.__dict__.setdefault("_lockstep_epochs", set())
        if torch.is_grad_enabled():  # an evaluation may see one order for ever
            if self.shuffle and self.epoch in used:
                recorder.end["stale_epochs"] += 1
            used.add(self.epoch)
            note_replica(recorder, self)
            recorder.end["padded"] = max(recorder.end["padded"], self.total_size - len(self.dataset))
        return deal(self)
    sampler.__init__, sampler.__iter__ = init, dealt
