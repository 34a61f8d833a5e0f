"""Linear(10, 10), 20 samples split by hand among the ranks, one step; rank 0 prints the weights. On 4
ranks they are, to 4 decimals, those of one device. --bug plants one classic mistake."""
import argparse

import torch
import torch.distributed as dist
from torch import nn

BUGS = ("not_divided", "divided_twice", "summed_loss", "own_seeds", "same_samples")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bug", choices=BUGS)
    bug = parser.parse_args().bug
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(123 + (rank if bug == "own_seeds" else 0))
    inputs, labels = torch.randn(20, 10), torch.randn(20, 10)
    model = nn.Linear(10, 10)
    first, each = (0 if bug == "same_samples" else rank) * (20 // world), 20 // world
    optimizer = torch.optim.SGD(model.parameters(), lr=1)
    loss_of = nn.MSELoss(reduction="sum" if bug == "summed_loss" else "mean")
    loss_of(model(inputs[first:first + each]), labels[first:first + each]).backward()
    for param in model.parameters():
        dist.all_reduce(param.grad)
        if bug != "not_divided":
            param.grad /= world * (world if bug == "divided_twice" else 1)
    optimizer.step()
    if rank == 0:
        print(" ".join(f"{value:.4f}" for value in model.weight.flatten().tolist()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
