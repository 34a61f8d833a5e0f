"""A small DDP training as people write it; --skew makes rank 1 slower, --checkpoint FILE keeps the
state of each epoch. --bug plants one classic mistake."""
import argparse
import contextlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

BUGS = ("summed_loss", "divided_twice", "lr_scaled", "same_samples", "epoch_never_set", "local_batch_norm",
        "module_past_ddp", "outside_ddp", "no_sync_at_step", "update_on_one_rank", "parameter_replaced",
        "unused_parameter", "loaded_on_rank_0", "zeroed_on_rank_0", "rate_of_rank", "made_anew_on_rank_0",
        "halved_on_rank_0", "unfrozen", "masked_mean")


def mean_of_some(out, y, counted):
    return (nn.functional.cross_entropy(out, y, reduction="none") * counted).sum() / counted.sum()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bug", choices=BUGS)
    parser.add_argument("--skew", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--checkpoint", metavar="FILE")
    options = parser.parse_args()
    bug = options.bug
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    inputs = torch.randn(192, 20)
    data = TensorDataset(inputs, (inputs.sum(1) > 0).long())
    sampler = None if bug == "same_samples" else DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
    norm = nn.BatchNorm1d(32) if bug == "local_batch_norm" else nn.Identity()
    net = nn.Sequential(nn.Linear(20, 32), norm, nn.ReLU(), nn.Linear(32, 2))
    if bug == "unused_parameter":
        net.register_parameter("scale", nn.Parameter(torch.ones(1)))
    net[0].requires_grad_(bug != "unfrozen")
    model = DistributedDataParallel(net)
    net[0].requires_grad_(True)
    if bug == "parameter_replaced":
        net[3].bias = nn.Parameter(torch.zeros(2))
    if bug == "loaded_on_rank_0" and rank == 0:
        net.load_state_dict({name: 2 * value for name, value in net.state_dict().items()})
    extra = nn.Linear(2, 2)
    params = list(model.parameters()) + (list(extra.parameters()) if bug == "outside_ddp" else [])
    rate = 0.01 * (world if bug == "lr_scaled" else 1 + rank if bug == "rate_of_rank" else 1)
    optimizer = torch.optim.SGD(params, lr=rate, momentum=0.9)
    loss_of = nn.CrossEntropyLoss(reduction="sum" if bug == "summed_loss" else "mean")
    for epoch in range(2):
        if sampler is not None and bug != "epoch_never_set":
            sampler.set_epoch(epoch)
        if bug == "made_anew_on_rank_0" and epoch == 1 and rank == 0:
            optimizer = torch.optim.SGD(params, lr=rate, momentum=0.9)
        for batch, (x, y) in enumerate(loader):
            time.sleep(options.skew * (rank == 1))
            if bug != "zeroed_on_rank_0" or rank == 0:
                optimizer.zero_grad()
            skip = bug == "no_sync_at_step" and batch == 2
            with model.no_sync() if skip else contextlib.nullcontext():
                out = net(x) if bug == "module_past_ddp" and batch == 2 else model(x)
                loss = loss_of(extra(out) if bug == "outside_ddp" else out, y)
                if bug == "masked_mean":
                    loss = mean_of_some(out, y, (x[:, 0] > 0).to(out))
                (loss / world if bug == "divided_twice" else loss).backward()
            if bug != "update_on_one_rank" or rank == 0:
                optimizer.step()
            if bug == "halved_on_rank_0" and batch == 1 and rank == 0:
                net[0].weight.data.mul_(0.5)
        if options.checkpoint and rank == 0:
            torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, options.checkpoint)
    if rank == 0:
        print(f"loss {float(loss):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
