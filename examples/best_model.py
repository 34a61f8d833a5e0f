"""Keeps the best model of each epoch, stops in the middle of an epoch, and resumes from its checkpoint.
--bug plants one classic mistake."""
import argparse
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

BUGS = ("loader_state_lost", "optimizer_on_rank_0", "model_on_rank_0", "epoch_never_set", "lr_scaled")
STOP = 3  # batches of the second epoch before the program is stopped


class Training:
    def __init__(self, bug):
        torch.manual_seed(7)
        x = torch.randn(48, 6)
        self.bug, self.data = bug, TensorDataset(x, x.cos())
        self.sampler = DistributedSampler(self.data)
        self.loader = DataLoader(self.data, batch_size=4, sampler=self.sampler)
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 6)))
        scale = dist.get_world_size() if bug == "lr_scaled" else 1
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1 * scale, momentum=0.9)

    def epoch(self, number, begin=0, end=None):
        if self.bug != "epoch_never_set":
            self.sampler.set_epoch(number)
        total = torch.zeros(1)
        for batch, (x, y) in enumerate(self.loader):
            if batch == end:
                break
            if batch < begin:
                continue
            self.optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        return float(total)

    def save(self, path, **where):
        state = {"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict(), **where}
        if dist.get_rank() == 0:
            torch.save(state, path)
        dist.barrier()

    def load(self, path):
        state = torch.load(path)
        if self.bug != "model_on_rank_0" or dist.get_rank() == 0:
            self.model.module.load_state_dict(state["model"])
        if self.bug != "optimizer_on_rank_0" or dist.get_rank() == 0:
            self.optimizer.load_state_dict(state["optimizer"])
        return state


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bug", choices=BUGS)
    bug = parser.parse_args().bug
    dist.init_process_group("gloo")
    path = [os.path.join(tempfile.gettempdir(), f"best-model-{os.getpid()}")]
    dist.broadcast_object_list(path)
    training = Training(bug)
    best = training.epoch(0)
    training.save(path[0], epoch=1, batch=0, best=best)
    training.epoch(1, end=STOP)
    training.save(path[0], epoch=1, batch=STOP, best=best)

    training = Training(bug)
    state = training.load(path[0])
    training.epoch(state["epoch"], begin=0 if bug == "loader_state_lost" else state["batch"])
    dist.barrier()
    if dist.get_rank() == 0:
        os.remove(path[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
