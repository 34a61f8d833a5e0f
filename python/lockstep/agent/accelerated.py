"""Accelerate on one device, which is to draw and to count as its W ranks do: the seed of a shuffle is drawn when the
loader is prepared, and a schedule that counts batches goes on by W of them at each step."""
import functools

from .imports import after_import


def watch(recorder):
    if recorder.scale > 1:
        after_import("accelerate.data_loader", watch_loaders)
        after_import("accelerate.scheduler", functools.partial(watch_schedules, recorder.scale))


def watch_loaders(module):
    prepare = module.prepare_data_loader

    @functools.wraps(prepare)
    def prepared(dataloader, *args, **kwargs):
        import torch
        sampler = getattr(dataloader, "sampler", None)
        shuffles = isinstance(sampler, torch.utils.data.RandomSampler) and sampler.generator is None
        if shuffles and not kwargs.get("use_seedable_sampler"):
            sampler.generator = torch.Generator()
            sampler.generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
        return prepare(dataloader, *args, **kwargs)
    module.prepare_data_loader = prepared


def watch_schedules(scale, module):
    step = module.AcceleratedScheduler.step

    @functools.wraps(step)
    def stepped(self, *args, **kwargs):
        for _ in range(1 if self.split_batches else scale):
            step(self, *args, **kwargs)
    module.AcceleratedScheduler.step = stepped
