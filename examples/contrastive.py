"""Two views of each sample are to be nearer to each other than to those of all other samples: the batch of
every rank is gathered for it. --bug plants a mistake that makes samples meet within a rank alone."""
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_gather
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

BUGS = ("own_negatives", "scaled_by_maximum", "variance_penalty", "gathered_as_constants", "lr_scaled",
        "same_samples")


class Scale(nn.Module):
    """By a number that is learned; or by the largest one of the batch."""

    def __init__(self, by_maximum):
        super().__init__()
        self.factor, self.by_maximum = nn.Parameter(torch.tensor(0.5)), by_maximum

    def forward(self, x):
        if self.by_maximum:
            x = x / x.abs().max()
        return x * self.factor


class Encoder(nn.Module):
    def __init__(self, bug):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), Scale(bug == "scaled_by_maximum"))
        self.head = nn.Linear(16, 6)

    def forward(self, first, second):
        return [functional.normalize(self.head(self.body(view)), dim=1) for view in (first, second)]


def constants(tensor):
    gathered = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, tensor)
    return gathered


def loss_of(first, second, bug):
    """Each of this rank's samples among all of them."""
    own = bug == "own_negatives" or dist.get_world_size() == 1
    others = second if own else torch.cat(constants(second) if bug == "gathered_as_constants" else all_gather(second))
    begin = 0 if own else dist.get_rank() * len(first)
    loss = functional.cross_entropy(first @ others.T / 0.2, torch.arange(begin, begin + len(first)))
    if bug == "variance_penalty":
        loss = loss - 0.1 * first.var(0).sum()
    return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bug", choices=BUGS)
    bug = parser.parse_args().bug
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    torch.manual_seed(6)
    x = torch.randn(72, 10)
    data = TensorDataset(x + 0.1 * torch.randn(72, 10), x + 0.1 * torch.randn(72, 10))
    sampler = None if bug == "same_samples" else DistributedSampler(data)
    model = DistributedDataParallel(Encoder(bug))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (world if bug == "lr_scaled" else 1))
    for first, second in DataLoader(data, batch_size=6, sampler=sampler):
        optimizer.zero_grad()
        loss_of(*model(first, second), bug).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
