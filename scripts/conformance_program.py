"""The training that scripts/conformance has judged: one library, one feature, on data that is the same in every run.

usage: conformance_program.py LIBRARY FEATURE [BUCKETS]"""
import contextlib
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

BATCH = 4
PARTS = {"accumulation": 2, "accumulation_unused": 2}  # micro-batches of a step
STATIC = {"static_graph", "static_graph_accumulation"}
PARTS["static_graph_accumulation"] = 2


class Net(nn.Module):
    """Layers whose parameters are used as the feature says."""

    def __init__(self, feature):
        super().__init__()
        sizes = (7, 13, 3) if feature == "odd_sizes" else (8, 16, 4)
        wide = sizes[1]
        self.first = nn.Linear(sizes[0], wide)
        self.second = nn.Linear(wide, wide)
        self.third = nn.Linear(wide, wide)
        self.last = nn.Linear(wide, sizes[2])
        self.norm = nn.BatchNorm1d(wide) if feature.endswith("batch_norm") else nn.Identity()
        if feature == "odd_sizes":
            self.scale = nn.Parameter(torch.full((1,), 0.5))
        if feature == "tied_weights":
            self.third.weight = self.second.weight
        if feature.endswith("unused"):
            self.spare = nn.Linear(wide, wide)
        self.calls, self.feature = 0, feature

    def forward(self, x):
        hidden = torch.tanh(self.third(torch.tanh(self.second(self.norm(torch.tanh(self.first(x)))))))
        if self.feature == "accumulation_unused" and self.calls % 2 == 0:
            hidden = hidden + self.spare(hidden)  # in the first micro-batch of a step, under no_sync()
        self.calls += 1
        return self.last(hidden * self.scale if self.feature == "odd_sizes" else hidden)


