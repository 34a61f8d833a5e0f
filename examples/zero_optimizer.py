"""ZeroRedundancyOptimizer: each rank keeps the state of Adam for its share of the parameters. --bug
plants one classic mistake."""
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

BUGS = ("lr_scaled", "summed_loss", "same_samples", "divided_twice", "local_batch_norm")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bug", choices=BUGS)
    bug = parser.parse_args().bug
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    torch.manual_seed(6)
    x = torch.randn(48, 10)
    data = TensorDataset(x, (x.sum(1) > 0).long())
    sampler = None if bug == "same_samples" else DistributedSampler(data)
    loader = DataLoader(data, batch_size=6, sampler=sampler)
    norm = nn.BatchNorm1d(14) if bug == "local_batch_norm" else nn.Identity()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 14), norm, nn.Tanh(), nn.Linear(14, 2)))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW,
                                        lr=1e-2 * (world if bug == "lr_scaled" else 1))
    loss_of = nn.CrossEntropyLoss(reduction="sum" if bug == "summed_loss" else "mean")
    for x, y in loader:
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        (loss / world if bug == "divided_twice" else loss).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
