"""A small DDP training as people write it. --bug plants one classic mistake."""
import argparse
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

BUGS = ("summed_loss", "divided_twice", "lr_scaled", "same_samples", "epoch_never_set", "local_batch_norm",
        "module_past_ddp", "outside_ddp", "no_sync_at_step", "update_on_one_rank")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bug", choices=BUGS)
    bug = parser.parse_args().bug
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    inputs = torch.randn(192, 20)
    data = TensorDataset(inputs, (inputs.sum(1) > 0).long())
    sampler = None if bug == "same_samples" else DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
    norm = nn.BatchNorm1d(32) if bug == "local_batch_norm" else nn.Identity()
    net = nn.Sequential(nn.Linear(20, 32), norm, nn.ReLU(), nn.Linear(32, 2))
    model = DistributedDataParallel(net)
    extra = nn.Linear(2, 2)
    params = list(model.parameters()) + (list(extra.parameters()) if bug == "outside_ddp" else [])
    optimizer = torch.optim.SGD(params, lr=0.01 * (world if bug == "lr_scaled" else 1), momentum=0.9)
    loss_of = nn.CrossEntropyLoss(reduction="sum" if bug == "summed_loss" else "mean")
    for epoch in range(2):
        if sampler is not None and bug != "epoch_never_set":
            sampler.set_epoch(epoch)
        for batch, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            skip = bug == "no_sync_at_step" and batch == 2
            with model.no_sync() if skip else contextlib.nullcontext():
                out = net(x) if bug == "module_past_ddp" and batch == 2 else model(x)
                loss = loss_of(extra(out) if bug == "outside_ddp" else out, y)
                (loss / world if bug == "divided_twice" else loss).backward()
            if bug != "update_on_one_rank" or rank == 0:
                optimizer.step()
    if rank == 0:
        print(f"loss {float(loss):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
