"""Trainings of people in trouble, in a few lines each (docs/threads.md): `threads.py NAME`. Toy data, odd sizes."""
import contextlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

NAME = sys.argv[1]
PARTS = 3  # micro-batches of a step

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(7)
x = torch.randn(72, 5)
words = torch.randint(0, 4, (72,))
if NAME == "mean_of_means":
    words[torch.rand(72) < 0.3] = -100  # padding


data = TensorDataset(x, words)


class Uneven(IterableDataset):
    def __iter__(self):
        for i in range(8 + 3 * rank):
            yield data[i]


loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
if NAME == "uneven_iterable":
    loader = DataLoader(Uneven(), batch_size=4)
net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 4))
if NAME == "fully_shard":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    model = fully_shard(net, mesh=init_device_mesh("cpu", (world,)))
else:
    model = DistributedDataParallel(net)
kind = torch.optim.Adam if NAME == "adam" else torch.optim.SGD
optimizer = kind(model.parameters(), lr=0.1)


def forward(x, words, last):
    if NAME == "flag_after_forward":  # DistributedDataParallel reads it in forward
        loss = nn.functional.cross_entropy(model(x), words) / PARTS
        model.require_backward_grad_sync = last
        return loss
    return nn.functional.cross_entropy(model(x), words) / PARTS


for part, (x, words) in enumerate(loader, 1):
    last = part % PARTS == 0
    off_by_one = NAME == "no_sync_off_by_one" and part % PARTS != 1
    silent = off_by_one or (NAME not in ("flag_after_forward", "no_sync_off_by_one", "fully_shard") and not last)
    with model.no_sync() if silent else contextlib.nullcontext():
        forward(x, words, last).backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
