"""A correct training whose shape the options draw; correct_runs.py runs many of them."""
import argparse
import contextlib
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

OPTIMIZERS = {"sgd": lambda params: torch.optim.SGD(params, lr=0.05),
              "momentum": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=1e-3),
              "adam": lambda params: torch.optim.Adam(params, lr=0.01),
              "adamw": lambda params: torch.optim.AdamW(params, lr=0.01)}
ACTIVATIONS = (nn.ReLU, nn.Tanh, nn.GELU, nn.Sigmoid)


class Drawn:
    """All that is random, alike on every rank and on one device."""

    def __init__(self, seed):
        draw = random.Random(seed)
        self.sizes = [draw.randint(1, 24) for _ in range(draw.randint(2, 5))]
        self.activation = draw.choice(ACTIVATIONS)
        self.norm, self.dropout = draw.random() < 0.3, draw.random() < 0.3
        self.samples, self.batch = draw.randint(60, 200), draw.randint(1, 9)
        self.drop_last, self.sampler_drops = draw.random() < 0.5, draw.random() < 0.5
        self.shuffle, self.unused = draw.random() < 0.8, draw.random() < 0.3
        self.parts, self.clip = draw.choice((1, 1, 2, 3)), draw.random() < 0.3
        self.optimizer = draw.choice(sorted(OPTIMIZERS))
        self.by_hand, self.classes = draw.random() < 0.25, draw.random() < 0.5
        self.schedule, self.sets_to_none = draw.random() < 0.3, draw.random() < 0.5
        self.epochs = draw.randint(1, 2)


class Net(nn.Module):
    def __init__(self, drawn):
        super().__init__()
        layers = []
        for width, after in zip(drawn.sizes, drawn.sizes[1:]):
            layers += [nn.Linear(width, after), nn.LayerNorm(after) if drawn.norm else nn.Identity(),
                       drawn.activation(), nn.Dropout(0.2 if drawn.dropout else 0)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(drawn.sizes[-1], 3)
        self.never = nn.Linear(2, 2) if drawn.unused and not drawn.by_hand else None

    def forward(self, x):
        return self.head(self.body(x))


def train(drawn, model, loader, sampler, optimizer):
    world = dist.get_world_size()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5) if drawn.schedule else None
    loss_of = nn.CrossEntropyLoss() if drawn.classes else nn.MSELoss()
    for epoch in range(drawn.epochs):
        sampler.set_epoch(epoch)
        for number, (x, y, target) in enumerate(loader):
            ends = number % drawn.parts == drawn.parts - 1
            waits = not ends and not drawn.by_hand
            with model.no_sync() if waits else contextlib.nullcontext():
                (loss_of(model(x), target if drawn.classes else y) / drawn.parts).backward()
            if not ends:
                continue
            if drawn.by_hand:
                for param in model.parameters():
                    dist.all_reduce(param.grad)
                    param.grad /= world
            if drawn.clip:
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad(set_to_none=drawn.sets_to_none)
        if scheduler:
            scheduler.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    seed = parser.parse_args().seed
    drawn = Drawn(seed)
    dist.init_process_group("gloo")
    torch.manual_seed(seed)
    data = TensorDataset(torch.randn(drawn.samples, drawn.sizes[0]), torch.randn(drawn.samples, 3),
                         torch.arange(drawn.samples) % 3)
    net = Net(drawn)
    sampler = DistributedSampler(data, shuffle=drawn.shuffle, drop_last=drawn.sampler_drops)
    loader = DataLoader(data, batch_size=drawn.batch, sampler=sampler, drop_last=drawn.drop_last)
    model = net if drawn.by_hand else DistributedDataParallel(net, find_unused_parameters=net.never is not None)
    train(drawn, model, loader, sampler, OPTIMIZERS[drawn.optimizer](net.parameters()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
