"""The same with ranks that the script spawns itself, Adam and a schedule. --bug plants one classic mistake."""
import argparse
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


BUGS = ("lr_scaled", "summed_loss", "same_samples", "epoch_never_set")


def train(rank, world_size, bug):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(1)
    x = torch.randn(96, 10)
    data = TensorDataset(x, x.flip(1))
    everyone = bug == "same_samples"
    sampler = DistributedSampler(data, num_replicas=1 if everyone else world_size, rank=0 if everyone else rank)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 4), nn.Tanh(), nn.Linear(4, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2 * (world_size if bug == "lr_scaled" else 1))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    loss_of = nn.MSELoss(reduction="sum" if bug == "summed_loss" else "mean")
    for epoch in range(2):
        if bug != "epoch_never_set":
            sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss_of(model(inputs), targets).backward()
            optimizer.step()
        scheduler.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bug", choices=BUGS)
    mp.spawn(train, args=(2, parser.parse_args().bug), nprocs=2)
