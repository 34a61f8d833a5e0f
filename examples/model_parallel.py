"""A model whose halves lie on two devices, trained by several ranks. Without GPUs both devices are the
CPU. --bug plants one classic mistake."""
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

BUGS = ("summed_loss", "lr_scaled", "second_half_outside", "head_past_ddp", "same_samples")


class TwoDevices(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second
        self.front = nn.Sequential(nn.Linear(10, 16), nn.ReLU()).to(first)
        self.back = nn.Linear(16, 5).to(second)

    def forward(self, x):
        return self.back(self.front(x.to(self.first)).to(self.second))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bug", choices=BUGS)
    bug = parser.parse_args().bug
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    torch.manual_seed(0)
    x, y = torch.randn(60, 10), torch.randn(60, 5)
    data = TensorDataset(x, y)
    sampler = None if bug == "same_samples" else DistributedSampler(data)
    loader = DataLoader(data, batch_size=5, sampler=sampler)
    net = TwoDevices("cpu", "cpu")
    outside = bug == "second_half_outside"
    front = DistributedDataParallel(net.front if outside else net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1 * (world if bug == "lr_scaled" else 1))
    loss_of = nn.MSELoss(reduction="sum" if bug == "summed_loss" else "mean")
    for batch, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        if outside:
            out = net.back(front(x))
        elif bug == "head_past_ddp" and batch == 1:
            out = net.back(net.front(x))
        else:
            out = front(x)
        loss_of(out, y).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
