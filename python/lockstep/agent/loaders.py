"""Loaders: batches W times as large on one device, and as many samples as ranks are dealt."""
import functools

from . import inputs
from .batch_sizes import length
from .deals import Iteration
from .double import in_double
from .imports import after_import
from .options import Scaled


def watch(recorder):
    from torch.utils import data
    watch_loaders(recorder, data.DataLoader)
    after_import("torchdata.stateful_dataloader.stateful_dataloader",
                 lambda module: watch_loaders(recorder, module.StatefulDataLoader))  # which calls none of the other's methods
    watch_samplers(recorder)


def watch_loaders(recorder, kind):
    import torch
    begin, iterate = kind.__init__, kind.__iter__

    @functools.wraps(begin)
    def init(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, *args, **kwargs):
        if batch_sampler is None and batch_size is not None:
            batch_size = scaled(batch_size, dataset)
        elif isinstance(getattr(batch_sampler, "batch_size", None), int):
            batch_sampler.batch_size = scaled(batch_sampler.batch_size, dataset)
        begin(self, dataset, batch_size, shuffle, sampler, batch_sampler, *args, **kwargs)

    def scaled(size, dataset):
        """Once: libraries make loaders out of loaders."""
        return size if hasattr(size, "scaled_by_lockstep") else Scaled(recorder.sizes.larger(size, dataset))

    @functools.wraps(iterate)
    def iterated(self):
        if not torch.is_grad_enabled():
            for batch in iterate(self):
                yield in_double(batch) if recorder.in_double else batch
            return
        iteration, exhausted = Iteration(length(self), self.dataset, size_of_batches(self)), False
        recorder.deals.iterations += 1
        batches = recorder.deals.within(iteration, lambda: iterate(self))
        try:
            while True:
                recorder.by_hand.settle()
                try:
                    batch = recorder.deals.next_of(iteration, batches)
                except StopIteration:
                    exhausted = True
                    return
                batch = in_double(batch) if recorder.in_double else batch
                if recorder.hands is not None:
                    batch = recorder.hands.loaded(batch)
                inputs.loaded(recorder, batch)
                yield batch
        finally:
            recorder.deals.ended(iteration, exhausted)
    kind.__init__, kind.__iter__ = init, iterated


def size_of_batches(loader):
    """None: who cuts them is not torch's own."""
    from torch.utils.data import BatchSampler
    sampler = loader.batch_sampler
    return sampler.batch_size if type(sampler) is BatchSampler else None


def deal_as_many(sampler, ranks):
    """One device is dealt what `ranks` ranks are: as many repeated, or as many dropped."""
    samples = len(sampler.dataset)
    each = samples // ranks if sampler.drop_last else -(-samples // ranks)
    sampler.num_samples = sampler.total_size = each * ranks


def watch_samplers(recorder):
    from torch.utils import data
    sampler = data.distributed.DistributedSampler
    begin, deal = sampler.__init__, sampler.__iter__

    @functools.wraps(begin)
    def init(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        if recorder.larger > 1 and self.num_replicas == 1:
            deal_as_many(self, recorder.larger)

    @functools.wraps(deal)
    def dealt(self):
        import torch
        if torch.is_grad_enabled():
            recorder.deals.dealt(self)
        return deal(self)
    sampler.__init__, sampler.__iter__ = init, dealt
