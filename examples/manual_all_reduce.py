"""Data-parallel training by hand: each rank takes its slice of the samples, gradients are summed by
all_reduce and divided. --bug plants one classic mistake."""
import argparse

import torch
import torch.distributed as dist
from torch import nn

BUGS = ("not_divided", "divided_twice", "bias_forgotten", "reduced_too_late", "own_seeds", "clipped_too_early",
        "uneven_shards", "same_samples", "summed_loss", "loaded_on_rank_0", "update_on_one_rank",
        "momentum_on_rank_0", "flat_clipped_too_early", "not_waited", "last_not_waited")


def average(model, world, bug):
    for name, param in model.named_parameters():
        if bug == "bias_forgotten" and name.endswith("bias"):
            continue
        dist.all_reduce(param.grad)
        if bug != "not_divided":
            param.grad /= world * (world if bug == "divided_twice" else 1)


def average_while_waiting(model, world, bug):
    """All sums are under way at a time. Sums are a factor too large until they are divided."""
    works = []
    for param in model.parameters():
        param.grad /= world
        works.append(dist.all_reduce(param.grad, async_op=True))
    for work in works[:{"not_waited": 0, "last_not_waited": -1}.get(bug)]:
        work.wait()


def average_at_once(model, world):
    grads = [param.grad for param in model.parameters()]
    flat = torch.cat([grad.flatten() for grad in grads])
    dist.all_reduce(flat)
    for grad, part in zip(grads, (flat / world).split([grad.numel() for grad in grads])):
        grad.copy_(part.view_as(grad))


def slice_of(samples, rank, world, bug):
    if bug == "same_samples":
        return samples[:len(samples) // world]
    if bug == "uneven_shards" and world > 1:
        return samples[:6] if rank == 0 else samples[6 + rank - 1::world - 1]
    return samples[rank::world]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bug", choices=BUGS)
    bug = parser.parse_args().bug
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank if bug == "own_seeds" else 0)
    model = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 3))
    torch.manual_seed(1)
    x, y = torch.randn(24, 8), torch.randn(24, 3)
    if bug == "loaded_on_rank_0" and rank == 0:
        model.load_state_dict({name: 0.5 * value for name, value in model.state_dict().items()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss_of = nn.MSELoss(reduction="sum" if bug == "summed_loss" else "mean")
    for step in range(4):
        if bug == "momentum_on_rank_0" and step == 2 and rank == 0:
            state = optimizer.state_dict()
            optimizer.load_state_dict({**state, "state": {}})
        optimizer.zero_grad()
        loss_of(model(slice_of(x, rank, world, bug)), slice_of(y, rank, world, bug)).backward()
        if bug in ("clipped_too_early", "flat_clipped_too_early"):
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        if bug == "flat_clipped_too_early":
            average_at_once(model, world)
        elif bug in ("not_waited", "last_not_waited"):
            average_while_waiting(model, world, bug)
        elif bug != "reduced_too_late":
            average(model, world, bug)
        if bug not in ("clipped_too_early", "flat_clipped_too_early", "bias_forgotten", "summed_loss", "not_divided",
                       "divided_twice"):
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        if bug != "update_on_one_rank" or rank == 0:
            optimizer.step()
        if bug == "reduced_too_late":
            average(model, world, bug)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