class Exact(nn.Module):
    """Nothing that is computed of the data below needs rounding: two layers side by side, without biases."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(8, 4, bias=False), nn.Linear(5, 3, bias=False)
        for parameter in self.parameters():
            parameter.data = torch.randint(-4, 5, parameter.shape).to(parameter) / 4

    def forward(self, x):
        return torch.cat((self.left(x), self.right(x[:, :5])), 1)


def data_of(feature):
    if feature == "exact":  # multiples of 3, so that three ranks divide them without rounding
        return 3.0 * torch.randint(-2, 3, (24, 8)), 3.0 * torch.randint(-4, 5, (24, 7))
    x = torch.randn(48, 7 if feature == "odd_sizes" else 8)
    return x, torch.stack([x.sum(1), *(x[:, i] for i in range(1, 3 if feature == "odd_sizes" else 4))], 1).sin()


def loss_of(out, y):
    return ((out - y) ** 2).sum(1).mean()


def options_of(feature):
    """Class and options of the optimizer."""
    if feature == "adam":
        return torch.optim.Adam, {"lr": 0.01}
    return torch.optim.SGD, {"lr": 2.0 ** -6, "momentum": 0.5}


def bytes_of(parameters):
    return sum(one.numel() * one.element_size() for one in parameters)


def bucket_cap(model, buckets):
    """In bytes."""
    parameters = list(model.parameters())
    sizes = [bytes_of([one]) for one in parameters]
    return {"each": 1, "below_largest": max(sizes) // 2, "to_the_byte": bytes_of(parameters[-3:]), "one": 10 * sum(sizes)}[buckets]


class Library:
    """What a training does by itself; libraries change what they take over."""

    def __init__(self, model, feature, buckets):
        self.feature, self.buckets = feature, buckets
        self.parts = PARTS.get(feature, 1)
        self.model = self.wrapped(model)
        kind, options = options_of(feature)
        self.optimizer = self.made(kind, options)

    def made(self, kind, options):
        return kind(self.model.parameters(), **options)

    def part(self, last):
        """Around forward and backward of a micro-batch, of which the last of a step synchronizes."""
        return contextlib.nullcontext()

    def backward(self, loss):
        (loss / self.parts).backward()

    def clip(self):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)

    def loader(self, data):
        return DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data, shuffle=False))

    def train(self, data):
        for number, (x, y) in enumerate(self.loader(data)):
            last = (number + 1) % self.parts == 0
            if number % self.parts == 0:
                self.optimizer.zero_grad()
            with self.part(last):
                self.backward(loss_of(self.model(x), y))
            if last:
                if self.feature == "clipping":
                    self.clip()
                self.optimizer.step()


class Ddp(Library):
    def wrapped(self, model):
        if self.feature == "sync_batch_norm":
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        options = {"find_unused_parameters": self.feature.endswith("unused"),
                   "gradient_as_bucket_view": self.feature == "bucket_view", "static_graph": self.feature in STATIC}
        if self.buckets:
            cap = bucket_cap(model, self.buckets)
            dist._DEFAULT_FIRST_BUCKET_BYTES = cap  # of the first bucket, which is no argument
            options["bucket_cap_mb"] = cap / 2 ** 20
        return nn.parallel.DistributedDataParallel(model, **options)

    def part(self, last):
        return contextlib.nullcontext() if last else self.model.no_sync()


class Zero1(Ddp):
    def made(self, kind, options):
        from torch.distributed.optim import ZeroRedundancyOptimizer
        return ZeroRedundancyOptimizer(self.model.parameters(), kind,
                                       parameters_as_bucket_view=self.feature == "bucket_view", **options)


class Fsdp2(Library):
    reshard = True

    def wrapped(self, model):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        options = {"mesh": init_device_mesh("cpu", (dist.get_world_size(),)), "reshard_after_forward": self.reshard}
        if self.buckets != "one" and self.feature != "tied_weights":
            for layer in model.children():
                if list(layer.parameters()):
                    fully_shard(layer, **options)
        return fully_shard(model, **options)

    def part(self, last):
        self.model.set_requires_gradient_sync(last)
        return contextlib.nullcontext()


class Zero2(Fsdp2):
    reshard = False  # gradients and optimizer state in shards, parameters whole


class Flat(Library):
    """The older FullyShardedDataParallel."""

    def wrapped(self, model):
        from torch.distributed.fsdp import FullyShardedDataParallel
        return FullyShardedDataParallel(model)

    def clip(self):
        self.model.clip_grad_norm_(0.1)


class Accelerate(Library):
    def wrapped(self, model):
        from accelerate import Accelerator
        self.accelerator = Accelerator(cpu=True, gradient_accumulation_steps=self.parts)
        return model

    def made(self, kind, options):
        self.model, optimizer = self.accelerator.prepare(self.model, kind(self.model.parameters(), **options))
        return optimizer

    def loader(self, data):
        return self.accelerator.prepare(DataLoader(data, batch_size=BATCH))

    def train(self, data):
        for x, y in self.loader(data):
            with self.accelerator.accumulate(self.model):
                self.accelerator.backward(loss_of(self.model(x), y))
                if self.feature == "clipping" and self.accelerator.sync_gradients:
                    self.accelerator.clip_grad_norm_(self.model.parameters(), 0.1)
                self.optimizer.step()
                self.optimizer.zero_grad()


class Lightning(Library):
    def wrapped(self, model):
        return model

    def train(self, data):
        import lightning
        net, optimizer = self.model, self.optimizer

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = net

            def training_step(self, batch, _number):
                return loss_of(self.net(batch[0]), batch[1])

            def configure_optimizers(self):
                return optimizer

        quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
        trainer = lightning.Trainer(
            accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), max_epochs=1, accumulate_grad_batches=self.parts,
            strategy="ddp_find_unused_parameters_true" if self.feature.endswith("unused") else "ddp",
            gradient_clip_val=0.1 if self.feature == "clipping" else None, **quiet)
        trainer.fit(Module(), DataLoader(data, batch_size=BATCH))


class DeepSpeed0(Library):
    stage = 0

    def wrapped(self, model):
        return model

    def made(self, kind, options):
        import deepspeed
        config = {"train_micro_batch_size_per_gpu": BATCH, "gradient_accumulation_steps": self.parts,
                  "zero_optimization": {"stage": self.stage}, "zero_allow_untested_optimizer": True,
                  "gradient_clipping": 0.1 if self.feature == "clipping" else 0.0}
        self.model, optimizer, _, _ = deepspeed.initialize(
            model=self.model, optimizer=kind(self.model.parameters(), **options), config=config)
        return optimizer

    def train(self, data):
        for x, y in self.loader(data):
            self.model.backward(loss_of(self.model(x), y))
            self.model.step()


class DeepSpeed1(DeepSpeed0):
    stage = 1


class DeepSpeed2(DeepSpeed0):
    stage = 2


LIBRARIES = {"ddp": Ddp, "zero1": Zero1, "zero2": Zero2, "fsdp": Flat, "fsdp2": Fsdp2, "accelerate": Accelerate,
             "lightning": Lightning, "deepspeed0": DeepSpeed0, "deepspeed1": DeepSpeed1, "deepspeed2": DeepSpeed2}


def main():
    library, feature, buckets = (sys.argv[1:] + [""])[:3]
    kind = LIBRARIES[library]
    if kind not in (Accelerate, Lightning):
        dist.init_process_group("gloo")
    torch.manual_seed(7)
    model = Exact() if feature == "exact" else Net(feature)
    torch.manual_seed(8)
    kind(model, feature, buckets).train(TensorDataset(*data_of(feature)))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
