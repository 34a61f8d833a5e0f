"""Normalization over the batch of all ranks. torch.nn.SyncBatchNorm runs on GPUs alone (and under lockstep), so the one
here is made of all_reduce that autograd knows; --torch takes torch's. --bug plants one classic mistake."""
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

BUGS = ("local_batch_norm", "summed_loss", "same_samples")


class GlobalBatchNorm(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))

    def forward(self, x):
        sums = torch.cat([x.sum(0), (x * x).sum(0)])
        total = all_reduce(sums) / (len(x) * dist.get_world_size())
        mean, square = total.chunk(2)
        return (x - mean) / (square - mean * mean + 1e-5).sqrt() * self.weight + self.bias


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bug", choices=BUGS)
    parser.add_argument("--torch", action="store_true")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    x = torch.randn(48, 6)
    data = TensorDataset(x, x.sin())
    sampler = None if options.bug == "same_samples" else DistributedSampler(data)
    loader = DataLoader(data, batch_size=6, sampler=sampler)
    local = options.bug == "local_batch_norm"
    norm = nn.SyncBatchNorm(8) if options.torch else nn.BatchNorm1d(8) if local else GlobalBatchNorm(8)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 8, bias=False), norm, nn.Tanh(), nn.Linear(8, 6)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_of = nn.MSELoss(reduction="sum" if options.bug == "summed_loss" else "mean")
    for x, y in loader:
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
