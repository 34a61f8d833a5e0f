"""Loaders: batches W times as large on one device; the epochs that samplers deal."""
from .double import in_double


def watch(recorder):
    from torch.utils import data
    begin, iterate = data.DataLoader.__init__, data.DataLoader.__iter__

    def init(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, *args, **kwargs):
        if batch_sampler is None and batch_size is not None:
            batch_size *= recorder.scale
        elif isinstance(getattr(batch_sampler, "batch_size", None), int):
            batch_sampler.batch_size *= recorder.scale
        begin(self, dataset, batch_size, shuffle, sampler, batch_sampler, *args, **kwargs)

    def iterated(self):
        for batch in iterate(self):
            yield in_double(batch)
    data.DataLoader.__init__, data.DataLoader.__iter__ = init, iterated
    watch_samplers(recorder)


def watch_samplers(recorder):
    from torch.utils import data
    sampler = data.distributed.DistributedSampler
    deal = sampler.__iter__

    def dealt(self):
        import torch
        used = self.__dict__.setdefault("_lockstep_epochs", set())
        if torch.is_grad_enabled():  # an evaluation may see one order for ever
            if self.shuffle and self.epoch in used:
                recorder.end["stale_epochs"] += 1
            used.add(self.epoch)
        return deal(self)
    sampler.__iter__ = dealt
