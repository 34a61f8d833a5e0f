"""A convolutional classifier of small made-up images: DistributedSampler, accumulation of gradients,
evaluation on every rank. --bug plants one classic mistake."""
import argparse
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

BUGS = ("same_samples", "epoch_never_set", "no_sync_at_step", "summed_loss", "accumulation_divided", "padded_samples",
        "lr_scaled", "divided_twice", "clipped_every_part")
PARTS = 3  # micro-batches of a step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.head = nn.Linear(4 * 3 * 3, 4)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv(x)), 2)
        return functional.log_softmax(self.head(functional.dropout(x.flatten(1), 0.1, self.training)), 1)


def images(count):
    torch.manual_seed(5)
    labels = torch.arange(count) % 4
    return TensorDataset(torch.randn(count, 1, 8, 8) + labels.view(-1, 1, 1, 1), labels)


def loss_of(out, y, bug, world):
    loss = functional.nll_loss(out, y, reduction="sum" if bug == "summed_loss" else "mean")
    if bug == "accumulation_divided" and world > 1:  # "DDP averages already"
        return loss
    return loss / PARTS / (world if bug == "divided_twice" else 1)


def train(model, loader, optimizer, bug, world):
    model.train()
    for batch, (x, y) in enumerate(loader):
        ends = batch % PARTS == PARTS - 1
        waits = not ends or (bug == "no_sync_at_step" and batch == 2 * PARTS - 1)
        with model.no_sync() if waits else contextlib.nullcontext():
            loss_of(model(x), y, bug, world).backward()
        if ends or bug == "clipped_every_part":
            nn.utils.clip_grad_norm_(model.parameters(), 0.02 if bug == "clipped_every_part" else 1e6)
        if ends:
            optimizer.step()
            optimizer.zero_grad()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bug", choices=BUGS)
    bug = parser.parse_args().bug
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    data = images(71 if bug == "padded_samples" else 72)
    sampler = None if bug == "same_samples" else DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * (world if bug == "lr_scaled" else 1))
    for epoch in range(2):
        if sampler is not None and bug != "epoch_never_set":
            sampler.set_epoch(epoch)
        train(model, loader, optimizer, bug, world)
        model.eval()
        with torch.no_grad():
            correct = sum(int((model(x).argmax(1) == y).sum()) for x, y in DataLoader(data, 24))
    if dist.get_rank() == 0:
        print(f"{correct} of {len(data)} right")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
