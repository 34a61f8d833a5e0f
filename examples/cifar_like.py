"""The two-convolution network of many tutorials on small made-up colour images, SGD with momentum and
augmentation that every sample brings along. --bug plants one classic mistake."""
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

BUGS = ("lr_scaled", "summed_loss", "same_samples", "epoch_never_set", "update_on_one_rank", "forward_past_ddp",
        "conv_replaced", "local_batch_norm")


class Images(Dataset):
    def __init__(self, count):
        torch.manual_seed(8)
        self.images = torch.randn(count, 3, 12, 12)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        flipped = self.images[index].flip(2) if index % 3 == 0 else self.images[index]
        return flipped, index % 5


def network(bug):
    norm = nn.BatchNorm2d(4) if bug == "local_batch_norm" else nn.Identity()
    return nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3), nn.ReLU(),
                         nn.Flatten(), nn.Linear(54, 12), nn.ReLU(), nn.Linear(12, 5))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bug", choices=BUGS)
    bug = parser.parse_args().bug
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = Images(32)
    sampler = None if bug == "same_samples" else DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    net = network(bug)
    model = DistributedDataParallel(net)
    if bug == "conv_replaced":
        net[0].weight = nn.Parameter(net[0].weight.detach().clone())
    rate = 0.01 * (world if bug == "lr_scaled" else 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    loss_of = nn.CrossEntropyLoss(reduction="sum" if bug == "summed_loss" else "mean")
    for epoch in range(2):
        if sampler is not None and bug != "epoch_never_set":
            sampler.set_epoch(epoch)
        for batch, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            forward = net if bug == "forward_past_ddp" and epoch == 0 and batch == 1 else model
            loss_of(forward(x), y).backward()
            if bug != "update_on_one_rank" or rank == 0:
                optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
